//! A recurrence rule: what RFC 5545 calls RECUR, as far as a booking can mean it.
//!
//! MINUTELY and SECONDLY are deliberately absent: nobody books a GPU by the minute for a year. Read by `parse.rs`.

use std::fmt;

use jiff::civil::{DateTime, Weekday};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frequency {
    Yearly,
    Monthly,
    Weekly,
    Daily,
    Hourly,
}

impl Frequency {
    pub const ALL: [(Frequency, &'static str); 5] = [
        (Frequency::Yearly, "YEARLY"),
        (Frequency::Monthly, "MONTHLY"),
        (Frequency::Weekly, "WEEKLY"),
        (Frequency::Daily, "DAILY"),
        (Frequency::Hourly, "HOURLY"),
    ];
}

/// A weekday: every one of the period, or the so-manyth, from its end if negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByDay {
    pub nth: Option<i8>,
    pub day: Weekday,
}

/// When a rule has no more occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    None,
    Count(u32),
    /// The last moment it may begin at, in UTC.
    Until(DateTime),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub frequency: Frequency,
    pub interval: u16,
    pub bound: Bound,
    pub by_month: Vec<i8>,
    pub by_week_no: Vec<i8>,
    pub by_year_day: Vec<i16>,
    pub by_month_day: Vec<i8>,
    pub by_day: Vec<ByDay>,
    pub by_hour: Vec<i8>,
    pub by_minute: Vec<i8>,
    pub by_set_pos: Vec<i16>,
    pub week_start: Weekday,
}

pub(super) const DAYS: [(Weekday, &str); 7] = [
    (Weekday::Monday, "MO"),
    (Weekday::Tuesday, "TU"),
    (Weekday::Wednesday, "WE"),
    (Weekday::Thursday, "TH"),
    (Weekday::Friday, "FR"),
    (Weekday::Saturday, "SA"),
    (Weekday::Sunday, "SU"),
];

fn day_word(day: Weekday) -> &'static str {
    DAYS[day.to_monday_zero_offset() as usize].1
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, name: &str, values: &[T]) -> fmt::Result {
    if values.is_empty() {
        return Ok(());
    }
    let values: Vec<String> = values.iter().map(T::to_string).collect();
    write!(f, ";{name}={}", values.join(","))
}

impl fmt::Display for ByDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nth) = self.nth {
            write!(f, "{nth}")?;
        }
        f.write_str(day_word(self.day))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Frequency::ALL
            .iter()
            .find(|(frequency, _)| *frequency == self.frequency);
        write!(f, "FREQ={}", word.map_or("", |(_, word)| word))?;
        if self.interval > 1 {
            write!(f, ";INTERVAL={}", self.interval)?;
        }
        match self.bound {
            Bound::None => {}
            Bound::Count(count) => write!(f, ";COUNT={count}")?,
            Bound::Until(until) => write!(f, ";UNTIL={}Z", until.strftime("%Y%m%dT%H%M%S"))?,
        }
        list(f, "BYMONTH", &self.by_month)?;
        list(f, "BYWEEKNO", &self.by_week_no)?;
        list(f, "BYYEARDAY", &self.by_year_day)?;
        list(f, "BYMONTHDAY", &self.by_month_day)?;
        list(f, "BYDAY", &self.by_day)?;
        list(f, "BYHOUR", &self.by_hour)?;
        list(f, "BYMINUTE", &self.by_minute)?;
        list(f, "BYSETPOS", &self.by_set_pos)?;
        if self.week_start != Weekday::Monday {
            write!(f, ";WKST={}", day_word(self.week_start))?;
        }
        Ok(())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
