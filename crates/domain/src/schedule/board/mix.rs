//! The workload as it was seen: how often each shape is asked for, and the mix that places are scored by.
//!
//! Learnt from arrivals alone. What came long ago counts ever less, and only the most frequent shapes are kept. Counts
//! are whole numbers, so that a snapshot remembers the very same mix.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::shape::Shape;

/// The most shapes that are told apart.
const SHAPES_MAX: usize = 256;
/// Beyond this many arrivals the past is halved.
const ARRIVALS_MAX: u32 = 32_768;
/// Nothing is concluded from fewer arrivals.
const ARRIVALS_MIN: u32 = 16;
/// A mix that moved less than this is not worth new rankings.
const MOVED: f64 = 0.05;

/// A shape and the share of arrivals that had it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Often {
    pub shape: Shape,
    pub weight: f64,
}

type Counts = BTreeMap<Shape, u32>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mix {
    #[serde(with = "super::shape::as_rows")]
    counts: Counts,
    arrivals: u32,
    learn_at: u32,
    /// The counts as they were when they had last moved far enough: what places are scored by.
    #[serde(with = "super::shape::as_rows")]
    learnt: Counts,
    /// How often that was.
    moved: u64,
}

impl Mix {
    /// Takes note of an ask; true when what places are scored by changed. Asks without a GPU are not counted: they say
    /// nothing of what a GPU could be used for.
    pub fn note(&mut self, shape: &Shape, nodes: usize) -> bool {
        if shape.gpus == 0 {
            return false;
        }
        let key = shape.of_gpus();
        match self.counts.get_mut(&key) {
            Some(count) => *count += 1,
            None => {
                if self.counts.len() >= SHAPES_MAX {
                    self.forget_rarest();
                }
                self.counts.insert(key, 1);
            }
        }
        self.arrivals += 1;
        if self.arrivals < self.learn_at.max(ARRIVALS_MIN) {
            return false;
        }
        if self.arrivals >= ARRIVALS_MAX {
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.counts.retain(|_, count| *count > 0);
            self.arrivals = self.counts.values().sum();
        }
        // Every ranking is built anew after learning, so a large fleet learns in larger steps.
        let step = u32::try_from(nodes).unwrap_or(u32::MAX).min(ARRIVALS_MAX / 4);
        self.learn_at = (self.arrivals * 4).min(self.arrivals.saturating_add(step.max(4096)));
        let moved = distance(&self.learnt, &self.counts) > MOVED;
        if moved {
            self.learnt.clone_from(&self.counts);
            self.moved += 1;
        }
        moved
    }

    fn forget_rarest(&mut self) {
        let rarest = self.counts.iter().min_by_key(|(shape, count)| (**count, **shape));
        if let Some(shape) = rarest.map(|(shape, _)| *shape) {
            self.arrivals -= self.counts.remove(&shape).unwrap_or(0);
        }
    }

    /// A number that is another whenever `often` is.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The mix that places are scored by; nothing before enough came.
    pub fn often(&self) -> Vec<Often> {
        weights(&self.learnt).collect()
    }
}

fn weights(counts: &Counts) -> impl Iterator<Item = Often> {
    let all = f64::from(counts.values().sum::<u32>().max(1));
    counts.iter().map(move |(&shape, &count)| Often {
        shape,
        weight: f64::from(count) / all,
    })
}

/// How far two mixes are apart: the share of arrivals that would have to be others.
fn distance(one: &Counts, other: &Counts) -> f64 {
    let all = f64::from(one.values().sum::<u32>().max(1));
    let gained = weights(other).map(|often| {
        let before = one.get(&often.shape).copied().unwrap_or(0);
        (often.weight - f64::from(before) / all).max(0.0)
    });
    gained.sum()
}
