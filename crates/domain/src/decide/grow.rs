//! Growing: a job that ended for want of device memory, and said that it may grow, is queued again with more.
//!
//! It outgrew its slice when memory was refused to it there, or it was ended for holding more than it had. It gets half as
//! much again, as far as some device could give it and every limit above it allows, as long as it has attempts left.

use super::Case;
use crate::event::Event;
use crate::schedule::admit::refuse_for_ever;
use crate::schedule::allocation::Allocation;
use crate::schedule::place::refuse_beyond_fleet;
use crate::schedule::volume::VolumeNeeds;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Job, StopReason};
use crate::workload::member::MemberEnd;
use crate::workload::spec::JobSpec;
use crate::workload::usage::Usage;

impl Case<'_> {
    /// The return to the queue, larger; none for a job that ends as it would.
    pub(super) fn grown(
        &self,
        allocation: &Allocation,
        job: &Job,
        end: &MemberEnd,
        metered: Option<&Event>,
    ) -> Option<Event> {
        let may = job.spec.grow && job.stop.is_none_or(|stop| stop == StopReason::OverLimit);
        if !may || job.is_gang() || job.tries() >= job.spec.max_attempts || !outgrew(allocation, end, metered)
        {
            return None;
        }
        let had_mib = allocation.slices.iter().map(|slice| slice.vram_mib).max()?;
        let vram_mib = self.larger(job, had_mib)?;
        Some(Event::JobRequeued {
            job: job.id,
            why: format!("it outgrew its {had_mib} MiB of device memory, and is given {vram_mib} MiB"),
            vram_mib: Some(vram_mib),
        })
    }

    /// Half as much again, or as much as the largest device has.
    fn larger(&self, job: &Job, had_mib: u64) -> Option<u64> {
        let demand = &job.spec.demand;
        let gpus = self.state.fleet.nodes().flat_map(|node| &node.gpus);
        let takes = gpus.filter(|gpu| gpu.present && demand.takes(&gpu.facts.class, &gpu.facts.model));
        let most_mib = takes.map(|gpu| gpu.facts.vram_mib).max()?;
        let vram_mib = had_mib.saturating_add(had_mib.div_ceil(2)).min(most_mib);
        let mut larger = JobSpec::clone(&job.spec);
        larger.demand.vram_mib = vram_mib;
        let owner = ScopeId::User(job.owner);
        let allowed = || {
            for place in self.state.tree.chain(owner) {
                place.policy.refuse(&larger, String::new)?;
            }
            refuse_for_ever(self.state, owner, &larger, self.command.at)?;
            let needs = VolumeNeeds::of(self.state, &job.volumes)?;
            refuse_beyond_fleet(self.state, owner, &larger.demand, needs)
        };
        (vram_mib > had_mib && allowed().is_ok()).then_some(vram_mib)
    }
}

fn outgrew(allocation: &Allocation, end: &MemberEnd, metered: Option<&Event>) -> bool {
    let MemberEnd::Exited { exit_code, by, .. } = end else {
        return false;
    };
    let mut used = allocation.used.unwrap_or_default();
    if let Some(Event::UsageMetered { charges, .. }) = metered {
        charges
            .iter()
            .filter_map(|charge| charge.used.as_ref())
            .for_each(|more| used.add(more));
    }
    let Usage {
        refusals,
        peak_vram_mib,
        ..
    } = used;
    let had_mib = allocation
        .slices
        .iter()
        .map(|slice| slice.vram_mib)
        .max()
        .unwrap_or(0);
    match by {
        // Other limits than that of device memory end jobs, too.
        Some(StopReason::OverLimit) => refusals > 0 || (had_mib > 0 && peak_vram_mib >= had_mib),
        None => refusals > 0 && *exit_code != Some(0),
        Some(_) => false,
    }
}
