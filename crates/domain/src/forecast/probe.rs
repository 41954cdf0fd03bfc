//! Waits that are watched: what was estimated for a few waiting jobs, and what the rest learns from them.
//!
//! One job a minute at most is estimated as it joins the queue, so a burst of submissions costs no more than a few. A
//! job that started in the decision that took it never waited and tells nothing: so the one before the latest is asked,
//! if it still waits. Called where events are applied.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wait::{Alike, Estimate, Told, Waits};
use crate::id::JobId;
use crate::time::{SECOND_MS, Time};

/// A job is asked no sooner after the last one.
const APART_MS: u64 = 60_000;

/// So many are watched at once; the longest waiting are let go first.
const WATCHED: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Watched {
    estimate: Estimate,
    of: Option<Alike>,
    since: Time,
}

/// What was estimated, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    waits: Waits,
    /// The job that was submitted last.
    latest: Option<JobId>,
    asked: Option<Time>,
    watched: BTreeMap<JobId, Watched>,
}

impl Probes {
    /// A job was submitted. Says which other is to be estimated now if it still waits.
    pub(crate) fn submitted(&mut self, job: JobId, at: Time) -> Option<JobId> {
        let before = self.latest.replace(job);
        let due = self.asked.is_none_or(|then| at.since_ms(then) >= APART_MS);
        before.filter(|_| due)
    }

    /// One is estimated now, whether anything comes of it or not.
    pub(crate) fn asks(&mut self, at: Time) {
        self.asked = Some(at);
    }

    pub(crate) fn watch(&mut self, job: JobId, estimate: Estimate, of: Option<Alike>, at: Time) {
        let since = at;
        self.watched.insert(job, Watched { estimate, of, since });
        if self.watched.len() > WATCHED {
            self.watched.pop_first();
        }
    }

    /// A job was given its place.
    pub(crate) fn started(&mut self, job: JobId, at: Time) {
        if let Some(Watched { estimate, of, since }) = self.forget(job) {
            let wait_s = at.since_ms(since).div_ceil(SECOND_MS);
            self.waits.started(estimate, of, wait_s, at);
        }
    }

    /// A job is gone.
    pub(crate) fn gone(&mut self, job: JobId) {
        self.forget(job);
    }

    fn forget(&mut self, job: JobId) -> Option<Watched> {
        self.latest = self.latest.filter(|latest| *latest != job);
        self.watched.remove(&job)
    }

    /// The band to state for an estimated wait of a job of this kind.
    pub fn tell(&self, estimate: Estimate, of: Option<Alike>, at: Time) -> Told {
        self.waits.tell(estimate, of, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn one_a_minute_is_asked_and_only_if_it_did_not_start_at_once() {
        let mut probes = Probes::default();
        assert_eq!(probes.submitted(JobId(1), Time(0)), None);
        probes.started(JobId(1), Time(0));
        assert_eq!(
            probes.submitted(JobId(2), Time(1)),
            None,
            "the first started at once"
        );
        assert_eq!(probes.submitted(JobId(3), Time(2)), Some(JobId(2)));
        probes.asks(Time(2));
        assert_eq!(probes.submitted(JobId(4), Time(3)), None, "too soon");
        assert_eq!(probes.submitted(JobId(5), Time(MINUTE + 2)), Some(JobId(4)));
    }

    #[test]
    fn what_became_of_the_watched_is_learnt() {
        let (mut probes, estimate) = (Probes::default(), Estimate::rough(1_000));
        for n in 0..40 {
            let at = Time(n * 3_600_000);
            probes.watch(JobId(n as u64), estimate, None, at);
            probes.started(JobId(n as u64), at.plus_ms(3_500_000));
        }
        let told = probes.tell(estimate, None, Time(0));
        assert_eq!(told.seen, 40);
        assert!(told.band.holds(3_500), "{told:?}");
        probes.watch(JobId(99), estimate, None, Time(0));
        probes.gone(JobId(99));
        probes.started(JobId(99), Time(9_000_000));
        assert_eq!(
            probes.tell(estimate, None, Time(0)).seen,
            40,
            "one that was cancelled tells nothing"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut probes = Probes::default();
        for n in 0..2 * WATCHED as u64 {
            probes.watch(JobId(n), Estimate::rough(60), None, Time(n as i64));
        }
        assert_eq!(probes.watched.len(), WATCHED);
    }
}
