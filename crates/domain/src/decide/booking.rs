//! Bookings: making, editing, extending, transferring and cancelling them.
//!
//! Whoever may submit a user's jobs may book for the user; for a larger scope it takes who manages bookings there.

use std::collections::BTreeSet;

use super::Case;
use crate::actor::Actor;
use crate::booking::advance::can_extend;
use crate::booking::allow::{allowed, fits_budgets, fits_budgets_changed, fits_budgets_moved};
use crate::booking::change::{
    Edit, Which, can_begin, cut, due, fee, has_edited, no_such_window, posting, remade,
};
use crate::booking::inside::{leave, paid_by};
use crate::booking::plan::{MAX_LENGTH_S, fits_device, quote, quote_instead};
use crate::booking::quota::fits_quotas;
use crate::booking::record::{Booking, BookingSpec, Exception, Window, WindowPhase, sum};
use crate::booking::terms::Terms;
use crate::booking::zone::{Wall, Zone};
use crate::event::Event;
use crate::id::BookingId;
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::tenancy::budget::Cost;
use crate::tenancy::role::Action;
use crate::tenancy::scope::{Level, ScopeId};
use crate::time::{SECOND_MS, Time};

/// Bookings of one scope at once.
const MAX_PER_SCOPE: usize = 1000;
const MAX_MORE_S: u64 = 366 * 86_400;

impl<'a> Case<'a> {
    fn may_for_booking(&self, id: BookingId) -> Result<&'a Booking, Refusal> {
        let booking = self.state.bookings.get(id).ok_or_else(Refusal::not_found)?;
        self.may_book(booking.scope)?;
        Ok(booking)
    }
}

impl Case<'_> {
    fn may_book(&self, scope: ScopeId) -> Result<(), Refusal> {
        let action = if scope.level() == Level::User {
            Action::JobSubmit
        } else {
            Action::BookingManage
        };
        self.may(action, scope)
    }

    pub(super) fn set_booking_terms(&self, terms: &Terms) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, ScopeId::Platform)?;
        terms.check()?;
        Ok(if self.state.terms == *terms {
            vec![]
        } else {
            vec![Event::BookingTermsSet { terms: terms.clone() }]
        })
    }

    fn fits_scope(&self, scope: ScopeId) -> Result<(), Refusal> {
        if scope == ScopeId::Platform {
            return Err(Refusal::invalid(
                "/scope",
                "a booking belongs to a tenant, a subscriber or a user",
            ));
        }
        if self.state.bookings.of(scope).count() >= MAX_PER_SCOPE {
            let title = self.state.tree.title(scope);
            return Err(Refusal::new(
                Code::WrongPhase,
                format!("{title} has {MAX_PER_SCOPE} bookings already"),
            )
            .hint("cancel some first, or make one series of them"));
        }
        Ok(())
    }

    pub(super) fn book(
        &mut self,
        scope: ScopeId,
        spec: &BookingSpec,
        zone: &Zone,
        shown: Option<Micros>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may_book(scope)?;
        self.fits_scope(scope)?;
        let mut booking = quote(self.state, scope, spec, zone, self.command.at)?;
        let price = booking.held().money;
        if let Some(shown) = shown.filter(|shown| price > *shown) {
            let sentence = format!("it costs {price} now, and {shown} was agreed to");
            return Err(Refusal::new(Code::PriceChanged, sentence).hint("have it quoted again"));
        }
        booking.id = BookingId(self.ids.take());
        if let Actor::User { user, .. } = &self.command.by {
            booking.by = Some(*user);
        }
        Ok(vec![Event::BookingMade {
            booking: Box::new(booking),
        }])
    }

    pub(super) fn edit_booking(
        &mut self,
        id: BookingId,
        edit: &Edit,
        zone: &Zone,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let before = self.may_for_booking(id)?;
        if revision.is_some_and(|read| read != before.revision) {
            return Err(Refusal::new(
                Code::RevisionMismatch,
                "the booking was changed since you read it",
            )
            .hint("read it again and repeat the change"));
        }
        let at = self.command.at;
        let mut after = before.clone();
        let mut rest = None;
        match edit {
            Edit::One(exception) => {
                exception.check()?;
                fits_device(self.state, &before.spec.class, exception.size)?;
                self.waiting_window(before, exception.of)?;
                can_begin(self.state, exception, zone, at)?;
                after.exceptions.retain(|known| known.of != exception.of);
                after.exceptions.push(exception.clone());
            }
            Edit::All { spec } => {
                allowed(self.state, before.scope, &spec.class)?;
                after.spec = spec.clone();
                after.exceptions.clear();
            }
            Edit::Rest { from, spec } => {
                self.waiting_window(before, *from)?;
                if !cut(&mut after.spec, *from, zone) {
                    return Err(
                        Refusal::invalid("/of", "that is the first window; edit all of them")
                            .hint("an edit of the rest leaves something before it"),
                    );
                }
                if spec.recurrence.start < *from {
                    return Err(Refusal::invalid(
                        "/start",
                        "what follows begins no sooner than the window it is edited from",
                    ));
                }
                after.exceptions.retain(|known| known.of < *from);
                rest = Some((spec, *from));
            }
        }
        same_zone(before, zone)?;
        let Some(spec) = rest else {
            let after = remade(self.state, &after, zone, at)?;
            if let Edit::One(exception) = edit {
                has_edited(&after, exception)?;
            }
            let due = fee(self.state, before, &after.windows, at);
            fits_budgets_changed(
                self.state,
                before.scope,
                (before.held(), &before.spec.class),
                (after.held(), &after.spec.class),
                due,
                at,
            )?;
            return self.changed(before, after, "edited", due);
        };
        // What is left of it gives up the windows from there on; what follows is a booking of its own.
        let from = spec.1;
        let (kept, given_up): (Vec<&Window>, Vec<&Window>) = before.windows.iter().partition(|w| w.of < from);
        self.fits_scope(before.scope)?;
        let mut follows = quote_instead(self.state, before.scope, spec.0, zone, at, &given_up)?;
        follows.id = BookingId(self.ids.take());
        follows.by = before.by;
        after.windows = kept.into_iter().cloned().collect();
        after.more = false;
        after.revision += 1;
        let others: Vec<Window> = after.windows.iter().chain(&follows.windows).cloned().collect();
        let due = fee(self.state, before, &others, at);
        fits_budgets_changed(
            self.state,
            before.scope,
            (
                sum(given_up.iter().map(|window| window.cost())),
                &before.spec.class,
            ),
            (follows.held(), &follows.spec.class),
            due,
            at,
        )?;
        let mut events = self.changed(before, after, "what follows was edited", due)?;
        events.push(Event::BookingMade {
            booking: Box::new(follows),
        });
        Ok(events)
    }

    fn waiting_window<'b>(&self, booking: &'b Booking, of: Wall) -> Result<&'b Window, Refusal> {
        let window = booking.window(of).ok_or_else(no_such_window)?;
        if window.has_begun(self.command.at) {
            return Err(Refusal::new(Code::WrongPhase, "the window has begun")
                .hint("it can be extended, or cancelled for what is left of it"));
        }
        Ok(window)
    }

    /// The change as an event, or the end where nothing is left.
    fn changed(
        &self,
        before: &Booking,
        after: Booking,
        why: &str,
        due: Micros,
    ) -> Result<Vec<Event>, Refusal> {
        let cost = Cost {
            money: due,
            gpu_ms: 0,
            frames: 0,
        };
        let charge = posting(before.account, due);
        let why = why.into();
        if after.windows.is_empty() && !after.more {
            return Ok(vec![Event::BookingEnded {
                booking: before.id,
                scope: before.scope,
                why,
                cost,
                charge,
            }]);
        }
        Ok(vec![Event::BookingChanged {
            booking: Box::new(after),
            why,
            cost,
            charge,
        }])
    }

    pub(super) fn extend_booking(
        &self,
        id: BookingId,
        of: Wall,
        more_s: u64,
        zone: Option<&Zone>,
    ) -> Result<Vec<Event>, Refusal> {
        let booking = self.may_for_booking(id)?;
        let window = booking.window(of).ok_or_else(no_such_window)?;
        if more_s == 0 || more_s > MAX_MORE_S {
            return Err(Refusal::invalid(
                "/more_s",
                "a window is made longer by a second to 366 days",
            ));
        }
        let at = self.command.at;
        let end = window.end.plus_ms(more_s * SECOND_MS);
        if end.since_ms(window.start) > MAX_LENGTH_S as u64 * SECOND_MS {
            return Err(Refusal::invalid(
                "/more_s",
                "with so much more it would be longer than 366 days",
            ));
        }
        let shelf = self.state.bookings.shelf();
        if can_extend(self.state, shelf, booking, window, end, at) {
            if window.phase == WindowPhase::Booked {
                return self.extend_waiting(booking, window, end, zone);
            }
            return Ok(vec![Event::WindowExtended {
                booking: id,
                scope: booking.scope,
                of,
                end,
            }]);
        }
        let mut longer = window.clone();
        (longer.start, longer.end) = (window.end, end);
        fits_quotas(self.state, booking.scope, std::slice::from_ref(&longer), None)?;
        fits_budgets(self.state, booking.scope, &booking.spec.class, longer.cost(), at)?;
        // INVARIANT: what can be extended to a moment can be to any before it.
        let (mut least, mut most) = (0, more_s);
        while least + 1 < most {
            let middle = least + (most - least) / 2;
            match can_extend(
                self.state,
                shelf,
                booking,
                window,
                window.end.plus_ms(middle * SECOND_MS),
                at,
            ) {
                true => least = middle,
                false => most = middle,
            }
        }
        let hint = match least {
            0 => "others have booked what follows".to_owned(),
            least => format!("it can be {least} s longer"),
        };
        Err(
            Refusal::new(Code::BookedOut, "what follows the window is not free for so long")
                .field("/more_s")
                .hint(hint),
        )
    }

    /// One that has not begun is an exception of its series from then on, so that later edits leave it as it is.
    fn extend_waiting(
        &self,
        before: &Booking,
        window: &Window,
        end: Time,
        zone: Option<&Zone>,
    ) -> Result<Vec<Event>, Refusal> {
        zone.map_or(Ok(()), |zone| same_zone(before, zone))?;
        let mut after = before.clone();
        let known = after
            .exceptions
            .iter()
            .position(|exception| exception.of == window.of);
        let known = known.map(|index| after.exceptions.remove(index));
        let begins = known.as_ref().map_or(window.of, |known| known.start);
        // Where nobody knows the clocks any more, it is what they showed, and so much longer.
        let wall = match zone {
            Some(zone) => zone.wall(end).map(Wall),
            None => begins.plus_s(i64::try_from(end.since_ms(window.start) / SECOND_MS).unwrap_or(i64::MAX)),
        };
        let wall = wall.ok_or_else(no_such_window)?;
        after.exceptions.push(Exception {
            of: window.of,
            start: begins,
            end: wall,
            size: known.map_or(before.spec.size, |known| known.size),
        });
        for longer in after.windows.iter_mut().filter(|longer| longer.of == window.of) {
            longer.end = end;
        }
        after.revision += 1;
        self.changed(before, after, "extended", Micros::ZERO)
    }

    pub(super) fn transfer_booking(&self, id: BookingId, to: ScopeId) -> Result<Vec<Event>, Refusal> {
        let before = self.may_for_booking(id)?;
        self.may_book(to)?;
        self.fits_scope(to)?;
        if before.scope == to {
            return Ok(vec![]);
        }
        if before.windows.iter().any(Window::is_open) {
            return Err(Refusal::new(
                Code::WrongPhase,
                "a window of it is open, with jobs of who had it",
            )
            .hint("transfer it when the window is over"));
        }
        let (state, at) = (self.state, self.command.at);
        allowed(state, to, &before.spec.class)?;
        self.may_sit(before, to)?;
        let mut after = before.clone();
        after.scope = to;
        after.account = state.account_of(to);
        after.revision += 1;
        let given_up: Vec<&Window> = before.windows.iter().collect();
        fits_quotas(state, to, &after.windows, Some((before.scope, &given_up)))?;
        let between = (before.scope, to);
        fits_budgets_moved(state, between, &before.spec.class, before.held(), at)?;
        self.changed(before, after, "transferred", Micros::ZERO)
    }

    /// Whether jobs of a scope may go to the nodes that a booking's windows are on.
    fn may_sit(&self, booking: &Booking, scope: ScopeId) -> Result<(), Refusal> {
        let tenant = self.state.tree.tenant_of(scope);
        let seats = booking.windows.iter().flat_map(|window| &window.seats);
        let mut nodes = seats.filter_map(|seat| self.state.fleet.node(seat.node));
        let Some(node) = nodes.find(|node| !node.admits(tenant, booking.spec.region.as_deref())) else {
            return Ok(());
        };
        let (title, node) = (self.state.tree.title(scope), &node.name);
        let sentence = format!("a window of it is on {node}, where no jobs of {title} may go");
        Err(Refusal::new(Code::BookedOut, sentence)
            .field("/to")
            .hint(format!("cancel it, and book anew for {title}")))
    }

    pub(super) fn cancel_booking(
        &self,
        id: BookingId,
        which: Which,
        zone: Option<&Zone>,
    ) -> Result<Vec<Event>, Refusal> {
        let before = self.may_for_booking(id)?;
        let (state, at) = (self.state, self.command.at);
        let mut after = before.clone();
        after.revision += 1;
        let given_up = |window: &Window| match which {
            Which::One(of) => window.of == of,
            Which::Rest(from) => window.of >= from,
            Which::All => true,
        };
        match which {
            Which::One(of) => {
                before.window(of).ok_or_else(no_such_window)?;
                after.spec.recurrence.except.push(of);
                after.exceptions.retain(|exception| exception.of != of);
            }
            Which::Rest(from) => {
                before.window(from).ok_or_else(no_such_window)?;
                let zone = zone.ok_or_else(|| no_such_zone(before))?;
                same_zone(before, zone)?;
                cut(&mut after.spec, from, zone);
                after.exceptions.retain(|exception| exception.of < from);
                after.more = false;
            }
            Which::All => after.more = false,
        }
        let dues = before
            .windows
            .iter()
            .filter(|window| given_up(window))
            .map(|window| due(state, window, at));
        let cost = sum(dues);
        // Nobody pays for what runs in a window that is no more.
        let (mut events, mut told) = (Vec::new(), BTreeSet::new());
        for window in before.windows.iter().filter(|window| given_up(window)) {
            let inside = paid_by(state, before, window);
            events.extend(leave(state, inside, at, false, &mut told, at));
        }
        after.windows.retain(|window| !given_up(window));
        let charge = posting(before.account, cost.money);
        let why = "cancelled".into();
        events.push(match after.windows.is_empty() && !after.more {
            true => Event::BookingEnded {
                booking: id,
                scope: before.scope,
                why,
                cost,
                charge,
            },
            false => Event::BookingChanged {
                booking: Box::new(after),
                why,
                cost,
                charge,
            },
        });
        Ok(events)
    }
}

fn no_such_zone(booking: &Booking) -> Refusal {
    let sentence = format!(
        "there is no zone {} in the tz database any more",
        booking.zone.name
    );
    Refusal::new(Code::WrongPhase, sentence).hint("its windows can be cancelled one by one, or all of them")
}

fn same_zone(booking: &Booking, zone: &Zone) -> Result<(), Refusal> {
    if booking.zone.name == zone.name.name {
        return Ok(());
    }
    Err(
        Refusal::invalid("/zone", format!("the booking is in {}", booking.zone.name))
            .hint("cancel it and book anew in another zone"),
    )
}
