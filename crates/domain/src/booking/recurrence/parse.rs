//! Reading a rule strictly: each part once, each value within what RFC 5545 gives it, and no part where the RFC says
//! it must not be. What is refused names the part at fault.

use std::str::FromStr;

use jiff::civil::{DateTime, Weekday};

use super::rule::{Bound, ByDay, DAYS, Frequency, Rule};

/// Longer than any rule that means something.
const MAX_BYTES: usize = 1000;
const MAX_INTERVAL: u16 = 10_000;
pub const MAX_COUNT: u32 = 10_000;

/// A part of a rule that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {why}")]
pub struct BadRule {
    pub part: &'static str,
    pub why: String,
}

fn bad(part: &'static str, why: impl Into<String>) -> BadRule {
    BadRule {
        part,
        why: why.into(),
    }
}

#[derive(Default)]
struct Parts<'a> {
    values: [Option<&'a str>; NAMES.len()],
}

const NAMES: [&str; 14] = [
    "FREQ",
    "INTERVAL",
    "COUNT",
    "UNTIL",
    "BYMONTH",
    "BYWEEKNO",
    "BYYEARDAY",
    "BYMONTHDAY",
    "BYDAY",
    "BYHOUR",
    "BYMINUTE",
    "BYSECOND",
    "BYSETPOS",
    "WKST",
];

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Parts<'a>, BadRule> {
        let mut parts = Parts::default();
        for part in text.split(';') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| bad("RRULE", "parts are written NAME=VALUE and divided by ';'"))?;
            let index = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
            let index =
                index.ok_or_else(|| bad("RRULE", format!("a part is one of {}", NAMES.join(", "))))?;
            if parts.values[index].replace(value).is_some() {
                return Err(bad(NAMES[index], "said twice"));
            }
        }
        Ok(parts)
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.values[index]
    }
}

fn number<T: TryFrom<i64>>(
    part: &'static str,
    text: &str,
    fine: impl Fn(i64) -> bool,
    range: &str,
) -> Result<T, BadRule> {
    let refuse = || bad(part, format!("a value is {range}"));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse());
    }
    let number: i64 = text.parse().map_err(|_| refuse())?;
    if !fine(number) {
        return Err(refuse());
    }
    T::try_from(number).map_err(|_| refuse())
}

/// Values in order, each once: a set.
fn numbers<T: TryFrom<i64> + Ord>(
    parts: &Parts<'_>,
    part: &'static str,
    fine: impl Fn(i64) -> bool,
    range: &str,
) -> Result<Vec<T>, BadRule> {
    let Some(text) = parts.get(part) else {
        return Ok(Vec::new());
    };
    let numbers = text.split(',').map(|text| number(part, text, &fine, range));
    let mut numbers = numbers.collect::<Result<Vec<T>, _>>()?;
    numbers.sort();
    numbers.dedup();
    Ok(numbers)
}

fn weekday(part: &'static str, text: &str) -> Result<Weekday, BadRule> {
    let found = DAYS.iter().find(|(_, word)| word.eq_ignore_ascii_case(text));
    found
        .map(|(day, _)| *day)
        .ok_or_else(|| bad(part, "a day is MO, TU, WE, TH, FR, SA or SU"))
}

fn by_day(parts: &Parts<'_>) -> Result<Vec<ByDay>, BadRule> {
    let Some(text) = parts.get("BYDAY") else {
        return Ok(Vec::new());
    };
    let mut days: Vec<ByDay> = Vec::new();
    for text in text.split(',') {
        let cut = text
            .len()
            .checked_sub(2)
            .filter(|cut| text.is_char_boundary(*cut));
        let (nth, word) = text.split_at(cut.ok_or_else(|| bad("BYDAY", "a day is MO, or 2MO, or -1MO"))?);
        let nth = match nth {
            "" => None,
            nth => Some(number(
                "BYDAY",
                nth,
                |n| n != 0 && (-53..=53).contains(&n),
                "1 to 53, or -53 to -1, before a day",
            )?),
        };
        let day = ByDay {
            nth,
            day: weekday("BYDAY", word)?,
        };
        if !days.contains(&day) {
            days.push(day);
        }
    }
    Ok(days)
}

fn until(text: &str) -> Result<DateTime, BadRule> {
    let refuse = || bad("UNTIL", "the last moment is written in UTC, as 20261231T235959Z");
    let digits = |range: std::ops::Range<usize>| {
        text.get(range)
            .filter(|part| part.bytes().all(|b| b.is_ascii_digit()))
    };
    let shaped = text.len() == 16 && text.is_ascii() && text.as_bytes()[8] == b'T' && text.ends_with('Z');
    if !shaped {
        return Err(refuse());
    }
    let part = |range| -> Option<i16> { digits(range)?.parse().ok() };
    let small = |range| -> Option<i8> { digits(range)?.parse().ok() };
    let made = || {
        DateTime::new(
            part(0..4)?,
            small(4..6)?,
            small(6..8)?,
            small(9..11)?,
            small(11..13)?,
            small(13..15)?,
            0,
        )
        .ok()
    };
    made().filter(|until| until.year() >= 1970).ok_or_else(refuse)
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Rule, BadRule> {
        if text.len() > MAX_BYTES {
            return Err(bad("RRULE", format!("a rule has at most {MAX_BYTES} characters")));
        }
        let parts = Parts::split(text)?;
        let within = |most: i64| move |n: i64| n != 0 && n.abs() <= most;
        let bound = match (parts.get("COUNT"), parts.get("UNTIL")) {
            (Some(_), Some(_)) => return Err(bad("UNTIL", "a rule has COUNT or UNTIL, not both")),
            (Some(count), None) => {
                let most = i64::from(MAX_COUNT);
                Bound::Count(number(
                    "COUNT",
                    count,
                    |n| (1..=most).contains(&n),
                    &format!("1 to {most}"),
                )?)
            }
            (None, Some(text)) => Bound::Until(until(text)?),
            (None, None) => Bound::None,
        };
        let most = i64::from(MAX_INTERVAL);
        let rule = Rule {
            frequency: frequency(&parts)?,
            interval: parts.get("INTERVAL").map_or(Ok(1), |text| {
                number(
                    "INTERVAL",
                    text,
                    |n| (1..=most).contains(&n),
                    &format!("1 to {most}"),
                )
            })?,
            bound,
            by_month: numbers(&parts, "BYMONTH", |n| (1..=12).contains(&n), "1 to 12")?,
            by_week_no: numbers(&parts, "BYWEEKNO", within(53), "1 to 53, or -53 to -1")?,
            by_year_day: numbers(&parts, "BYYEARDAY", within(366), "1 to 366, or -366 to -1")?,
            by_month_day: numbers(&parts, "BYMONTHDAY", within(31), "1 to 31, or -31 to -1")?,
            by_day: by_day(&parts)?,
            by_hour: numbers(&parts, "BYHOUR", |n| (0..=23).contains(&n), "0 to 23")?,
            by_minute: numbers(&parts, "BYMINUTE", |n| (0..=59).contains(&n), "0 to 59")?,
            by_set_pos: numbers(&parts, "BYSETPOS", within(366), "1 to 366, or -366 to -1")?,
            week_start: parts
                .get("WKST")
                .map_or(Ok(Weekday::Monday), |text| weekday("WKST", text))?,
        };
        if parts.get("BYSECOND").is_some() {
            return Err(bad("BYSECOND", "windows begin at the second their start says"));
        }
        check(&rule)?;
        Ok(rule)
    }
}

fn frequency(parts: &Parts<'_>) -> Result<Frequency, BadRule> {
    let text = parts
        .get("FREQ")
        .ok_or_else(|| bad("FREQ", "a rule says how often"))?;
    let found = Frequency::ALL
        .iter()
        .find(|(_, word)| word.eq_ignore_ascii_case(text));
    found
        .map(|(frequency, _)| *frequency)
        .ok_or_else(|| bad("FREQ", "YEARLY, MONTHLY, WEEKLY, DAILY or HOURLY"))
}

/// What RFC 5545 says must not stand together.
fn check(rule: &Rule) -> Result<(), BadRule> {
    use Frequency::{Daily, Monthly, Weekly, Yearly};
    let frequency = rule.frequency;
    if !rule.by_week_no.is_empty() && frequency != Yearly {
        return Err(bad("BYWEEKNO", "only with FREQ=YEARLY"));
    }
    if !rule.by_year_day.is_empty() && matches!(frequency, Daily | Weekly | Monthly) {
        return Err(bad("BYYEARDAY", "not with FREQ=DAILY, WEEKLY or MONTHLY"));
    }
    if !rule.by_month_day.is_empty() && frequency == Weekly {
        return Err(bad("BYMONTHDAY", "not with FREQ=WEEKLY"));
    }
    if rule.by_day.iter().any(|day| day.nth.is_some()) {
        if !matches!(frequency, Yearly | Monthly) {
            return Err(bad(
                "BYDAY",
                "a number before a day only with FREQ=MONTHLY or YEARLY",
            ));
        }
        if !rule.by_week_no.is_empty() {
            return Err(bad("BYDAY", "no number before a day together with BYWEEKNO"));
        }
    }
    let others = [
        rule.by_month.is_empty(),
        rule.by_week_no.is_empty(),
        rule.by_year_day.is_empty(),
        rule.by_month_day.is_empty(),
        rule.by_day.is_empty(),
        rule.by_hour.is_empty(),
        rule.by_minute.is_empty(),
    ];
    if !rule.by_set_pos.is_empty() && others.iter().all(|empty| *empty) {
        return Err(bad("BYSETPOS", "it chooses among what another BY part gives"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_as_they_are_written() {
        for text in [
            "FREQ=WEEKLY",
            "FREQ=WEEKLY;INTERVAL=2;COUNT=10;BYDAY=TU,TH;WKST=SU",
            "FREQ=MONTHLY;UNTIL=20261231T235959Z;BYDAY=-1FR",
            "FREQ=YEARLY;BYWEEKNO=-1,20;BYDAY=MO",
            "FREQ=YEARLY;BYYEARDAY=-1,100;BYHOUR=9,17;BYMINUTE=30",
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "FREQ=HOURLY;INTERVAL=3;BYMONTH=1,2;BYMONTHDAY=1",
        ] {
            assert_eq!(
                text.parse::<Rule>().map(|rule| rule.to_string()).as_deref(),
                Ok(text)
            );
        }
        assert_eq!(
            "freq=daily;byhour=17,9,9"
                .parse::<Rule>()
                .map(|rule| rule.to_string())
                .as_deref(),
            Ok("FREQ=DAILY;BYHOUR=9,17")
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("", "RRULE"),
            ("DAILY", "RRULE"),
            ("FREQ=DAILY;", "RRULE"),
            ("FREQ=DAILY;X=1", "RRULE"),
            ("INTERVAL=1", "FREQ"),
            ("FREQ=SECONDLY", "FREQ"),
            ("FREQ=MINUTELY", "FREQ"),
            ("FREQ=DAILY;FREQ=DAILY", "FREQ"),
            ("FREQ=DAILY;INTERVAL=0", "INTERVAL"),
            ("FREQ=DAILY;INTERVAL=-1", "INTERVAL"),
            ("FREQ=DAILY;INTERVAL=99999999999999999999", "INTERVAL"),
            ("FREQ=DAILY;COUNT=0", "COUNT"),
            ("FREQ=DAILY;COUNT=1;UNTIL=20260101T000000Z", "UNTIL"),
            ("FREQ=DAILY;UNTIL=20260101", "UNTIL"),
            ("FREQ=DAILY;UNTIL=20260101T000000", "UNTIL"),
            ("FREQ=DAILY;UNTIL=20260230T000000Z", "UNTIL"),
            ("FREQ=DAILY;UNTIL=20260101T235960Z", "UNTIL"),
            ("FREQ=DAILY;BYMONTH=13", "BYMONTH"),
            ("FREQ=DAILY;BYMONTH=", "BYMONTH"),
            ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY"),
            ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY"),
            ("FREQ=DAILY;BYWEEKNO=1", "BYWEEKNO"),
            ("FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY"),
            ("FREQ=WEEKLY;BYDAY=1MO", "BYDAY"),
            ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "BYDAY"),
            ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY"),
            ("FREQ=MONTHLY;BYDAY=é", "BYDAY"),
            ("FREQ=MONTHLY;BYDAY=MOO", "BYDAY"),
            ("FREQ=DAILY;BYHOUR=24", "BYHOUR"),
            ("FREQ=DAILY;BYMINUTE=60", "BYMINUTE"),
            ("FREQ=DAILY;BYSECOND=1", "BYSECOND"),
            ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS"),
            ("FREQ=DAILY;WKST=XX", "WKST"),
        ] {
            let refused = text.parse::<Rule>().expect_err(text);
            assert_eq!(refused.part, part, "{text}: {refused}");
        }
    }
}
