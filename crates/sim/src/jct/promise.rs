//! Starts stated at submission, by the domain's `forecast/wait`, for all that did not start at once.

use tenure_domain::forecast::wait::{Band, Estimate, Waits};
use tenure_domain::time::Time;

use super::kept::Kept;
use super::trace::Job;

/// The bands stated so far.
#[derive(Debug, Default)]
pub struct Promises {
    waits: Waits,
    /// What was estimated and stated for each job, in the order of the trace; no estimate for those that started at once.
    stated: Vec<(Option<Estimate>, Band)>,
}

impl Promises {
    /// For the next job of the trace, which was tried already: it started at once, or its wait is estimated.
    pub fn state(&mut self, estimate: Option<Estimate>) {
        let band = estimate.map_or(Band::AT_ONCE, |estimate| self.waits.tell(estimate).band);
        self.stated.push((estimate, band));
    }

    /// A job started; nothing was stated for one that starts at once.
    pub fn started(&mut self, job: usize, wait_s: u64, now: u64) {
        if let Some(&(Some(estimate), _)) = self.stated.get(job)
            && wait_s > 0
        {
            self.waits.started(estimate, wait_s, Time(now as i64 * 1000));
        }
    }

    pub fn kept(&self, jobs: &[Job]) -> Kept {
        let bands: Vec<Band> = self.stated.iter().map(|(_, band)| *band).collect();
        Kept::of(&bands, jobs)
    }
}
