//! Jobs of its owner that are on a window's GPUs when it opens: from then on the booking pays for their GPUs.
//!
//! What ran so far is charged at the price it was admitted with. Slices beyond those booked stay their own matter.

use std::collections::BTreeSet;

use super::inside::{has_slices, own_jobs};
use super::record::{Booking, Window};
use crate::decide::Rater;
use crate::event::{Charge, Event};
use crate::id::JobId;
use crate::schedule::admit::booked_from;
use crate::schedule::allocation::{Allocation, Slice};
use crate::state::State;
use crate::time::Time;
use crate::workload::job::{Job, Phase};

pub(super) fn repriced(
    state: &State,
    booking: &Booking,
    window: &Window,
    told: &BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut seen = told.clone();
    let mut slices: Vec<Slice> = Vec::new();
    for (job, _) in own_jobs(state, booking, window) {
        if !seen.insert(job.id) || !pays_itself(job, booking) {
            continue;
        }
        let there: Vec<&Allocation> = job
            .allocations()
            .filter_map(|id| state.fleet.allocation(id))
            .collect();
        let inside = |allocation: &&Allocation| {
            let mut slices = allocation.slices.iter();
            slices.all(|slice| window.gpus.contains(&(allocation.node, slice.gpu)))
        };
        let more = there.iter().flat_map(|allocation| &allocation.slices);
        let all: Vec<Slice> = slices.iter().chain(more).cloned().collect();
        if !there.iter().all(inside) || !has_slices(state, booking, window, job.id, all.iter()) {
            continue;
        }
        slices = all;
        events.extend(from_now_on(state, booking, job, &there, at));
    }
    events
}

fn pays_itself(job: &Job, booking: &Booking) -> bool {
    let there = matches!(job.phase, Phase::Placed | Phase::Starting | Phase::Running);
    let paid = job
        .admission
        .as_ref()
        .is_none_or(|admission| admission.booking.is_some());
    there && !paid && job.spec.booking.is_none_or(|named| named == booking.id)
}

fn from_now_on(state: &State, booking: &Booking, job: &Job, there: &[&Allocation], at: Time) -> Vec<Event> {
    let rater = Rater { state, at };
    let mut charges: Vec<Charge> = Vec::new();
    let mut metered_ms = u64::MAX;
    let mut events = Vec::new();
    for allocation in there {
        let ran_ms = match job.phase {
            Phase::Running => allocation.ran_before_ms + at.since_ms(job.since),
            _ => allocation.metered_ms,
        };
        let charge = rater.charge_beside(allocation, job, ran_ms, None, &charges);
        let until_ms = charge
            .as_ref()
            .map_or(allocation.metered_ms, |charge| charge.to_ms);
        metered_ms = metered_ms.min(until_ms);
        events.extend(charge.map(|charge| {
            charges.push(charge.clone());
            Event::UsageMetered {
                node: allocation.node,
                charges: vec![charge],
            }
        }));
    }
    let slices = there.iter().flat_map(|allocation| &allocation.slices);
    let vram_mib = slices.map(|slice| slice.vram_mib).sum();
    events.extend(
        booked_from(state, job, booking.id, vram_mib, metered_ms, at).map(|admission| Event::JobRepriced {
            job: job.id,
            admission,
        }),
    );
    events
}
