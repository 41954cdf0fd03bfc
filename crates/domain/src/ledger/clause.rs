//! Clauses: what of a price depends on when it is and how much was used. Fixed for a job when it is admitted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::money::Micros;

/// A time of day on the wall, to the minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(pub u16);

impl FromStr for Clock {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Clock, &'static str> {
        let wrong = "a time of day is written 22:00";
        let (hour, minute) = text.split_once(':').ok_or(wrong)?;
        let digits = |part: &str| {
            let shaped = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            shaped.then(|| part.parse::<u16>().ok()).flatten().ok_or(wrong)
        };
        let (hour, minute) = (digits(hour)?, digits(minute)?);
        (hour < 24 && minute < 60)
            .then_some(Clock(hour * 60 + minute))
            .ok_or(wrong)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl Serialize for Clock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Clock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A factor for a part of every day: from one time on the wall to another, over midnight where the second is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DayWindow {
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "22:00"))]
    pub from: Clock,
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "06:00"))]
    pub to: Clock,
    pub permille: u32,
}

impl DayWindow {
    pub fn holds(&self, minute: u16) -> bool {
        let (from, to) = (self.from.0, self.to.0);
        match from < to {
            true => (from..to).contains(&minute),
            false => minute >= from || minute < to,
        }
    }
}

/// A factor from so much GPU time in a month on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tier {
    pub from_gpu_hours: u64,
    pub permille: u32,
}

/// What of a price depends on when and how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clauses {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<DayWindow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    #[serde(default)]
    pub minimum: Micros,
    /// Each frame that was made costs this, and time nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<Micros>,
}

impl Clauses {
    pub fn is_plain(&self) -> bool {
        *self == Clauses::default()
    }

    /// The largest factor there can be; tiers only make cheaper.
    pub fn most_permille(&self) -> u32 {
        let windows = self.windows.iter().map(|window| window.permille);
        windows.chain([1000]).max().unwrap_or(1000)
    }

    /// What is due when so many frames were made and `charged` was charged before: the frames, and what is missing to
    /// the minimum.
    pub fn due_at_end(&self, charged: Micros, frames: u64) -> Micros {
        let frames = i64::try_from(frames).unwrap_or(i64::MAX);
        let made = self.frame.map_or(0, |frame| frame.0.saturating_mul(frames));
        let missing = self.minimum.0 - charged.0.saturating_add(made);
        Micros(made.saturating_add(missing.max(0)))
    }
}
