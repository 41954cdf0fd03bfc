//! How much is booked when: an amount that is constant from one moment to the next.
//!
//! Questions look only at the moments within their window, so they cost by what begins and ends there and not by the
//! year around it. Absent: what is booked, and by whom. Used by `shelf.rs` for nodes and for scopes.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::time::Time;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The amount from each moment on. Before the first it is zero, and so it is from the last on.
    levels: BTreeMap<Time, u64>,
}

impl Timeline {
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The amount at a moment.
    pub fn at(&self, at: Time) -> u64 {
        self.levels
            .range(..=at)
            .next_back()
            .map_or(0, |(_, level)| *level)
    }

    /// The largest amount within a window that ends before `until`.
    pub fn peak(&self, from: Time, until: Time) -> u64 {
        let within = self.levels.range((Bound::Excluded(from), Bound::Excluded(until)));
        within.map(|(_, level)| *level).fold(self.at(from), u64::max)
    }

    /// Whether no more than `most` is booked all through the window. Looked at from its end, so that the tree is gone
    /// down once.
    pub fn is_at_most(&self, most: u64, from: Time, until: Time) -> bool {
        for (moment, level) in self.levels.range(..until).rev() {
            if *level > most {
                return false;
            }
            if *moment <= from {
                break;
            }
        }
        true
    }

    /// Whether no more than `most` is booked all through the window; else from when on it may be looked at anew.
    pub fn at_most(&self, most: u64, from: Time, until: Time) -> Result<(), Time> {
        let mut over = self.at(from) > most;
        let mut after = (Bound::Excluded(from), Bound::Unbounded);
        if !over {
            let within = self.levels.range((Bound::Excluded(from), Bound::Excluded(until)));
            let first = within.into_iter().find(|(_, level)| **level > most);
            let Some((first, _)) = first else {
                return Ok(());
            };
            over = true;
            after.0 = Bound::Excluded(*first);
        }
        debug_assert!(over);
        let clear = self.levels.range(after).find(|(_, level)| **level <= most);
        // INVARIANT: after the last moment nothing is booked, so what is over ends.
        Err(clear.map_or(Time(i64::MAX), |(at, _)| *at))
    }

    pub fn add(&mut self, from: Time, until: Time, amount: u64) {
        self.change(from, until, |level| {
            level
                .checked_add(amount)
                .expect("INVARIANT: amounts are of GPUs there are")
        });
    }

    /// Takes away what was added before.
    pub fn remove(&mut self, from: Time, until: Time, amount: u64) {
        self.change(from, until, |level| {
            level
                .checked_sub(amount)
                .expect("INVARIANT: no more is given back than was booked")
        });
    }

    fn change(&mut self, from: Time, until: Time, change: impl Fn(u64) -> u64) {
        assert!(from < until, "INVARIANT: a window ends after it begins");
        for edge in [from, until] {
            let level = self.at(edge);
            self.levels.entry(edge).or_insert(level);
        }
        for (_, level) in self.levels.range_mut(from..until) {
            *level = change(*level);
        }
        // A moment at which nothing changes is none.
        for edge in [from, until] {
            let before = self
                .levels
                .range(..edge)
                .next_back()
                .map_or(0, |(_, level)| *level);
            if self.levels.get(&edge) == Some(&before) {
                self.levels.remove(&edge);
            }
        }
    }

    /// The next moment after this one at which less is booked than before.
    pub fn falls_after(&self, at: Time) -> Option<Time> {
        let mut level = self.at(at);
        let later = self.levels.range((Bound::Excluded(at), Bound::Unbounded));
        for (moment, next) in later {
            if *next < level {
                return Some(*moment);
            }
            level = *next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_windows_do_not_meet_and_overlapping_ones_do() {
        let mut line = Timeline::default();
        line.add(Time(10), Time(20), 3);
        line.add(Time(20), Time(30), 4);
        assert_eq!(line.peak(Time(0), Time(10)), 0);
        assert_eq!(line.peak(Time(0), Time(11)), 3);
        assert_eq!(line.peak(Time(10), Time(20)), 3);
        assert_eq!(line.peak(Time(19), Time(21)), 4);
        assert_eq!(line.at_most(3, Time(5), Time(25)), Err(Time(30)));
        assert_eq!(line.at_most(3, Time(5), Time(20)), Ok(()));
        assert!(line.is_at_most(3, Time(5), Time(20)) && !line.is_at_most(3, Time(5), Time(21)));
        assert!(line.is_at_most(3, Time(10), Time(20)) && !line.is_at_most(2, Time(19), Time(20)));
        line.remove(Time(10), Time(20), 3);
        line.remove(Time(20), Time(30), 4);
        assert!(line.is_empty(), "nothing is left behind: {line:?}");
    }

    #[test]
    fn what_falls_is_found() {
        let mut line = Timeline::default();
        line.add(Time(10), Time(40), 1);
        line.add(Time(20), Time(30), 1);
        assert_eq!(line.falls_after(Time(0)), Some(Time(30)));
        assert_eq!(line.falls_after(Time(30)), Some(Time(40)));
        assert_eq!(line.falls_after(Time(40)), None);
    }
}
