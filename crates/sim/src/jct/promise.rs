//! Starts stated at submission, by the domain's `forecast/wait`, for all that did not start at once.

use tenure_domain::forecast::wait::{Alike, Band, Estimate, Waits};
use tenure_domain::id::TenantId;
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

fn alike(job: &Job) -> Option<Alike> {
    Some(Alike {
        tenant: TenantId(u64::from(job.team)),
        gpus: job.gpus,
    })
}

fn moment(at_s: u64) -> Time {
    Time(at_s as i64 * 1000)
}

impl Promises {
    /// For the next job of the trace, which was tried already: it started at once, or its wait is estimated.
    pub fn state(&mut self, job: &Job, estimate: Option<Estimate>, now: u64) {
        let tell = |estimate| self.waits.tell(estimate, alike(job), moment(now)).band;
        let band = estimate.map_or(Band::AT_ONCE, tell);
        self.stated.push((estimate, band));
    }

    /// A job started; nothing was stated for one that starts at once.
    pub fn started(&mut self, id: usize, job: &Job, now: u64) {
        let wait_s = now - job.at;
        if let Some(&(Some(estimate), _)) = self.stated.get(id)
            && wait_s > 0
        {
            self.waits.started(estimate, alike(job), wait_s, moment(now));
        }
    }

    pub fn kept(&self, jobs: &[Job]) -> Kept {
        let bands: Vec<Band> = self.stated.iter().map(|(_, band)| *band).collect();
        Kept::of(&bands, jobs)
    }
}
