//! Fit: which GPUs of the fleet would do for a workload, in slices or whole, and what they cost, before anything is asked.
//!
//! Of the fleet it tells classes, sizes and numbers, not who has what. Nothing is decided: policies are asked as
//! admission asks them, and what is free now may be gone in a moment. Absent: the terms themselves (`workload/estimate`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fleet::{Gpu, NodeStatus};
use crate::ledger::tariff::{Ask, own_hourly};
use crate::refusal::Refusal;
use crate::size::mib;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::Workload;
use crate::workload::derive::Derivation;
use crate::workload::dtype::Dtype;
use crate::workload::learnt::signature;
use crate::workload::spec::{Demand, JobSpec};

/// Shares are told in whole hundredths.
const STEP_PERMILLE: u64 = 10;

/// A size and its price, for the whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Priced {
    /// Of each GPU.
    pub vram_mib: u64,
    pub compute_permille: u16,
    pub hourly_micros: i64,
}

/// GPUs of one class and size, and what of them would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClassFit {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub class: Box<str>,
    pub model: String,
    /// Of each GPU.
    pub vram_mib: u64,
    /// How many there are, and on how many of them a slice is free now.
    pub gpus: u32,
    pub free: u32,
    /// Why they would not do; none where they would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The smallest slices that would do, with as much of the compute as of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Priced>,
    /// Whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Priced>,
    /// Tokens of context that whole GPUs have room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// A SKU that would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SkuFit {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub class: Option<Box<str>>,
    pub hourly_micros: i64,
}

/// What a workload needs, and what of the platform would do for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Fit {
    pub derivation: Derivation,
    /// What a job of it would ask for, on no class in particular.
    pub demand: Demand,
    /// The cheapest that would do first, then the others.
    pub classes: Vec<ClassFit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skus: Vec<SkuFit>,
    /// What, changed, would fit where nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<String>,
}

/// What of the platform would do for a job that is written down only as far as it goes.
pub fn fit(state: &State, owner: ScopeId, spec: &JobSpec, at: Time) -> Result<Fit, Refusal> {
    spec.check()?;
    let workload = spec
        .workload
        .as_deref()
        .ok_or_else(|| Refusal::invalid("/workload", "what is to be fitted is not said"))?;
    let tenant = state.tree.tenant_of(owner);
    let measured = tenant.and_then(|tenant| state.learnt.measured(tenant, &signature(workload, &spec.name)));
    let mut derivation = Derivation::of(workload, measured)?;
    let mut spec = spec.clone();
    spec.kind = workload.kind();
    derivation.fill(&mut spec)?;
    let classes = classes(state, owner, &spec, &derivation, at);
    let instead = match classes.iter().any(|class| class.why_not.is_none()) {
        true => Vec::new(),
        false => instead(state, owner, &spec, at),
    };
    Ok(Fit {
        skus: skus(state, owner, &spec, at),
        demand: spec.demand,
        classes,
        instead,
        derivation,
    })
}

/// GPUs of one class, model and size.
#[derive(Default)]
struct Group<'a> {
    gpus: Vec<&'a Gpu>,
    /// The most on one node, and how many slots for members there are.
    most: usize,
    slots: u64,
}

fn classes(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    derivation: &Derivation,
    at: Time,
) -> Vec<ClassFit> {
    let each = spec.demand.gpus.max(1);
    let mut groups: BTreeMap<(&str, &str, u64), Group<'_>> = BTreeMap::new();
    for node in state.fleet.nodes().filter(|node| node.status == NodeStatus::Up) {
        let mut here: BTreeMap<(&str, &str, u64), usize> = BTreeMap::new();
        let usable = node
            .gpus
            .iter()
            .filter(|gpu| gpu.present && gpu.quarantine.is_none());
        for gpu in usable.filter(|gpu| spec.demand.takes(&gpu.facts.class, &gpu.facts.model)) {
            let key = (&*gpu.facts.class, gpu.facts.model.as_str(), gpu.facts.vram_mib);
            groups.entry(key).or_default().gpus.push(gpu);
            *here.entry(key).or_default() += 1;
        }
        for (key, count) in here {
            let group = groups.entry(key).or_default();
            group.most = group.most.max(count);
            group.slots += count as u64 / u64::from(each);
        }
    }
    let mut classes: Vec<ClassFit> = groups
        .iter()
        .map(|(key, group)| class_fit(state, owner, spec, derivation, *key, group, at))
        .collect();
    let price = |fit: &ClassFit| {
        fit.slice
            .or(fit.whole)
            .map_or(i64::MAX, |priced| priced.hourly_micros)
    };
    classes.sort_by_key(|fit| (fit.why_not.is_some(), price(fit)));
    classes
}

fn class_fit(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    derivation: &Derivation,
    (class, model, vram_mib): (&str, &str, u64),
    group: &Group<'_>,
    at: Time,
) -> ClassFit {
    let need_mib = spec.demand.vram_mib.max(1);
    let share = (u128::from(need_mib) * 1000).div_ceil(vram_mib.into());
    let share = u64::try_from(share)
        .unwrap_or(u64::MAX)
        .next_multiple_of(STEP_PERMILLE);
    // INVARIANT: at most a thousand.
    let compute_permille = match spec.demand.compute_permille {
        1000 => share.clamp(STEP_PERMILLE, 1000) as u16,
        asked => asked,
    };
    let sized = |vram_mib: u64, compute_permille: u16| Demand {
        gpus: spec.demand.gpus.max(1),
        vram_mib,
        compute_permille,
        class: Some(class.into()),
        ..spec.demand.clone()
    };
    let priced = |demand: &Demand| Priced {
        vram_mib: demand.vram_mib,
        compute_permille: demand.compute_permille,
        hourly_micros: hourly(state, owner, spec, demand, Some(class), at),
    };
    let slice = sized(need_mib.min(vram_mib), compute_permille);
    let why_not = why_not(spec, need_mib, vram_mib, group).or_else(|| {
        let asked = JobSpec {
            demand: slice.clone(),
            ..spec.clone()
        };
        let mut above = state.tree.chain(owner);
        above.find_map(|place| {
            let excluded = place.policy.excludes(&asked)?;
            Some(format!(
                "{} by the policy of {}",
                excluded.1,
                state.tree.title(place.id)
            ))
        })
    });
    let free = group.gpus.iter().filter(|gpu| {
        gpu.facts.vram_mib.saturating_sub(gpu.used_vram_mib) >= need_mib
            && 1000_u32.saturating_sub(gpu.used_permille) >= u32::from(compute_permille)
    });
    let fits = why_not.is_none();
    ClassFit {
        class: class.into(),
        model: model.to_owned(),
        vram_mib,
        gpus: u32::try_from(group.gpus.len()).unwrap_or(u32::MAX),
        free: u32::try_from(free.count()).unwrap_or(u32::MAX),
        slice: (fits && compute_permille < 1000).then(|| priced(&slice)),
        whole: fits.then(|| priced(&sized(vram_mib, 1000))),
        tokens: derivation.estimate.tokens_within(vram_mib).filter(|_| fits),
        why_not,
    }
}

/// What a demand of this job costs its owner by the hour.
fn hourly(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    demand: &Demand,
    class: Option<&str>,
    at: Time,
) -> i64 {
    let ask = Ask {
        demand,
        ..Ask::of(spec, class, demand.vram_total_mib())
    };
    own_hourly(&state.prices, &state.books, &state.tree, owner, &ask, at).0
}

fn why_not(spec: &JobSpec, need_mib: u64, vram_mib: u64, group: &Group<'_>) -> Option<String> {
    let Demand { gpus, nodes, .. } = spec.demand;
    if need_mib > vram_mib {
        return Some(format!("{} MiB short", need_mib - vram_mib));
    }
    if group.most < gpus as usize {
        return Some(format!("{gpus} on one node wanted, {} there", group.most));
    }
    if group.slots < u64::from(nodes) {
        return Some(format!("{nodes} times {gpus} wanted, {} there", group.slots));
    }
    None
}

/// SKUs with as much of everything that was derived.
fn skus(state: &State, owner: ScopeId, spec: &JobSpec, at: Time) -> Vec<SkuFit> {
    let demand = &spec.demand;
    let would_do = state.skus.values().filter(|sku| {
        let has = &sku.demand;
        let whole = has.vram_mib == 0 && has.compute_permille == 1000;
        has.gpus >= demand.gpus.max(1)
            && (whole || has.vram_mib >= demand.vram_mib)
            && demand
                .class
                .as_ref()
                .is_none_or(|class| has.class.as_ref().is_none_or(|of| of == class))
    });
    let mut fits: Vec<SkuFit> = would_do
        .map(|sku| {
            let class = sku.demand.class.as_deref().or(demand.class.as_deref());
            let of = Demand {
                nodes: demand.nodes,
                ..sku.demand.clone()
            };
            let named = JobSpec {
                sku: Some(sku.name.clone()),
                ..spec.clone()
            };
            SkuFit {
                name: sku.name.clone(),
                class: sku.demand.class.clone(),
                hourly_micros: hourly(state, owner, &named, &of, class.or(Some("")), at),
            }
        })
        .collect();
    fits.sort_by_key(|fit| fit.hourly_micros);
    fits
}

/// What of a workload, changed, would fit somewhere: fewer bits, or more GPUs for one model.
fn instead(state: &State, owner: ScopeId, spec: &JobSpec, at: Time) -> Vec<String> {
    let tried = |change: &dyn Fn(&mut Workload) -> bool| {
        let mut workload = spec.workload.clone()?;
        if !change(&mut workload) {
            return None;
        }
        let mut changed = JobSpec {
            workload: Some(workload.clone()),
            demand: Demand {
                class: spec.demand.class.clone(),
                model: spec.demand.model.clone(),
                ..Demand::default()
            },
            ..spec.clone()
        };
        let mut derivation = Derivation::of(&workload, None).ok()?;
        derivation.fill(&mut changed).ok()?;
        let classes = classes(state, owner, &changed, &derivation, at);
        let first = classes.into_iter().find(|class| class.why_not.is_none())?;
        Some((derivation.vram_mib?, first.class))
    };
    let mut found = Vec::new();
    for dtype in [Dtype::Fp8, Dtype::Int4] {
        let fewer_bits = |workload: &mut Workload| match workload {
            Workload::Inference(inference) if inference.dtype < dtype => {
                inference.dtype = dtype;
                true
            }
            _ => false,
        };
        if let Some((vram_mib, class)) = tried(&fewer_bits) {
            found.push(format!(
                "{} would take {}, which {class} has",
                dtype.as_str(),
                mib(vram_mib)
            ));
            break;
        }
    }
    for tensor in [2, 4, 8] {
        let more_gpus = |workload: &mut Workload| match workload {
            Workload::Inference(inference) => {
                inference.split.tensor = tensor;
                true
            }
            Workload::FineTune(train) | Workload::Training(train) => {
                train.split.tensor = tensor;
                true
            }
            Workload::Rendering(_) | Workload::Video(_) => false,
        };
        if let Some((vram_mib, class)) = tried(&more_gpus) {
            found.push(format!(
                "over {tensor} GPUs it would take {} on each, which {class} has",
                mib(vram_mib)
            ));
            break;
        }
    }
    found
}
