//! When the very GPUs that a paused job had will have room for it again: those on them leave, one that they are promised
//! to has run, a booked window on them is over.
//!
//! Absent: any other place, since it goes on where it stands.

use super::View;
use crate::forecast::room::{self, Leaves};
use crate::forecast::wait::Estimate;
use crate::id::NodeId;
use crate::schedule::allocation::Slice;
use crate::schedule::fleet::{Gpu, NodeStatus};
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, Phase};

/// None where one of them is out of service.
pub(super) fn estimate(view: &View<'_>) -> Option<Estimate> {
    let allocation = view.job.sole_allocation()?;
    let allocation = view.state.fleet.allocation(allocation)?;
    let node = view.state.fleet.node(allocation.node)?;
    if node.status == NodeStatus::Lost {
        return None;
    }
    // Its node said that it could not, and is not asked before.
    let after_s = view.job.resume_after.map_or(0, |after| wait_s(after, view.at));
    let mut all = certain(after_s);
    for slice in &allocation.slices {
        let gpu = node.gpu(slice.gpu)?;
        if !gpu.present || gpu.quarantine.is_some() {
            return None;
        }
        let on = on_gpu(view, node.id, gpu, slice)?;
        all = Estimate {
            s: all.s.max(on.s),
            half_s: all.half_s.max(on.half_s),
            twice_s: all.twice_s.max(on.twice_s),
        };
    }
    Some(all)
}

fn certain(s: u64) -> Estimate {
    Estimate {
        s,
        half_s: s,
        twice_s: s,
    }
}

fn wait_s(until: Time, at: Time) -> u64 {
    until.since_ms(at).div_ceil(SECOND_MS)
}

fn on_gpu(view: &View<'_>, node: NodeId, gpu: &Gpu, slice: &Slice) -> Option<Estimate> {
    let mut here: Vec<Leaver> = Vec::new();
    for allocation in gpu
        .holders
        .iter()
        .filter_map(|id| view.state.fleet.allocation(*id))
    {
        let Some(other) = view.state.jobs.get(&allocation.job) else {
            continue;
        };
        let theirs = allocation.slices.iter().filter(|theirs| theirs.gpu == gpu.id);
        // One that is paused as well has nothing of it to give.
        let theirs = theirs.filter(|_| !allocation.paused && other.id != view.job.id);
        here.extend(theirs.map(|theirs| Leaver {
            vram_mib: theirs.vram_mib,
            strange: !same_tenant(view, other),
            leaves: leaves(view, other, theirs.compute_permille.into()),
        }));
    }
    let promised = view
        .state
        .calendar
        .on(node)
        .filter(|promise| promise.keeps(gpu.id));
    for other in promised.filter_map(|promise| view.state.jobs.get(&promise.job)) {
        // A promised GPU is kept whole, from now or from when its room is made; and then the job has to run.
        let from = view
            .state
            .calendar
            .of(other.id)
            .map_or(view.at, |promise| promise.from);
        let runs = view.ahead_with(other, 0, 1).for_s;
        here.push(Leaver {
            vram_mib: gpu.facts.vram_mib,
            strange: !same_tenant(view, other),
            leaves: Leaves {
                gpus: 1000,
                in_s: wait_s(from, view.at).saturating_add(runs),
                at_most_s: u64::MAX,
            },
        });
    }
    let booked = view.state.bookings.live();
    let booked = booked.filter(|(booking, window)| {
        let owner = ScopeId::User(view.job.owner);
        window.gpus.contains(&(node, gpu.id)) && !view.state.tree.is_within(owner, booking.scope)
    });
    here.extend(booked.map(|(_, window)| {
        let over_s = wait_s(window.end, view.at);
        Leaver {
            vram_mib: gpu.facts.vram_mib,
            strange: true,
            leaves: Leaves {
                gpus: 1000,
                in_s: over_s,
                at_most_s: over_s,
            },
        }
    }));
    let by_share = room(1000, slice.compute_permille.into(), &here, |one| one.leaves.gpus);
    let by_vram = room(gpu.facts.vram_mib, slice.vram_mib, &here, |one| one.vram_mib);
    let (mut found, by_vram) = (by_share?, by_vram?);
    // Where there is room beside them it is a wall that keeps it away, until strangers have gone.
    if found.s.max(by_vram.s) == 0 {
        let strangers: Vec<Leaver> = here.iter().filter(|one| one.strange).copied().collect();
        found = room(1000, 1000, &strangers, |one| one.leaves.gpus)?;
    }
    Some(Estimate {
        s: found.s.max(by_vram.s),
        half_s: found.half_s.max(by_vram.half_s),
        twice_s: found.twice_s.max(by_vram.twice_s),
    })
}

#[derive(Clone, Copy)]
struct Leaver {
    vram_mib: u64,
    /// Of another tenant.
    strange: bool,
    leaves: Leaves,
}

fn same_tenant(view: &View<'_>, other: &Job) -> bool {
    view.state.tree.tenant_of(ScopeId::User(other.owner)) == view.tenant
}

fn leaves(view: &View<'_>, other: &Job, amount: u64) -> Leaves {
    match other.phase {
        Phase::Running => view.leaves_with(other, amount),
        Phase::Stopping | Phase::Pausing => Leaves {
            gpus: amount,
            in_s: 0,
            at_most_s: other.spec.grace_s.into(),
        },
        _ => Leaves {
            gpus: amount,
            in_s: view.ahead_with(other, amount, 1).for_s,
            at_most_s: u64::MAX,
        },
    }
}

/// When `needed` of so much is free, those here having theirs until they leave.
fn room(all: u64, needed: u64, here: &[Leaver], has: impl Fn(&Leaver) -> u64) -> Option<Estimate> {
    let used: u64 = here.iter().map(&has).sum();
    let leaving: Vec<Leaves> = here
        .iter()
        .map(|one| Leaves {
            gpus: has(one),
            ..one.leaves
        })
        .collect();
    // More than all is had where one waits for what others have still.
    let beyond = used.saturating_sub(all);
    room::estimate(
        needed.saturating_add(beyond),
        all.saturating_sub(used),
        &leaving,
        &[],
    )
}
