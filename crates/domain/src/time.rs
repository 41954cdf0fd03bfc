//! Moments and lengths. A moment is milliseconds since 1970 UTC and only ever arrives inside a command;
//! zones matter where people read and write, never here.

use serde::{Deserialize, Serialize};

pub const SECOND_MS: u64 = 1000;
pub const HOUR_MS: u64 = 3_600_000;

/// A moment: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(pub i64);

impl Time {
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add_unsigned(ms))
    }

    /// Milliseconds from `earlier` to here; zero when the clock went backwards.
    pub fn since_ms(self, earlier: Time) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    pub fn parse_rfc3339(text: &str) -> Option<Time> {
        text.parse::<jiff::Timestamp>()
            .ok()
            .map(|moment| Time(moment.as_millisecond()))
    }

    /// RFC 3339 in UTC, for sentences a person reads.
    pub fn rfc3339(self) -> String {
        jiff::Timestamp::from_millisecond(self.0).map_or_else(|_| format!("{} ms", self.0), |t| t.to_string())
    }
}

/// The length over which a budget counts.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Day,
    Week,
    Month,
    Total,
}

impl Period {
    pub const ALL: [Period; 4] = [Period::Day, Period::Week, Period::Month, Period::Total];

    pub fn as_str(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Total => "total",
        }
    }

    /// When the period that holds `at` began, in UTC; weeks begin on Monday.
    pub fn start(self, at: Time) -> Time {
        const DAY_MS: i64 = 86_400_000;
        let day = at.0.div_euclid(DAY_MS);
        match self {
            Period::Day => Time(day * DAY_MS),
            // Day 0 was a Thursday, three days after its week's Monday.
            Period::Week => Time((day - (day + 3).rem_euclid(7)) * DAY_MS),
            Period::Month => {
                // Beyond what a calendar knows.
                if jiff::Timestamp::from_millisecond(at.0).is_err() {
                    return Time(0);
                }
                Time((day - days_into_month(day)) * DAY_MS)
            }
            Period::Total => Time(i64::MIN),
        }
    }

    /// When the period that holds `at` ends and the next begins; none for one that never does.
    pub fn end(self, at: Time) -> Option<Time> {
        const DAY_MS: u64 = 86_400_000;
        let start = self.start(at);
        match self {
            Period::Day => Some(start.plus_ms(DAY_MS)),
            Period::Week => Some(start.plus_ms(7 * DAY_MS)),
            // Whatever its length, 31 days after its first the next month has begun, and not ended.
            Period::Month => Some(self.start(start.plus_ms(31 * DAY_MS))).filter(|end| *end > at),
            Period::Total => None,
        }
    }
}

/// How many days of its month lie before a day that is told from 1970. Reckoned here because every hold asks for it
/// at every scope; years begin in March, so that the odd day comes last.
fn days_into_month(day: i64) -> i64 {
    // Day 0 is 719,468 days after 1 March of the year 0; a cycle of 400 years has 146,097.
    let of_cycle = (day + 719_468).rem_euclid(146_097);
    let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    of_year - (153 * month + 2) / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_as_in_the_calendar() {
        let start = jiff::civil::date(1583, 1, 1);
        for n in 0..400_000 {
            let date = start.checked_add(jiff::Span::new().days(n)).expect("a date");
            let day = start.duration_until(jiff::civil::date(1970, 1, 1)).as_hours() / 24;
            assert_eq!(
                days_into_month(i64::from(n) - day),
                i64::from(date.day()) - 1,
                "{date}"
            );
        }
    }

    #[test]
    fn a_period_ends_where_the_next_begins() {
        let late = at("2028-02-29T23:59:59Z");
        for (period, end) in [
            (Period::Day, "2028-03-01T00:00:00Z"),
            (Period::Week, "2028-03-06T00:00:00Z"),
            (Period::Month, "2028-03-01T00:00:00Z"),
        ] {
            assert_eq!(period.end(late), Some(at(end)), "{period:?}");
        }
        assert_eq!(
            Period::Month.end(at("2026-12-31T00:00:00Z")),
            Some(at("2027-01-01T00:00:00Z"))
        );
        assert_eq!(Period::Total.end(late), None);
        assert_eq!(
            Period::Month.end(Time(i64::MAX)),
            None,
            "beyond what a calendar knows"
        );
    }

    fn at(text: &str) -> Time {
        Time(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn periods_start_where_calendars_say() {
        let noon = at("2026-03-01T12:00:00Z");
        assert_eq!(Period::Day.start(noon), at("2026-03-01T00:00:00Z"));
        assert_eq!(Period::Week.start(noon), at("2026-02-23T00:00:00Z"));
        assert_eq!(Period::Month.start(noon), at("2026-03-01T00:00:00Z"));
        assert_eq!(
            Period::Month.start(at("2024-02-29T23:59:59.999Z")),
            at("2024-02-01T00:00:00Z")
        );
        assert_eq!(
            Period::Week.start(at("1969-12-31T23:00:00Z")),
            at("1969-12-29T00:00:00Z")
        );
    }
}
