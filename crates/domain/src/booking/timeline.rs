//! How much is booked when: an amount that is constant from one moment to the next.
//!
//! Moments lie in runs, and each run knows its largest and its least amount. So a question is answered from the few
//! moments at the two edges of its window and one number for each run between, however long the window is and whatever
//! the year around it holds. Absent: what is booked, and by whom. Used by `shelf.rs` for nodes and by `record.rs` for
//! booking quotas.

use crate::time::Time;

/// Moments of one run at most; neighbours with fewer than half of that together become one.
const RUN: usize = 64;

#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The amount from each moment on. Before the first it is zero, and so it is from the last on.
    /// INVARIANT: no run is empty, and moments rise within a run and from one to the next.
    runs: Vec<Run>,
}

#[derive(Debug, Clone)]
struct Run {
    levels: Vec<(Time, u64)>,
    most: u64,
    least: u64,
}

/// A run, and a moment in it; past the last moment of the last run at the end.
type Place = (usize, usize);

impl Run {
    fn of(levels: Vec<(Time, u64)>) -> Run {
        let (most, least) = (0, 0);
        let mut run = Run { levels, most, least };
        run.sum_up();
        run
    }

    fn sum_up(&mut self) {
        let levels = self.levels.iter().map(|(_, level)| *level);
        self.most = levels.clone().max().unwrap_or(0);
        self.least = levels.min().unwrap_or(0);
    }

    fn first(&self) -> Time {
        self.levels[0].0
    }
}

/// By what is booked; how it lies in runs is nobody's matter.
impl PartialEq for Timeline {
    fn eq(&self, other: &Timeline) -> bool {
        self.levels().eq(other.levels())
    }
}

impl Eq for Timeline {}

impl Timeline {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn levels(&self) -> impl Iterator<Item = (Time, u64)> {
        self.runs.iter().flat_map(|run| run.levels.iter().copied())
    }

    /// Where the first moment from this one on is, or would be.
    fn place(&self, at: Time) -> Place {
        let later = self.runs.partition_point(|run| run.first() < at);
        let Some(run) = later.checked_sub(1) else {
            return (0, 0);
        };
        let levels = &self.runs[run].levels;
        match levels.partition_point(|(moment, _)| *moment < at) {
            beyond if beyond == levels.len() && later < self.runs.len() => (later, 0),
            within => (run, within),
        }
    }

    /// Where the first moment after this one is.
    fn after(&self, at: Time) -> Place {
        self.place(Time(at.0.saturating_add(1)))
    }

    fn get(&self, (run, within): Place) -> Option<(Time, u64)> {
        self.runs.get(run)?.levels.get(within).copied()
    }

    /// The amount just before a place.
    fn before(&self, (run, within): Place) -> u64 {
        let level = match (within.checked_sub(1), run.checked_sub(1)) {
            (Some(within), _) => self.get((run, within)),
            (None, Some(run)) => self.runs[run].levels.last().copied(),
            (None, None) => None,
        };
        level.map_or(0, |(_, level)| level)
    }

    /// The amount at a moment.
    pub fn at(&self, at: Time) -> u64 {
        self.before(self.after(at))
    }

    /// The first place from this one on, before `until`, whose amount is as asked; runs without one are passed over.
    fn first(
        &self,
        (mut run, mut within): Place,
        until: Time,
        has_one: impl Fn(&Run) -> bool,
        is_one: impl Fn(u64) -> bool,
    ) -> Option<Place> {
        while let Some(found) = self.runs.get(run).filter(|found| found.first() < until) {
            if has_one(found) {
                let levels = found.levels.iter().enumerate().skip(within);
                for (index, (moment, level)) in levels {
                    if *moment >= until {
                        return None;
                    }
                    if is_one(*level) {
                        return Some((run, index));
                    }
                }
            }
            (run, within) = (run + 1, 0);
        }
        None
    }

    fn first_over(&self, most: u64, from: Place, until: Time) -> Option<Place> {
        self.first(from, until, |run| run.most > most, |level| level > most)
    }

    /// The largest amount within a window that ends before `until`.
    pub fn peak(&self, from: Time, until: Time) -> u64 {
        let mut place = self.after(from);
        let mut peak = self.before(place);
        // Every step is to a larger amount, and there are few of them.
        while let Some(over) = self.first_over(peak, place, until) {
            (peak, place) = (self.get(over).map_or(peak, |(_, level)| level), over);
        }
        peak
    }

    /// Whether no more than `most` is booked all through the window.
    pub fn is_at_most(&self, most: u64, from: Time, until: Time) -> bool {
        let after = self.after(from);
        self.before(after) <= most && self.first_over(most, after, until).is_none()
    }

    /// Whether no more than `most` is booked all through the window; else from when on it may be looked at anew.
    pub fn at_most(&self, most: u64, from: Time, until: Time) -> Result<(), Time> {
        let after = self.after(from);
        let over = match self.before(after) > most {
            true => after,
            false => match self.first_over(most, after, until) {
                Some(over) => over,
                None => return Ok(()),
            },
        };
        let forever = Time(i64::MAX);
        let clear = self.first(over, forever, |run| run.least <= most, |level| level <= most);
        // INVARIANT: after the last moment nothing is booked, so what is over ends.
        Err(clear
            .and_then(|clear| self.get(clear))
            .map_or(forever, |(at, _)| at))
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
        self.put_edge(from);
        self.put_edge(until);
        let ((mut run, mut within), (last, end)) = (self.place(from), self.place(until));
        while run <= last {
            let found = &mut self.runs[run];
            let stop = if run == last { end } else { found.levels.len() };
            for (_, level) in &mut found.levels[within..stop] {
                *level = change(*level);
            }
            found.sum_up();
            (run, within) = (run + 1, 0);
        }
        self.take_edge(until);
        self.take_edge(from);
    }

    /// Makes a moment one at which the amount can change.
    fn put_edge(&mut self, at: Time) {
        let (run, within) = self.place(at);
        if self.get((run, within)).is_some_and(|(moment, _)| moment == at) {
            return;
        }
        let level = self.before((run, within));
        let Some(found) = self.runs.get_mut(run) else {
            self.runs.push(Run::of(vec![(at, level)]));
            return;
        };
        found.levels.insert(within, (at, level));
        if found.levels.len() > RUN {
            let later = found.levels.split_off(RUN / 2);
            self.runs.insert(run + 1, Run::of(later));
        }
        self.runs[run].sum_up();
    }

    /// A moment at which nothing changes is none.
    fn take_edge(&mut self, at: Time) {
        let place @ (run, within) = self.place(at);
        if self.get(place) != Some((at, self.before(place))) {
            return;
        }
        self.runs[run].levels.remove(within);
        let few = |runs: &[Run]| runs.iter().map(|run| run.levels.len()).sum::<usize>() < RUN / 2;
        if self.runs[run].levels.is_empty() {
            self.runs.remove(run);
        } else if self.runs.get(run..run + 2).is_some_and(few) {
            let later = self.runs.remove(run + 1);
            self.runs[run].levels.extend(later.levels);
            self.runs[run].sum_up();
        } else {
            self.runs[run].sum_up();
        }
    }

    /// The next moment after this one at which less is booked than before.
    pub fn falls_after(&self, at: Time) -> Option<Time> {
        let mut place = self.after(at);
        let mut level = self.before(place);
        while let Some((moment, next)) = self.get(place) {
            if next < level {
                return Some(moment);
            }
            level = next;
            place = match place.1 + 1 < self.runs[place.0].levels.len() {
                true => (place.0, place.1 + 1),
                false => (place.0 + 1, 0),
            };
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

    /// Every answer beside one that looks at every moment, over enough windows that runs part and join.
    #[test]
    fn runs_answer_as_every_moment_does() {
        let mut seed = 1_u64;
        let mut below = |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (mut line, mut windows) = (Timeline::default(), Vec::new());
        for step in 0..3000 {
            let grows = step % 1000 < 600;
            if windows.is_empty() || below(4) < if grows { 3 } else { 1 } {
                let from = below(2000) as i64;
                let window = (Time(from), Time(from + 1 + below(90) as i64), 1 + below(5));
                line.add(window.0, window.1, window.2);
                windows.push(window);
            } else {
                let window = windows.swap_remove(below(windows.len() as u64) as usize);
                line.remove(window.0, window.1, window.2);
            }
            assert!(line.runs.iter().all(|run| (1..=RUN).contains(&run.levels.len())));
            if step % 7 > 0 {
                continue;
            }
            let at = |moment: i64| -> u64 {
                let there = windows
                    .iter()
                    .filter(|(from, until, _)| from.0 <= moment && moment < until.0);
                there.map(|(.., amount)| *amount).sum()
            };
            let (from, length, most) = (below(2000) as i64, 1 + below(400) as i64, below(40));
            let until = from + length;
            let peak = (from..until).map(at).max().unwrap_or(0);
            assert_eq!(line.peak(Time(from), Time(until)), peak);
            assert_eq!(line.at(Time(from)), at(from));
            let over = (from..until).find(|moment| at(*moment) > most);
            let clear = over.map(|over| (over..).find(|moment| at(*moment) <= most).map_or(0, |at| at));
            assert_eq!(line.at_most(most, Time(from), Time(until)).err(), clear.map(Time));
            assert_eq!(line.is_at_most(most, Time(from), Time(until)), clear.is_none());
            let falls = (from + 1..2200).find(|moment| at(*moment) < at(*moment - 1));
            assert_eq!(line.falls_after(Time(from)), falls.map(Time));
        }
        for (from, until, amount) in windows {
            line.remove(from, until, amount);
        }
        assert!(line.is_empty());
    }
}
