//! What the agent knows of: every allocation that is here and not yet released, and which of them the server
//! has yet to hear of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_api::channel::AllocationReport;
use tenure_domain::id::AllocationId;
use tokio::sync::Notify;

use crate::record::{Phase, Record};

#[derive(Default)]
pub struct Table {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// None while its thin parent has not claimed it: then it does not count as here.
    known: BTreeMap<AllocationId, Option<Record>>,
    untold: BTreeSet<AllocationId>,
    /// What was asked of an allocation and could not be done, for its next report.
    kept: BTreeMap<AllocationId, String>,
    /// Answers about allocations that are no longer here.
    answers: Vec<AllocationReport>,
}

impl Table {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn knows(&self, id: AllocationId) -> bool {
        self.inner().known.contains_key(&id)
    }

    pub fn get(&self, id: AllocationId) -> Option<Record> {
        self.inner().known.get(&id).cloned().flatten()
    }

    /// Sets a place apart for an allocation about to start.
    pub fn expect(&self, id: AllocationId) {
        self.inner().known.entry(id).or_insert(None);
    }

    /// Takes an allocation in.
    pub fn put(&self, record: Record) {
        self.expect(record.allocation);
        self.update(record);
    }

    /// Notes how an allocation is that is here: one released meanwhile stays forgotten, and what has ended
    /// stays as it ended.
    pub fn update(&self, record: Record) {
        let mut inner = self.inner();
        let id = record.allocation;
        let Some(held) = inner.known.get_mut(&id) else {
            return;
        };
        let news = held
            .as_ref()
            .is_none_or(|held| *held != record && !held.phase.has_ended());
        if news {
            *held = Some(record);
            inner.untold.insert(id);
        }
        drop(inner);
        if news {
            self.changed.notify_one();
        }
    }

    pub fn remove(&self, id: AllocationId) {
        let mut inner = self.inner();
        inner.known.remove(&id);
        inner.untold.remove(&id);
        inner.kept.remove(&id);
    }

    /// Tells the server how it is, and why it is not as was asked.
    pub fn tell_kept(&self, id: AllocationId, why: String) {
        let mut inner = self.inner();
        inner.kept.insert(id, why);
        inner.untold.insert(id);
        drop(inner);
        self.changed.notify_one();
    }

    /// Tells the server again how it is.
    pub fn tell_again(&self, id: AllocationId) {
        self.inner().untold.insert(id);
        self.changed.notify_one();
    }

    pub fn answer(&self, report: AllocationReport) {
        let mut inner = self.inner();
        if inner.answers.len() < tenure_api::channel::MAX_REPORTS {
            inner.answers.push(report);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Everything that is here.
    pub fn whole(&self) -> Vec<AllocationReport> {
        let mut inner = self.inner();
        inner.untold.clear();
        inner
            .known
            .values()
            .flatten()
            .filter_map(Record::report)
            .collect()
    }

    /// What the server has yet to hear; with `running`, also what runs, for its run time.
    pub fn untold(&self, running: bool) -> Vec<AllocationReport> {
        let mut inner = self.inner();
        let untold = std::mem::take(&mut inner.untold);
        let mut reports = std::mem::take(&mut inner.answers);
        let due = inner.known.iter().filter_map(|(id, record)| {
            let record = record.as_ref()?;
            let runs = running && matches!(record.phase, Phase::Running { .. });
            (runs || untold.contains(id)).then_some(record)
        });
        reports.extend(due.filter_map(Record::report));
        let mut kept = std::mem::take(&mut inner.kept);
        for report in &mut reports {
            report.kept = kept.remove(&report.allocation);
        }
        reports
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}
