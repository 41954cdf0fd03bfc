//! The workload as it was seen: how often each shape is asked for.
//!
//! Learnt from arrivals alone. What came long ago counts ever less, and only the most frequent shapes are kept.

use super::shape::Shape;
use std::collections::HashMap;

/// The most shapes that are told apart.
const SHAPES_MAX: usize = 256;
/// Beyond this many arrivals the past is halved.
const ARRIVALS_MAX: u32 = 32_768;
/// Nothing is concluded from fewer arrivals.
const ARRIVALS_MIN: u32 = 16;

/// A shape and the share of arrivals that had it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Often {
    pub shape: Shape,
    pub weight: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Mix {
    counts: HashMap<Shape, u32>,
    arrivals: u32,
    learn_at: u32,
}

impl Mix {
    /// Takes note of an ask; true when enough came that the mix is worth looking at anew. Asks without a GPU are not
    /// counted: they say nothing of what a GPU could be used for.
    pub fn note(&mut self, shape: &Shape, nodes: usize) -> bool {
        if shape.gpus == 0 {
            return false;
        }
        let key = Shape {
            memory_mib: 0,
            ..*shape
        };
        if self.counts.len() >= SHAPES_MAX && !self.counts.contains_key(&key) {
            self.forget_rarest();
        }
        *self.counts.entry(key).or_default() += 1;
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
        true
    }

    fn forget_rarest(&mut self) {
        let rarest = self.counts.iter().min_by_key(|(shape, count)| (**count, **shape));
        if let Some(shape) = rarest.map(|(shape, _)| *shape) {
            self.arrivals -= self.counts.remove(&shape).unwrap_or(0);
        }
    }

    /// The mix, in an order that is the same everywhere.
    pub fn often(&self) -> Vec<Often> {
        let all = f64::from(self.arrivals.max(1));
        let mut often: Vec<Often> = self
            .counts
            .iter()
            .map(|(&shape, &count)| Often {
                shape,
                weight: f64::from(count) / all,
            })
            .collect();
        often.sort_unstable_by_key(|often| often.shape);
        often
    }
}

/// How far two mixes are apart: the share of arrivals that would have to be others.
pub fn distance(one: &[Often], other: &[Often]) -> f64 {
    let weights: HashMap<Shape, f64> = one.iter().map(|often| (often.shape, often.weight)).collect();
    let gained = other.iter().map(|often| {
        let before = weights.get(&often.shape).copied().unwrap_or(0.0);
        (often.weight - before).max(0.0)
    });
    gained.sum()
}
