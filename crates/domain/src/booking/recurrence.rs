//! Recurrences: the moments at which a booking's windows begin, from RFC 5545's RRULE, RDATE and EXDATE.
//!
//! Wall time is the promise: 09:00 stays 09:00 through daylight saving. A wall time that does not exist is left out and
//! not counted, one that occurs twice happens once, the first time. A start that its rule does not give is no
//! occurrence. Absent: how long a window is, and what is held in it. Called by `plan.rs`.

mod expand;
mod parse;
mod rule;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use super::zone::{Wall, Zone};
use crate::refusal::Refusal;
use crate::time::Time;
use expand::Expansion;

pub use parse::{BadRule, MAX_COUNT};
pub use rule::{Bound, ByDay, Frequency, Rule};

/// Dates added or left out, each.
pub const MAX_DATES: usize = 1000;
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

impl Recurrence {
    pub fn once(start: Wall) -> Recurrence {
        Recurrence {
            start,
            rule: None,
            dates: Vec::new(),
            except: Vec::new(),
        }
    }

    pub fn check(&self) -> Result<(), Refusal> {
        for (dates, field) in [(&self.dates, "/dates"), (&self.except, "/except")] {
            if dates.len() > MAX_DATES {
                return Err(Refusal::invalid(
                    field,
                    format!("at most {MAX_DATES} dates are said one by one"),
                ));
            }
        }
        Ok(())
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
            Expansion::new(&rule, self.start.0).each(last, |wall| {
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

    /// Its occurrences before `until`, the first `most` of them.
    pub fn occurrences(&self, zone: &Zone, until: Time, most: usize) -> Occurrences {
        let mut found = self.given(zone, until, most);
        let mut cut = found.cut;
        let dates = self.dates.iter();
        found.all.extend(dates.filter_map(|wall| {
            let at = zone.moment(wall.0).filter(|at| *at < until)?;
            Some(Occurrence { at, wall: *wall })
        }));
        found.all.sort();
        found.all.dedup_by_key(|occurrence| occurrence.at);
        let except: std::collections::BTreeSet<Wall> = self.except.iter().copied().collect();
        found.all.retain(|occurrence| !except.contains(&occurrence.wall));
        if found.all.len() > most {
            found.all.truncate(most);
            cut = true;
        }
        Occurrences { all: found.all, cut }
    }

    /// What the rule gives, or the start alone where there is none.
    fn given(&self, zone: &Zone, until: Time, most: usize) -> Occurrences {
        let mut all = Vec::new();
        let mut cut = false;
        let Some(rule) = &self.rule else {
            let at = zone.moment(self.start.0);
            all.extend(
                at.filter(|at| *at < until)
                    .map(|at| Occurrence { at, wall: self.start }),
            );
            return Occurrences { all, cut };
        };
        let last_wall = zone.wall(until).unwrap_or(DateTime::MAX).date();
        // Clocks differ from one offset to the next by a day at most.
        let last = last_wall.tomorrow().unwrap_or(last_wall);
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
        Expansion::new(rule, self.start.0).each(last, |wall| {
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
            if at < until {
                all.push(Occurrence { at, wall: Wall(wall) });
            } else {
                cut = true;
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
