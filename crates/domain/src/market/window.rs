//! When an offer is open: always, once, or every day between two times of the day in a zone.
//!
//! Wall time is the promise, as with bookings: 22:00 stays 22:00 through daylight saving. Days are read into moments some
//! time ahead, for a bid that comes later brings no zone. Read by `offer`, read on by `advance`.

use serde::{Deserialize, Serialize};

use crate::booking::zone::Zone;
use crate::refusal::Refusal;
use crate::time::Time;

/// Days that are read ahead.
const DAYS: i64 = 14;
pub const DAY_MS: u64 = 86_400_000;
const MINUTES: u16 = 24 * 60;

/// When an offer stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "when", deny_unknown_fields)]
pub enum Windows {
    Always,
    Once {
        #[cfg_attr(feature = "schema", schema(value_type = i64))]
        start: Time,
        #[cfg_attr(feature = "schema", schema(value_type = i64))]
        end: Time,
    },
    /// Minutes of the day by the clocks of an IANA zone; one that ends no later than it starts ends the next day.
    Daily {
        from_minute: u16,
        until_minute: u16,
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        zone: Box<str>,
    },
}

/// From one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub start: Time,
    pub end: Time,
}

impl Windows {
    pub fn check(&self, at: Time) -> Result<(), Refusal> {
        match self {
            Windows::Always => Ok(()),
            Windows::Once { start, end } if start >= end => {
                Err(Refusal::invalid("/windows/end", "a window ends after it starts"))
            }
            Windows::Once { end, .. } if *end <= at => {
                Err(Refusal::invalid("/windows/end", "the window is over already"))
            }
            Windows::Once { .. } => Ok(()),
            Windows::Daily {
                from_minute,
                until_minute,
                ..
            } => {
                if *from_minute >= MINUTES || *until_minute >= MINUTES {
                    return Err(Refusal::invalid(
                        "/windows/from_minute",
                        "a day has minutes 0 to 1439",
                    ));
                }
                if from_minute == until_minute {
                    return Err(
                        Refusal::invalid("/windows/until_minute", "the window has no length")
                            .hint("leave windows out for an offer that always stands"),
                    );
                }
                Ok(())
            }
        }
    }

    /// The moments it is open from now on, some way ahead.
    pub fn open(&self, zone: Option<&Zone>, at: Time) -> Vec<Span> {
        match self {
            Windows::Always => vec![Span {
                start: at,
                end: Time(i64::MAX),
            }],
            Windows::Once { start, end } => vec![Span {
                start: *start,
                end: *end,
            }],
            Windows::Daily {
                from_minute,
                until_minute,
                ..
            } => zone.map_or(vec![], |zone| daily(*from_minute, *until_minute, zone, at)),
        }
    }

    /// When more days have to be read, this being the end of those that are; or when it is over.
    pub fn due(&self, end: Time) -> Time {
        match self {
            Windows::Daily { .. } => Time(end.0.saturating_sub_unsigned(DAY_MS * (DAYS as u64) / 2)),
            _ => end,
        }
    }
}

fn daily(from: u16, until: u16, zone: &Zone, at: Time) -> Vec<Span> {
    let Some(today) = zone.wall(at).map(|wall| wall.date()) else {
        return vec![];
    };
    let moment = |day: i64, minute: u16| {
        let date = today.checked_add(jiff::Span::new().days(day)).ok()?;
        let wall = date.at((minute / 60) as i8, (minute % 60) as i8, 0, 0);
        zone.moment_or_later(wall)
    };
    let next_day = i64::from(until <= from);
    let spans = (-1..DAYS).filter_map(|day| {
        let (start, end) = (moment(day, from)?, moment(day + next_day, until)?);
        (end > at && start < end).then_some(Span { start, end })
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::parse_rfc3339(text).expect("a moment")
    }

    #[test]
    fn a_night_keeps_its_wall_times_through_daylight_saving() {
        let zone = Zone::bundled("Europe/Berlin").expect("a zone");
        let nights = Windows::Daily {
            from_minute: 22 * 60,
            until_minute: 6 * 60,
            zone: "Europe/Berlin".into(),
        };
        let open = nights.open(Some(&zone), at("2026-03-27T12:00:00Z"));
        let shown: Vec<String> = open[..3]
            .iter()
            .map(|span| format!("{} {}", span.start.rfc3339(), span.end.rfc3339()))
            .collect();
        assert_eq!(
            shown,
            [
                "2026-03-27T21:00:00Z 2026-03-28T05:00:00Z",
                "2026-03-28T21:00:00Z 2026-03-29T04:00:00Z",
                "2026-03-29T20:00:00Z 2026-03-30T04:00:00Z",
            ]
        );
        let within = nights.open(Some(&zone), at("2026-03-27T02:00:00Z"));
        assert_eq!(
            within[0].start,
            at("2026-03-26T21:00:00Z"),
            "the night that is on counts"
        );
    }
}
