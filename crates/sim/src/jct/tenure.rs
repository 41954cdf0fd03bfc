//! Our own order: the domain's forecast, queue keys and choice of victims, fed with what a control plane would see.
//!
//! Each team is a tenant. All jobs are of one priority class and borrow from a pool without nominal quotas; so the
//! learnt rank, the ageing bound and the bounds on evictions decide.

use tenure_domain::forecast::age::next_review_s;
use tenure_domain::forecast::history::{History, Signature};
use tenure_domain::id::{JobId, TenantId};
use tenure_domain::schedule::order::key::{AGED_MS, rank_of};
use tenure_domain::schedule::victim::{Bounds, Evictor, Running, victims};
use tenure_domain::time::Time;
use tenure_domain::workload::spec::Priority;

use super::engine::{Key, Live, Order};
use super::trace::Job;

pub struct Tenure {
    restart_s: u64,
    history: History,
    like: Vec<Signature>,
    cost_gpu_s: Vec<f64>,
    bounds: Bounds,
}

fn moment(at_s: u64) -> Time {
    Time(at_s as i64 * 1000)
}

fn is_aged(job: &Job, live: &Live, now: u64) -> bool {
    (now - job.at).saturating_sub(live.age_at(now)) * 1000 >= AGED_MS
}

impl Tenure {
    pub fn new(restart_s: u64) -> Tenure {
        Tenure {
            restart_s,
            history: History::default(),
            like: Vec::new(),
            cost_gpu_s: Vec::new(),
            bounds: Bounds::default(),
        }
    }
}

impl Order for Tenure {
    fn arrive(&mut self, job: &Job, _: usize, now: u64) {
        let tenant = TenantId(u64::from(job.team));
        self.like
            .push(self.history.submitted(tenant, job.gpus, moment(now)));
        self.cost_gpu_s.push(0.0);
    }

    fn ran(&mut self, id: usize, from_s: u64, to_s: u64, now: u64) {
        self.history.ran(self.like[id], from_s, to_s, moment(now));
    }

    fn ended(&mut self, job: &Job, id: usize, now: u64) {
        self.history.ended(self.like[id], job.run_s, moment(now));
    }

    fn key(&mut self, job: &Job, live: &Live, now: u64) -> Key {
        let overhead_s = if job.started.is_some() && !live.running {
            self.restart_s
        } else {
            0
        };
        let cost_s = self
            .history
            .hazard(self.like[live.id])
            .cost_s(live.age_at(now), overhead_s);
        let cost_gpu_s = cost_s * f64::from(job.gpus);
        self.cost_gpu_s[live.id] = cost_gpu_s;
        if is_aged(job, live, now) {
            (0, job.at, 0, live.id)
        } else {
            (1, rank_of(cost_gpu_s), 0, live.id)
        }
    }

    fn review_s(&self, _: &Job, age_s: u64) -> Option<u64> {
        next_review_s(age_s)
    }

    fn refresh_s(&self) -> Option<u64> {
        Some(6 * 3_600)
    }

    fn predicts(&self) -> bool {
        true
    }

    fn victims(
        &self,
        job: usize,
        free: u32,
        running: &[usize],
        jobs: &[Job],
        lives: &[Live],
        now: u64,
    ) -> Option<Vec<usize>> {
        let evictor = Evictor {
            priority: Priority::Normal,
            gpus: jobs[job].gpus,
            cost_gpu_s: self.cost_gpu_s[job],
            nominal: false,
            aged: is_aged(&jobs[job], &lives[job], now),
        };
        // Only these can rank behind it; asking the rest would cost more than the answer is worth.
        let least = evictor.cost_gpu_s * f64::from(self.bounds.clearly);
        let asked: Vec<Running> = (running.iter())
            .filter(|&&id| evictor.aged || self.cost_gpu_s[id] > least)
            .map(|&id| Running {
                job: JobId(id as u64),
                priority: Priority::Normal,
                gpus: jobs[id].gpus,
                started: moment(lives[id].placed),
                safe: moment(now),
                // Checkpointed within the grace period: what is lost is the restart.
                suspendable: true,
                restart_ms: self.restart_s * 1000,
                cost_gpu_s: self.cost_gpu_s[id],
                borrows: true,
                evictions: jobs[id].evictions,
                last_evictions: lives[id].evicted.iter().map(|&at| moment(at)).collect(),
                aged: is_aged(&jobs[id], &lives[id], now),
            })
            .collect();
        let chosen = victims(&evictor, free, &asked, &self.bounds, moment(now))?;
        Some(chosen.into_iter().map(|job| job.0 as usize).collect())
    }
}
