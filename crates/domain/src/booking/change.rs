//! Changing a booking: one occurrence, the rest, or all; leaving windows out; what that costs.
//!
//! Windows that are being cleared or open stay as they are. Whoever gives up a window on short notice pays what the
//! operator's terms say, whether it is cancelled or edited away. Called by `decide/booking`.

use std::collections::BTreeMap;

use super::plan::{
    MAX_LIKED, MAX_WINDOWS, PAST_MS, Wanted, beyond, fits_device, no_such_time, shelf_without,
};
use super::quota::fits_quotas;
use super::record::{Booking, BookingSpec, Exception, Window, window_at};
use super::recurrence::Bound;
use super::zone::{Wall, Zone};
use crate::ledger::account::{AccountId, Posting};
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::time::Time;

/// What is to be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// One occurrence.
    One(Exception),
    /// From this occurrence on it is another booking.
    Rest {
        from: Wall,
        spec: BookingSpec,
    },
    All {
        spec: BookingSpec,
    },
}

/// What is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    One(Wall),
    Rest(Wall),
    All,
}

pub fn no_such_window() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "the booking has no window that begins then, or it is over",
    )
    .field("/of")
    .hint("windows are named by the wall time at which they begin, in the booking's zone")
}

/// The booking with its windows made anew from what it now says. What began, and what is not to be different, stays as it
/// is: where it was, and at the price that was agreed on. Whether there is money is asked by whoever knows what is due.
pub fn remade(state: &State, booking: &Booking, zone: &Zone, at: Time) -> Result<Booking, Refusal> {
    let known = state.bookings.get(booking.id).unwrap_or(booking);
    booking.spec.check_beside(&known.spec.recurrence)?;
    fits_device(state, &booking.spec.class, booking.spec.size)?;
    let seats = known.windows.iter().flat_map(|window| &window.seats);
    let liked: Vec<_> = seats.map(|seat| seat.node).take(MAX_LIKED).collect();
    let (begun, waits): (Vec<&Window>, Vec<&Window>) =
        known.windows.iter().partition(|window| window.has_begun(at));
    let wanted = Wanted {
        state,
        scope: booking.scope,
        spec: &booking.spec,
        exceptions: &booking.exceptions,
        zone,
        at,
        shelf: state.bookings.shelf(),
        liked: &liked,
        known: Some(known),
        had: &known.windows,
        most: MAX_WINDOWS.saturating_sub(begun.len()),
    };
    let stays = wanted.unchanged(known);
    let is_given_up = |window: &&Window| window_at(&stays, window.of, window.start).is_none();
    let shelf = shelf_without(state, known.windows.iter().filter(is_given_up));
    let plan = Wanted {
        shelf: &shelf,
        had: &stays,
        ..wanted
    }
    .all()?;
    fits_quotas(state, booking.scope, &plan.windows, Some((known.scope, &waits)))?;
    let mut windows: Vec<Window> = begun.into_iter().cloned().chain(plan.windows).collect();
    windows.sort_by_key(|window| window.start);
    Ok(Booking {
        windows,
        resolved: plan.resolved,
        more: plan.more,
        zone: zone.name.clone(),
        revision: booking.revision + 1,
        note: None,
        ..booking.clone()
    })
}

/// Refuses an edit of one window to a time at which there would be none; what is known of it before it is made.
pub fn can_begin(state: &State, exception: &Exception, zone: &Zone, at: Time) -> Result<(), Refusal> {
    let Some(start) = zone.moment(exception.start.0) else {
        return Err(no_such_time(exception.start, zone));
    };
    if start < Time(at.0.saturating_sub_unsigned(PAST_MS)) {
        return Err(
            Refusal::invalid("/start", "the window would have begun in the past")
                .hint("one that is not wanted is cancelled"),
        );
    }
    if start >= at.plus_ms(state.terms.horizon_ms()) {
        return Err(beyond(state));
    }
    Ok(())
}

/// The same once it is made: what is edited is there.
pub fn has_edited(after: &Booking, exception: &Exception) -> Result<(), Refusal> {
    let there = after.window(exception.of).map(|_| ());
    there.ok_or_else(|| {
        Refusal::invalid("/start", "it would meet the window of its booking that has begun")
            .hint("that one can be extended, or cancelled for what is left of it")
    })
}

/// Makes the series end before an occurrence; false if nothing of it is left.
pub fn cut(spec: &mut BookingSpec, from: Wall, zone: &Zone) -> bool {
    let recurrence = &mut spec.recurrence;
    // One whose count is used up before then ends by itself.
    let goes_on = recurrence.rest(from, zone).rule.is_some();
    recurrence.dates.retain(|wall| *wall < from);
    if let Some(rule) = recurrence.rule.as_mut().filter(|_| goes_on) {
        let last = zone.moment_or_later(from.0).map(|at| at.0 / 1000 - 1);
        let last = last.and_then(|second| jiff::Timestamp::from_second(second).ok());
        if let Some(last) = last {
            let last = last.to_zoned(jiff::tz::TimeZone::UTC).datetime();
            // INVARIANT: whichever bound ends it first is kept.
            rule.bound = match rule.bound {
                Bound::Until(until) if until < last => Bound::Until(until),
                _ => Bound::Until(last),
            };
        }
    }
    recurrence.start < from
}

/// What is due for windows of `before` that are not kept whole in `after`.
pub fn fee(state: &State, before: &Booking, after: &[Window], at: Time) -> Micros {
    let after: BTreeMap<Wall, &Window> = after.iter().map(|window| (window.of, window)).collect();
    let is_given_up = |window: &&Window| {
        let same = after.get(&window.of);
        !same.is_some_and(|other| {
            other.start <= window.start && other.end >= window.end && other.gpu_milli >= window.gpu_milli
        })
    };
    let given_up = before.windows.iter().filter(is_given_up);
    let fees = given_up.map(|window| due(state, window, at).money.0);
    Micros(fees.fold(0, i64::saturating_add))
}

/// What is due for one window that is given up now: what was had of it, and a fee for the rest. Nothing for one that is
/// late or broken: that is not its owner's doing.
pub fn due(state: &State, window: &Window, at: Time) -> Cost {
    let passed_ms = at.min(window.end).since_ms(window.start);
    let had_ms = match window.is_open() {
        true => passed_ms.saturating_sub(window.lost_until_ms(at)),
        false => 0,
    };
    let had = window.cost_of(had_ms);
    let late = at >= window.start && !window.is_open();
    let rest = Micros(window.cost().money.0 - window.cost_of(passed_ms).money.0);
    let fee = match late || window.down.is_some() {
        true => Micros::ZERO,
        false => state.terms.cancel_fee(rest, window.start.since_ms(at)),
    };
    Cost {
        money: Micros(had.money.0.saturating_add(fee.0).min(window.cost().money.0)),
        gpu_ms: had.gpu_ms,
        frames: 0,
    }
}

pub fn posting(account: AccountId, amount: Micros) -> Option<Posting> {
    (amount.0 > 0).then_some(Posting {
        from: account,
        to: AccountId::Revenue,
        amount,
    })
}
