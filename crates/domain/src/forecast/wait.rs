//! When a waiting job will start: the band stated for an estimated wait, by how past estimates turned out.
//!
//! An estimate comes with what it would be if run times were half or twice as long (`room`). How far a start was off
//! is counted in those steps, so that a wait for something certain and a wait for strangers to end are judged alike. A
//! band is the narrowest choice on the whole: it goes on as long as a further part of past outcomes is worth the time it
//! adds, measured by what waits are like here. So short waits are stated surely and long ones no wider than helps; how many
//! of the past outcomes a band holds is told with it. Outcomes of the last half hour of the same kind of job weigh most:
//! within one burst estimates err alike. Whole numbers only: a snapshot gives back what was written.
//! Absent: making the estimate.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::history::Signature;
use crate::id::TenantId;
use crate::time::Time;

/// Jobs whose waits turn out alike at one time: of one tenant, with as many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alike {
    pub tenant: TenantId,
    pub gpus: u32,
}

impl From<Signature> for Alike {
    fn from(Signature { tenant, gpus, .. }: Signature) -> Alike {
        Alike { tenant, gpus }
    }
}

/// Seconds after submission between which a job is said to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    pub from_s: u64,
    pub to_s: u64,
}

impl Band {
    pub const AT_ONCE: Band = Band { from_s: 0, to_s: 0 };

    pub fn holds(self, wait_s: u64) -> bool {
        (self.from_s..=self.to_s).contains(&wait_s)
    }

    pub fn width_s(self) -> u64 {
        self.to_s - self.from_s
    }
}

/// An estimated wait; and what it would be if run times were half, or twice, as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub s: u64,
    pub half_s: u64,
    pub twice_s: u64,
}

/// A band, and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub band: Band,
    /// The share of past outcomes it holds.
    pub permille: u64,
    /// How many outcomes were seen of estimates of about its size.
    pub seen: u64,
}

/// No wait is reckoned longer than this; two years.
const LONGEST_S: u64 = 1 << 26;

impl Estimate {
    /// An estimate of which no more is known.
    pub fn rough(s: u64) -> Estimate {
        let s = s.min(LONGEST_S);
        Estimate {
            s,
            half_s: s / 2,
            twice_s: s * 2,
        }
    }

    fn middle_s(self) -> i64 {
        self.s.clamp(1, LONGEST_S) as i64
    }

    /// One step down and up, in seconds. Nothing is so certain that a twentieth would not be forgiven.
    fn steps_s(self) -> (i64, i64) {
        let (middle, least) = (self.middle_s(), (self.middle_s() / 20).max(2));
        let down = middle - self.half_s.min(LONGEST_S) as i64;
        let up = self.twice_s.min(2 * LONGEST_S) as i64 - middle;
        (down.max(least), up.max(least))
    }

    /// How far a wait was off, in thousandths of a step.
    fn off(self, wait_s: u64) -> i64 {
        let by_s = wait_s.min(LONGEST_S) as i64 - self.middle_s();
        let (down, up) = self.steps_s();
        // Rounded down, so that a wait like an earlier one is not sooner than a band that begins there.
        (by_s * 1000).div_euclid(if by_s < 0 { down } else { up })
    }

    /// The wait that is so far off, in milliseconds.
    fn at_ms(self, off: i64) -> i64 {
        let (down, up) = self.steps_s();
        let longest_ms = 4000 * LONGEST_S as i64;
        let at_ms = self.middle_s() * 1000 + off * if off < 0 { down } else { up };
        at_ms.clamp(-longest_ms, longest_ms)
    }
}

/// Estimates are told apart by their size in powers of two.
const SIZES: usize = 27;

/// Outcomes kept of each size. Of those that turn out within five minutes only the first counts: neighbours in the
/// queue turn out alike, and a hundred of them tell little more than one.
const KEPT: usize = 60;
const APART_MS: u64 = 5 * 60_000;

/// What an outcome of an estimate weighs, by how many powers of two it is away.
const WEIGHTS: [u64; 5] = [100, 80, 50, 31, 20];

/// Outcomes that are kept by kind, for how long they count, how many of them at most, of estimates at most so many powers
/// of two away, and what each weighs.
const LATELY: usize = 256;
const LATELY_MS: u64 = 30 * 60_000;
const LATELY_COUNTED: usize = 10;
const LATELY_AWAY: usize = 2;
const LATELY_WEIGHT: u64 = 500;

/// How estimates are off before anything was seen, in thousandths of a step, and what each weighs.
const BEFORE: [i64; 25] = [
    -1600, -1200, -900, -600, -400, -250, -100, 0, 0, 0, 0, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900,
    1000, 1200, 1500, 2000,
];
const BEFORE_WEIGHT: u64 = 200;

/// A band is put together of so many equal parts of the outcomes, and has at least some.
const PARTS: usize = 64;
const LEAST: usize = 6;

/// A band grows by a hundredth of the outcomes where that adds no more than eleven hundredths of the usual wait.
const WORTH: i64 = 11;

/// The usual wait is a mean over about this many, and this before anything was seen.
const USUAL_OVER: u64 = 2_000;
const USUAL_MS: u64 = 300_000;
const LEAST_USUAL_MS: u64 = 30_000;

/// One outcome of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Late {
    at: Time,
    of: Alike,
    size: usize,
    off: i64,
}

/// What became of past estimates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// How far each was off, latest last; by size.
    off: Vec<VecDeque<i64>>,
    last: Vec<Time>,
    /// The latest of every kind, latest last.
    lately: VecDeque<Late>,
    usual_ms: u64,
    seen: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            off: vec![VecDeque::new(); SIZES],
            last: vec![Time(i64::MIN); SIZES],
            lately: VecDeque::new(),
            usual_ms: USUAL_MS,
            seen: 0,
        }
    }
}

fn size_of(estimate: Estimate) -> usize {
    (estimate.s.max(1).ilog2() as usize).min(SIZES - 1)
}

impl Waits {
    /// The band for an estimated wait of a job of this kind.
    pub fn tell(&self, estimate: Estimate, of: Option<Alike>, at: Time) -> Told {
        let (parts, seen) = self.parts(size_of(estimate), of, at);
        let at_ms = parts.map(|off| estimate.at_ms(off));
        let worth = WORTH * self.usual_ms.max(LEAST_USUAL_MS) as i64;
        // What a band from here on gains before its end is known; of all that may end at `to` the best is kept.
        let begins = |from: usize| PARTS as i64 * at_ms[from] - from as i64 * worth;
        // INVARIANT: there are always `LEAST` parts, so there is always a band.
        let (mut first, mut best) = (0, (i64::MIN, 0, PARTS - 1));
        for (to, &ends_ms) in at_ms.iter().enumerate().skip(LEAST - 1) {
            let from = to + 1 - LEAST;
            if begins(from) > begins(first) {
                first = from;
            }
            let gain = (to as i64 + 1) * worth - PARTS as i64 * ends_ms + begins(first);
            if gain > best.0 {
                best = (gain, first, to);
            }
        }
        let (_, from, to) = best;
        let from_s = (at_ms[from].max(0) / 1000) as u64;
        // Rounded up, and a second more for the moment in which it is told.
        let to_s = (at_ms[to].max(0) as u64).div_ceil(1000) + 1;
        Told {
            band: Band { from_s, to_s },
            permille: ((to - from + 1) * 1000 / PARTS) as u64,
            seen,
        }
    }

    /// Outcomes of estimates of about this size in equal parts, the middle of each; and how many were seen.
    fn parts(&self, size: usize, of: Option<Alike>, at: Time) -> ([i64; PARTS], u64) {
        let mut weighed: Vec<(i64, u64)> = BEFORE.iter().map(|off| (*off, BEFORE_WEIGHT)).collect();
        let mut seen = 0;
        for (other, off) in self.off.iter().enumerate() {
            if let Some(weight) = WEIGHTS.get(other.abs_diff(size)) {
                weighed.extend(off.iter().map(|off| (*off, *weight)));
                seen += off.len() as u64;
            }
        }
        let late = self.lately.iter().rev();
        let late = late.take_while(|late| at.since_ms(late.at) <= LATELY_MS);
        let alike = late.filter(|late| Some(late.of) == of && late.size.abs_diff(size) <= LATELY_AWAY);
        weighed.extend(alike.take(LATELY_COUNTED).map(|late| (late.off, LATELY_WEIGHT)));
        weighed.sort_unstable();
        let total: u64 = weighed.iter().map(|(_, weight)| weight).sum();
        let mut parts = [0; PARTS];
        let (mut at, mut below) = (0, weighed[0].1);
        for (n, part) in parts.iter_mut().enumerate() {
            let middle = total * (2 * n as u64 + 1) / (2 * PARTS as u64);
            while below < middle {
                at += 1;
                below += weighed[at].1;
            }
            *part = weighed[at].0;
        }
        (parts, seen)
    }

    /// A job whose wait had been estimated started after `wait_s`, not at once.
    pub fn started(&mut self, estimate: Estimate, of: Option<Alike>, wait_s: u64, at: Time) {
        self.seen += 1;
        let over = (self.seen + 10).min(USUAL_OVER);
        let wait_ms = wait_s.min(LONGEST_S) * 1000;
        self.usual_ms = (self.usual_ms * (over - 1) + wait_ms) / over;
        let (size, off) = (size_of(estimate), estimate.off(wait_s));
        if let Some(of) = of {
            self.lately.push_back(Late { at, of, size, off });
            if self.lately.len() > LATELY {
                self.lately.pop_front();
            }
        }
        if at.since_ms(self.last[size]) < APART_MS {
            return;
        }
        self.last[size] = at;
        let past = &mut self.off[size];
        past.push_back(off);
        if past.len() > KEPT {
            past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
