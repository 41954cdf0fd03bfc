//! When a budget will have enough left: jobs end and what they did not use comes back, those ahead take theirs first, and
//! with each new period what was spent is forgotten while what is held stays held.
//!
//! Three courses are played through as in `room`. Amounts are of one sort, micros of money, milliseconds of GPU time or
//! frames. Absent: which budget, and who counts in it. Called by `schedule/order/outlook`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use super::wait::Estimate;

const HOUR_S: u128 = 3600;

/// What one job has of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Still set aside.
    pub left: u64,
    /// How fast that is spent; none where all of it counts as spent at the end.
    pub hourly: Option<u64>,
    /// In how many seconds it ends by itself, as drawn; of one that does not run yet, after how many.
    pub in_s: u64,
    /// No later than this.
    pub at_most_s: u64,
}

impl Held {
    /// What is still set aside after so long.
    fn after(&self, ran_s: u64) -> u64 {
        let Some(hourly) = self.hourly else {
            return self.left;
        };
        let spent = u128::from(hourly) * u128::from(ran_s) / HOUR_S;
        self.left.saturating_sub(u64::try_from(spent).unwrap_or(u64::MAX))
    }

    fn comes_back_after(&self, ran_s: u64) -> u64 {
        if self.hourly.is_some() {
            self.after(ran_s)
        } else {
            0
        }
    }
}

/// A budget as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purse {
    pub limit: u64,
    pub spent: u64,
    pub held: u64,
}

/// What is to be expected of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    pub estimate: Estimate,
    /// It takes a new period.
    pub turns: bool,
}

/// How long it takes until `needed` is left, periods beginning in so many seconds, the soonest first; none where that is
/// not to be expected.
pub fn estimate(
    needed: u64,
    purse: Purse,
    running: &[Held],
    ahead: &[Held],
    turns_s: &[u64],
) -> Option<Refill> {
    let course = |scaled: &dyn Fn(u64) -> u64| {
        let mut course = Course::begin(purse, running, turns_s.iter().copied(), scaled);
        for one in ahead.iter().filter(|one| one.left <= needed) {
            course.wait_for(one.left)?;
            course.takes(*one, scaled);
        }
        course.wait_for(needed)?;
        Some((course.now_s, course.turned))
    };
    let (s, turns) = course(&|s| s)?;
    Some(Refill {
        estimate: Estimate {
            s,
            half_s: course(&|s| s / 2)?.0,
            twice_s: course(&|s| s.saturating_mul(2))?.0,
        },
        turns,
    })
}

struct Course<T: Iterator<Item = u64>> {
    limit: i128,
    /// Held by those who are not looked at, and kept by them throughout.
    others: i128,
    free: i128,
    now_s: u64,
    turned: bool,
    /// Who has some: when they end, what they have, and from when on they spend it.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    held: Vec<(u64, Held)>,
    turns_s: Peekable<T>,
}

impl<T: Iterator<Item = u64>> Course<T> {
    fn begin(purse: Purse, running: &[Held], turns_s: T, scaled: &dyn Fn(u64) -> u64) -> Course<T> {
        let looked_at: i128 = running.iter().map(|one| i128::from(one.left)).sum();
        let mut course = Course {
            limit: purse.limit.into(),
            others: (i128::from(purse.held) - looked_at).max(0),
            free: i128::from(purse.limit) - i128::from(purse.spent) - i128::from(purse.held),
            now_s: 0,
            turned: false,
            ends: BinaryHeap::new(),
            held: Vec::new(),
            turns_s: turns_s.peekable(),
        };
        running.iter().for_each(|one| course.runs(*one, scaled));
        course
    }

    fn runs(&mut self, one: Held, scaled: &dyn Fn(u64) -> u64) {
        let in_s = scaled(one.in_s).min(one.at_most_s);
        self.ends
            .push(Reverse((self.now_s.saturating_add(in_s), self.held.len())));
        self.held.push((self.now_s, one));
    }

    fn takes(&mut self, one: Held, scaled: &dyn Fn(u64) -> u64) {
        self.free -= i128::from(one.left);
        self.runs(one, scaled);
    }

    fn wait_for(&mut self, amount: u64) -> Option<()> {
        while self.free < i128::from(amount) {
            let ends_s = self.ends.peek().map(|Reverse((ends_s, _))| *ends_s);
            let turns_s = self.turns_s.peek().copied();
            match (ends_s, turns_s) {
                (Some(ends_s), turns_s) if turns_s.is_none_or(|turns_s| ends_s < turns_s) => {
                    let Reverse((_, which)) = self.ends.pop()?;
                    let (since_s, one) = self.held[which];
                    self.now_s = ends_s.max(self.now_s);
                    self.free += i128::from(one.comes_back_after(ends_s - since_s));
                }
                (_, Some(turns_s)) => {
                    self.turns_s.next();
                    self.now_s = turns_s.max(self.now_s);
                    self.turned = true;
                    let held = self.ends.iter().map(|Reverse((_, which))| {
                        let (since_s, one) = self.held[*which];
                        i128::from(one.after(turns_s.saturating_sub(since_s)))
                    });
                    self.free = self.limit - self.others - held.sum::<i128>();
                }
                (_, None) => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;

    /// One that has `left`, spends 100 an hour, and ends in so many hours.
    fn held(left: u64, hours: u64) -> Held {
        Held {
            left,
            hourly: Some(100),
            in_s: hours * HOUR,
            at_most_s: u64::MAX,
        }
    }

    fn purse(limit: u64, spent: u64, held: u64) -> Purse {
        Purse { limit, spent, held }
    }

    #[test]
    fn what_is_not_used_comes_back() {
        let running = [held(2_000, 2), held(2_000, 4)];
        let found = estimate(200, purse(4_000, 0, 4_000), &running, &[], &[]).expect("it comes back");
        assert_eq!((found.estimate.s, found.turns), (2 * HOUR, false));
        assert_eq!((found.estimate.half_s, found.estimate.twice_s), (HOUR, 4 * HOUR));
        let found = estimate(1_900, purse(4_000, 0, 4_000), &running, &[], &[]).expect("it comes back");
        assert_eq!(
            found.estimate.s,
            4 * HOUR,
            "1,800 of the first and 100 of the second"
        );
        let all = estimate(3_500, purse(4_000, 0, 4_000), &running, &[], &[]);
        assert_eq!(all, None, "the rest is spent, and no period begins");
    }

    #[test]
    fn with_a_new_period_what_is_spent_is_forgotten_and_what_is_held_is_not() {
        let running = [held(500, 40)];
        let turns = [HOUR, 25 * HOUR];
        let of = |needed| estimate(needed, purse(1_000, 400, 500), &running, &[], &turns);
        let found = of(600).expect("the next period");
        assert_eq!((found.estimate.s, found.turns), (HOUR, true));
        assert_eq!(
            of(601).expect("the one after").estimate.s,
            25 * HOUR,
            "an hour on the other has 400 left"
        );
        assert_eq!(of(1_001), None, "more than there ever is");
        // Who is not looked at keeps what it has.
        let found = estimate(600, purse(1_000, 400, 600), &running, &[], &turns);
        assert_eq!(found.expect("the period after").estimate.s, 25 * HOUR);
    }

    #[test]
    fn frames_come_back_with_no_end_but_with_a_period() {
        let frames = Held {
            left: 60,
            hourly: None,
            in_s: HOUR,
            at_most_s: u64::MAX,
        };
        let of = |turns: &[u64]| estimate(50, purse(100, 0, 60), &[frames], &[], turns);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3 * HOUR]).expect("a new period").estimate.s, 3 * HOUR);
        assert_eq!(
            of(&[HOUR / 2, 9 * HOUR]).expect("the one after").estimate.s,
            9 * HOUR,
            "they are held still when the first begins, and count in it"
        );
    }

    #[test]
    fn those_ahead_take_theirs_first_and_the_dearer_are_passed_by() {
        let running = [held(300, 1)];
        let of = |ahead: &[Held]| estimate(200, purse(300, 0, 300), &running, ahead, &[30 * HOUR, 60 * HOUR]);
        assert_eq!(of(&[]).expect("room").estimate.s, HOUR);
        assert_eq!(of(&[held(201, 1)]).expect("room").estimate.s, HOUR);
        assert_eq!(
            of(&[held(150, 1)]).expect("room").estimate.s,
            30 * HOUR,
            "what is left behind it is too little until the period turns"
        );
    }
}
