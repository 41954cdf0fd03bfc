//! Slots: which occurrences of a booking are to have a window, from when to when, and how large.
//!
//! An occurrence that was put off counts by when it now begins, not by when its rule has it; one that is over does not
//! come back, whatever is edited. Absent: whether there is room (`plan.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Wanted};
use super::record::{Booking, Exception, Size, Window};
use super::recurrence::Occurrence;
use super::zone::Wall;
use crate::time::Time;

/// Occurrences looked at, of which windows are made.
const LOOKED_AT: usize = 200_000;

/// When there is to be a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub of: Wall,
    pub start: Time,
    pub end: Time,
    pub size: Size,
}

impl Wanted<'_> {
    /// When there is to be a window, but for those that began; how far that goes is noted in the plan.
    pub(super) fn slots(&self, from: Time, plan: &mut Plan) -> Vec<Slot> {
        let exceptions: BTreeMap<Wall, &Exception> = self
            .exceptions
            .iter()
            .map(|exception| (exception.of, exception))
            .collect();
        let mut wanted = self.put_off(from);
        let found = self
            .spec
            .recurrence
            .between(self.zone, from, plan.resolved, LOOKED_AT);
        plan.more = found.cut;
        if let Some(last) = found.all.last().filter(|_| found.all.len() >= LOOKED_AT) {
            plan.resolved = last.at.plus_ms(1);
        }
        wanted.extend(found.all);
        let begun = self.had.iter().filter(|window| window.has_begun(self.at));
        let begun: Vec<&Window> = begun.collect();
        let mut gone = self.over(from);
        gone.extend(begun.iter().map(|window| window.of));
        // What began lasts as long as it does: nothing of its booking is beside it.
        let beside = |start: Time, end: Time| {
            let mut begun = begun.iter();
            begun.any(|window| window.start < end && start < window.end)
        };
        let known = self.known.into_iter().flat_map(|known| &known.windows);
        let known: BTreeMap<Wall, &Window> = known.map(|window| (window.of, window)).collect();
        let mut slots = Vec::new();
        for occurrence in wanted
            .iter()
            .filter(|occurrence| !gone.contains(&occurrence.wall))
        {
            if slots.len() >= self.most {
                (plan.resolved, plan.more) = (occurrence.at, true);
                break;
            }
            let exception = exceptions.get(&occurrence.wall).copied();
            let slot = self.slot(occurrence, exception, known.get(&occurrence.wall).copied());
            // One that was moved to the front may be over, though its rule has it later.
            let slot = slot.filter(|slot| exception.is_none() || slot.start >= from);
            slots.extend(slot.filter(|slot| !beside(slot.start, slot.end)));
        }
        slots
    }

    /// Occurrences before a moment that were put off until it or later.
    fn put_off(&self, from: Time) -> Vec<Occurrence> {
        if self.known.is_none() {
            return Vec::new();
        }
        let late = self.exceptions.iter().filter(|exception| {
            let start = self.zone.moment(exception.start.0);
            start.is_some_and(|start| start >= from)
        });
        let late = late.filter_map(|exception| {
            let at = self.zone.moment(exception.of.0).filter(|at| *at < from)?;
            // It may have been left out, or cut off, since.
            let still = self.spec.recurrence.between(self.zone, at, at.plus_ms(1), 1);
            still.all.into_iter().find(|found| found.wall == exception.of)
        });
        let mut late: Vec<Occurrence> = late.collect();
        late.sort();
        late
    }

    /// Occurrences whose windows began from this moment on, and have ended: given up, or never had.
    fn over(&self, from: Time) -> BTreeSet<Wall> {
        let Some(known) = self.known else {
            return BTreeSet::new();
        };
        let until = self.at.plus_ms(1);
        let by_rule = known.spec.recurrence.between(self.zone, from, until, LOOKED_AT);
        let mut over: BTreeSet<Wall> = by_rule.all.iter().map(|found| found.wall).collect();
        for exception in &known.exceptions {
            let start = self.zone.moment(exception.start.0);
            match start.is_some_and(|start| (from..until).contains(&start)) {
                true => over.insert(exception.of),
                false => over.remove(&exception.of),
            };
        }
        for window in &known.windows {
            over.remove(&window.of);
        }
        over
    }

    fn slot(
        &self,
        occurrence: &Occurrence,
        exception: Option<&Exception>,
        known: Option<&Window>,
    ) -> Option<Slot> {
        let (of, at) = (occurrence.wall, occurrence.at);
        let (start, end, size) = match exception {
            Some(exception) => (
                self.zone.moment(exception.start.0)?,
                exception.end.0,
                exception.size,
            ),
            None => (at, of.0.checked_add(self.spec.length()).ok()?, self.spec.size),
        };
        // A clock that is put back shows the same twice; a window that was made longer may end the second time.
        let kept = known.filter(|known| known.start == start && self.zone.wall(known.end) == Some(end));
        let end = match kept {
            Some(known) => known.end,
            None => self.zone.moment_or_later(end)?,
        };
        (start < end).then_some(Slot { of, start, end, size })
    }

    /// Of a booking's windows, those that stay as they are: nothing of them is to be different.
    pub fn unchanged(&self, booking: &Booking) -> Vec<Window> {
        let same_kind = (&booking.spec.class, &booking.spec.region) == (&self.spec.class, &self.spec.region);
        if !same_kind {
            let begun = booking.windows.iter().filter(|window| window.has_begun(self.at));
            return begun.cloned().collect();
        }
        let (from, until) = self.reach();
        let mut plan = Plan::until(until);
        let slots = self.slots(from, &mut plan);
        let slots: BTreeMap<Wall, Slot> = slots.into_iter().map(|slot| (slot.of, slot)).collect();
        let stays = booking.windows.iter().filter(|window| {
            let same = Slot {
                of: window.of,
                start: window.start,
                end: window.end,
                size: booking.size_in(window),
            };
            window.has_begun(self.at) || slots.get(&window.of) == Some(&same)
        });
        stays.cloned().collect()
    }
}
