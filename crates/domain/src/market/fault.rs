//! Faults on the seller's side: a node that is lost, taken out of service or removed while it is let, or a GPU of it that is
//! quarantined, ends its lease in the same batch; what was not had is not paid.
//!
//! Called on every decision's way out, and by `advance` for what nodes tell of themselves.

use std::collections::BTreeSet;

use super::fill::{node_milli, works};
use super::lease::{Lease, LeaseEnd};
use super::leave::{goes, leaving};
use super::settle;
use crate::event::Event;
use crate::id::{JobId, NodeId};
use crate::state::State;
use crate::time::Time;

/// The node that is no longer to be had for what happens here.
fn broken(event: &Event) -> Option<NodeId> {
    match event {
        Event::NodeLost { node }
        | Event::NodeCordoned { node }
        | Event::NodeRemoved { node }
        | Event::GpuQuarantined { node, .. } => Some(*node),
        _ => None,
    }
}

/// The events, after the ends of leases they break and the offers they take away.
pub fn with_leases(state: &State, events: Vec<Event>, at: Time) -> Vec<Event> {
    let nodes: BTreeSet<NodeId> = events.iter().filter_map(broken).collect();
    if nodes.is_empty() {
        return events;
    }
    let ended: BTreeSet<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::LeaseEnded { lease, .. } => Some(*lease),
            _ => None,
        })
        .collect();
    let broken = nodes.iter().filter_map(|node| state.market.node(*node).1);
    let broken: BTreeSet<_> = broken.filter(|lease| !ended.contains(lease)).collect();
    let leases: Vec<&Lease> = broken.iter().filter_map(|id| state.market.lease(*id)).collect();
    let mut told: BTreeSet<JobId> = events.iter().filter_map(gone).collect();
    let mut all: Vec<Event> = Vec::new();
    for node in &nodes {
        let removed = events
            .iter()
            .any(|event| matches!(event, Event::NodeRemoved { node: gone } if gone == node));
        if let Some(offer) = state.market.node(*node).0.filter(|_| removed)
            && let Some(offer) = state.market.offer(offer)
        {
            all.push(Event::OfferWithdrawn {
                offer: offer.id,
                seller: offer.seller,
                why: "a node of it was removed".into(),
            });
        }
    }
    let mut leave = Vec::new();
    for lease in leases {
        all.push(settle::end(lease, LeaseEnd::Fault, at));
        leave.extend(leave_of(state, lease, &mut told));
    }
    all.extend(events);
    all.extend(leave);
    all
}

/// Jobs that end by these very events.
fn gone(event: &Event) -> Option<JobId> {
    match event {
        Event::JobRequeued { job, .. }
        | Event::JobEnded { job, .. }
        | Event::JobStopping { job, .. }
        | Event::MemberEnded { job, .. } => Some(*job),
        _ => None,
    }
}

/// Those who leave with one lease, once.
pub fn leave_of(state: &State, lease: &Lease, told: &mut BTreeSet<JobId>) -> Vec<Event> {
    let leaving = leaving(state, &[lease], told);
    told.extend(leaving.iter().map(|job| job.id));
    leaving
        .into_iter()
        .map(|job| goes(state, job, &[lease]))
        .collect()
}

/// Whether something of a let node is no longer there.
pub fn is_broken(state: &State, lease: &Lease) -> bool {
    if lease.nodes.is_empty() {
        return false;
    }
    let nodes = lease.nodes.iter().filter_map(|node| state.fleet.node(*node));
    let there: u64 = nodes
        .filter(|node| works(node))
        .map(|node| node_milli(node, &lease.class))
        .sum();
    there < lease.gpu_milli
}
