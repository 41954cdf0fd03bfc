//! Resizing: a running job's slices made larger or smaller where they are, within everything that a new job would
//! have to fit. What ran so far is charged at the old price, what follows at the new.

use super::Case;
use crate::event::Event;
use crate::id::JobId;
use crate::refusal::{Code, Refusal};
use crate::schedule::admit;
use crate::schedule::allocation::{Allocation, Slice};
use crate::schedule::calendar::{Promise, leaves_promised, named};
use crate::schedule::place::vram_wanted;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Admission, Job, Phase};
use crate::workload::spec::{Isolation, JobSpec};

impl Case<'_> {
    pub(super) fn resize(
        &mut self,
        id: JobId,
        compute_permille: Option<u16>,
        vram_mib: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        let owner = ScopeId::User(job.owner);
        let mut spec = JobSpec::clone(&job.spec);
        let demand = &mut spec.demand;
        demand.compute_permille = compute_permille.unwrap_or(demand.compute_permille);
        demand.vram_mib = vram_mib.unwrap_or(demand.vram_mib);
        self.may_ask(Action::JobSubmit, owner, &spec)?;
        self.one_program(job)?;
        let allocation = self.resizable(job)?;
        spec.check()?;
        spec.demand.check()?;
        if let Some(suspended) = self.state.tree.suspended_above(owner) {
            return Err(Refusal::new(
                Code::Suspended,
                format!("{} is suspended", self.state.tree.title(suspended.id)),
            ));
        }
        let slices = self.slices(owner, allocation, &spec)?;
        if slices == allocation.slices {
            return Ok(vec![]);
        }
        let mut events = Vec::new();
        let ran_ms = allocation.ran_before_ms + self.command.at.since_ms(job.since);
        let charge = self.charge(allocation, job, ran_ms, None);
        let admission = admit::resized(
            self.state,
            job,
            &spec,
            &slices,
            charge.as_ref(),
            allocation.metered_ms,
            self.command.at,
        )?;
        leaves_promised(
            self.state,
            id,
            owner,
            &more_than(&admission, job),
            self.command.at,
        )?;
        events.extend(charge.map(|charge| Event::UsageMetered {
            node: allocation.node,
            charges: vec![charge],
        }));
        events.push(Event::JobResized {
            job: id,
            demand: spec.demand,
            admission,
            slices,
        });
        Ok(events)
    }

    /// The allocation, if it is one whose size can change while it runs.
    fn resizable(&self, job: &Job) -> Result<&Allocation, Refusal> {
        let allocation = job
            .allocations()
            .next()
            .filter(|_| job.phase == Phase::Running)
            .and_then(|id| self.state.fleet.allocation(id))
            .ok_or_else(|| {
                Refusal::new(
                    Code::WrongPhase,
                    format!("the job is {}; only what runs can be resized", job.phase.as_str()),
                )
            })?;
        let fixed = if job.is_gang() {
            Some(format!(
                "it has {} members, which are of one size",
                job.spec.demand.nodes
            ))
        } else if allocation.slices.is_empty() {
            Some("it has no GPU".to_owned())
        } else if let Some(sku) = &job.spec.sku {
            Some(format!("SKU {sku} sets its size"))
        } else if allocation.isolation > Isolation::Fenced {
            Some(format!("it is {}", allocation.isolation.as_str()))
        } else {
            None
        };
        match fixed {
            None => Ok(allocation),
            Some(why) => Err(
                Refusal::new(Code::WrongPhase, format!("the job cannot be resized: {why}"))
                    .hint("stop it and submit it anew"),
            ),
        }
    }

    /// The same slices in the new size, if policies allow it and their GPUs have the room.
    fn slices(&self, owner: ScopeId, allocation: &Allocation, spec: &JobSpec) -> Result<Vec<Slice>, Refusal> {
        let node = self.state.fleet.node(allocation.node);
        let sized = allocation.slices.iter().map(|old| {
            let gpu = node
                .and_then(|node| node.gpu(old.gpu))
                .ok_or_else(Refusal::not_found)?;
            let vram_mib = vram_wanted(gpu, &spec.demand);
            let compute_permille = spec.demand.compute_permille;
            let free_vram_mib = (gpu.facts.vram_mib + old.vram_mib).saturating_sub(gpu.used_vram_mib);
            let promised = |promise: &Promise| promise.keeps(gpu.id);
            let grows = vram_mib > old.vram_mib || compute_permille > old.compute_permille;
            if let Some(to) = self.state.calendar.on(allocation.node).find(|p| grows && promised(p)) {
                return Err(Refusal::new(
                    Code::Promised,
                    format!(
                        "what is free of GPU {} is promised to {}",
                        gpu.id,
                        named(self.state, to.job, owner)
                    ),
                )
                .hint("ask again when that job has started"));
            }
            let free_permille = (1000 + u32::from(old.compute_permille)).saturating_sub(gpu.used_permille);
            if vram_mib > free_vram_mib || u32::from(compute_permille) > free_permille {
                return Err(Refusal::new(
                    Code::NoCapacity,
                    format!(
                        "GPU {} has room for a slice of at most {free_vram_mib} MiB and {free_permille} thousandths of compute here",
                        gpu.id
                    ),
                )
                .hint("ask for no more than that, or stop the job and submit it larger"));
            }
            Ok(Slice {
                gpu: old.gpu,
                vram_mib,
                compute_permille,
                part: None,
            })
        });
        let slices: Vec<Slice> = sized.collect::<Result<_, _>>()?;
        // All of a whole GPU's memory comes with it, asked for or not.
        let mut with_all = spec.clone();
        with_all.demand.vram_mib = slices.iter().map(|slice| slice.vram_mib).max().unwrap_or(0);
        for place in self.state.tree.chain(owner) {
            place
                .policy
                .refuse(&with_all, || self.state.tree.title(place.id))?;
        }
        Ok(slices)
    }
}

/// What a job in its new size has more of than it has now.
fn more_than(after: &Admission, job: &Job) -> Admission {
    let mut more = after.clone();
    if let Some(before) = &job.admission {
        more.amounts = after.amounts.beyond(&before.amounts);
        more.hold.gpu_milli = after.hold.gpu_milli.saturating_sub(before.hold.gpu_milli);
        more.hold.left.money.0 = (after.hold.left.money.0 - before.hold.left.money.0).max(0);
        more.hold.left.gpu_ms = after.hold.left.gpu_ms.saturating_sub(before.hold.left.gpu_ms);
    }
    more
}
