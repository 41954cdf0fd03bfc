//! Settling a window: its price, what of it was not to be had back, and what is due where nobody came.

use super::record::{Booking, Window};
use crate::event::{CloseReason, Event};
use crate::ledger::account::{AccountId, Posting};
use crate::money::Micros;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::time::Time;

/// Settles a window: its price, and what of it was not had back; with the last its booking ends.
pub(super) fn close(
    booking: &Booking,
    window: &Window,
    why: CloseReason,
    last: bool,
    at: Time,
) -> Vec<Event> {
    let lost_ms = match why {
        CloseReason::NotHad => window.length_ms(),
        _ => window.lost_until_ms(at),
    };
    let had = window.cost_of(window.length_ms() - lost_ms);
    let price = window.cost().money;
    settled(
        booking,
        window,
        why,
        price,
        Micros(price.0 - had.money.0),
        had,
        last,
    )
}

pub(super) fn close_no_show(
    state: &State,
    booking: &Booking,
    window: &Window,
    last: bool,
    at: Time,
) -> Vec<Event> {
    let so_far_ms = at.since_ms(window.start).saturating_sub(window.lost_ms);
    let had = window.cost_of(so_far_ms.min(window.length_ms()));
    let left = Micros(
        window
            .cost_of(window.length_ms().saturating_sub(window.lost_ms))
            .money
            .0
            - had.money.0,
    );
    let price = Micros(had.money.0 + state.terms.no_show_fee(left).0);
    let cost = Cost {
        money: price,
        gpu_ms: had.gpu_ms,
        frames: 0,
    };
    settled(
        booking,
        window,
        CloseReason::NoShow,
        price,
        Micros::ZERO,
        cost,
        last,
    )
}

fn settled(
    booking: &Booking,
    window: &Window,
    why: CloseReason,
    price: Micros,
    refund: Micros,
    cost: Cost,
    last: bool,
) -> Vec<Event> {
    let posting = |from, to, amount: Micros| (amount.0 > 0).then_some(Posting { from, to, amount });
    let closed = Event::WindowClosed {
        booking: booking.id,
        scope: booking.scope,
        of: window.of,
        why,
        cost,
        charge: posting(booking.account, AccountId::Revenue, price),
        refund: posting(AccountId::Revenue, booking.account, refund),
    };
    let ended = last.then(|| ended(booking, "its last window is over"));
    std::iter::once(closed).chain(ended).collect()
}

pub(super) fn ended(booking: &Booking, why: &str) -> Event {
    Event::BookingEnded {
        booking: booking.id,
        scope: booking.scope,
        why: why.into(),
        cost: Cost::default(),
        charge: None,
    }
}
