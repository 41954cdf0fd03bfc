//! What of a waiting job, changed, would let it start now, or sooner than it will.
//!
//! Every "now" was tried: the changed job was admitted and placed on the state as it is. One that would wait too is told
//! with its own stated start, where that is earlier: on another class, or with less. Absent: deciding anything. Called by
//! `why`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::evict::make_room;
use super::pass::{Ask, start};
use super::when::{Starts, Unforeseen, foresee};
use super::why::throwaway;
use crate::forecast::history::Signature;
use crate::refusal::{Class, Refusal};
use crate::state::State;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::Job;
use crate::workload::spec::{Isolation, JobSpec, Priority};

/// Ways to start now that are told.
const TOLD: usize = 6;
/// Ways to start sooner whose start is asked for, and how many of those are told.
const ASKED: usize = 6;
const TOLD_SOONER: usize = 3;

/// A change to the job, in words and as the option that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instead {
    pub change: String,
    /// Others would give way to it; it starts when they have.
    pub evicts: bool,
    /// When it would start, where that is not now.
    pub starts: Option<Starts>,
}

/// The ways that lead to an earlier start than the one that is told; those that start now first.
pub(super) fn instead(
    state: &State,
    job: &Job,
    reason: &Refusal,
    starts: &Result<Starts, Unforeseen>,
    at: Time,
) -> Vec<Instead> {
    let (mut found, mut sooner, mut asked) = (Vec::new(), Vec::new(), 0);
    for Change {
        words,
        spec,
        may_wait,
    } in changes(state, job, at)
    {
        if spec.check().is_err() {
            continue;
        }
        let ask = Ask {
            spec: &spec,
            ..Ask::of(job)
        };
        match start(state, &ask, &mut throwaway(), at) {
            Ok(_) if found.len() < TOLD => found.push(Instead {
                change: words,
                evicts: false,
                starts: None,
            }),
            Err(waits) if may_wait && asked < ASKED && waits.code.class() == Class::Waiting => {
                asked += 1;
                sooner.extend(then(state, job, spec, &waits, starts, at).map(|starts| (words, starts)));
            }
            _ => {}
        }
    }
    sooner.sort_by_key(|(_, starts)| starts.to);
    found.extend(
        sooner
            .into_iter()
            .take(TOLD_SOONER)
            .map(|(change, starts)| Instead {
                change,
                evicts: false,
                starts: Some(starts),
            }),
    );
    if state.calendar.of(job.id).is_none() {
        found.extend(raised(state, job, reason, at));
    }
    found
}

/// When the changed job would start, if that is before the job itself will.
fn then(
    state: &State,
    job: &Job,
    spec: JobSpec,
    waits: &Refusal,
    own: &Result<Starts, Unforeseen>,
    at: Time,
) -> Option<Starts> {
    let mut changed = job.clone();
    changed.alike = job.alike.map(|alike| Signature {
        gpus: u32::try_from(spec.demand.gpus_total()).unwrap_or(u32::MAX),
        ..alike
    });
    changed.spec = Arc::new(spec);
    let then = foresee(state, &changed, waits, at).ok()?;
    let sooner = own.as_ref().map_or(true, |own| then.to < own.to);
    sooner.then_some(then)
}

/// The next priority at which others would give way to it.
fn raised(state: &State, job: &Job, reason: &Refusal, at: Time) -> Option<Instead> {
    let higher = Priority::ALL.iter().filter(|level| **level > job.spec.priority);
    higher.copied().find_map(|priority| {
        let mut spec = JobSpec::clone(&job.spec);
        spec.priority = priority;
        let ask = Ask {
            spec: &spec,
            ..Ask::of(job)
        };
        let gives_way = !make_room(state, &ask, reason, at).is_empty();
        gives_way.then(|| Instead {
            change: format!("with priority {}", priority.as_str()),
            evicts: true,
            starts: None,
        })
    })
}

struct Change {
    words: String,
    spec: JobSpec,
    /// Told with its start where it would not start now either.
    may_wait: bool,
}

/// The job with less, elsewhere, or for a shorter time; nearest to what was asked first.
fn changes(state: &State, job: &Job, at: Time) -> Vec<Change> {
    let asked = &job.spec;
    let mut all = Vec::new();
    let mut with = |words: String, may_wait: bool, alter: &dyn Fn(&mut JobSpec)| {
        let mut spec = JobSpec::clone(asked);
        alter(&mut spec);
        if spec != **asked {
            all.push(Change {
                words,
                spec,
                may_wait,
            });
        }
    };
    let promises = state.calendar.iter().filter(|promise| promise.job != job.id);
    let mut limits: Vec<u64> = promises
        .map(|promise| (promise.from.since_ms(at) / SECOND_MS).saturating_sub(asked.grace_s.into()))
        .filter(|limit_s| *limit_s > 0 && *limit_s < asked.run_time_s)
        .collect();
    limits.sort_unstable();
    limits.dedup();
    if let Some(limit_s) = limits.last().copied() {
        with(format!("with a run time of {limit_s} s"), false, &|spec| {
            spec.run_time_s = limit_s
        });
    }
    let demand = &asked.demand;
    let fewer = [demand.nodes - 1, demand.nodes / 2, 1];
    let mut fewer: Vec<u32> = fewer
        .into_iter()
        .filter(|n| *n > 0 && *n < demand.nodes)
        .collect();
    fewer.dedup();
    for nodes in fewer {
        with(format!("with --nodes {nodes}"), true, &|spec| {
            spec.demand.nodes = nodes
        });
    }
    if demand.region.is_some() {
        with("without --region".into(), true, &|spec| spec.demand.region = None);
    }
    if demand.model.is_some() {
        with("without --model".into(), true, &|spec| spec.demand.model = None);
    }
    // A SKU sets the rest of the demand as a whole.
    if asked.sku.is_some() || asked.demand.gpus == 0 {
        return all;
    }
    if let Some(asked_class) = &demand.class {
        let gpus = state.fleet.nodes().flat_map(|node| &node.gpus);
        let mut classes: Vec<&str> = gpus.map(|gpu| &*gpu.facts.class).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes.into_iter().filter(|class| *class != &**asked_class) {
            with(format!("on {class}"), true, &|spec| {
                spec.demand.class = Some(class.into())
            });
        }
    }
    let fewer = [demand.gpus - 1, demand.gpus / 2, demand.gpus / 4, 1];
    let mut fewer: Vec<u32> = fewer.into_iter().filter(|n| *n > 0 && *n < demand.gpus).collect();
    fewer.dedup();
    for gpus in fewer {
        let noun = if gpus == 1 { "GPU" } else { "GPUs" };
        with(format!("with {gpus} {noun}"), true, &|spec| {
            spec.demand.gpus = gpus
        });
    }
    if demand.isolation > Isolation::Guarded {
        for weaker in [Isolation::Fenced, Isolation::Guarded] {
            if weaker < demand.isolation {
                with(format!("with --isolation {}", weaker.as_str()), false, &|spec| {
                    spec.demand.isolation = weaker
                });
            }
        }
    }
    if demand.vram_mib > 1 {
        with(
            format!("with {} MiB of VRAM", demand.vram_mib / 2),
            false,
            &|spec| spec.demand.vram_mib /= 2,
        );
    }
    if demand.compute_permille > 1 && demand.vram_mib > 0 {
        let half = demand.compute_permille / 2;
        with(format!("with {half} thousandths of a GPU"), false, &|spec| {
            spec.demand.compute_permille = half
        });
    }
    all
}
