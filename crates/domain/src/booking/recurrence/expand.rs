//! The wall times a rule gives, in order, period by period: RFC 5545, section 3.3.10.
//!
//! What a wall time means in its zone is not asked here. Always ends: periods are counted up to the day it is given.

use jiff::Span;
use jiff::civil::{Date, DateTime, Weekday};

use super::rule::{ByDay, Frequency, Rule};

/// The rule with what its start says where it says nothing itself.
pub(super) struct Expansion {
    rule: Rule,
    start: DateTime,
    hours: Vec<i8>,
    minutes: Vec<i8>,
}

impl Expansion {
    pub fn new(rule: &Rule, start: DateTime) -> Expansion {
        let mut rule = rule.clone();
        let says_days = !rule.by_week_no.is_empty()
            || !rule.by_year_day.is_empty()
            || !rule.by_month_day.is_empty()
            || !rule.by_day.is_empty();
        if !says_days {
            match rule.frequency {
                Frequency::Yearly => {
                    if rule.by_month.is_empty() {
                        rule.by_month = vec![start.month()];
                    }
                    rule.by_month_day = vec![start.day()];
                }
                Frequency::Monthly => rule.by_month_day = vec![start.day()],
                Frequency::Weekly => {
                    rule.by_day = vec![ByDay {
                        nth: None,
                        day: start.weekday(),
                    }]
                }
                Frequency::Daily | Frequency::Hourly => {}
            }
        }
        let or = |said: &[i8], start: i8| {
            if said.is_empty() {
                vec![start]
            } else {
                said.to_vec()
            }
        };
        Expansion {
            hours: or(&rule.by_hour, start.hour()),
            minutes: or(&rule.by_minute, start.minute()),
            rule,
            start,
        }
    }

    /// Gives each wall time from the start to the last day to `take`, until that says stop. Periods that are over before
    /// the first day are passed by, however many they are.
    pub fn each(&self, first: Date, last: Date, mut take: impl FnMut(DateTime) -> bool) {
        let mut number = self.number_on(first);
        while let Some(period) = self.period(number).filter(|period| period.begins() <= last) {
            let mut walls = self.walls(&period);
            if !self.rule.by_set_pos.is_empty() {
                walls = self.at_positions(&walls);
            }
            for wall in walls.into_iter().filter(|wall| *wall >= self.start) {
                if wall.date() > last || !take(wall) {
                    return;
                }
            }
            number += i64::from(self.rule.interval);
        }
    }

    /// The last period with a turn that begins by a day; the start's own where that is later.
    fn number_on(&self, day: Date) -> i64 {
        let start = self.start.date();
        let days = || start.until(day).map_or(0, |span| i64::from(span.get_days()));
        let number = match self.rule.frequency {
            Frequency::Yearly => i64::from(day.year()) - i64::from(start.year()),
            Frequency::Monthly => {
                let months = |day: Date| i64::from(day.year()) * 12 + i64::from(day.month());
                months(day) - months(start)
            }
            Frequency::Weekly => {
                let into = i64::from(since(self.rule.week_start, start.weekday()));
                (days() + into).div_euclid(7)
            }
            Frequency::Daily => days(),
            Frequency::Hourly => days() * 24 - i64::from(self.start.hour()),
        };
        let interval = i64::from(self.rule.interval);
        number.max(0) / interval * interval
    }

    /// The so-manyth period from the one the start is in.
    fn period(&self, number: i64) -> Option<Period> {
        let start = self.start.date();
        match self.rule.frequency {
            Frequency::Yearly => {
                let year = i16::try_from(i64::from(start.year()) + number).ok()?;
                let first = Date::new(year, 1, 1).ok()?;
                Some(Period::days(first, first.days_in_year()))
            }
            Frequency::Monthly => {
                let months = i64::from(start.year()) * 12 + i64::from(start.month()) - 1 + number;
                let year = i16::try_from(months.div_euclid(12)).ok()?;
                let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
                let first = Date::new(year, month, 1).ok()?;
                Some(Period::days(first, first.days_in_month().into()))
            }
            Frequency::Weekly => {
                let into = since(self.rule.week_start, start.weekday());
                // The first week is what is left of it: nothing before the start is anybody's to count.
                if number == 0 {
                    return Some(Period::days(start, i16::from(7 - into)));
                }
                let first = plus_days(start, number.checked_mul(7)?.checked_sub(into.into())?)?;
                Some(Period::days(first, 7))
            }
            Frequency::Daily => Some(Period::days(plus_days(start, number)?, 1)),
            Frequency::Hourly => {
                let hours = i64::from(self.start.hour()) + number;
                let day = plus_days(start, hours.div_euclid(24))?;
                let hour = i8::try_from(hours.rem_euclid(24)).ok()?;
                Some(Period {
                    hour: Some(hour),
                    ..Period::days(day, 1)
                })
            }
        }
    }

    fn walls(&self, period: &Period) -> Vec<DateTime> {
        let hours = match period.hour {
            None => &self.hours[..],
            Some(hour) if self.rule.by_hour.is_empty() || self.rule.by_hour.contains(&hour) => &[hour][..],
            Some(_) => return Vec::new(),
        };
        let mut walls = Vec::new();
        for day in period.dates().filter(|day| self.takes(*day)) {
            for hour in hours {
                for minute in &self.minutes {
                    walls.push(day.at(*hour, *minute, self.start.second(), 0));
                }
            }
        }
        walls
    }

    fn at_positions(&self, walls: &[DateTime]) -> Vec<DateTime> {
        let at = |position: &i16| {
            let position = i32::from(*position);
            let index = if position > 0 {
                position - 1
            } else {
                walls.len() as i32 + position
            };
            usize::try_from(index)
                .ok()
                .and_then(|index| walls.get(index).copied())
        };
        let mut chosen: Vec<DateTime> = self.rule.by_set_pos.iter().filter_map(at).collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    fn takes(&self, day: Date) -> bool {
        let rule = &self.rule;
        let fits = |set: bool, fits: bool| !set || fits;
        fits(!rule.by_month.is_empty(), rule.by_month.contains(&day.month()))
            && fits(!rule.by_month_day.is_empty(), {
                let from_end = day.day() - day.days_in_month() - 1;
                rule.by_month_day.contains(&day.day()) || rule.by_month_day.contains(&from_end)
            })
            && fits(!rule.by_year_day.is_empty(), {
                let from_end = day.day_of_year() - day.days_in_year() - 1;
                rule.by_year_day.contains(&day.day_of_year()) || rule.by_year_day.contains(&from_end)
            })
            && (rule.by_day.is_empty() || rule.by_day.iter().any(|by| self.is_day(day, *by)))
            && (rule.by_week_no.is_empty() || self.is_in_weeks(day))
    }

    fn is_day(&self, day: Date, by: ByDay) -> bool {
        if day.weekday() != by.day {
            return false;
        }
        let Some(nth) = by.nth else {
            return true;
        };
        // Counted within the month where the rule speaks of months, else within the year.
        let of_month = self.rule.frequency == Frequency::Monthly || !self.rule.by_month.is_empty();
        let (number, length) = match of_month {
            true => (i16::from(day.day()), i16::from(day.days_in_month())),
            false => (day.day_of_year(), day.days_in_year()),
        };
        match nth > 0 {
            true => i16::from(nth) == (number - 1) / 7 + 1,
            false => i16::from(-nth) == (length - number) / 7 + 1,
        }
    }

    /// Weeks are those of ISO 8601, but for the day they begin on: the first has four days of the year at least.
    fn is_in_weeks(&self, day: Date) -> bool {
        let Some((week, of)) = week_number(day, self.rule.week_start) else {
            return false;
        };
        self.rule.by_week_no.contains(&week) || self.rule.by_week_no.contains(&(week - of - 1))
    }
}

/// The week a day is in, and how many its year of weeks has.
fn week_number(day: Date, week_start: Weekday) -> Option<(i8, i8)> {
    let year = day.year();
    let first = first_week(year, week_start)?;
    let next = first_week(year + 1, week_start)?;
    let (first, next) = match (day < first, day >= next) {
        (true, _) => (first_week(year - 1, week_start)?, first),
        (_, true) => (next, first_week(year + 2, week_start)?),
        _ => (first, next),
    };
    let weeks = |from: Date, to: Date| i8::try_from(from.until(to).ok()?.get_days() / 7).ok();
    Some((weeks(first, day)? + 1, weeks(first, next)?))
}

fn first_week(year: i16, week_start: Weekday) -> Option<Date> {
    let first = Date::new(year, 1, 1).ok()?;
    let into = i64::from(since(week_start, first.weekday()));
    plus_days(first, if into <= 3 { -into } else { 7 - into })
}

fn since(week_start: Weekday, day: Weekday) -> i8 {
    (day.to_monday_zero_offset() - week_start.to_monday_zero_offset()).rem_euclid(7)
}

fn plus_days(day: Date, days: i64) -> Option<Date> {
    day.checked_add(Span::new().try_days(days).ok()?).ok()
}

struct Period {
    first: Date,
    days: i16,
    hour: Option<i8>,
}

impl Period {
    fn days(first: Date, days: i16) -> Period {
        Period {
            first,
            days,
            hour: None,
        }
    }

    fn begins(&self) -> Date {
        self.first
    }

    fn dates(&self) -> impl Iterator<Item = Date> {
        let first = self.first;
        (0..i64::from(self.days)).filter_map(move |day| plus_days(first, day))
    }
}
