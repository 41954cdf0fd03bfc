//! The audit of jobs: what an allocation did at its devices' boundary, what it usually does, and what is out of order.
//!
//! Conduct is counts and hashes, never contents. Imports only nouns of `workload` and `tenancy`; used by `decide` and
//! `state`.

pub mod anomaly;
pub mod conduct;
pub mod habit;

use serde::{Deserialize, Serialize};

use anomaly::Anomaly;
use conduct::SignedConduct;

use crate::id::AllocationId;

/// Attempts of one job whose conduct is kept with it; the journal has all.
const MAX_RECORDS: usize = 8;
const MAX_ANOMALIES: usize = 24;

/// What is known of one job, over its attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAudit {
    /// Oldest first.
    pub records: Vec<SignedConduct>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anomalies: Vec<Anomaly>,
}

impl JobAudit {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.anomalies.is_empty()
    }

    /// Whether this attempt's conduct was noted.
    pub fn has(&self, allocation: AllocationId) -> bool {
        self.records
            .iter()
            .any(|record| record.conduct.allocation == allocation)
    }

    pub(crate) fn noted(&mut self, record: SignedConduct) {
        keep_last(&mut self.records, record, MAX_RECORDS);
    }

    pub(crate) fn found(&mut self, anomaly: Anomaly) {
        keep_last(&mut self.anomalies, anomaly, MAX_ANOMALIES);
    }
}

fn keep_last<T>(list: &mut Vec<T>, item: T, most: usize) {
    if list.len() >= most {
        list.remove(0);
    }
    list.push(item);
}
