//! Looking at the processes of one allocation in turns: to look costs time, how much is the job's to say, and a node has
//! all its jobs to look at.
//!
//! Deliberately absent: what is looked at (`past`, `fdinfo`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time for looking, of the processor's and, a multiple of it, by the clock: a machine that is busy with others takes
/// nothing from it, and a process that is slow to be seen does.
pub struct Budget {
    until: Duration,
    latest: Instant,
}

const BY_THE_CLOCK: u32 = 4;

impl Budget {
    pub fn new(time: Duration) -> Budget {
        Budget {
            until: own_time() + time,
            latest: Instant::now() + time * BY_THE_CLOCK,
        }
    }

    fn is_spent(&self) -> bool {
        own_time() >= self.until || Instant::now() >= self.latest
    }
}

/// What this thread has had of a processor.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The processes, and what was last seen of each.
#[derive(Debug)]
pub struct Round<T> {
    /// How often it was gone round.
    rounds: u64,
    known: BTreeMap<i32, Seen<T>>,
}

#[derive(Debug)]
struct Seen<T> {
    /// The round in which it was last looked at, or first heard of.
    round: u64,
    /// None until it is looked at.
    seen: Option<T>,
}

impl<T> Default for Round<T> {
    fn default() -> Self {
        Round {
            rounds: 0,
            known: BTreeMap::new(),
        }
    }
}

impl<T> Round<T> {
    /// Looks at those there are now, as far as the budget goes, and at one in any case: first at those of which something
    /// was seen that is `urgent`, then at those never looked at, then at those not looked at for longest.
    pub fn go(
        &mut self,
        processes: &[i32],
        budget: &Budget,
        urgent: impl Fn(&T) -> bool,
        mut look: impl FnMut(i32) -> T,
    ) {
        self.rounds += 1;
        let round = self.rounds;
        let here: BTreeSet<i32> = processes.iter().copied().collect();
        self.known.retain(|pid, _| here.contains(pid));
        for &pid in &here {
            self.known.entry(pid).or_insert(Seen { round, seen: None });
        }
        let mut order: Vec<((bool, bool, u64), i32)> = self
            .known
            .iter()
            .map(|(&pid, known)| {
                let urgent = known.seen.as_ref().is_some_and(&urgent);
                ((!urgent, known.seen.is_some(), known.round), pid)
            })
            .collect();
        order.sort_unstable();
        for (_, pid) in order {
            let seen = Some(look(pid));
            self.known.insert(pid, Seen { round, seen });
            if budget.is_spent() {
                return;
            }
        }
    }

    /// What was last seen of each that was looked at.
    pub fn seen(&self) -> impl Iterator<Item = (i32, &T)> {
        let all = self.known.iter();
        all.filter_map(|(&pid, known)| Some((pid, known.seen.as_ref()?)))
    }

    /// For how many rounds some process was not looked at. Rounds and not time: a node that stood still saw nothing either.
    pub fn unseen(&self) -> u64 {
        let oldest = self.known.values().map(|known| known.round).min();
        oldest.map_or(0, |oldest| self.rounds - oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round in which there is time for one process only; which it was.
    fn one(round: &mut Round<bool>, processes: &[i32], urgent: &[i32]) -> i32 {
        let mut looked = Vec::new();
        round.go(
            processes,
            &Budget::new(Duration::ZERO),
            |&urgent| urgent,
            |pid| {
                looked.push(pid);
                urgent.contains(&pid)
            },
        );
        assert_eq!(looked.len(), 1);
        looked[0]
    }

    #[test]
    fn each_has_its_turn_and_who_is_suspect_has_every() {
        let mut round = Round::default();
        let all = [3, 1, 2];
        let turns: Vec<i32> = (0..7).map(|_| one(&mut round, &all, &[])).collect();
        assert_eq!(turns, [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(round.unseen(), 2);
        assert_eq!(one(&mut round, &[1, 2, 3, 4], &[]), 4, "what was never looked at");
        assert_eq!(one(&mut round, &all, &[2]), 2);
        for _ in 0..10 {
            assert_eq!(one(&mut round, &all, &[2]), 2);
        }
        assert_eq!(round.seen().count(), 3);
        assert!(round.unseen() > 10, "that the others are not looked at is known");
        let unhurried = Budget::new(Duration::from_secs(3600));
        round.go(&all, &unhurried, |_| true, |_| false);
        assert_eq!(round.unseen(), 0);
    }
}
