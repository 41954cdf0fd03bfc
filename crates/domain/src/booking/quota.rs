//! Booking quotas: how many GPUs a scope and all below it may hold for one moment.
//!
//! Each scope with such a quota has a line of what is held when, for each thing the quota counts, so that asking costs by
//! the windows asked for and not by all that are booked. Lines are kept by `record.rs` with the windows, and made when a
//! quota is set. Absent: whether there is room (`shelf.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::record::{Booking, Window};
use super::timeline::Timeline;
use crate::meter::{Meter, Of, Resource};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::tenancy::tree::Tree;

/// What scopes with a booking quota hold over time, in thousandths of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    lines: BTreeMap<ScopeId, BTreeMap<Of, Timeline>>,
}

/// What the scope's booking quotas count, with their limits.
fn limits(scope: &Scope) -> impl Iterator<Item = (&Of, u64)> {
    let limits = scope.quota.iter();
    let booked = limits.filter(|(meter, _)| meter.resource == Resource::BookedMilli);
    booked.map(|(Meter { of, .. }, limit)| (of, limit))
}

/// The thousandths of GPUs that a window is counted as.
fn counted(window: &Window, of: &Of) -> u64 {
    let seats = window.seats.iter().filter(|seat| match of {
        Of::All => true,
        Of::Class(class) => *seat.class == **class,
        Of::Sku(_) | Of::Kind(_) => false,
    });
    seats.map(|seat| u64::from(seat.gpus) * 1000).sum()
}

impl Held {
    /// Makes the lines of a scope anew from its quota and all bookings within it.
    pub(super) fn set<'a>(
        &mut self,
        scope: ScopeId,
        tree: &Tree,
        bookings: impl Iterator<Item = &'a Booking>,
    ) {
        self.lines.remove(&scope);
        let Some(found) = tree.get(scope) else { return };
        let lines = limits(found).map(|(of, _)| (of.clone(), Timeline::default()));
        let mut lines: BTreeMap<Of, Timeline> = lines.collect();
        if lines.is_empty() {
            return;
        }
        for window in bookings.flat_map(|booking| &booking.windows) {
            for (of, line) in &mut lines {
                add(line, window, of);
            }
        }
        self.lines.insert(scope, lines);
    }

    pub(super) fn add(&mut self, tree: &Tree, scope: ScopeId, window: &Window) {
        self.each(tree, scope, |line, of| add(line, window, of));
    }

    pub(super) fn remove(&mut self, tree: &Tree, scope: ScopeId, window: &Window) {
        self.each(tree, scope, |line, of| remove(line, window, of));
    }

    fn each(&mut self, tree: &Tree, scope: ScopeId, mut change: impl FnMut(&mut Timeline, &Of)) {
        if self.lines.is_empty() {
            return;
        }
        for above in tree.chain(scope) {
            for (of, line) in self.lines.get_mut(&above.id).into_iter().flatten() {
                change(line, of);
            }
        }
    }

    fn line(&self, scope: ScopeId, of: &Of) -> Option<&Timeline> {
        self.lines.get(&scope)?.get(of)
    }
}

fn add(line: &mut Timeline, window: &Window, of: &Of) {
    let amount = counted(window, of);
    if amount > 0 {
        line.add(window.start, window.end, amount);
    }
}

fn remove(line: &mut Timeline, window: &Window, of: &Of) {
    let amount = counted(window, of);
    if amount > 0 {
        line.remove(window.start, window.end, amount);
    }
}

/// Whether anything is limited there that windows count in: GPUs held at once, money or GPU time.
pub(super) fn is_limited(scope: &Scope) -> bool {
    !scope.budgets.is_empty() || limits(scope).next().is_some()
}

/// Refuses windows that pass a booking quota above, those that a scope gives up for them not counted.
pub fn fits_quotas(
    state: &State,
    scope: ScopeId,
    windows: &[Window],
    given_up: Option<(ScopeId, &[&Window])>,
) -> Result<(), Refusal> {
    for above in state.tree.chain(scope) {
        for (of, limit) in limits(above) {
            let Some(line) = state.bookings.held().line(above.id, of) else {
                continue;
            };
            let mut line = Cow::Borrowed(line);
            let given_up = given_up.filter(|(of, _)| state.tree.is_within(*of, above.id));
            for window in given_up.into_iter().flat_map(|(_, windows)| windows) {
                remove(line.to_mut(), window, of);
            }
            let over = windows.iter().find_map(|window| {
                let (asked, held) = (counted(window, of), line.peak(window.start, window.end));
                (asked > 0 && held.saturating_add(asked) > limit).then_some((window, asked, held))
            });
            let Some((window, asked, held)) = over else {
                continue;
            };
            let title = state.tree.title(above.id);
            let sentence = format!(
                "{title} may hold {limit} of booked_milli at once; {held} are booked in the window of {} and {asked} more do not fit",
                window.start.rfc3339()
            );
            return Err(Refusal::new(Code::ExceedsQuota, sentence)
                .field("/size/count")
                .hint(format!(
                    "book less or another time, or have the quota of {title} raised"
                )));
        }
    }
    Ok(())
}
