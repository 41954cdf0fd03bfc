//! What an interval comes to, however it is cut.

use super::*;
use crate::ledger::clause::{Clock, DayWindow, Tier};

fn at(text: &str) -> Time {
    Time::parse_rfc3339(text).expect("a moment")
}

fn window(from: &str, to: &str, permille: u32) -> DayWindow {
    let clock = |text: &str| text.parse::<Clock>().expect("a time of day");
    DayWindow {
        from: clock(from),
        to: clock(to),
        permille,
    }
}

fn nights() -> Clauses {
    Clauses {
        zone: Some("Europe/Berlin".into()),
        windows: vec![window("22:00", "06:00", 500), window("12:00", "13:30", 1500)],
        ..Clauses::default()
    }
}

fn span(from: &str, ms: u64) -> Span {
    Span {
        from: at(from),
        ms,
        gpu_milli: 1000,
        before_gpu_ms: 0,
    }
}

const HOUR: u64 = 3_600_000;

#[test]
fn an_hour_costs_its_price() {
    let lines = rate(
        Micros(2_000_001),
        &Clauses::default(),
        &span("2026-03-02T10:00:00Z", HOUR),
    );
    assert_eq!(whole(Crumb(0), &lines), (Micros(2_000_001), Crumb(0)));
}

#[test]
fn times_of_day_are_those_on_the_wall() {
    // 21:00 to 07:00 in Berlin, in winter: an hour before, eight at half price, an hour after.
    let lines = rate(
        Micros(1_000_000),
        &nights(),
        &span("2026-03-02T20:00:00Z", 10 * HOUR),
    );
    let parts: Vec<(u64, u32)> = lines
        .iter()
        .map(|line| (line.ms / HOUR, line.window_permille))
        .collect();
    assert_eq!(parts, [(1, 1000), (8, 500), (1, 1000)]);
    assert_eq!(whole(Crumb(0), &lines).0, Micros(6_000_000));
}

#[test]
fn a_night_is_as_long_as_it_was() {
    // Clocks go forward on 29 March and back on 25 October 2026.
    for (from, night) in [
        ("2026-03-28T12:00:00Z", 7),
        ("2026-06-10T12:00:00Z", 8),
        ("2026-10-24T12:00:00Z", 9),
    ] {
        let lines = rate(Micros(1_000_000), &nights(), &span(from, 20 * HOUR));
        let cheap: u64 = lines
            .iter()
            .filter(|line| line.window_permille == 500)
            .map(|line| line.ms)
            .sum();
        assert_eq!(cheap, night * HOUR, "{from}");
        assert_eq!(lines.iter().map(|line| line.ms).sum::<u64>(), 20 * HOUR, "{from}");
    }
}

#[test]
fn an_edge_within_the_repeated_hour_counts_both_times() {
    let clauses = Clauses {
        zone: Some("Europe/Berlin".into()),
        windows: vec![window("02:30", "02:45", 0)],
        ..Clauses::default()
    };
    let lines = rate(
        Micros(1_000_000),
        &clauses,
        &span("2026-10-24T22:00:00Z", 6 * HOUR),
    );
    let free: u64 = lines
        .iter()
        .filter(|line| line.window_permille == 0)
        .map(|line| line.ms)
        .sum();
    assert_eq!(free, 30 * 60_000);
}

/// Cut anywhere, the pieces cost what the whole costs: no unit is gained or lost.
#[test]
fn however_it_is_cut_the_sum_is_the_same() {
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..200 {
        let whole_span = Span {
            from: at("2026-10-24T00:00:00Z").plus_ms(draw(200 * HOUR)),
            ms: 1 + draw(60 * HOUR),
            gpu_milli: 1000 * (1 + draw(8)),
            before_gpu_ms: draw(20 * HOUR),
        };
        let clauses = Clauses {
            tiers: vec![
                Tier {
                    from_gpu_hours: 10,
                    permille: 900,
                },
                Tier {
                    from_gpu_hours: 30,
                    permille: 777,
                },
            ],
            ..nights()
        };
        let hourly = Micros(1 + draw(9_999_999) as i64);
        let once = whole(Crumb(0), &rate(hourly, &clauses, &whole_span));
        let (mut sum, mut crumb, mut done, mut before) = (0, Crumb(0), 0, whole_span.before_gpu_ms);
        while done < whole_span.ms {
            let ms = (1 + draw(2 * HOUR)).min(whole_span.ms - done);
            let piece = Span {
                from: whole_span.from.plus_ms(done),
                ms,
                before_gpu_ms: before,
                ..whole_span
            };
            let (micros, rest) = whole(crumb, &rate(hourly, &clauses, &piece));
            (sum, crumb, done) = (sum + micros.0, rest, done + ms);
            before += ms * whole_span.gpu_milli / 1000;
        }
        assert_eq!((Micros(sum), crumb), once, "round {round}");
    }
}

#[test]
fn tiers_begin_where_they_say() {
    let clauses = Clauses {
        tiers: vec![Tier {
            from_gpu_hours: 10,
            permille: 500,
        }],
        ..Clauses::default()
    };
    let of = Span {
        before_gpu_ms: 9 * HOUR,
        gpu_milli: 2000,
        ..span("2026-03-02T10:00:00Z", 2 * HOUR)
    };
    let lines = rate(Micros(1_000_000), &clauses, &of);
    let parts: Vec<(u64, u32)> = lines.iter().map(|line| (line.ms, line.tier_permille)).collect();
    assert_eq!(parts, [(HOUR / 2, 1000), (HOUR * 3 / 2, 500)]);
    assert_eq!(whole(Crumb(0), &lines).0, Micros(1_250_000));
}

#[test]
fn what_is_set_aside_is_enough() {
    for ms in [1, 999, HOUR, 31 * 24 * HOUR] {
        let lines = rate(Micros(333_333), &nights(), &span("2026-03-28T12:00:00Z", ms));
        let (micros, _) = whole(Crumb((UNIT - 1) as u64), &lines);
        assert!(micros <= most(Micros(333_333), Some(&nights()), ms), "{ms}");
    }
}

#[test]
fn nothing_overflows() {
    let clauses = Clauses {
        windows: vec![window("00:00", "00:00", 100_000)],
        zone: Some("UTC".into()),
        ..Clauses::default()
    };
    assert_eq!(most(Micros(i64::MAX), Some(&clauses), u64::MAX), Micros(i64::MAX));
    let of = Span {
        from: Time(i64::MAX - 5),
        ms: 10,
        gpu_milli: u64::MAX,
        before_gpu_ms: u64::MAX,
    };
    assert_eq!(
        rate(Micros(i64::MAX), &clauses, &of)
            .iter()
            .map(|line| line.ms)
            .sum::<u64>(),
        10
    );
}
