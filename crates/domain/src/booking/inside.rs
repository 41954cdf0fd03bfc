//! Who is inside a window: whose GPUs the booking pays for and how much of its slices they have, who is in its way, and
//! how they leave.
//!
//! Absent: when that is asked (`advance.rs`, `decide/booking`) and how jobs get in (`schedule/attach`).

use std::collections::BTreeSet;

use super::choose::{holders, is_own};
use super::record::{Booking, Size, Window};
use crate::decide::can_pause;
use crate::event::Event;
use crate::id::{GpuId, JobId, NodeId};
use crate::schedule::allocation::{Allocation, Slice};
use crate::schedule::calendar::ends_by;
use crate::state::State;
use crate::time::Time;
use crate::workload::job::{Job, PauseReason, Phase, StopReason};

/// Jobs on the window's GPUs of those who may use it.
pub(crate) fn own_jobs<'a>(
    state: &'a State,
    booking: &'a Booking,
    window: &'a Window,
) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let gpus = window
        .gpus
        .iter()
        .filter_map(|(node, gpu)| state.fleet.node(*node)?.gpu(*gpu));
    let all = gpus.flat_map(|gpu| holders(state, gpu));
    all.filter(|(job, allocation)| !allocation.paused && is_own(state, booking, job))
}

/// Those of them whose GPUs the booking pays for.
pub(crate) fn paid_by<'a>(
    state: &'a State,
    booking: &'a Booking,
    window: &'a Window,
) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let paid = |job: &Job| job.admission.as_ref().and_then(|admission| admission.booking);
    own_jobs(state, booking, window).filter(move |(job, _)| paid(job) == Some(booking.id))
}

/// Whether these slices are booked beside those that other jobs have of the window. Of GPUs that are paid for whole, all
/// is booked; windows of slices from before were paid for by the slice, and have as many.
pub(crate) fn has_slices<'a>(
    state: &State,
    booking: &Booking,
    window: &Window,
    job: JobId,
    more: impl Iterator<Item = &'a Slice>,
) -> bool {
    let gpus: u64 = window.seats.iter().map(|seat| u64::from(seat.gpus)).sum();
    let Size::Slices {
        count,
        compute_permille,
        vram_mib,
    } = booking.size_in(window)
    else {
        return true;
    };
    if window.gpu_milli >= gpus * 1000 {
        return true;
    }
    // A larger one takes several of those that are booked.
    let taken = |slice: &Slice| {
        let by_share = u64::from(slice.compute_permille).div_ceil(compute_permille.max(1).into());
        by_share.max(slice.vram_mib.div_ceil(vram_mib.max(1))).max(1)
    };
    let others = paid_by(state, booking, window).filter(|(other, _)| other.id != job);
    // One on several GPUs of the window is met on each of them.
    let mut met = BTreeSet::new();
    let others = others.filter(|(_, allocation)| met.insert(allocation.id));
    let there: u64 = others
        .flat_map(|(_, allocation)| &allocation.slices)
        .map(taken)
        .sum();
    there + more.map(taken).sum::<u64>() <= u64::from(count)
}

/// Those on the window's GPUs who are not its owner's; on whole nodes, everybody there.
pub(super) fn in_the_way<'a>(
    state: &'a State,
    booking: &'a Booking,
    window: &Window,
    gpus: &'a [(NodeId, GpuId)],
) -> impl Iterator<Item = (&'a Job, &'a Allocation)> + use<'a> {
    let whole = matches!(booking.size_in(window), Size::Nodes { .. });
    let nodes: BTreeSet<NodeId> = gpus.iter().filter(|_| whole).map(|(node, _)| *node).collect();
    let on_nodes = nodes
        .into_iter()
        .flat_map(|node| state.fleet.allocations_on(node));
    let on_nodes = on_nodes.filter_map(|allocation| Some((state.jobs.get(&allocation.job)?, allocation)));
    let gpus = gpus
        .iter()
        .filter_map(|(node, gpu)| state.fleet.node(*node)?.gpu(*gpu));
    let all = on_nodes.chain(gpus.flat_map(|gpu| holders(state, gpu)));
    all.filter(|(job, allocation)| !allocation.paused && !is_own(state, booking, job))
}

/// Has those leave who would be there beyond a moment, once.
pub(crate) fn leave<'a>(
    state: &'a State,
    jobs: impl Iterator<Item = (&'a Job, &'a Allocation)>,
    beyond: Time,
    pausing: bool,
    told: &mut BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (job, allocation) in jobs {
        let leaving = matches!(job.phase, Phase::Stopping | Phase::Pausing | Phase::Paused);
        if leaving || ends_by(state, allocation, at) <= beyond || !told.insert(job.id) {
            continue;
        }
        let pauses = pausing && job.phase == Phase::Running && can_pause(state, job, allocation);
        events.push(match pauses {
            true => Event::JobPausing {
                job: job.id,
                reason: PauseReason::Preempted,
            },
            false => Event::JobStopping {
                job: job.id,
                reason: StopReason::Evicted,
            },
        });
    }
    events
}
