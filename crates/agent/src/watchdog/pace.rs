//! How far a process can have come: the time since it was first looked at, without what its threads spent waiting for a
//! processor or a disk. On a crowded machine that is far less than the clock says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The own time of one process, followed by looks.
#[derive(Debug)]
pub struct Pace {
    last: Instant,
    own: Duration,
    threads: BTreeMap<i32, Account>,
}

/// What the kernel says of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    ran: Duration,
    /// Ready to run and not let; what goes on now is not in it yet.
    waited: Duration,
    /// Running, waiting for a processor, or waiting for a disk.
    busy: bool,
}

impl Pace {
    pub fn begin(root: &Path, pid: i32, now: Instant) -> Pace {
        Pace {
            last: now,
            own: Duration::ZERO,
            threads: accounts(root, pid),
        }
    }

    /// Looks again.
    pub fn look(&mut self, root: &Path, pid: i32, now: Instant) {
        let threads = accounts(root, pid);
        let passed = now.duration_since(self.last);
        let waited = threads
            .iter()
            .map(|(id, account)| account.waited_since(self.threads.get(id), passed))
            .max()
            .unwrap_or_default();
        self.own += passed.saturating_sub(waited);
        (self.last, self.threads) = (now, threads);
    }

    pub fn own(&self) -> Duration {
        self.own
    }
}

impl Account {
    fn waited_since(&self, before: Option<&Account>, passed: Duration) -> Duration {
        let Some(before) = before else {
            return Duration::ZERO;
        };
        if self.busy {
            passed.saturating_sub(self.ran.saturating_sub(before.ran))
        } else {
            self.waited.saturating_sub(before.waited).min(passed)
        }
    }
}

fn accounts(root: &Path, pid: i32) -> BTreeMap<i32, Account> {
    let threads = fs::read_dir(root.join(format!("proc/{pid}/task")));
    threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| {
            let id = thread.file_name().to_str()?.parse().ok()?;
            Some((id, account(&thread.path())?))
        })
        .collect()
}

/// None where the thread has ended, or the kernel keeps no such account.
fn account(thread: &Path) -> Option<Account> {
    let times = fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut times = times.split_whitespace().map(str::parse);
    let (ran, waited) = (times.next()?.ok()?, times.next()?.ok()?);
    let facts = fs::read_to_string(thread.join("stat")).ok()?;
    // The name before it may hold anything.
    let state = facts.rsplit_once(')')?.1.trim_start().chars().next()?;
    Some(Account {
        ran: Duration::from_nanos(ran),
        waited: Duration::from_nanos(waited),
        busy: matches!(state, 'R' | 'D'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(root: &Path, id: i32, ran_ms: u64, waited_ms: u64, state: char) {
        let dir = root.join(format!("proc/7/task/{id}"));
        fs::create_dir_all(&dir).unwrap();
        let times = format!("{} {} 9\n", ran_ms * 1_000_000, waited_ms * 1_000_000);
        fs::write(dir.join("schedstat"), times).unwrap();
        fs::write(dir.join("stat"), format!("{id} (a) R (b) {state} 1 1\n")).unwrap();
    }

    #[test]
    fn waiting_is_not_counted() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        thread(root, 7, 10, 0, 'R');
        let mut pace = Pace::begin(root, 7, begun);
        // Asleep: it could have gone on.
        thread(root, 7, 10, 0, 'S');
        pace.look(root, 7, at(100));
        assert_eq!(pace.own().as_millis(), 100);
        // Ran, and waited before that.
        thread(root, 7, 30, 60, 'S');
        pace.look(root, 7, at(200));
        assert_eq!(pace.own().as_millis(), 140);
        // Waits all the while, which its account does not say yet.
        thread(root, 7, 35, 60, 'R');
        pace.look(root, 7, at(1200));
        assert_eq!(pace.own().as_millis(), 145);
        // Another thread, that sleeps, makes it no faster.
        thread(root, 8, 0, 0, 'S');
        thread(root, 7, 35, 60, 'D');
        pace.look(root, 7, at(1300));
        assert_eq!(pace.own().as_millis(), 145);
        // Nobody keeps an account: all of it counts.
        fs::remove_dir_all(root.join("proc")).unwrap();
        pace.look(root, 7, at(1400));
        assert_eq!(pace.own().as_millis(), 245);
    }
}
