//! Whether pages still say what the agent wrote on them. A guarded job can write to its device's page; here that is
//! seen, by comparing each reading with the limits that were set and with the reading before.
//!
//! A page is shared by all who have a slice of the device, so damage to the whole of it is noted of each of them.
//! Deliberately absent: what becomes of it (`conduct.rs`, and the server).

use std::collections::{BTreeMap, BTreeSet};

use tenure_domain::audit::conduct::Tampering;
use tenure_domain::id::AllocationId;
use tenure_limits::{SliceReading, Snapshot};

/// What the agent knows of one slice.
struct Known {
    limit_bytes: u64,
    weight_per_mille: u32,
    cap_per_mille: Option<u32>,
    kernel_limit_ns: u64,
    /// As last read while the page stood still.
    last: Option<SliceReading>,
}

impl Known {
    fn of(reading: &SliceReading) -> Known {
        Known {
            limit_bytes: reading.limit_bytes,
            weight_per_mille: reading.weight_per_mille,
            cap_per_mille: reading.cap_per_mille,
            kernel_limit_ns: reading.kernel_limit_ns,
            last: Some(reading.clone()),
        }
    }

    fn differs(&self, reading: &SliceReading) -> bool {
        self.limit_bytes != reading.limit_bytes
            || self.weight_per_mille != reading.weight_per_mille
            || self.cap_per_mille != reading.cap_per_mille
            || self.kernel_limit_ns != reading.kernel_limit_ns
    }
}

/// The slices of all pages, by device and allocation.
#[derive(Default)]
pub struct Integrity {
    known: BTreeMap<(String, AllocationId), Known>,
    found: BTreeMap<AllocationId, BTreeSet<Tampering>>,
}

impl Integrity {
    /// The agent has just written these limits, or found them when it started: so they are to stay.
    pub fn trust(&mut self, uuid: &str, snapshot: &Snapshot, id: AllocationId) {
        if let Some(reading) = snapshot.slice(id.0) {
            self.known.insert((uuid.to_owned(), id), Known::of(reading));
        }
    }

    /// The slice is about to leave its page.
    pub fn let_go(&mut self, id: AllocationId) {
        self.known.retain(|(_, of), _| *of != id);
    }

    /// Looks at one page; none where it could not be read as one. Gives what is new of whom.
    pub fn look(
        &mut self,
        uuid: &str,
        snapshot: Option<&Snapshot>,
    ) -> BTreeMap<AllocationId, BTreeSet<Tampering>> {
        let mut seen: Vec<(AllocationId, Tampering)> = Vec::new();
        for ((_, id), known) in self.known.iter_mut().filter(|((on, _), _)| on == uuid) {
            let Some(snapshot) = snapshot else {
                seen.push((*id, Tampering::PageDamaged));
                continue;
            };
            let Some(reading) = snapshot.slice(id.0) else {
                seen.push((*id, Tampering::PlaceGone));
                continue;
            };
            if known.differs(reading) {
                seen.push((*id, Tampering::LimitsChanged));
            }
            // While a process leaves, its counts stand in two places or in none.
            if snapshot.settled {
                if known.last.as_ref().is_some_and(|last| reading.went_back(last)) {
                    seen.push((*id, Tampering::CountsWentBack));
                }
                known.last = Some(reading.clone());
            }
        }
        let mut news: BTreeMap<AllocationId, BTreeSet<Tampering>> = BTreeMap::new();
        for (id, kind) in seen {
            if self.found.entry(id).or_default().insert(kind) {
                news.entry(id).or_default().insert(kind);
            }
        }
        news
    }

    /// Everything found of an allocation, which is then forgotten.
    pub fn take(&mut self, id: AllocationId) -> BTreeSet<Tampering> {
        self.found.remove(&id).unwrap_or_default()
    }
}
