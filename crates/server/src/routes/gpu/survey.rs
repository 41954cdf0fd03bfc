//! All devices a caller may see, in as few words as a drawing of them needs: for the console's fleet, which shows
//! a hundred thousand at once. What may be seen is what `gpus` shows.

use std::collections::HashMap;

use serde::Serialize;
use tenure_domain::id::{GpuId, NodeId};
use tenure_domain::schedule::fleet::{Gpu, Node, NodeStatus};
use tenure_domain::tenancy::scope::ScopeId;

use super::{Looker, held};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Answer;

/// The devices, node by node. Numbers in a tile point into the lists before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Survey {
    /// The caller sees the whole fleet, not only where own jobs run.
    pub fleet: bool,
    pub nodes: Vec<Place>,
    pub classes: Vec<String>,
    /// Whose slices are: tenants for who sees several, else the scopes below the caller's tenant.
    pub holders: Vec<String>,
    pub gpus: Vec<Tile>,
}

/// A node: id, name, region, block, whether it is up, cordoned or away.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Place(pub NodeId, pub String, pub String, pub String, pub NodeStatus);

/// A device: id, node, class, VRAM, health, how busy, VRAM in use, slices. What was not read is -1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tile(
    pub GpuId,
    pub usize,
    pub usize,
    pub u64,
    pub Health,
    pub i32,
    pub i64,
    pub Vec<Piece>,
);

/// A slice: holder, or -1 for one that is not the caller's to know; compute, VRAM, how busy, VRAM in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Piece(pub i64, pub u16, pub u64, pub i32, pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    Fine,
    Quarantined,
    /// Its node no longer lists it.
    Absent,
    Cordoned,
    /// Its node is away.
    Away,
}

/// Surveys what the caller may see.
pub(crate) fn survey(shared: &Shared, caller: &Caller) -> Answer<Survey> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let mut looker = Looker::new(shared, &state, caller);
    let mine = (!looker.fleet).then(|| held(&state, caller));
    let mut survey = Survey {
        fleet: looker.fleet,
        nodes: Vec::new(),
        classes: Vec::new(),
        holders: Vec::new(),
        gpus: Vec::new(),
    };
    let mut known = Known::default();
    for node in state.fleet.nodes() {
        let shown = |gpu: &&Gpu| mine.as_ref().is_none_or(|mine| mine.contains(&(node.id, gpu.id)));
        let mut gpus: Vec<&Gpu> = node.gpus.iter().filter(shown).collect();
        if gpus.is_empty() {
            continue;
        }
        gpus.sort_by_key(|gpu| gpu.id);
        let place = survey.nodes.len();
        survey.nodes.push(Place(
            node.id,
            node.name.to_string(),
            node.labels.region.as_deref().unwrap_or_default().to_owned(),
            node.labels.block.as_deref().unwrap_or_default().to_owned(),
            node.status,
        ));
        for gpu in gpus {
            let class = known.class(&mut survey.classes, &gpu.facts.class);
            let tile = tile(
                &mut looker,
                &mut survey.holders,
                &mut known,
                (node, place),
                (gpu, class),
            );
            survey.gpus.push(tile);
        }
    }
    Ok(survey)
}

/// Where names stand in their lists.
#[derive(Default)]
struct Known {
    classes: HashMap<String, usize>,
    holders: HashMap<ScopeId, usize>,
}

impl Known {
    fn class(&mut self, list: &mut Vec<String>, class: &str) -> usize {
        if let Some(&at) = self.classes.get(class) {
            return at;
        }
        list.push(class.to_owned());
        self.classes.insert(class.to_owned(), list.len() - 1);
        list.len() - 1
    }
}

fn tile(
    looker: &mut Looker<'_>,
    holders: &mut Vec<String>,
    known: &mut Known,
    (node, place): (&Node, usize),
    (gpu, class): (&Gpu, usize),
) -> Tile {
    let last = looker
        .shared
        .app
        .readings
        .last(node.id, &gpu.facts.uuid)
        .filter(|last| !last.stale);
    let gauges = last
        .as_ref()
        .filter(|_| looker.fleet)
        .map(|last| &last.reading.gauges);
    let (busy, used) = gauges.map_or((None, None), |gauges| {
        (gauges.busy_permille, gauges.used_vram_mib)
    });
    let mut pieces = Vec::with_capacity(gpu.holders.len());
    for &id in &gpu.holders {
        let Some(allocation) = looker.state.fleet.allocation(id) else {
            continue;
        };
        let Some(slice) = allocation.slices.iter().find(|slice| slice.gpu == gpu.id) else {
            continue;
        };
        let seen = looker.sees_holder(id);
        let holder = looker
            .state
            .jobs
            .get(&allocation.job)
            .filter(|_| seen)
            .map(|job| {
                let owner = ScopeId::User(job.owner);
                let scope = match looker.fleet {
                    true => looker
                        .state
                        .tree
                        .tenant_of(owner)
                        .map_or(ScopeId::Platform, ScopeId::Tenant),
                    false => looker
                        .state
                        .tree
                        .get(owner)
                        .and_then(|owner| owner.parent)
                        .unwrap_or(owner),
                };
                *known.holders.entry(scope).or_insert_with(|| {
                    holders.push(looker.state.tree.title(scope));
                    holders.len() - 1
                }) as i64
            });
        let read = last.as_ref().filter(|_| seen || looker.fleet);
        let read = read.and_then(|last| last.reading.slices.iter().find(|read| read.allocation == id));
        pieces.push(Piece(
            holder.unwrap_or(-1),
            slice.compute_permille,
            slice.vram_mib,
            read.and_then(|read| read.use_now.busy_permille)
                .map_or(-1, i32::from),
            read.map_or(-1, |read| {
                i64::try_from(read.use_now.used_vram_mib).unwrap_or(i64::MAX)
            }),
        ));
    }
    Tile(
        gpu.id,
        place,
        class,
        gpu.facts.vram_mib,
        health(node, gpu),
        busy.map_or(-1, i32::from),
        used.map_or(-1, |used| i64::try_from(used).unwrap_or(i64::MAX)),
        pieces,
    )
}

fn health(node: &Node, gpu: &Gpu) -> Health {
    match node.status {
        _ if gpu.quarantine.is_some() => Health::Quarantined,
        _ if !gpu.present => Health::Absent,
        NodeStatus::Up => Health::Fine,
        NodeStatus::Cordoned => Health::Cordoned,
        NodeStatus::Lost => Health::Away,
    }
}
