//! Short commands of one in-order queue counted together: only the last of a group gets an event and a callback, since
//! its end is the end of all. That is what keeps the gate cheap.

use std::sync::{Mutex, PoisonError};

use tenure_limits::now_ns;

/// A group is closed when it has this many commands, or this much work by estimate, or this age.
const MOST: u32 = 64;
const MOST_NS: u64 = 500_000;

/// Commands counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub commands: u32,
    pub estimate_ns: u64,
    since_ns: u64,
}

impl Group {
    /// The group with one more command behind it.
    pub fn and(self, estimate_ns: u64) -> Group {
        Group {
            commands: self.commands + 1,
            estimate_ns: self.estimate_ns + estimate_ns,
            ..self
        }
    }
}

#[derive(Default)]
pub struct Batch(Mutex<Group>);

/// What to do with a command just counted.
pub enum Counted {
    /// The first of a group: the device is occupied from now on.
    First,
    More,
    /// The group is full; this command ends it and must be watched.
    Full(Group),
}

impl Batch {
    /// Counts a short command.
    pub fn add(&self, estimate_ns: u64) -> Counted {
        let now = now_ns();
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = group.commands == 0;
        if first {
            group.since_ns = now;
        }
        group.commands += 1;
        group.estimate_ns += estimate_ns;
        let old = now.saturating_sub(group.since_ns) >= MOST_NS;
        if !first && (group.commands >= MOST || group.estimate_ns >= MOST_NS || old) {
            return Counted::Full(std::mem::take(&mut group));
        }
        if first { Counted::First } else { Counted::More }
    }

    /// Takes the open group, if there is one.
    pub fn take(&self) -> Option<Group> {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (group.commands > 0).then(|| std::mem::take(&mut *group))
    }

    /// Takes the open group if it has been open for `age_ns`.
    pub fn take_old(&self, age_ns: u64) -> Option<Group> {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = group.commands > 0 && now_ns().saturating_sub(group.since_ns) >= age_ns;
        old.then(|| std::mem::take(&mut *group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_opens_fills_and_closes() {
        let batch = Batch::default();
        assert!(matches!(batch.add(10), Counted::First));
        let mut more = 0;
        let full = loop {
            match batch.add(10) {
                Counted::More => more += 1,
                Counted::Full(group) => break group,
                Counted::First => panic!("the group was open"),
            }
        };
        assert_eq!(full.commands, more + 2);
        assert_eq!(full.estimate_ns, 10 * u64::from(full.commands));
        assert_eq!(batch.take(), None);
        assert!(matches!(batch.add(MOST_NS), Counted::First));
        assert!(batch.take_old(1 << 40).is_none());
        assert_eq!(batch.take().unwrap().commands, 1);
    }
}
