//! Analysis: cost and use by level, class, kind, workload, label, name and time, what was allocated and lay idle, in money, and
//! what the month will come to. Pure, over bill rows as one payer sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bill::{BillRow, Eye};
use crate::money::Micros;
use crate::time::{HOUR_MS, Period, Time};

const DAY_MS: u64 = 24 * HOUR_MS;

/// Keys of labels told of with an analysis.
const MAX_KEYS: usize = 50;
const LABEL: &str = "label:";

/// What rows are put together by. Written as its word, or `label:KEY`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum By {
    Tenant,
    Subscriber,
    User,
    Class,
    Sku,
    Kind,
    /// The kind with the model or scene it is of.
    Workload,
    Isolation,
    /// The name of the job or booking.
    Name,
    Job,
    Hour,
    Day,
    Month,
    /// What the job's label of this key says.
    Label(Box<str>),
}

impl By {
    /// Those that are one word.
    pub const WORDS: &'static [(&'static str, By)] = &[
        ("tenant", By::Tenant),
        ("subscriber", By::Subscriber),
        ("user", By::User),
        ("class", By::Class),
        ("sku", By::Sku),
        ("kind", By::Kind),
        ("workload", By::Workload),
        ("isolation", By::Isolation),
        ("name", By::Name),
        ("job", By::Job),
        ("hour", By::Hour),
        ("day", By::Day),
        ("month", By::Month),
    ];

    /// The group a row is in; `path` is that of its owner.
    fn group(&self, row: &BillRow, path: &str) -> String {
        let step = |prefix: &str| {
            let step = path.split('/').find(|step| step.starts_with(prefix));
            step.unwrap_or("").to_owned()
        };
        let interval = row.interval.as_ref();
        let name = |name: Option<&str>| name.unwrap_or_default().to_owned();
        let begin = |start: Time| start.rfc3339();
        match self {
            By::Tenant => step("ten_"),
            By::Subscriber => step("sub_"),
            By::User => step("usr_"),
            By::Class => name(interval.and_then(|interval| interval.class.as_deref())),
            By::Sku => name(interval.and_then(|interval| interval.sku.as_deref())),
            By::Kind => interval.map_or_else(|| row.what.as_str().into(), |of| of.kind.as_str().into()),
            By::Workload => name(row.about().and_then(|about| about.workload.as_deref())),
            By::Isolation => interval.map_or_else(String::new, |of| of.isolation.as_str().into()),
            By::Name => row.name.clone(),
            By::Job => interval.map_or_else(String::new, |of| of.job.to_string()),
            By::Hour => begin(Time(row.at.0 - row.at.0.rem_euclid(HOUR_MS as i64))),
            By::Day => begin(Period::Day.start(row.at)),
            By::Month => begin(Period::Month.start(row.at)),
            By::Label(key) => {
                let value = row.about().and_then(|about| about.labels.get(&**key));
                value.cloned().unwrap_or_default()
            }
        }
    }

    fn is_time(&self) -> bool {
        matches!(self, By::Hour | By::Day | By::Month)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match By::WORDS.iter().find(|(_, by)| by == self) {
            Some((word, _)) => f.write_str(word),
            None => match self {
                By::Label(key) => write!(f, "{LABEL}{key}"),
                _ => unreachable!("all others are words"),
            },
        }
    }
}

impl From<By> for String {
    fn from(by: By) -> String {
        by.to_string()
    }
}

impl TryFrom<String> for By {
    type Error = String;
    fn try_from(text: String) -> Result<By, String> {
        text.parse()
    }
}

impl FromStr for By {
    type Err = String;
    fn from_str(text: &str) -> Result<By, String> {
        if let Some(key) = text.strip_prefix(LABEL) {
            return match crate::name::check(key, "/by") {
                Ok(()) => Ok(By::Label(key.into())),
                Err(refusal) => Err(format!("no job has such a label: {}", refusal.sentence)),
            };
        }
        let found = By::WORDS.iter().find(|(word, _)| *word == text);
        found.map(|(_, by)| by.clone()).ok_or_else(|| {
            let words: Vec<&str> = By::WORDS.iter().map(|(word, _)| *word).collect();
            format!("one of {}, or label:KEY", words.join(", "))
        })
    }
}

/// What one group comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Group {
    /// The class, the kind, the start of the hour, …; empty for what has none.
    pub group: String,
    /// Of a job, what it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub cost_micros: i64,
    pub rows: u64,
    pub gpu_ms: u64,
    pub vram_mib_s: u64,
    /// Time devices worked, of those that were measured.
    pub busy_ms: u64,
    /// Time devices were there for it, as far as its share goes, and it had nothing for them to do (`idle`).
    pub idle_ms: u64,
    /// What that time cost.
    pub waste_micros: i64,
    pub energy_mj: u64,
    pub frames: u64,
}

/// Groups being counted up, and what the days before now came to.
#[derive(Debug, Clone)]
pub struct Analysis {
    by: By,
    eye: Eye,
    groups: BTreeMap<String, Group>,
    /// Keys of labels that rows have, the first so many of them.
    pub keys: BTreeSet<String>,
    pub total: Group,
}

impl Analysis {
    pub fn new(by: By, eye: Eye) -> Analysis {
        Analysis {
            by,
            eye,
            groups: BTreeMap::new(),
            keys: BTreeSet::new(),
            total: Group::default(),
        }
    }

    pub fn add(&mut self, row: &BillRow, path: &str) {
        let Some(amount) = row.seen(self.eye) else {
            return;
        };
        let name = self.by.group(row, path);
        let group = match self.groups.get_mut(&name) {
            Some(group) => group,
            None => self.groups.entry(name.clone()).or_insert_with(|| Group {
                group: name,
                name: (self.by == By::Job && row.interval.is_some()).then(|| row.name.clone()),
                ..Group::default()
            }),
        };
        for key in row.about().into_iter().flat_map(|about| about.labels.keys()) {
            if self.keys.len() < MAX_KEYS && !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
        }
        group.add(row, amount);
        self.total.add(row, amount);
    }

    /// The dearest first, and what is of one cost by name; times in their order.
    pub fn groups(self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        if !self.by.is_time() {
            groups.sort_by_key(|group| std::cmp::Reverse(group.cost_micros));
        }
        groups
    }
}

impl Group {
    fn add(&mut self, row: &BillRow, amount: Micros) {
        self.rows += 1;
        self.cost_micros = self.cost_micros.saturating_add(amount.0);
        let Some(interval) = &row.interval else { return };
        let vram_mib_s = u128::from(interval.vram_mib) * u128::from(interval.ms()) / 1000;
        self.gpu_ms = self.gpu_ms.saturating_add(interval.gpu_ms);
        self.vram_mib_s = self
            .vram_mib_s
            .saturating_add(u64::try_from(vram_mib_s).unwrap_or(u64::MAX));
        self.frames = self.frames.saturating_add(interval.frames);
        let (Some(used), Some(idle_ms)) = (interval.used, interval.idle_ms()) else {
            return;
        };
        self.busy_ms = self.busy_ms.saturating_add(used.busy_ms);
        self.idle_ms = self.idle_ms.saturating_add(idle_ms);
        self.energy_mj = self.energy_mj.saturating_add(used.energy_mj);
        let waste = interval.waste(amount).map_or(0, |waste| waste.0);
        self.waste_micros = self.waste_micros.saturating_add(waste);
    }
}

/// What a forecast rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Each hour to come costs what the same hour of the week before did.
    WeekBefore,
    /// Less than a week is known: each hour costs the mean of all that are known.
    Mean,
    /// Nothing is known.
    Nothing,
}

/// What the month will come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forecast {
    /// Spent in it so far.
    pub so_far_micros: i64,
    /// With the rest of it as the days before now.
    pub month_micros: i64,
    /// By how many days that is told.
    pub by_days: u64,
    pub basis: Basis,
    /// How far the same rule was off for the week that has just passed, in thousandths of what that came to: positive where
    /// it told too much. Known from two weeks on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_permille: Option<i64>,
}

/// Days before now that a forecast looks at.
pub const LOOK_BACK_DAYS: u64 = 14;
const WEEK_HOURS: i64 = 7 * 24;

/// What was spent hour by hour, of which the month is told. In whole micros and hours: a few hundred of them, however
/// many rows there are.
#[derive(Debug, Clone)]
pub struct Course {
    now: Time,
    so_far: i128,
    /// By hours since 1970.
    hours: BTreeMap<i64, i128>,
    first: Option<Time>,
}

impl Course {
    pub fn new(now: Time) -> Course {
        Course {
            now,
            so_far: 0,
            hours: BTreeMap::new(),
            first: None,
        }
    }

    /// From when on rows matter.
    pub fn since(now: Time) -> Time {
        let back = Time(now.0.saturating_sub_unsigned(LOOK_BACK_DAYS * DAY_MS));
        Period::Month.start(now).min(back)
    }

    pub fn add(&mut self, at: Time, amount: Micros) {
        if at > self.now {
            return;
        }
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        if at >= Period::Month.start(self.now) {
            self.so_far += i128::from(amount.0);
        }
        *self.hours.entry(hour(at)).or_default() += i128::from(amount.0);
    }

    fn between(&self, from: i64, until: i64) -> i128 {
        self.hours.range(from..until).map(|(_, amount)| amount).sum()
    }

    pub fn forecast(&self) -> Forecast {
        let month = Period::Month.start(self.now);
        let next = Period::Month.start(month.plus_ms(32 * DAY_MS));
        let back = Time(self.now.0.saturating_sub_unsigned(7 * DAY_MS));
        let here = hour(self.now);
        let known_ms = self.first.map_or(0, |first| self.now.since_ms(first.max(back)));
        let days = known_ms.div_ceil(DAY_MS).max(1);
        let whole_week = self.first.is_some_and(|first| first <= back.plus_ms(DAY_MS));
        let (rest, basis) = match self.first {
            None => (0, Basis::Nothing),
            Some(_) if whole_week => (self.as_week_before(here, hour(next)), Basis::WeekBefore),
            Some(_) => {
                let lately = self.between(here - WEEK_HOURS, here + 1);
                let left_ms = i128::from(next.since_ms(self.now));
                (lately * left_ms / i128::from(days * DAY_MS), Basis::Mean)
            }
        };
        let two_weeks = back.0.saturating_sub_unsigned(6 * DAY_MS);
        let off = self.first.filter(|first| first.0 <= two_weeks).and_then(|_| {
            let (told, was) = (
                self.between(here - 2 * WEEK_HOURS, here - WEEK_HOURS),
                self.between(here - WEEK_HOURS, here),
            );
            (was > 0).then(|| (told - was) * 1000 / was)
        });
        Forecast {
            so_far_micros: micros(self.so_far),
            month_micros: micros(self.so_far + rest),
            by_days: days,
            basis,
            off_permille: off.map(micros),
        }
    }

    /// The hours from `here` on, each as the same hour of the last week that has passed.
    fn as_week_before(&self, here: i64, until: i64) -> i128 {
        let last_week = |ahead: i64| {
            let same = here - WEEK_HOURS + (ahead - here).rem_euclid(WEEK_HOURS);
            self.hours.get(&same).copied().unwrap_or(0)
        };
        (here..until).map(last_week).sum()
    }
}

fn hour(at: Time) -> i64 {
    at.0.div_euclid(HOUR_MS as i64)
}

fn micros(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// Tells the month by rows, as `Course` does.
pub fn forecast(rows: impl Iterator<Item = (Time, Micros)>, now: Time) -> Forecast {
    let mut course = Course::new(now);
    rows.for_each(|(at, amount)| course.add(at, amount));
    course.forecast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_goes_on_as_the_week_before() {
        let at = |text: &str| Time::parse_rfc3339(text).expect("a moment");
        let now = at("2026-03-11T00:00:00Z");
        // Ten a day from the first on: ten days gone, twenty-one to come.
        let days = (0..10).map(|day| (at("2026-03-01T12:00:00Z").plus_ms(day * DAY_MS), Micros(10)));
        let told = forecast(days, now);
        assert_eq!(
            (told.so_far_micros, told.month_micros, told.by_days),
            (100, 310, 7)
        );
        assert_eq!(told.basis, Basis::WeekBefore);
        let nothing = forecast(std::iter::empty(), now);
        assert_eq!((nothing.month_micros, nothing.basis), (0, Basis::Nothing));
    }

    #[test]
    fn weekends_come_again_and_a_short_past_is_a_mean() {
        let at = |text: &str| Time::parse_rfc3339(text).expect("a moment");
        // Monday; the 28 days since cost seven a weekday and nothing at weekends.
        let now = at("2026-06-22T00:00:00Z");
        let days = (0..28).filter(|day| day % 7 < 5);
        let rows = days.map(|day| (at("2026-05-25T09:00:00Z").plus_ms(day * DAY_MS), Micros(7)));
        let told = forecast(rows, now);
        // Fifteen weekdays of June lie behind, seven ahead: 22 to 26, 29 and 30.
        assert_eq!((told.so_far_micros, told.month_micros), (105, 154));
        assert_eq!((told.basis, told.off_permille), (Basis::WeekBefore, Some(0)));
        // Two days are known: twenty in them, and eight to come.
        let short = [(at("2026-06-20T12:00:00Z"), Micros(20))];
        let told = forecast(short.into_iter(), now);
        assert_eq!((told.basis, told.by_days), (Basis::Mean, 2));
        assert_eq!((told.month_micros, told.off_permille), (20 + 90, None));
    }

    #[test]
    fn every_word_is_known() {
        for (word, by) in By::WORDS {
            assert_eq!(word.parse::<By>(), Ok(by.clone()));
            assert_eq!(by.to_string(), *word);
        }
        let label: By = "label:team".parse().expect("a label");
        assert_eq!(
            (&label, &*label.to_string()),
            (&By::Label("team".into()), "label:team")
        );
        assert_eq!(serde_json::to_string(&label).expect("a text"), r#""label:team""#);
        for bad in ["planet", "label", "label:", "label:a=b", "Kind"] {
            assert!(bad.parse::<By>().is_err(), "{bad}");
        }
    }
}
