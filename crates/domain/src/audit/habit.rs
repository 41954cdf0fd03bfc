//! Habits: what a workload usually does, kept small so that a change of pattern can be told from its own past.
//!
//! A workload is what one user runs again and again: the same name, program and first argument, whatever the numbers
//! in them. Of each the last runs are kept as a few logarithms, and the kernels it launched as parts of their hashes.
//! Integers only: the fold gives the same habits everywhere. Deliberately absent: judging (`anomaly`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::conduct::Conduct;
use crate::id::UserId;
use crate::time::Time;
use crate::workload::spec::JobSpec;

/// Runs remembered of one workload.
pub const RUNS: usize = 24;
/// Kernels remembered of one workload.
const KERNELS: usize = 64;
/// Workloads remembered of one user, and of all.
const PER_OWNER: usize = 64;
const IN_ALL: usize = 10_000;
/// After as many strange runs in a row the new pattern is the pattern.
const STRANGE_MOST: u8 = 3;
/// A run that did less than this says nothing of a pattern: it failed early, or only tried.
const LAUNCHES_LEAST: u64 = 64;
const RAN_LEAST_MS: u64 = 1000;

/// Fractions of an octave that traits are kept in.
pub const OCTAVE: i32 = 256;

/// One run, as logarithms: each doubling is [`OCTAVE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits(pub [i16; Trait::ALL.len()]);

/// What is told of a run. None depends on how long it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trait {
    BusyPerLaunch,
    InPerLaunch,
    OutPerLaunch,
    OutPerSecond,
    LaunchesPerSecond,
    PeakBytes,
}

impl Trait {
    pub const ALL: [Trait; 6] = [
        Trait::BusyPerLaunch,
        Trait::InPerLaunch,
        Trait::OutPerLaunch,
        Trait::OutPerSecond,
        Trait::LaunchesPerSecond,
        Trait::PeakBytes,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Trait::BusyPerLaunch => "device time per launch",
            Trait::InPerLaunch => "bytes in per launch",
            Trait::OutPerLaunch => "bytes out per launch",
            Trait::OutPerSecond => "bytes out per second",
            Trait::LaunchesPerSecond => "launches per second",
            Trait::PeakBytes => "device memory",
        }
    }
}

impl Traits {
    /// None where the run did too little to say anything.
    pub fn of(conduct: &Conduct) -> Option<Traits> {
        if conduct.launches < LAUNCHES_LEAST || conduct.ran_ms < RAN_LEAST_MS {
            return None;
        }
        // What is added keeps a few bytes or microseconds more or less from being many octaves.
        let launches = log2(conduct.launches);
        let seconds = log2(conduct.ran_ms) - log2(1000);
        let one = |of: Trait| match of {
            Trait::BusyPerLaunch => {
                log2(conduct.busy_ms.saturating_mul(1000).saturating_add(1000)) - launches
            }
            Trait::InPerLaunch => log2(conduct.bytes_in.saturating_add(1 << 16)) - launches,
            Trait::OutPerLaunch => log2(conduct.bytes_out.saturating_add(1 << 16)) - launches,
            Trait::OutPerSecond => log2(conduct.bytes_out.saturating_add(1 << 20)) - seconds,
            Trait::LaunchesPerSecond => launches - seconds,
            Trait::PeakBytes => log2(conduct.peak_bytes.saturating_add(16 << 20)),
        };
        // INVARIANT: a logarithm of 64 bits, and a difference of two or three, fit.
        Some(Traits(Trait::ALL.map(|of| one(of) as i16)))
    }
}

impl Traits {
    pub fn get(&self, of: Trait) -> i32 {
        self.0[of as usize].into()
    }
}

/// The logarithm to base 2 in parts of an octave, straight between powers of two.
pub(super) fn log2(value: u64) -> i32 {
    let value = value.max(1);
    let whole = value.ilog2();
    let mantissa = if whole >= 8 {
        value >> (whole - 8)
    } else {
        value << (8 - whole)
    };
    whole as i32 * OCTAVE + (mantissa & 0xff) as i32
}

/// Which workload a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkloadKey {
    pub owner: UserId,
    /// Of its name and what it executes; nothing of them is kept.
    hash: u64,
}

impl WorkloadKey {
    pub fn of(owner: UserId, spec: &JobSpec) -> WorkloadKey {
        let program = spec.command.first().map(String::as_str).unwrap_or_default();
        let script = spec.command.iter().skip(1).find(|word| !word.starts_with('-'));
        let mut hash = 0xcbf2_9ce4_8422_2325;
        for text in [spec.name.as_str(), program, script.map_or("", String::as_str)] {
            let mut in_number = false;
            // A frame's or a trial's number is not what it is.
            for byte in text.bytes().chain([0]) {
                let is_digit = byte.is_ascii_digit();
                if !(is_digit && in_number) {
                    hash = mix(hash, if is_digit { b'#' } else { byte });
                }
                in_number = is_digit;
            }
        }
        WorkloadKey { owner, hash }
    }
}

/// FNV-1a: whoever makes two of their own workloads collide only mixes up their own.
fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// What a workload did before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Habit {
    /// Oldest first.
    pub runs: Vec<Traits>,
    /// Runs ever taken in.
    pub count: u32,
    /// Parts of hashes, last launched last.
    kernels: Vec<u32>,
    /// Strange runs since the last that was not.
    strange: u8,
    /// When it last ran, and the how-manyth of all runs that was.
    last: Time,
    tick: u64,
}

impl Habit {
    pub fn knows(&self, kernel: u64) -> bool {
        self.kernels.contains(&(kernel as u32))
    }

    fn take_in(&mut self, traits: Traits, conduct: &Conduct) {
        if self.runs.len() == RUNS {
            self.runs.remove(0);
        }
        self.runs.push(traits);
        self.count = self.count.saturating_add(1);
        // The most launched last, so that it is the last to be forgotten.
        for used in conduct.kernels.iter().rev() {
            let part = used.hash.0 as u32;
            self.kernels.retain(|known| *known != part);
            self.kernels.push(part);
        }
        let over = self.kernels.len().saturating_sub(KERNELS);
        self.kernels.drain(..over);
    }
}

/// The habits of all workloads that ran of late.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Rows", into = "Rows")]
pub struct Habits {
    habits: BTreeMap<WorkloadKey, Habit>,
    /// By when each last ran.
    by_tick: BTreeSet<(u64, WorkloadKey)>,
    tick: u64,
}

#[derive(Serialize, Deserialize)]
struct Rows {
    tick: u64,
    rows: Vec<(WorkloadKey, Habit)>,
}

impl From<Rows> for Habits {
    fn from(rows: Rows) -> Habits {
        Habits {
            by_tick: rows.rows.iter().map(|(key, habit)| (habit.tick, *key)).collect(),
            tick: rows.tick,
            habits: rows.rows.into_iter().collect(),
        }
    }
}

impl From<Habits> for Rows {
    fn from(habits: Habits) -> Rows {
        Rows {
            tick: habits.tick,
            rows: habits.habits.into_iter().collect(),
        }
    }
}

impl Habits {
    pub fn get(&self, key: WorkloadKey) -> Option<&Habit> {
        self.habits.get(&key)
    }

    pub fn len(&self) -> usize {
        self.habits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.habits.is_empty()
    }

    /// Takes in one run. A strange one does not become habit, until there were several in a row: then it is all there is.
    pub fn note(&mut self, at: Time, key: WorkloadKey, conduct: &Conduct, strange: bool) {
        let Some(traits) = Traits::of(conduct) else {
            return;
        };
        self.tick += 1;
        if !self.habits.contains_key(&key) {
            self.make_room(key.owner);
        }
        let habit = self.habits.entry(key).or_default();
        self.by_tick.remove(&(habit.tick, key));
        habit.tick = self.tick;
        habit.last = at;
        self.by_tick.insert((habit.tick, key));
        habit.strange = if strange { habit.strange + 1 } else { 0 };
        if habit.strange >= STRANGE_MOST {
            *habit = Habit {
                last: at,
                tick: self.tick,
                ..Habit::default()
            };
        } else if strange {
            return;
        }
        habit.take_in(traits, conduct);
    }

    /// Of one owner the least run leaves first: nobody drives out a long habit by a flood of new names. In all, the
    /// one that ran longest ago.
    fn make_room(&mut self, owner: UserId) {
        let first = WorkloadKey { owner, hash: 0 };
        let last = WorkloadKey {
            owner,
            hash: u64::MAX,
        };
        let mut own = self.habits.range(first..=last);
        if own.clone().count() >= PER_OWNER {
            let newest = own.clone().map(|(_, habit)| habit.last).max().unwrap_or_default();
            let stale = |habit: &Habit| newest.since_ms(habit.last) > STALE_MS;
            let least = own
                .by_ref()
                .min_by_key(|(_, habit)| (!stale(habit), habit.count, habit.tick));
            if let Some(key) = least.map(|(key, _)| *key) {
                self.forget(key);
            }
        }
        if self.habits.len() >= IN_ALL
            && let Some((_, key)) = self.by_tick.first().copied()
        {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: WorkloadKey) {
        if let Some(habit) = self.habits.remove(&key) {
            self.by_tick.remove(&(habit.tick, key));
        }
    }
}

/// A workload not run for this long is the first to be forgotten, however often it ran.
const STALE_MS: u64 = 90 * 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AllocationId, JobId};

    fn conduct(launches: u64) -> Conduct {
        Conduct {
            ran_ms: 60_000,
            launches,
            ..Conduct::new(AllocationId(1), JobId(1))
        }
    }

    fn key(owner: u64, hash: u64) -> WorkloadKey {
        WorkloadKey {
            owner: UserId(owner),
            hash,
        }
    }

    #[test]
    fn logarithms_rise_with_their_values() {
        assert_eq!((log2(0), log2(1), log2(2), log2(1 << 40)), (0, 0, 256, 40 * 256));
        assert_eq!(log2(3), 256 + 128);
        let values: Vec<i32> = (1..5000).map(log2).collect();
        assert!(values.is_sorted());
        assert!(log2(u64::MAX) < 64 * 256);
    }

    #[test]
    fn numbers_in_names_do_not_make_workloads() {
        let spec = |name: &str, command: &[&str]| JobSpec {
            name: name.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..serde_json::from_str(r#"{"name":"a","command":["a"]}"#).unwrap()
        };
        let of = |name: &str, command: &[&str]| WorkloadKey::of(UserId(1), &spec(name, command));
        let first = of("frame-0001", &["blender", "-b", "scene.blend"]);
        assert_eq!(first, of("frame-240", &["blender", "-b", "scene.blend", "7"]));
        assert_ne!(first, of("frame-0001", &["blender", "-b", "other.blend"]));
        assert_ne!(first, of("frames", &["blender", "-b", "scene.blend"]));
    }

    #[test]
    fn memory_is_bounded_and_long_habits_survive_a_flood() {
        let mut habits = Habits::default();
        for run in 0..50 {
            habits.note(Time(run), key(1, 7), &conduct(1000), false);
        }
        for hash in 100..300 {
            habits.note(Time(100), key(1, hash), &conduct(1000), false);
        }
        assert_eq!(habits.len(), PER_OWNER);
        assert_eq!(habits.get(key(1, 7)).unwrap().runs.len(), RUNS);
        for owner in 2..=(IN_ALL as u64 + 10) {
            habits.note(Time(200), key(owner, 1), &conduct(1000), false);
        }
        assert_eq!(habits.len(), IN_ALL);
        assert_eq!(habits.by_tick.len(), IN_ALL);
        let text = serde_json::to_string(&habits).unwrap();
        assert_eq!(serde_json::from_str::<Habits>(&text).unwrap(), habits);
    }

    #[test]
    fn a_strange_run_is_no_habit_until_it_is() {
        let mut habits = Habits::default();
        for run in 0..20 {
            habits.note(Time(run), key(1, 1), &conduct(1000), false);
        }
        let before = habits.get(key(1, 1)).unwrap().runs.clone();
        habits.note(Time(21), key(1, 1), &conduct(1 << 30), true);
        habits.note(Time(22), key(1, 1), &conduct(1 << 30), true);
        assert_eq!(habits.get(key(1, 1)).unwrap().runs, before);
        habits.note(Time(23), key(1, 1), &conduct(1 << 30), true);
        assert_eq!(habits.get(key(1, 1)).unwrap().runs.len(), 1);
        assert_eq!(
            habits.get(key(1, 1)).unwrap().runs,
            vec![Traits::of(&conduct(1 << 30)).unwrap()]
        );
    }
}
