//! The last reading of each device, and a few minutes of its past. In memory of the leader alone, never journalled: a
//! new leader knows nothing until the nodes speak, which is two seconds.
//!
//! Bounded: a device takes 360 bytes of past, about 400 for its last reading, and 90 for each slice; 100,000 GPUs of
//! four slices are some 110 MB. What is not heard of any more is dropped.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tenure_api::channel::reading::DeviceReading;
use tenure_api::v1::gpu::Recent;
use tenure_domain::Time;
use tenure_domain::id::NodeId;
use tenure_engine::Measured;

use crate::controller::now;

/// An older reading says nothing of now.
const STALE: Duration = Duration::from_secs(10);
/// A device not read for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
const SWEEP: Duration = Duration::from_secs(60);
/// Steps of the past: five minutes.
const STEPS: usize = 60;
const STEP_MS: i64 = 5000;

/// What was last read of all devices.
#[derive(Default)]
pub struct Readings(RwLock<HashMap<NodeId, HashMap<String, Kept>>>);

struct Kept {
    at: Time,
    taken: Instant,
    reading: DeviceReading,
    past: Past,
}

/// A device's last reading, as it is shown.
#[derive(Debug, Clone)]
pub struct Last {
    pub at: Time,
    pub stale: bool,
    pub reading: DeviceReading,
}

impl Readings {
    /// Takes readings in until their source ends.
    pub async fn keep(&self, mut measured: tokio::sync::mpsc::Receiver<Measured>) {
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                next = measured.recv() => match next {
                    Some(measured) => self.take(measured, now()),
                    None => return,
                },
                _ = sweep.tick() => self.forget(Instant::now()),
            }
        }
    }

    /// Takes in what a node measured.
    pub fn take(&self, measured: Measured, at: Time) {
        let mut nodes = self.write();
        let devices = nodes.entry(measured.node).or_default();
        for reading in measured.devices {
            let kept = devices.entry(reading.uuid.clone()).or_insert_with(|| Kept {
                at,
                taken: Instant::now(),
                reading: DeviceReading::default(),
                past: Past::new(at),
            });
            kept.past.add(at, &reading);
            (kept.at, kept.taken, kept.reading) = (at, Instant::now(), reading);
        }
    }

    fn forget(&self, now: Instant) {
        let mut nodes = self.write();
        nodes.retain(|_, devices| {
            devices.retain(|_, kept| now.duration_since(kept.taken) < FORGOTTEN);
            !devices.is_empty()
        });
    }

    /// A device's last reading.
    pub fn last(&self, node: NodeId, uuid: &str) -> Option<Last> {
        let nodes = self.read();
        let kept = nodes.get(&node)?.get(uuid)?;
        Some(Last {
            at: kept.at,
            stale: kept.taken.elapsed() > STALE,
            reading: kept.reading.clone(),
        })
    }

    /// A device's last minutes up to `now`.
    pub fn recent(&self, node: NodeId, uuid: &str, now: Time) -> Option<Recent> {
        let nodes = self.read();
        Some(nodes.get(&node)?.get(uuid)?.past.recent(now))
    }

    /// All of them, to look at many; nothing is taken in meanwhile.
    pub fn held(&self) -> Held<'_> {
        Held(self.read())
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<NodeId, HashMap<String, Kept>>> {
        self.0.read().expect("short and without panics")
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<NodeId, HashMap<String, Kept>>> {
        self.0.write().expect("short and without panics")
    }
}

/// All last readings, held still.
pub struct Held<'a>(RwLockReadGuard<'a, HashMap<NodeId, HashMap<String, Kept>>>);

impl Held<'_> {
    /// A device's last reading, if it says something of now.
    pub fn fresh(&self, node: NodeId, uuid: &str) -> Option<&DeviceReading> {
        let kept = self.0.get(&node)?.get(uuid)?;
        (kept.taken.elapsed() <= STALE).then_some(&kept.reading)
    }
}

/// A ring of steps; each holds the last reading that fell into it.
struct Past {
    /// The number of the newest step since 1970.
    newest: i64,
    busy_permille: [u16; STEPS],
    used_vram_mib: [u32; STEPS],
}

const NO_SHARE: u16 = u16::MAX;
const NO_MIB: u32 = u32::MAX;

impl Past {
    fn new(at: Time) -> Past {
        Past {
            newest: at.0.div_euclid(STEP_MS),
            busy_permille: [NO_SHARE; STEPS],
            used_vram_mib: [NO_MIB; STEPS],
        }
    }

    fn place(step: i64) -> usize {
        step.rem_euclid(STEPS as i64) as usize
    }

    fn add(&mut self, at: Time, reading: &DeviceReading) {
        let step = at.0.div_euclid(STEP_MS);
        // A clock set back writes over the newest until it has caught up.
        let gap = (step - self.newest).clamp(0, STEPS as i64);
        for empty in 1..=gap {
            let place = Past::place(self.newest.max(step - STEPS as i64) + empty);
            (self.busy_permille[place], self.used_vram_mib[place]) = (NO_SHARE, NO_MIB);
        }
        self.newest = self.newest.max(step);
        let place = Past::place(self.newest);
        self.busy_permille[place] = reading.gauges.busy_permille.unwrap_or(NO_SHARE);
        self.used_vram_mib[place] = reading
            .gauges
            .used_vram_mib
            .map_or(NO_MIB, |mib| u32::try_from(mib).unwrap_or(NO_MIB - 1));
    }

    fn recent(&self, now: Time) -> Recent {
        let last = now.0.div_euclid(STEP_MS);
        let steps = || {
            (last - STEPS as i64 + 1..=last).map(|step| {
                let held = step <= self.newest && step > self.newest - STEPS as i64;
                held.then(|| Past::place(step))
            })
        };
        let busy = |place: Option<usize>| {
            place
                .map(|at| self.busy_permille[at])
                .filter(|&it| it != NO_SHARE)
        };
        let used = |place: Option<usize>| place.map(|at| self.used_vram_mib[at]).filter(|&it| it != NO_MIB);
        Recent {
            step_s: (STEP_MS / 1000) as u32,
            busy_permille: steps().map(busy).collect(),
            used_vram_mib: steps().map(used).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_api::channel::reading::Gauges;

    fn measured(busy: u16) -> Measured {
        let gauges = Gauges {
            busy_permille: Some(busy),
            used_vram_mib: (busy > 0).then_some(u64::from(busy) * 2),
            ..Gauges::default()
        };
        Measured {
            node: NodeId(1),
            devices: vec![DeviceReading {
                uuid: "g".into(),
                gauges,
                ..DeviceReading::default()
            }],
        }
    }

    fn busy(readings: &Readings, at_s: i64) -> Vec<Option<u16>> {
        readings
            .recent(NodeId(1), "g", Time(at_s * 1000))
            .unwrap()
            .busy_permille
    }

    #[test]
    fn the_past_is_a_ring_of_steps_with_holes_where_nothing_came() {
        let readings = Readings::default();
        let base = 1_800_000_000;
        for second in [0, 2, 4, 6, 15] {
            readings.take(measured(second), Time((base + i64::from(second)) * 1000));
        }
        let now = busy(&readings, base + 15);
        assert_eq!(now.len(), STEPS);
        assert_eq!(
            &now[STEPS - 5..],
            &[None, Some(4), Some(6), None, Some(15)],
            "the last of each five seconds"
        );
        let later = busy(&readings, base + 25);
        assert_eq!(&later[STEPS - 5..], &[Some(6), None, Some(15), None, None]);
        // After an hour's silence nothing of before is left.
        readings.take(measured(99), Time((base + 3600) * 1000));
        let after: Vec<u16> = busy(&readings, base + 3600).into_iter().flatten().collect();
        assert_eq!(after, [99]);
        let recent = readings
            .recent(NodeId(1), "g", Time((base + 3600) * 1000))
            .unwrap();
        assert_eq!(recent.used_vram_mib.last(), Some(&Some(198)));
    }

    #[test]
    fn a_full_turn_keeps_five_minutes() {
        let readings = Readings::default();
        for step in 0..200_u16 {
            readings.take(measured(step), Time(i64::from(step) * STEP_MS));
        }
        let all: Vec<u16> = readings
            .recent(NodeId(1), "g", Time(199 * STEP_MS))
            .unwrap()
            .busy_permille
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(all, (140..200).collect::<Vec<_>>());
        // A clock set back does no harm.
        readings.take(measured(7), Time(0));
        assert_eq!(
            readings
                .last(NodeId(1), "g")
                .unwrap()
                .reading
                .gauges
                .busy_permille,
            Some(7)
        );
    }

    #[test]
    fn what_is_silent_turns_stale_and_is_forgotten() {
        let readings = Readings::default();
        readings.take(measured(1), Time(0));
        assert!(!readings.last(NodeId(1), "g").unwrap().stale);
        let set_back = |by: Duration| {
            let mut nodes = readings.write();
            let kept = nodes.get_mut(&NodeId(1)).unwrap().get_mut("g").unwrap();
            kept.taken = Instant::now().checked_sub(by).unwrap();
        };
        set_back(STALE + Duration::from_secs(1));
        assert!(readings.last(NodeId(1), "g").unwrap().stale);
        readings.forget(Instant::now());
        assert!(readings.last(NodeId(1), "g").is_some());
        readings.forget(Instant::now() + FORGOTTEN);
        assert!(readings.last(NodeId(1), "g").is_none() && readings.read().is_empty());
    }
}
