//! Recurrences: the moments at which a booking's windows begin, from RFC 5545's RRULE, RDATE and EXDATE.
//!
//! Wall time is the promise: 09:00 stays 09:00 through daylight saving. A wall time that does not exist is left out and
//! not counted, one that occurs twice happens once, the first time. A start that its rule does not give is no
//! occurrence. Absent: how long a window is, and what is held in it. Called by `plan.rs`.

mod expand;
mod parse;
mod rule;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use serde::{Deserialize, Serialize};

use super::zone::{Wall, Zone};
use crate::refusal::Refusal;
use crate::time::Time;
use expand::Expansion;

pub use parse::{BadRule, MAX_COUNT};
pub use rule::{Bound, ByDay, Frequency, Rule};

/// Dates added or left out, each.
pub const MAX_DATES: usize = 1000;
/// Times of day of a rule by the month or the year: each of its days is gone through with each of them.
pub const MAX_TIMES_OF_DAY: usize = 96;
/// Rules that come again do so within eight years: 29 February, over the turn of a century.
const REST_FOUND_WITHIN: SignedDuration = SignedDuration::from_hours(9 * 366 * 24);

/// When something happens again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrence {
    pub start: Wall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// More of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<Wall>,
    /// Not then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Wall>,
}

/// One time it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    pub at: Time,
    pub wall: Wall,
}

/// What came of an expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrences {
    pub all: Vec<Occurrence>,
    /// There may be more beyond what was asked for.
    pub cut: bool,
}

/// Not where rules are read: journals have older ones.
fn check_times_of_day(rule: &Rule) -> Result<(), Refusal> {
    let times = rule.by_hour.len().max(1) * rule.by_minute.len().max(1);
    let long = matches!(rule.frequency, Frequency::Yearly | Frequency::Monthly);
    if !long || times <= MAX_TIMES_OF_DAY {
        return Ok(());
    }
    Err(Refusal::invalid(
        "/rule",
        format!(
            "BYHOUR and BYMINUTE together give {times} times of day, and with FREQ=MONTHLY or YEARLY it is {MAX_TIMES_OF_DAY} at most"
        ),
    )
    .hint("FREQ=DAILY or HOURLY says the same with fewer"))
}

impl Recurrence {
    pub fn once(start: Wall) -> Recurrence {
        Recurrence {
            start,
            rule: None,
            dates: Vec::new(),
            except: Vec::new(),
        }
    }

    /// Refuses more than anybody means, beside the dates that were left out of it before.
    pub fn check_beside(&self, known: &Recurrence) -> Result<(), Refusal> {
        let before: BTreeSet<&Wall> = known.except.iter().collect();
        let except = self.except.iter().filter(|wall| !before.contains(wall)).count();
        for (count, field) in [(self.dates.len(), "/dates"), (except, "/except")] {
            if count > MAX_DATES {
                return Err(Refusal::invalid(
                    field,
                    format!("at most {MAX_DATES} dates are said one by one"),
                ));
            }
        }
        self.rule.as_ref().map_or(Ok(()), check_times_of_day)
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        !matches!(
            &self.rule,
            Some(Rule {
                bound: Bound::None,
                ..
            })
        )
    }

    /// What is left of it from one of its occurrences on, as a recurrence of its own; a count is what then remains of it.
    pub fn rest(&self, from: Wall, zone: &Zone) -> Recurrence {
        let later = |walls: &[Wall]| walls.iter().copied().filter(|wall| *wall >= from).collect();
        let mut rest = Recurrence {
            start: from,
            rule: None,
            dates: later(&self.dates),
            except: later(&self.except),
        };
        let next = self.rule.clone().and_then(|mut rule| {
            let mut before = 0;
            let mut next = None;
            let last = from.0.date().checked_add(REST_FOUND_WITHIN).ok()?;
            let first = self.first_looked_at(&rule, from.0.date());
            Expansion::new(&rule, self.start.0).each(first, last, |wall| {
                if zone.moment(wall).is_some() {
                    next = Some(Wall(wall)).filter(|wall| *wall >= from);
                    before += u32::from(next.is_none());
                }
                next.is_none()
            });
            if let Bound::Count(count) = &mut rule.bound {
                *count = count.checked_sub(before).filter(|left| *left > 0)?;
            }
            Some((next?, rule))
        });
        match next {
            // INVARIANT: an occurrence the rule does not give is one of the dates, and stays one.
            Some((next, rule)) => (rest.start, rest.rule) = (next, Some(rule)),
            None => rest.dates.retain(|date| *date != from),
        }
        rest
    }

    /// Where to begin, for what happens from a day on: what is counted is counted from its start.
    fn first_looked_at(&self, rule: &Rule, from: Date) -> Date {
        match rule.bound {
            Bound::Count(_) => self.start.0.date(),
            Bound::None | Bound::Until(_) => from,
        }
    }

    /// Its occurrences before `until`, the first `most` of them.
    pub fn occurrences(&self, zone: &Zone, until: Time, most: usize) -> Occurrences {
        let first = zone.moment_or_later(self.start.0).unwrap_or(Time(0));
        let first = self
            .dates
            .iter()
            .filter_map(|wall| zone.moment(wall.0))
            .fold(first, Time::min);
        self.between(zone, first, until, most)
    }

    /// Its occurrences from one moment to before another, the first `most` of them. What it costs is theirs, and not that
    /// of all that was before.
    pub fn between(&self, zone: &Zone, from: Time, until: Time, most: usize) -> Occurrences {
        let mut found = self.given(zone, from, until, most);
        let mut cut = found.cut;
        let dates = self.dates.iter();
        found.all.extend(dates.filter_map(|wall| {
            let at = zone.moment(wall.0).filter(|at| (from..until).contains(at))?;
            Some(Occurrence { at, wall: *wall })
        }));
        found.all.sort();
        found.all.dedup_by_key(|occurrence| occurrence.at);
        let except: BTreeSet<Wall> = self.except.iter().copied().collect();
        found.all.retain(|occurrence| !except.contains(&occurrence.wall));
        if found.all.len() > most {
            found.all.truncate(most);
            cut = true;
        }
        Occurrences { all: found.all, cut }
    }

    /// What the rule gives, or the start alone where there is none.
    fn given(&self, zone: &Zone, from: Time, until: Time, most: usize) -> Occurrences {
        let mut all = Vec::new();
        let mut cut = false;
        let Some(rule) = &self.rule else {
            let at = zone.moment(self.start.0);
            all.extend(
                at.filter(|at| (from..until).contains(at))
                    .map(|at| Occurrence { at, wall: self.start }),
            );
            return Occurrences { all, cut };
        };
        let last_wall = zone.wall(until).unwrap_or(DateTime::MAX).date();
        // Clocks differ from one offset to the next by a day at most.
        let last = last_wall.tomorrow().unwrap_or(last_wall);
        let first_wall = zone.wall(from).unwrap_or(self.start.0).date();
        let first = self.first_looked_at(rule, first_wall.yesterday().unwrap_or(first_wall));
        // What is left out is among these, so that enough is left.
        let most = most.saturating_add(self.except.len());
        let ends = match rule.bound {
            Bound::Until(moment) => moment.to_zoned(jiff::tz::TimeZone::UTC).ok(),
            _ => None,
        };
        let ends = ends.map(|ends| Time(ends.timestamp().as_millisecond()));
        let count = match rule.bound {
            Bound::Count(count) => count as usize,
            _ => usize::MAX,
        };
        let mut given = 0;
        Expansion::new(rule, self.start.0).each(first, last, |wall| {
            let Some(at) = zone.moment(wall) else {
                return true;
            };
            if ends.is_some_and(|ends| at > ends) || given >= count {
                return false;
            }
            if all.len() >= most {
                cut = true;
                return false;
            }
            given += 1;
            match at < until {
                true if at >= from => all.push(Occurrence { at, wall: Wall(wall) }),
                true => {}
                false => cut = true,
            }
            true
        });
        let unbounded = ends.is_none() && count == usize::MAX;
        Occurrences {
            cut: cut || unbounded,
            all,
        }
    }
}
