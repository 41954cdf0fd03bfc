//! When a waiting job will have room: running jobs leave one after another, and those ahead of it take theirs first and
//! leave again.
//!
//! Three courses of events are played through, with run times drawn from the forecast, half and twice as long: right in
//! the mean, not in each case; how far such courses are from what happens is `wait`'s matter. Absent: who is ahead, and who may be made to leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::wait::Estimate;

/// GPUs that will be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaves {
    pub gpus: u64,
    /// In so many seconds by itself, as drawn.
    pub in_s: u64,
    /// No later than this: by its limit, or because it may be made to.
    pub at_most_s: u64,
}

/// One that goes first: what it takes, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    pub gpus: u64,
    pub for_s: u64,
}

/// A draw for the run time of one job: even over all jobs, and the same whenever it is asked for the same job. Multiples
/// of the golden section leave no gaps and no heaps, however few there are.
pub fn draw(job: u64) -> u32 {
    (job as u32).wrapping_mul(2_654_435_769)
}

/// How long `needed` GPUs take to be free, those ahead having had theirs in this order; none if they never are.
pub fn estimate(needed: u64, free: u64, leaving: &[Leaves], ahead: &[Ahead]) -> Option<Estimate> {
    estimate_behind(None, needed, free, leaving, ahead)
}

/// The same behind one for whom room is kept, however much it asks for.
pub fn estimate_behind(
    kept_for: Option<Ahead>,
    needed: u64,
    free: u64,
    leaving: &[Leaves],
    ahead: &[Ahead],
) -> Option<Estimate> {
    // Who asks for more is passed by: room comes a little at a time, and nobody keeps it for them.
    let ahead = ahead.iter().filter(|one| one.gpus <= needed).copied();
    let ahead: Vec<Ahead> = kept_for.into_iter().chain(ahead).collect();
    let room = |scaled: &dyn Fn(u64) -> u64| {
        let leaving = leaving
            .iter()
            .map(|one| Reverse((scaled(one.in_s).min(one.at_most_s), one.gpus)));
        room_s(needed, free, leaving.collect(), &ahead, scaled)
    };
    Some(Estimate {
        s: room(&|s| s)?,
        half_s: room(&|s| s / 2)?,
        twice_s: room(&|s| s.saturating_mul(2))?,
    })
}

/// One course of events, run times being as `scaled`.
fn room_s(
    needed: u64,
    mut free: u64,
    mut leaving: BinaryHeap<Reverse<(u64, u64)>>,
    ahead: &[Ahead],
    scaled: &dyn Fn(u64) -> u64,
) -> Option<u64> {
    let mut now_s = 0;
    let mut wait_for = |gpus: u64, leaving: &mut BinaryHeap<Reverse<(u64, u64)>>| {
        while free < gpus {
            let Reverse((in_s, more)) = leaving.pop()?;
            now_s = in_s.max(now_s);
            free += more;
        }
        free -= gpus;
        Some(now_s)
    };
    for one in ahead {
        let at_s = wait_for(one.gpus, &mut leaving)?;
        leaving.push(Reverse((at_s.saturating_add(scaled(one.for_s)), one.gpus)));
    }
    wait_for(needed, &mut leaving)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(gpus: u64, in_s: u64) -> Leaves {
        Leaves {
            gpus,
            in_s,
            at_most_s: u64::MAX,
        }
    }

    fn room(needed: u64, free: u64, leaving: &[Leaves], ahead: &[Ahead]) -> Option<u64> {
        estimate(needed, free, leaving, ahead).map(|estimate| estimate.s)
    }

    #[test]
    fn room_is_there_when_enough_have_left() {
        let leaving = [leaves(2, 300), leaves(1, 100), leaves(4, 200)];
        assert_eq!(room(1, 1, &leaving, &[]), Some(0));
        assert_eq!(room(1, 0, &leaving, &[]), Some(100));
        assert_eq!(room(5, 0, &leaving, &[]), Some(200));
        assert_eq!(room(6, 0, &leaving, &[]), Some(300));
        assert_eq!(room(8, 0, &leaving, &[]), None);
    }

    #[test]
    fn those_ahead_take_theirs_first_and_leave_again() {
        let leaving = [leaves(1, 100), leaves(1, 5_000)];
        let ahead = [Ahead { gpus: 1, for_s: 60 }; 3];
        assert_eq!(room(1, 0, &leaving, &ahead), Some(280));
        let long = [Ahead {
            gpus: 1,
            for_s: 9_000,
        }; 1];
        assert_eq!(room(1, 0, &leaving, &long), Some(5_000));
    }

    #[test]
    fn one_that_asks_for_more_is_passed_by() {
        let leaving = [leaves(1, 100), leaves(8, 900)];
        let ahead = [Ahead { gpus: 8, for_s: 60 }];
        assert_eq!(room(1, 0, &leaving, &ahead), Some(100));
    }

    #[test]
    fn one_for_whom_room_is_kept_is_not_passed_by() {
        let leaving = [leaves(1, 100), leaves(8, 900)];
        let kept_for = Ahead { gpus: 8, for_s: 60 };
        let found = estimate_behind(Some(kept_for), 1, 0, &leaving, &[]);
        assert_eq!(found.map(|found| found.s), Some(900), "beside it");
        let leaving = [leaves(8, 900)];
        let found = estimate_behind(Some(kept_for), 1, 0, &leaving, &[]);
        assert_eq!(found.map(|found| found.s), Some(960), "after it");
    }

    #[test]
    fn what_is_certain_does_not_move_with_run_times() {
        let by_limit = Leaves {
            gpus: 1,
            in_s: 5_000,
            at_most_s: 120,
        };
        let certain = estimate(1, 0, &[by_limit], &[]).expect("room");
        assert_eq!((certain.s, certain.half_s, certain.twice_s), (120, 120, 120));
        let drawn = estimate(1, 0, &[leaves(1, 100)], &[Ahead { gpus: 1, for_s: 60 }]).expect("room");
        assert_eq!((drawn.s, drawn.half_s, drawn.twice_s), (160, 80, 320));
    }

    #[test]
    fn draws_are_even() {
        let mut drawn: Vec<u32> = (40..72).map(draw).collect();
        drawn.sort_unstable();
        let widest = drawn.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest.is_some_and(|gap| gap < u32::MAX / 12), "{widest:?}");
    }
}
