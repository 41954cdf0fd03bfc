//! Folding what happens to bookings: windows onto the shelf and off it, money held and settled.

use crate::booking::inside::own_jobs;
use crate::booking::record::{Booking, Window, WindowPhase};
use crate::booking::zone::Wall;
use crate::event::Event;
use crate::id::{BookingId, GpuId, NodeId};
use crate::ledger::account::{AccountId, Posting};
use crate::meter::Of;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;

impl State {
    pub(super) fn apply_booking(&mut self, at: Time, event: &Event) {
        match event {
            Event::BookingTermsSet { terms } => self.terms = terms.clone(),
            Event::BookingMade { booking } => {
                self.saw_id(booking.id.0);
                self.put_in(at, (**booking).clone());
            }
            Event::BookingChanged {
                booking,
                cost,
                charge,
                ..
            } => {
                let before = self.take_out(at, booking.id);
                self.pay(at, before.scope, &before.counted_as(), *cost, charge.iter());
                self.put_in(at, (**booking).clone());
            }
            Event::BookingRenewed {
                booking,
                windows,
                missed,
                over,
                resolved,
                more,
                ..
            } => {
                let mut renewed = self.take_out(at, *booking);
                // What was not to be had is left out from now on, so that a later edit does not ask for it again.
                let first = renewed.windows.first().map(|window| window.of);
                let except = &mut renewed.spec.recurrence.except;
                // One that was put off may still be to come.
                let put_off = |wall: &Wall| renewed.exceptions.iter().any(|put_off| put_off.of == *wall);
                except.retain(|wall| over.is_none_or(|over| *wall >= over) || put_off(wall));
                except.retain(|wall| missed.is_empty() || first.is_none_or(|first| *wall >= first));
                except.extend(missed);
                if let [first, others @ ..] = &missed[..] {
                    let others = match others.len() {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    renewed.note = Some(format!("there was no room or no money for {first}{others}").into());
                }
                renewed.windows.extend(windows.iter().cloned());
                renewed.windows.sort_by_key(|window| window.start);
                (renewed.resolved, renewed.more) = (*resolved, *more);
                self.put_in(at, renewed);
            }
            Event::BookingEnded {
                booking,
                cost,
                charge,
                ..
            } => {
                let ended = self.take_out(at, *booking);
                self.pay(at, ended.scope, &ended.counted_as(), *cost, charge.iter());
            }
            Event::WindowClearing {
                booking,
                of,
                seats,
                gpus,
                victims,
                ..
            } => {
                for victim in victims {
                    self.living_job(*victim).evictions.note(at);
                }
                self.bookings.change_window(&self.tree, *booking, *of, |window| {
                    Some(Window {
                        phase: WindowPhase::Clearing,
                        seats: seats.clone(),
                        gpus: gpus.clone(),
                        ..window
                    })
                });
            }
            Event::WindowOpened {
                booking, of, late_ms, ..
            } => {
                // Its owner may be there already.
                let found = self.bookings.get(*booking);
                let window = found.and_then(|booking| Some((booking, booking.window(*of)?)));
                let used =
                    window.is_some_and(|(booking, window)| own_jobs(self, booking, window).next().is_some());
                self.bookings.change_window(&self.tree, *booking, *of, |window| {
                    Some(Window {
                        phase: WindowPhase::Open {
                            since: at,
                            used,
                            extended: false,
                        },
                        lost_ms: *late_ms,
                        ..window
                    })
                });
            }
            Event::WindowDown { booking, of, .. } => {
                self.bookings.change_window(&self.tree, *booking, *of, |window| {
                    Some(Window {
                        down: Some(at),
                        ..window
                    })
                })
            }
            Event::WindowRestored { booking, of, .. } => {
                self.bookings.change_window(&self.tree, *booking, *of, |window| {
                    let down_ms = window.down.map_or(0, |down| at.since_ms(down));
                    Some(Window {
                        lost_ms: window.lost_ms.saturating_add(down_ms),
                        down: None,
                        ..window
                    })
                });
            }
            Event::WindowMoved {
                booking,
                of,
                seats,
                gpus,
                ..
            } => self.bookings.change_window(&self.tree, *booking, *of, |window| {
                // What is open has to be cleared first where it now is; meanwhile it is not to be had.
                let down = window.down.or(window.is_open().then_some(at));
                Some(Window {
                    seats: seats.clone(),
                    gpus: gpus.clone(),
                    down,
                    ..window
                })
            }),
            Event::WindowExtended { booking, of, end, .. } => self.extend_window(at, *booking, *of, *end),
            Event::WindowClosed {
                booking,
                of,
                cost,
                charge,
                refund,
                ..
            } => {
                let mut closed = None;
                self.bookings.change_window(&self.tree, *booking, *of, |window| {
                    closed = Some(window.cost());
                    None
                });
                let held = closed.expect("INVARIANT: events name windows there are");
                let of_booking = self
                    .bookings
                    .get(*booking)
                    .expect("INVARIANT: events name live bookings");
                let (scope, account, ofs) = (of_booking.scope, of_booking.account, of_booking.counted_as());
                self.give_back(at, scope, account, &ofs, held);
                self.pay(at, scope, &ofs, *cost, charge.iter().chain(refund));
            }
            _ => {}
        }
    }

    fn extend_window(&mut self, at: Time, booking: BookingId, of: Wall, end: Time) {
        let mut more = Cost::default();
        self.bookings.change_window(&self.tree, booking, of, |window| {
            let before = window.cost();
            let phase = match window.phase {
                WindowPhase::Open { since, used, .. } => WindowPhase::Open {
                    since,
                    used,
                    extended: true,
                },
                phase => phase,
            };
            let longer = Window { end, phase, ..window };
            more = Cost {
                money: crate::money::Micros(longer.cost().money.0 - before.money.0),
                gpu_ms: longer.cost().gpu_ms - before.gpu_ms,
                frames: 0,
            };
            Some(longer)
        });
        let of_booking = self
            .bookings
            .get(booking)
            .expect("INVARIANT: events name live bookings");
        let (scope, account, ofs) = (of_booking.scope, of_booking.account, of_booking.counted_as());
        self.set_money_aside(at, scope, account, &ofs, more);
    }

    fn put_in(&mut self, at: Time, booking: Booking) {
        let ofs = booking.counted_as();
        self.set_money_aside(at, booking.scope, booking.account, &ofs, booking.held());
        self.bookings.insert(&self.tree, booking);
    }

    fn take_out(&mut self, at: Time, id: BookingId) -> Booking {
        let booking = self.bookings.remove(&self.tree, id);
        let ofs = booking.counted_as();
        self.give_back(at, booking.scope, booking.account, &ofs, booking.held());
        booking
    }

    fn set_money_aside(&mut self, at: Time, scope: ScopeId, account: AccountId, ofs: &[Of], cost: Cost) {
        self.accounts.hold(account, cost.money);
        self.tree
            .for_chain(scope, |scope| scope.spending.hold(ofs, at, cost));
    }

    fn give_back(&mut self, at: Time, scope: ScopeId, account: AccountId, ofs: &[Of], cost: Cost) {
        self.accounts.release(account, cost.money);
        self.tree
            .for_chain(scope, |scope| scope.spending.release(ofs, at, cost));
    }

    fn pay<'a>(
        &mut self,
        at: Time,
        scope: ScopeId,
        ofs: &[Of],
        cost: Cost,
        postings: impl Iterator<Item = &'a Posting>,
    ) {
        for posting in postings {
            self.accounts.post(posting);
        }
        self.tree.for_chain(scope, |scope| {
            scope.spending.hold(ofs, at, cost);
            scope.spending.settle(ofs, at, cost);
        });
    }

    /// A job came onto these GPUs: where they are booked, somebody came.
    pub(super) fn note_booked_use(&mut self, owner: ScopeId, gpus: &[(NodeId, GpuId)]) {
        let open = self.bookings.live().filter(|(booking, window)| {
            matches!(window.phase, WindowPhase::Open { used: false, .. })
                && self.tree.is_within(owner, booking.scope)
                && window.gpus.iter().any(|gpu| gpus.contains(gpu))
        });
        let open: Vec<_> = open.map(|(booking, window)| (booking.id, window.of)).collect();
        for (booking, of) in open {
            self.bookings.change_window(&self.tree, booking, of, |window| {
                let phase = match window.phase {
                    WindowPhase::Open { since, extended, .. } => WindowPhase::Open {
                        since,
                        used: true,
                        extended,
                    },
                    phase => phase,
                };
                Some(Window { phase, ..window })
            });
        }
    }
}
