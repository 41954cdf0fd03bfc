//! Our own order: the domain's forecast, queue keys and choice of victims, fed with what a control plane would see.
//!
//! Each team is a tenant. All jobs are of one priority class and borrow from a pool without nominal quotas; so the
//! learnt rank, the ageing bound and the bounds on evictions decide.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tenure_domain::forecast::age::next_review_s;
use tenure_domain::forecast::hazard::Hazard;
use tenure_domain::forecast::history::{History, Signature};
use tenure_domain::forecast::room::{Leaves, draw};
use tenure_domain::id::{JobId, TenantId};
use tenure_domain::schedule::order::key::{AGED_MS, rank_of};
use tenure_domain::schedule::victim::{Bounds, Evictor, Running, victims};
use tenure_domain::time::Time;
use tenure_domain::workload::spec::Priority;

use super::engine::{Key, Live, Order};
use super::trace::Job;

/// What is known of run times at one moment, by kind: asked of many jobs alike for every estimate.
#[derive(Debug, Default)]
struct Known {
    at: u64,
    hazards: BTreeMap<usize, Rc<Hazard>>,
}

pub struct Tenure {
    restart_s: u64,
    history: History,
    like: Vec<Signature>,
    kinds: BTreeMap<Signature, usize>,
    kind: Vec<usize>,
    cost_gpu_s: Vec<f64>,
    known: RefCell<Known>,
    rule: Rc<Hazard>,
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
            kinds: BTreeMap::new(),
            kind: Vec::new(),
            cost_gpu_s: Vec::new(),
            known: RefCell::default(),
            rule: Rc::default(),
            bounds: Bounds::default(),
        }
    }

    /// What `job` may know of another's run time: no tenant's history informs another's forecasts, of strangers the rule
    /// is all that is known.
    fn hazard(&self, of: usize, job: usize, jobs: &[Job], now: u64) -> Rc<Hazard> {
        if jobs[of].team != jobs[job].team {
            return self.rule.clone();
        }
        let known = &mut *self.known.borrow_mut();
        if known.at != now {
            known.at = now;
            known.hazards.clear();
        }
        let learnt = || Rc::new(self.history.hazard(self.like[of]));
        known.hazards.entry(self.kind[of]).or_insert_with(learnt).clone()
    }
}

impl Order for Tenure {
    fn arrive(&mut self, job: &Job, _: usize, now: u64) {
        let tenant = TenantId(u64::from(job.team));
        let like = self.history.submitted(tenant, job.gpus, moment(now));
        let fresh = self.kinds.len();
        self.kind.push(*self.kinds.entry(like).or_insert(fresh));
        self.like.push(like);
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
        let hazard = self.history.hazard(self.like[live.id]);
        let age_s = live.age_at(now);
        let cost_s = hazard.cost_s(age_s, overhead_s);
        let cost_gpu_s = cost_s * f64::from(job.gpus);
        self.cost_gpu_s[live.id] = cost_gpu_s;
        if is_aged(job, live, now) {
            (0, job.at, 0, live.id)
        } else {
            (1, rank_of(cost_gpu_s), 0, live.id)
        }
    }

    fn kind(&self, id: usize) -> Option<usize> {
        Some(self.kind[id])
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

    fn leaves(&self, running: usize, job: usize, jobs: &[Job], lives: &[Live], now: u64) -> Leaves {
        let live = &lives[running];
        let [behind, before] = [running, job].map(|id| is_aged(&jobs[id], &lives[id], now));
        let clearly = self.cost_gpu_s[running] > self.cost_gpu_s[job] * f64::from(self.bounds.clearly);
        let gives_way = !behind && (before || clearly);
        let may_yet = jobs[running].evictions < self.bounds.evictions_per_job;
        let guaranteed = live.placed + self.bounds.guaranteed_ms / 1000;
        let often = (live.evicted.iter().rev()).nth(self.bounds.evictions_per_hour as usize - 1);
        let evicted = guaranteed.max(often.map_or(0, |then| then + 3_600));
        Leaves {
            gpus: u64::from(jobs[running].gpus),
            in_s: self.runs_s(running, job, jobs, lives, now),
            at_most_s: if gives_way && may_yet {
                evicted.saturating_sub(now)
            } else {
                u64::MAX
            },
        }
    }

    fn runs_s(&self, other: usize, job: usize, jobs: &[Job], lives: &[Live], now: u64) -> u64 {
        let live = &lives[other];
        let restart_s = match live.running {
            true => live.since.saturating_sub(now),
            false if jobs[other].started.is_some() => self.restart_s,
            false => 0,
        };
        let hazard = self.hazard(other, job, jobs, now);
        restart_s + hazard.drawn_s(live.age_at(now), draw(other as u64))
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
        // Only these can rank behind it and have run their guaranteed time; asking the rest, or building what is asked
        // where it cannot be enough, would cost more than the answer is worth.
        let least = evictor.cost_gpu_s * f64::from(self.bounds.clearly);
        let guaranteed_s = self.bounds.guaranteed_ms / 1000;
        let behind = |id: &usize| {
            (evictor.aged || self.cost_gpu_s[*id] > least) && lives[*id].placed + guaranteed_s <= now
        };
        let at_most: u32 = running
            .iter()
            .filter(|id| behind(id))
            .map(|&id| jobs[id].gpus)
            .sum();
        if free + at_most < jobs[job].gpus {
            return None;
        }
        let asked: Vec<Running> = (running.iter())
            .filter(|id| behind(id))
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
