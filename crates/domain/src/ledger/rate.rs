//! Rating: what an interval costs, cut where prices change.
//!
//! Pure, and exact: lines are in whole units of a micro, an hour and two factors, so that however an interval is cut,
//! its pieces add up to the whole; what is less than a micro is carried on (`Crumb`), never rounded away. Called where
//! usage is charged, and where a bill is explained. Absent: whose price it is (`tariff.rs`).

use super::clause::Clauses;
use crate::money::Micros;
use crate::time::{HOUR_MS, Time};
use crate::zone::Zone;

/// Units in a micro: hours in milliseconds, times two factors in thousandths.
pub const UNIT: i128 = HOUR_MS as i128 * 1_000_000;

/// An interval as it is rated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Time,
    pub ms: u64,
    /// GPU time in a millisecond, in thousandths of one.
    pub gpu_milli: u64,
    /// GPU time its buyer had in the month before it.
    pub before_gpu_ms: u64,
}

/// A part of an interval at one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub ms: u64,
    pub window_permille: u32,
    pub tier_permille: u32,
    /// In units of `UNIT`.
    pub exact: i128,
}

/// Less than a micro, in units; what remains of exact sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crumb(pub u64);

/// The parts of an interval and what each costs at `hourly` an hour. Their times add up to the interval's.
pub fn rate(hourly: Micros, clauses: &Clauses, span: &Span) -> Vec<Line> {
    if clauses.frame.is_some() {
        return vec![line(Micros::ZERO, span.ms, 1000, 1000)];
    }
    let mut lines = Vec::with_capacity(1);
    let mut before_gpu_ms = span.before_gpu_ms;
    for (ms, window) in by_window(clauses, span) {
        let mut left = ms;
        while left > 0 {
            let (tier, room) = tier_at(clauses, before_gpu_ms, span.gpu_milli);
            let ms = left.min(room);
            lines.push(line(hourly, ms, window, tier));
            let gpu_ms = u128::from(ms) * u128::from(span.gpu_milli) / 1000;
            before_gpu_ms = before_gpu_ms.saturating_add(u64::try_from(gpu_ms).unwrap_or(u64::MAX));
            left -= ms;
        }
    }
    lines
}

/// Whole micros of what was carried and these lines, and what is carried on.
pub fn whole(carried: Crumb, lines: &[Line]) -> (Micros, Crumb) {
    let exact = lines
        .iter()
        .fold(i128::from(carried.0), |sum, line| sum.saturating_add(line.exact));
    let micros = i64::try_from(exact / UNIT).unwrap_or(i64::MAX);
    (Micros(micros), Crumb((exact % UNIT) as u64))
}

/// What `ms` cost at most at this price, rounded up: what is set aside for it.
pub fn most(hourly: Micros, clauses: Option<&Clauses>, ms: u64) -> Micros {
    if clauses.is_some_and(|clauses| clauses.frame.is_some()) {
        return Micros::ZERO;
    }
    let permille = clauses.map_or(1000, Clauses::most_permille);
    let exact = line(hourly, ms, permille, 1000).exact;
    Micros(i64::try_from(exact.saturating_add(UNIT - 1) / UNIT).unwrap_or(i64::MAX))
}

fn line(hourly: Micros, ms: u64, window_permille: u32, tier_permille: u32) -> Line {
    let exact = i128::from(hourly.0)
        .saturating_mul(i128::from(ms))
        .saturating_mul(i128::from(window_permille))
        .saturating_mul(i128::from(tier_permille));
    Line {
        ms,
        window_permille,
        tier_permille,
        exact,
    }
}

/// The factor that holds after so much GPU time, and for how long at most.
fn tier_at(clauses: &Clauses, before_gpu_ms: u64, gpu_milli: u64) -> (u32, u64) {
    let from_ms = |hours: u64| hours.saturating_mul(HOUR_MS);
    let reached = clauses
        .tiers
        .iter()
        .rev()
        .find(|tier| from_ms(tier.from_gpu_hours) <= before_gpu_ms);
    let next = clauses
        .tiers
        .iter()
        .find(|tier| from_ms(tier.from_gpu_hours) > before_gpu_ms);
    let room = match (next, gpu_milli) {
        (Some(next), 1..) => {
            let gpu_ms = u128::from(from_ms(next.from_gpu_hours) - before_gpu_ms);
            u64::try_from((gpu_ms * 1000).div_ceil(gpu_milli.into())).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    };
    (reached.map_or(1000, |tier| tier.permille), room)
}

const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: u16 = 24 * 60;

/// The interval cut at times of day and where clocks are put forward or back, with the factor of each piece.
fn by_window(clauses: &Clauses, span: &Span) -> Vec<(u64, u32)> {
    let zone = clauses.zone.as_deref().and_then(|zone| Zone::bundled(zone).ok());
    let Some(zone) = zone.filter(|_| !clauses.windows.is_empty()) else {
        return vec![(span.ms, 1000)];
    };
    let mut pieces: Vec<(u64, u32)> = Vec::new();
    let (mut at, mut left) = (span.from, span.ms);
    let mut change = None;
    while left > 0 {
        let Some(wall) = zone.wall(at) else {
            pieces.push((left, 1000));
            break;
        };
        let minute = wall.hour() as u16 * 60 + wall.minute() as u16;
        let holds = clauses.windows.iter().find(|window| window.holds(minute));
        let permille = holds.map_or(1000, |window| window.permille);
        let into_minute = i64::from(wall.second()) * 1000 + i64::from(wall.millisecond());
        let edges = clauses
            .windows
            .iter()
            .flat_map(|window| [window.from.0, window.to.0]);
        let minutes = edges.map(|edge| match (edge + DAY_MINUTES - minute) % DAY_MINUTES {
            0 => DAY_MINUTES,
            minutes => minutes,
        });
        let minutes = i64::from(minutes.min().unwrap_or(DAY_MINUTES));
        let edge = at.0.saturating_add(minutes * MINUTE_MS - into_minute);
        if change.is_none_or(|change: Time| change <= at) {
            change = zone.changes_after(at).next();
        }
        let end = change.map_or(edge, |change| edge.min(change.0));
        let ms = left.min(Time(end).since_ms(at).max(1));
        match pieces.last_mut() {
            Some(last) if last.1 == permille => last.0 += ms,
            _ => pieces.push((ms, permille)),
        }
        at = at.plus_ms(ms);
        left -= ms;
    }
    pieces
}

#[cfg(test)]
mod tests;
