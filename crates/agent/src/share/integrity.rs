//! Whether pages still say what the agent wrote on them. A guarded job can write to its device's page; here that is
//! seen, by comparing each reading with what was given and with the reading before.
//!
//! A page is shared by all who have a slice of the device, so damage to the whole of it is noted of each of them.
//! Deliberately absent: what becomes of it (`conduct.rs`, and the server), and writing pages right (`share.rs`).

use std::collections::{BTreeMap, BTreeSet};

use tenure_domain::audit::conduct::Tampering;
use tenure_domain::id::AllocationId;
use tenure_limits::{SliceReading, SliceSpec, Snapshot};

/// What the agent knows of one slice.
struct Known {
    /// As it was given, whatever its page says.
    given: SliceSpec,
    /// As last read while the page stood still; none since the agent wrote there itself.
    last: Option<SliceReading>,
}

/// Whether a page says something else than was given.
pub(super) fn differs(given: &SliceSpec, reading: &SliceReading) -> bool {
    given.limit_bytes != reading.limit_bytes
        || given.weight_per_mille != reading.weight_per_mille
        || given.cap_per_mille != reading.cap_per_mille
        || given.kernel_limit_ns.unwrap_or(0) != reading.kernel_limit_ns
}

/// The slices of all pages, by device and allocation.
#[derive(Default)]
pub struct Integrity {
    known: BTreeMap<(String, AllocationId), Known>,
    found: BTreeMap<AllocationId, BTreeSet<Tampering>>,
}

impl Integrity {
    /// The agent gives so much; it is to stay so.
    pub fn give(&mut self, uuid: &str, given: SliceSpec) {
        let key = (uuid.to_owned(), AllocationId(given.id));
        self.known.insert(key, Known { given, last: None });
    }

    pub fn given(&self, uuid: &str, id: AllocationId) -> Option<SliceSpec> {
        self.known.get(&(uuid.to_owned(), id)).map(|known| known.given)
    }

    /// All that was given, with its device.
    pub fn all(&self) -> impl Iterator<Item = (&str, SliceSpec)> {
        self.known
            .iter()
            .map(|((uuid, _), known)| (uuid.as_str(), known.given))
    }

    /// What its counts and clocks are as the agent has just written its place: from here on they only grow.
    pub fn begin(&mut self, uuid: &str, snapshot: &Snapshot, id: AllocationId) {
        if let Some(known) = self.known.get_mut(&(uuid.to_owned(), id)) {
            known.last = snapshot.slice(id.0).filter(|_| snapshot.settled).cloned();
        }
    }

    /// The agent wrote on its place anew, so it begins anew.
    pub fn begin_anew(&mut self, uuid: &str, id: AllocationId) {
        if let Some(known) = self.known.get_mut(&(uuid.to_owned(), id)) {
            known.last = None;
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
            if differs(&known.given, reading) {
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
