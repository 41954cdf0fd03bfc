//! The price index: for each class and hour what was traded, at what prices. A fold of trades with a bound: a week of hours
//! a class, the classes traded last.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::money::Micros;
use crate::time::{HOUR_MS, Time};

const HOURS: usize = 168;
const CLASSES: usize = 256;

/// One hour of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    pub start: Time,
    pub trades: u64,
    /// GPU time that was sold, whenever it is had.
    pub gpu_ms: u64,
    /// What is paid for all of it.
    pub paid: Micros,
    pub low: Micros,
    pub high: Micros,
    pub last: Micros,
}

impl Hour {
    /// For a GPU by the hour, each trade weighing what it is.
    pub fn mean(&self) -> Micros {
        let mean = i128::from(self.paid.0) * i128::from(HOUR_MS) / i128::from(self.gpu_ms.max(1));
        Micros(i64::try_from(mean).unwrap_or(i64::MAX))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceIndex(BTreeMap<Box<str>, VecDeque<Hour>>);

impl PriceIndex {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|class| &**class)
    }

    /// Hours with trades, oldest first.
    pub fn of(&self, class: &str) -> impl Iterator<Item = &Hour> {
        self.0.get(class).into_iter().flatten()
    }

    pub(crate) fn note(&mut self, class: &str, price: Micros, gpu_ms: u64, paid: Micros, at: Time) {
        let hour_ms = HOUR_MS as i64;
        let start = Time(at.0.div_euclid(hour_ms) * hour_ms);
        if !self.0.contains_key(class) && self.0.len() >= CLASSES {
            let oldest = self
                .0
                .iter()
                .min_by_key(|(_, hours)| hours.back().map(|hour| hour.start));
            if let Some(oldest) = oldest.map(|(class, _)| class.clone()) {
                self.0.remove(&oldest);
            }
        }
        let hours = self.0.entry(class.into()).or_default();
        match hours.back_mut().filter(|hour| hour.start >= start) {
            Some(hour) => {
                hour.trades += 1;
                hour.gpu_ms = hour.gpu_ms.saturating_add(gpu_ms);
                hour.paid = Micros(hour.paid.0.saturating_add(paid.0));
                hour.low = hour.low.min(price);
                hour.high = hour.high.max(price);
                hour.last = price;
            }
            None => hours.push_back(Hour {
                start,
                trades: 1,
                gpu_ms,
                paid,
                low: price,
                high: price,
                last: price,
            }),
        }
        if hours.len() > HOURS {
            hours.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_sums_its_trades_and_old_hours_go() {
        let mut index = PriceIndex::default();
        index.note("H100", Micros(2_000_000), HOUR_MS, Micros(2_000_000), Time(5));
        index.note("H100", Micros(1_000_000), 3 * HOUR_MS, Micros(3_000_000), Time(6));
        let hour = *index.of("H100").next().expect("an hour");
        assert_eq!(
            (hour.trades, hour.mean(), hour.low, hour.high, hour.last),
            (
                2,
                Micros(1_250_000),
                Micros(1_000_000),
                Micros(2_000_000),
                Micros(1_000_000)
            )
        );
        for n in 1..1000 {
            index.note("H100", Micros(1), 1, Micros(1), Time(n * HOUR_MS as i64));
        }
        assert_eq!(index.of("H100").count(), HOURS);
    }
}
