//! Wall times read anew when the tz database has another edition: windows move with their clocks, and owners are told.
//!
//! One booking at a time. Where there is no room at the new times, what was held stays held; a zone that is no more keeps
//! its windows and gets no others. Deliberately absent: which edition there is; it arrives with the wish.

use super::allow::fits_budgets_changed;
use super::change::remade;
use super::record::Booking;
use super::zone::Zone;
use crate::event::Event;
use crate::money::Micros;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::time::Time;

/// The first booking that was read by another edition, read by this one.
pub fn resolve(state: &State, zones: fn(&str) -> Option<Zone>, edition: &str, at: Time) -> Vec<Event> {
    let mut others = state
        .bookings
        .iter()
        .filter(|booking| *booking.zone.tzdata != *edition);
    let Some(booking) = others.next() else {
        return Vec::new();
    };
    let zone = zones(&booking.zone.name);
    let (mut after, said) = match &zone {
        Some(zone) => read_by(state, booking, zone, at),
        None => (
            Booking {
                more: false,
                ..booking.clone()
            },
            Some(
                "there is no such zone any more; its windows stay as they were held, and no others follow"
                    .into(),
            ),
        ),
    };
    let clocks = format!("the clocks of {} go by tzdata {edition}", booking.zone.name);
    let why = format!("{clocks}: {}", said.as_deref().unwrap_or("no window moved"));
    after.zone.tzdata = edition.into();
    after.revision = booking.revision + 1;
    after.note = said.map_or(booking.note.clone(), |_| Some(why.as_str().into()));
    let cost = Cost::default();
    if after.windows.is_empty() && !after.more {
        return vec![Event::BookingEnded {
            booking: booking.id,
            scope: booking.scope,
            why,
            cost,
            charge: None,
        }];
    }
    vec![Event::BookingChanged {
        booking: Box::new(after),
        why,
        cost,
        charge: None,
    }]
}

fn read_by(state: &State, booking: &Booking, zone: &Zone, at: Time) -> (Booking, Option<String>) {
    let begun = !booking.more && booking.windows.iter().all(|window| window.has_begun(at));
    if begun {
        return (booking.clone(), None);
    }
    let affordable = |after: Booking| {
        let class = &*booking.spec.class;
        let (before, held) = ((booking.held(), class), (after.held(), class));
        fits_budgets_changed(state, booking.scope, before, held, Micros::ZERO, at).map(|()| after)
    };
    match remade(state, booking, zone, at).and_then(affordable) {
        Ok(after) => {
            let said = moved(booking, &after);
            (after, said)
        }
        Err(refusal) => {
            let said = format!("its windows stay as they were held: {}", refusal.sentence);
            (booking.clone(), Some(said))
        }
    }
}

/// What is to be said of windows that are at another moment now, or not at all.
fn moved(before: &Booking, after: &Booking) -> Option<String> {
    let moved = after.windows.iter().filter(|window| {
        let same = before.window(window.of);
        same.is_none_or(|same| (same.start, same.end) != (window.start, window.end))
    });
    let gone = before
        .windows
        .iter()
        .filter(|window| after.window(window.of).is_none());
    let windows = |count: usize| match count {
        1 => "one window".to_owned(),
        many => format!("{many} windows"),
    };
    match (moved.count(), gone.count()) {
        (0, 0) => None,
        (moved, 0) => Some(format!("{} moved", windows(moved))),
        (0, gone) => Some(format!(
            "{} gone, for there is no such time any more",
            windows(gone)
        )),
        (moved, gone) => Some(format!("{} moved, {gone} gone", windows(moved))),
    }
}
