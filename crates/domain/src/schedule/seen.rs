//! What was seen so far: the makes of GPU in the fleet, and what jobs ask for.
//!
//! Part of the state, since places are scored by it: learnt from events alone, so that a replay and a snapshot know
//! the same. All of it is bounded. Called by `fleet.rs` when events are applied, and by `place.rs` when a job asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::board::mix::Mix;
use super::board::shape::{Classes, Shape};
use super::fleet::{GpuFacts, Node};
use crate::workload::spec::{Demand, Isolation};

/// Shapes that are counted exactly, so that they are ranked exactly.
const USUAL_MAX: usize = 128;
/// A shape counted so often keeps its place; more would only make it harder to forget.
const USUAL_COUNT_MAX: u32 = 1 << 16;

/// GPUs that every ask finds alike, but for their memory and for who is on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Make {
    pub class: Box<str>,
    pub model: Box<str>,
    /// Levels of isolation they give.
    pub levels: Vec<Isolation>,
    /// Shares of one are of one tenant at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_tenant: bool,
}

impl Make {
    fn is_of(&self, facts: &GpuFacts) -> bool {
        self.class == facts.class
            && *self.model == *facts.model
            && self.one_tenant == is_of_one_tenant(facts)
            && self.levels.iter().eq(facts.isolation.keys())
    }
}

pub(super) fn is_of_one_tenant(facts: &GpuFacts) -> bool {
    facts
        .hardware
        .as_ref()
        .is_some_and(|hardware| hardware.one_tenant)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Each has the bit of its place here; those that find no place have the last bit together.
    makes: Vec<Make>,
    mix: Mix,
    /// How often each of the most frequent shapes came.
    #[serde(with = "super::board::shape::as_rows")]
    usual: BTreeMap<Shape, u32>,
}

impl Seen {
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// Takes note of the GPUs of a node. A make that no node has any more gives its bit to a new one.
    pub(super) fn note_gpus<'a>(
        &mut self,
        facts: impl Iterator<Item = &'a GpuFacts>,
        nodes: &BTreeMap<crate::id::NodeId, Node>,
    ) {
        for facts in facts {
            if self.makes.iter().any(|make| make.is_of(facts)) {
                continue;
            }
            let new = Make {
                class: facts.class.clone(),
                model: facts.model.as_str().into(),
                levels: facts.isolation.keys().copied().collect(),
                one_tenant: is_of_one_tenant(facts),
            };
            if self.makes.len() < Classes::OWN {
                self.makes.push(new);
                continue;
            }
            let gpus = || nodes.values().flat_map(|node| &node.gpus);
            let gone = |make: &&mut Make| !gpus().any(|gpu| make.is_of(&gpu.facts));
            if let Some(old) = self.makes.iter_mut().find(gone) {
                *old = new;
            }
        }
    }

    /// Takes note of a job that was submitted.
    pub(super) fn note_ask(&mut self, demand: &Demand, nodes: usize) {
        let shape = self.shape(demand);
        self.mix.note(&shape, nodes);
        let full = self.usual.len() >= USUAL_MAX;
        match self.usual.get_mut(&shape) {
            Some(count) => *count = (*count + 1).min(USUAL_COUNT_MAX),
            None if !full => {
                self.usual.insert(shape, 1);
            }
            // What makes up more than one in 128 asks outlives this.
            None => self.usual.retain(|_, count| {
                *count -= 1;
                *count > 0
            }),
        }
    }

    /// The bit of a GPU's make.
    pub(super) fn class_of(&self, facts: &GpuFacts) -> Classes {
        let at = self.makes.iter().position(|make| make.is_of(facts));
        Classes::one(u8::try_from(at.unwrap_or(Classes::OWN)).unwrap_or(u8::MAX))
    }

    /// The makes that are wanted.
    pub(super) fn classes(&self, wanted: impl Fn(&Make) -> bool) -> Classes {
        let bit = |(at, _): (usize, &Make)| 1_u64 << at;
        let bits = self.makes.iter().enumerate().filter(|(_, make)| wanted(make));
        let all = (1 << self.makes.len()) - 1;
        match bits.map(bit).sum::<u64>() {
            every if every == all => Classes::ANY,
            some => Classes(some | Classes::one(Classes::OWN as u8).0),
        }
    }

    /// The shape of a demand by itself.
    pub(super) fn shape(&self, demand: &Demand) -> Shape {
        let free = demand.class.is_none() && demand.model.is_none();
        let sliced = demand.gpus > 0;
        Shape {
            cpu_milli: demand.cpu_milli,
            memory_mib: demand.memory_mib,
            gpus: u16::try_from(demand.gpus).unwrap_or(u16::MAX),
            permille: if sliced { demand.compute_permille } else { 0 },
            vram_mib: u32::try_from(demand.vram_mib).unwrap_or(u32::MAX),
            classes: match free {
                true => Classes::ANY,
                false => self.classes(|make| demand.takes(&make.class, &make.model)),
            },
            ..Shape::default()
        }
    }

    /// The shape that rows are ranked by for an ask of this one: itself where it is usual, so that what comes often is
    /// placed exactly; otherwise a coarser one.
    pub(super) fn ranked_as(&self, usual: &Shape, asked: &Shape) -> Shape {
        let is_usual = self.usual.len() < USUAL_MAX || self.usual.get(usual).is_some_and(|&count| count > 1);
        match is_usual {
            true => *asked,
            false => asked.coarse(),
        }
    }
}
