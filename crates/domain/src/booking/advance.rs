//! What time does to windows: they are cleared, opened, moved off broken nodes, given up when nobody comes, and closed.
//!
//! The very GPUs are chosen when a window is cleared, those from which the least has to leave. Whoever is on them and
//! would stay beyond the start leaves by the common way out. Deliberately absent: looking at the clock; the server asks
//! every second, and nothing happens where nothing is due.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::allow::fits_budgets;
use super::choose::{Had, choose_anywhere, works};
use super::inside::{in_the_way, leave, paid_by};
use super::plan::{MAX_WINDOWS, Wanted, rooms};
use super::quota::{fits_quotas, is_limited};
use super::record::{Booking, Window, WindowPhase, sum};
use super::reprice::repriced;
use super::settle::{close, close_no_show, ended};
use super::shelf::{Seat, Shelf};
use super::zone::{Wall, Zone};
use crate::event::{CloseReason, Event};
use crate::id::{BookingId, GpuId, JobId, NodeId};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::spec::MAX_GRACE_S;

/// Windows begun on at once, so that a decision stays short; the next second has the others.
const AT_ONCE: usize = 64;
/// Windows whose time has come that are looked at for one, and as many of those to come.
const LOOKED_AT: usize = 512;
/// What is due at a window's end is looked at this long before: time comes in steps.
const NOTICE_MS: u64 = 2 * SECOND_MS;
/// Dates that were left out are forgotten this long after.
const OVER_MS: u64 = 86_400 * SECOND_MS;
/// Series are made longer when their horizon has moved on by this much, or by half of a shorter one.
const RENEW_MS: u64 = 7 * 86_400 * SECOND_MS;

/// What a decision has given already, so that it gives nothing twice.
struct Given<'a> {
    shelf: Cow<'a, Shelf>,
    gpus: BTreeSet<GpuId>,
    had: Had,
    /// Who was told to leave.
    told: BTreeSet<JobId>,
    /// Scopes with a limit that a longer window was counted in.
    longer: BTreeSet<ScopeId>,
    /// Windows closed of each booking.
    closed: BTreeMap<BookingId, usize>,
}

impl Given<'_> {
    fn place(&mut self, window: &Window, seats: &[Seat], gpus: &[(NodeId, GpuId)]) {
        self.gpus.extend(gpus.iter().map(|(_, gpu)| *gpu));
        if *seats == *window.seats {
            return;
        }
        let shelf = self.shelf.to_mut();
        for seat in &window.seats {
            shelf.remove(seat, window.start, window.end);
        }
        for seat in seats {
            shelf.add(seat, window.start, window.end);
        }
    }

    fn lengthen(&mut self, window: &Window, end: Time) {
        let shelf = self.shelf.to_mut();
        for seat in &window.seats {
            shelf.add(seat, window.end, end);
        }
    }

    /// Counts a window as closed; true if it is the last of its booking.
    fn close(&mut self, booking: &Booking) -> bool {
        let closed = self.closed.entry(booking.id).or_default();
        *closed += 1;
        booking.windows.len() == *closed && !booking.more
    }
}

/// Everything that is due, a few windows at a time.
pub fn advance(state: &State, zones: fn(&str) -> Option<Zone>, at: Time) -> Vec<Event> {
    let mut events = Vec::new();
    let mut given = Given {
        shelf: Cow::Borrowed(state.bookings.shelf()),
        gpus: BTreeSet::new(),
        had: Had::now(state),
        told: BTreeSet::new(),
        longer: BTreeSet::new(),
        closed: BTreeMap::new(),
    };
    for (booking, window) in state.bookings.live() {
        events.extend(live(state, booking, window, &mut given, at));
    }
    events.extend(coming(state, &mut given, at));
    let horizon_ms = state.terms.horizon_ms();
    let renew = at.plus_ms(horizon_ms - RENEW_MS.min(horizon_ms / 2));
    let mut growing = state.bookings.resolved_before(renew);
    // What had a window closed just now is renewed when that is so.
    let found = growing.find_map(|booking| {
        let grows = booking.windows.len() < MAX_WINDOWS && !given.closed.contains_key(&booking.id);
        grows
            .then(|| Some((booking, zones(&booking.zone.name)?)))
            .flatten()
    });
    events.extend(
        found
            .into_iter()
            .flat_map(|(booking, zone)| renewed(state, booking, &zone, at)),
    );
    events
}

/// Windows whose lead time has come, and those with somebody in their way who needs longer than that to leave.
fn coming<'a>(state: &'a State, given: &mut Given<'a>, at: Time) -> Vec<Event> {
    let mut events = Vec::new();
    let lead = at.plus_ms(state.terms.lead_s * SECOND_MS + 1);
    let longest = at.plus_ms(u64::from(MAX_GRACE_S) * SECOND_MS + NOTICE_MS);
    let mut graces: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut begun = 0;
    let coming = state.bookings.coming_before(lead.max(longest));
    let (due, early): (Vec<_>, Vec<_>) = coming.partition(|(_, window)| window.start < lead);
    let due = in_turn(&due, at).map(|pair| (true, pair));
    let early = in_turn(&early, at).map(|pair| (false, pair));
    for (due, (booking, window)) in due.chain(early) {
        if !due {
            let nodes = window.seats.iter().map(|seat| seat.node);
            let grace_ms = nodes.map(|node| *graces.entry(node).or_insert_with(|| grace_ms(state, node)));
            if at.plus_ms(grace_ms.max().unwrap_or(0)) < window.start {
                continue;
            }
        }
        let cleared = clear(state, booking, window, given, due, at);
        // Only what comes of it counts: one that finds no place keeps no other waiting.
        begun += usize::from(!cleared.is_empty());
        events.extend(cleared);
        if begun == AT_ONCE {
            break;
        }
    }
    events
}

/// So many of them at most: half are the first, the others by the clock, so that each has its turn however many find no
/// place.
fn in_turn<T: Copy>(all: &[T], at: Time) -> impl Iterator<Item = T> {
    let (first, others) = all.split_at(all.len().min(LOOKED_AT / 2));
    let turn = usize::try_from(at.0 / 1000).unwrap_or(0);
    let from = match others.len() > LOOKED_AT / 2 {
        true => (turn % others.len()) * (LOOKED_AT / 2) % others.len(),
        false => 0,
    };
    let (before, after) = others.split_at(from);
    let others = after.iter().chain(before).take(LOOKED_AT / 2);
    first.iter().chain(others).copied()
}

/// The longest that anybody on a node may take to leave it, with notice.
fn grace_ms(state: &State, node: NodeId) -> u64 {
    let jobs = state.fleet.allocations_on(node).map(|allocation| allocation.job);
    let graces = jobs.filter_map(|job| Some(state.jobs.get(&job)?.spec.grace_s));
    graces
        .max()
        .map_or(0, |grace_s| u64::from(grace_s) * SECOND_MS + NOTICE_MS)
}

/// Has a window's GPUs cleared; before its lead time only if somebody needs as long as is left.
fn clear(
    state: &State,
    booking: &Booking,
    window: &Window,
    given: &mut Given<'_>,
    due: bool,
    at: Time,
) -> Vec<Event> {
    if at >= window.end {
        let last = given.close(booking);
        return close(booking, window, CloseReason::NotHad, last, at);
    }
    let Some((seats, gpus)) =
        choose_anywhere(state, &given.shelf, booking, window, &given.gpus, &given.had, at)
    else {
        return Vec::new();
    };
    // Who is in a window that is over by then leaves with it.
    let alone: Vec<(NodeId, GpuId)> = gpus
        .iter()
        .filter(|(_, gpu)| given.had.by_others(*gpu, booking, window).is_none())
        .copied()
        .collect();
    let mut told = given.told.clone();
    let victims = leave(
        state,
        in_the_way(state, booking, window, &alone),
        window.start,
        true,
        &mut told,
        at,
    );
    let stopping = victims.iter().filter_map(|event| match event {
        Event::JobStopping { job, .. } => state.jobs.get(job),
        _ => None,
    });
    let grace_s = stopping.map(|job| u64::from(job.spec.grace_s)).max();
    let waits = |grace_s| at.plus_ms(grace_s * SECOND_MS + NOTICE_MS) < window.start;
    if !due && (seats != window.seats || grace_s.is_none_or(waits)) {
        return Vec::new();
    }
    given.told = told;
    given.place(window, &seats, &gpus);
    let names = victims.iter().filter_map(|event| match event {
        Event::JobPausing { job, .. } | Event::JobStopping { job, .. } => Some(*job),
        _ => None,
    });
    let clearing = Event::WindowClearing {
        booking: booking.id,
        scope: booking.scope,
        of: window.of,
        seats,
        gpus,
        victims: names.collect(),
    };
    std::iter::once(clearing).chain(victims).collect()
}

fn live(state: &State, booking: &Booking, window: &Window, given: &mut Given<'_>, at: Time) -> Vec<Event> {
    let (id, scope, of) = (booking.id, booking.scope, window.of);
    if at >= window.end {
        let reason = match window.phase {
            WindowPhase::Open { .. } => CloseReason::Over,
            _ => CloseReason::NotHad,
        };
        let inside = paid_by(state, booking, window);
        let mut events = leave(state, inside, at, false, &mut given.told, at);
        let last = given.close(booking);
        events.extend(close(booking, window, reason, last, at));
        return events;
    }
    // One that was to be over by now may have been made longer.
    let taken = at >= window.start && !window.is_open() && {
        let other = |gpu: GpuId| given.had.by_others(gpu, booking, window);
        let kept_longer = |gpu: GpuId| other(gpu).is_some_and(|end| end > at);
        window.gpus.iter().any(|(_, gpu)| kept_longer(*gpu))
    };
    let sound = !taken && window.gpus.iter().all(|gpu| works(state, booking, *gpu));
    if !sound {
        return moved(state, booking, window, given, at);
    }
    let blocked = in_the_way(state, booking, window, &window.gpus).next().is_some();
    // One that could not be paused after all, or came by another way, is stopped.
    let mut unblock = || {
        let there = in_the_way(state, booking, window, &window.gpus);
        leave(state, there, at, false, &mut given.told, at)
    };
    match window.phase {
        WindowPhase::Booked => Vec::new(),
        WindowPhase::Clearing if at < window.start => Vec::new(),
        WindowPhase::Clearing if blocked => unblock(),
        WindowPhase::Clearing => {
            let opened = Event::WindowOpened {
                booking: id,
                scope,
                of,
                late_ms: at.since_ms(window.start),
            };
            let there = repriced(state, booking, window, &given.told, at);
            std::iter::once(opened).chain(there).collect()
        }
        WindowPhase::Open { .. } if window.down.is_some() => match blocked {
            true => unblock(),
            false => {
                let restored = Event::WindowRestored {
                    booking: id,
                    scope,
                    of,
                };
                let there = repriced(state, booking, window, &given.told, at);
                std::iter::once(restored).chain(there).collect()
            }
        },
        WindowPhase::Open {
            since,
            used,
            extended,
        } => open(state, booking, window, since, used, extended, given, at),
    }
}

/// A window whose GPUs are not to be had any more goes elsewhere, or is down.
fn moved(state: &State, booking: &Booking, window: &Window, given: &mut Given<'_>, at: Time) -> Vec<Event> {
    let (id, scope, of) = (booking.id, booking.scope, window.of);
    let found = choose_anywhere(state, &given.shelf, booking, window, &given.gpus, &given.had, at);
    let Some((seats, gpus)) = found else {
        let down = window.is_open() && window.down.is_none();
        let event = Event::WindowDown {
            booking: id,
            scope,
            of,
        };
        return down.then_some(event).into_iter().collect();
    };
    given.place(window, &seats, &gpus);
    let there = in_the_way(state, booking, window, &gpus);
    let victims = leave(state, there, at.max(window.start), true, &mut given.told, at);
    // Where the window is no more, nobody pays for them.
    let left = paid_by(state, booking, window).filter(|(_, allocation)| {
        let mut slices = allocation.slices.iter();
        slices.any(|slice| !gpus.contains(&(allocation.node, slice.gpu)))
    });
    let left = leave(state, left, at, false, &mut given.told, at);
    let moved = Event::WindowMoved {
        booking: id,
        scope,
        of,
        seats,
        gpus,
    };
    std::iter::once(moved).chain(victims).chain(left).collect()
}

fn open(
    state: &State,
    booking: &Booking,
    window: &Window,
    since: Time,
    used: bool,
    extended: bool,
    given: &mut Given<'_>,
    at: Time,
) -> Vec<Event> {
    let terms = &state.terms;
    if !used && terms.no_show_s > 0 && at >= since.plus_ms(terms.no_show_s * SECOND_MS + window.lost_ms) {
        let last = given.close(booking);
        return close_no_show(state, booking, window, last, at);
    }
    let grace_s = paid_by(state, booking, window)
        .map(|(job, _)| u64::from(job.spec.grace_s))
        .max();
    if grace_s.is_none_or(|grace_s| at.plus_ms(grace_s * SECOND_MS + NOTICE_MS) < window.end) {
        return Vec::new();
    }
    if !extended && terms.grace_s > 0 {
        let above = state.tree.chain(booking.scope);
        let limited: Vec<ScopeId> = above
            .filter(|scope| is_limited(scope))
            .map(|scope| scope.id)
            .collect();
        // Another one was counted there just now: what is left is known in a moment.
        let counted = limited.iter().any(|scope| given.longer.contains(scope));
        if counted && at.plus_ms(SECOND_MS) < window.end {
            return Vec::new();
        }
        let end = window.end.plus_ms(terms.grace_s * SECOND_MS);
        if !counted && can_extend(state, &given.shelf, booking, window, end, at) {
            given.lengthen(window, end);
            given.longer.extend(limited);
            return vec![Event::WindowExtended {
                booking: booking.id,
                scope: booking.scope,
                of: window.of,
                end,
            }];
        }
    }
    let inside = paid_by(state, booking, window);
    leave(state, inside, window.end, false, &mut given.told, at)
}

/// Whether its seats are nobody else's for longer, and the time can be paid for.
pub fn can_extend(
    state: &State,
    shelf: &Shelf,
    booking: &Booking,
    window: &Window,
    end: Time,
    at: Time,
) -> bool {
    let rooms = rooms(state, booking.scope, &booking.spec.class, None);
    let free = window.seats.iter().all(|seat| {
        let room = rooms.iter().find(|room| room.node == seat.node);
        room.is_some_and(|room| shelf.more(room, &seat.class, seat.gpus, window.end, end).is_ok())
    });
    let next = booking
        .windows
        .iter()
        .any(|other| other.start >= window.end && other.start < end);
    let mut longer = window.clone();
    (longer.start, longer.end) = (window.end, end);
    free && !next
        && fits_budgets(state, booking.scope, &booking.spec.class, longer.cost(), at).is_ok()
        && fits_quotas(state, booking.scope, &[longer], None).is_ok()
}

/// More windows of a series without an end, as the horizon moves on. Where there is no room, or no money, it is said.
fn renewed(state: &State, booking: &Booking, zone: &Zone, at: Time) -> Vec<Event> {
    let last = booking
        .windows
        .last()
        .into_iter()
        .flat_map(|window| &window.seats);
    let liked: Vec<NodeId> = last.map(|seat| seat.node).collect();
    let wanted = Wanted {
        state,
        scope: booking.scope,
        spec: &booking.spec,
        exceptions: &booking.exceptions,
        zone,
        at,
        shelf: state.bookings.shelf(),
        liked: &liked,
        known: None,
        had: &[],
        most: MAX_WINDOWS.saturating_sub(booking.windows.len()),
    };
    // Of what was not made in time, that alone of which something is left.
    let length_ms = u64::try_from(booking.spec.length().as_millis()).unwrap_or(0);
    let from = Time(at.0.saturating_sub_unsigned(length_ms + OVER_MS / 12));
    let plan = wanted.plan(booking.resolved.max(from), at.plus_ms(state.terms.horizon_ms()));
    let mut missed: Vec<_> = plan.missed.iter().map(|slot| slot.of).collect();
    let mut windows = plan.windows;
    let cost = sum(windows.iter().map(Window::cost));
    let fits = fits_quotas(state, booking.scope, &windows, None).is_ok()
        && fits_budgets(state, booking.scope, &booking.spec.class, cost, at).is_ok();
    if !fits {
        missed.extend(windows.drain(..).map(|window| window.of));
    }
    let over = booking.windows.is_empty() && windows.is_empty() && !plan.more;
    let renewed = Event::BookingRenewed {
        booking: booking.id,
        scope: booking.scope,
        windows,
        missed,
        over: zone.wall(Time(at.0.saturating_sub_unsigned(OVER_MS))).map(Wall),
        resolved: plan.resolved,
        more: plan.more,
    };
    let ended = over.then(|| ended(booking, "nothing more comes of it"));
    std::iter::once(renewed).chain(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_there_are_a_few_are_looked_at_and_each_in_its_turn() {
        let few: Vec<usize> = (0..LOOKED_AT).collect();
        assert_eq!(
            in_turn(&few, Time(1)).collect::<Vec<_>>(),
            few,
            "all of them, in order"
        );
        for many in [LOOKED_AT + 1, 5000, 10_007] {
            let all: Vec<usize> = (0..many).collect();
            let mut seen = BTreeSet::new();
            for second in 0..2 * many.div_ceil(LOOKED_AT / 2) as i64 {
                let looked: Vec<usize> = in_turn(&all, Time(second * 1000)).collect();
                assert!(looked.len() <= LOOKED_AT && looked[..256] == all[..256], "{many}");
                seen.extend(looked);
            }
            assert_eq!(seen.len(), many);
        }
    }
}
