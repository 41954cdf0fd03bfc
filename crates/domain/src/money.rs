//! Money: whole micros of one currency. No floats; every product is checked in 128 bits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::HOUR_MS;

/// An amount in millionths of the platform's currency unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Micros(pub i64);

impl Micros {
    pub const ZERO: Micros = Micros(0);

    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    pub fn checked_add(self, other: Micros) -> Option<Micros> {
        self.0.checked_add(other.0).map(Micros)
    }

    /// What `ms` milliseconds cost at `self` an hour, rounded down. The charge for an interval is the
    /// difference of two such totals, so rounding never accumulates.
    pub fn for_ms_at_hourly(self, ms: u64) -> Micros {
        let total = i128::from(self.0) * i128::from(ms) / i128::from(HOUR_MS);
        Micros(i64::try_from(total).unwrap_or(i64::MAX))
    }

    /// The part of `self` that `milli` thousandths are, rounded up so that a slice is never free by rounding.
    pub fn times_milli(self, milli: u64) -> Micros {
        let total = (i128::from(self.0) * i128::from(milli) + 999) / 1000;
        Micros(i64::try_from(total).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:06}", magnitude / 1_000_000, magnitude % 1_000_000)
    }
}

/// A three-letter ISO 4217 code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    pub const EUR: Currency = Currency(*b"EUR");
    pub const USD: Currency = Currency(*b"USD");
}

impl FromStr for Currency {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letters: [u8; 3] = text
            .as_bytes()
            .try_into()
            .map_err(|_| "a currency is three letters")?;
        if letters.iter().all(u8::is_ascii_uppercase) {
            Ok(Currency(letters))
        } else {
            Err("a currency is three capital letters")
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_charges_add_up_to_the_total() {
        let hourly = Micros(1_000_003);
        let cuts = [0, 1, 999, 1_000, 60_000, 3_599_999, 7_200_001];
        let sum: i64 = cuts
            .windows(2)
            .map(|w| hourly.for_ms_at_hourly(w[1]).0 - hourly.for_ms_at_hourly(w[0]).0)
            .sum();
        assert_eq!(sum, hourly.for_ms_at_hourly(7_200_001).0);
    }

    #[test]
    fn money_prints_exactly() {
        assert_eq!(Micros(-1_500_000).to_string(), "-1.500000");
        assert_eq!(Micros(i64::MIN).to_string(), "-9223372036854.775808");
    }
}
