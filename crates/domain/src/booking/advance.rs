//! What time does to windows: they are cleared, opened, moved off broken nodes, given up when nobody comes, and closed.
//!
//! The very GPUs are chosen when a window is cleared, those from which the least has to leave. Whoever is on them and
//! would stay beyond the start leaves by the common way out. Deliberately absent: looking at the clock; the server asks
//! every second, and nothing happens where nothing is due.

use std::collections::BTreeSet;

use super::allow::fits_budgets;
use super::choose::{choose_anywhere, holders, is_own, others, works};
use super::plan::{Wanted, rooms};
use super::quota::fits_quotas;
use super::record::{Booking, Size, Window, WindowPhase, sum};
use super::settle::{close, close_no_show, ended};
use super::zone::Zone;
use crate::decide::can_pause;
use crate::event::{CloseReason, Event};
use crate::id::{GpuId, JobId, NodeId};
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::ends_by;
use crate::state::State;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, PauseReason, Phase, StopReason};

/// Windows begun on at once, so that a decision stays short; the next second has the others.
const AT_ONCE: usize = 64;
/// What is due at a window's end is looked at this long before: time comes in steps.
const NOTICE_MS: u64 = 2 * SECOND_MS;
/// Series are made longer when their horizon has moved on by this much.
const RENEW_MS: u64 = 7 * 86_400 * SECOND_MS;

/// Everything that is due, a few windows at a time.
pub fn advance(state: &State, zones: fn(&str) -> Option<Zone>, at: Time) -> Vec<Event> {
    let mut events = Vec::new();
    // GPUs chosen in this very decision are nobody else's.
    let mut chosen: BTreeSet<GpuId> = BTreeSet::new();
    let mut told: BTreeSet<JobId> = BTreeSet::new();
    for (booking, window) in state.bookings.live() {
        events.extend(live(state, booking, window, &mut chosen, &mut told, at));
    }
    let due = at.plus_ms(state.terms.lead_s * SECOND_MS + 1);
    for (booking, window) in state.bookings.coming_before(due).take(AT_ONCE) {
        events.extend(clear(state, booking, window, &mut chosen, &mut told, at));
    }
    let renew = at.plus_ms(state.terms.horizon_ms().saturating_sub(RENEW_MS));
    let mut growing = state.bookings.resolved_before(renew);
    let found = growing.find_map(|booking| Some((booking, zones(&booking.zone.name)?)));
    events.extend(
        found
            .into_iter()
            .flat_map(|(booking, zone)| renewed(state, booking, &zone, at)),
    );
    events
}

/// Those on the window's GPUs who are not its owner's; on whole nodes, everybody there.
fn in_the_way<'a>(
    state: &'a State,
    booking: &'a Booking,
    gpus: &'a [(NodeId, GpuId)],
) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let whole = matches!(booking.spec.size, Size::Nodes { .. });
    let nodes: BTreeSet<NodeId> = gpus.iter().filter(|_| whole).map(|(node, _)| *node).collect();
    let on_nodes = nodes
        .into_iter()
        .flat_map(|node| state.fleet.allocations_on(node));
    let on_nodes = on_nodes.filter_map(|allocation| Some((state.jobs.get(&allocation.job)?, allocation)));
    let gpus = gpus
        .iter()
        .filter_map(|(node, gpu)| state.fleet.node(*node)?.gpu(*gpu));
    let all = on_nodes.chain(gpus.flat_map(|gpu| holders(state, gpu)));
    all.filter(|(job, allocation)| !allocation.paused && !is_own(state, booking, job))
}

/// Has those leave who would be there beyond a moment, once.
fn leave<'a>(
    state: &'a State,
    jobs: impl Iterator<Item = (&'a Job, &'a Allocation)>,
    beyond: Time,
    pausing: bool,
    told: &mut BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (job, allocation) in jobs {
        let leaving = matches!(job.phase, Phase::Stopping | Phase::Pausing | Phase::Paused);
        if leaving || ends_by(state, allocation, at) <= beyond || !told.insert(job.id) {
            continue;
        }
        let pauses = pausing && job.phase == Phase::Running && can_pause(state, job, allocation);
        events.push(match pauses {
            true => Event::JobPausing {
                job: job.id,
                reason: PauseReason::Preempted,
            },
            false => Event::JobStopping {
                job: job.id,
                reason: StopReason::Evicted,
            },
        });
    }
    events
}

fn clear(
    state: &State,
    booking: &Booking,
    window: &Window,
    chosen: &mut BTreeSet<GpuId>,
    told: &mut BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    if at >= window.end {
        return close(booking, window, CloseReason::NotHad, at);
    }
    let Some((seats, gpus)) = choose_anywhere(state, booking, window, chosen, at) else {
        return Vec::new();
    };
    chosen.extend(gpus.iter().map(|(_, gpu)| *gpu));
    // Who is in a window that is over by then leaves with it.
    let others = others(state, booking, window);
    let alone: Vec<(NodeId, GpuId)> = gpus
        .iter()
        .filter(|(_, gpu)| !others.contains_key(gpu))
        .copied()
        .collect();
    let victims = leave(
        state,
        in_the_way(state, booking, &alone),
        window.start,
        true,
        told,
        at,
    );
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

fn live(
    state: &State,
    booking: &Booking,
    window: &Window,
    chosen: &mut BTreeSet<GpuId>,
    told: &mut BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    let (id, scope, of) = (booking.id, booking.scope, window.of);
    if at >= window.end {
        let reason = match window.phase {
            WindowPhase::Open { .. } => CloseReason::Over,
            _ => CloseReason::NotHad,
        };
        let mut events = leave(state, own_jobs(state, booking, window), at, false, told, at);
        events.extend(close(booking, window, reason, at));
        return events;
    }
    // One that was to be over by now may have been made longer.
    let taken = at >= window.start && !window.is_open() && {
        let others = others(state, booking, window);
        let kept_longer = |gpu: &GpuId| others.get(gpu).is_some_and(|end| *end > at);
        window.gpus.iter().any(|(_, gpu)| kept_longer(gpu))
    };
    let sound = !taken && window.gpus.iter().all(|gpu| works(state, *gpu));
    if !sound {
        let moved = choose_anywhere(state, booking, window, chosen, at);
        let Some((seats, gpus)) = moved else {
            let down = window.is_open() && window.down.is_none();
            let event = Event::WindowDown {
                booking: id,
                scope,
                of,
            };
            return down.then_some(event).into_iter().collect();
        };
        chosen.extend(gpus.iter().map(|(_, gpu)| *gpu));
        let victims = leave(
            state,
            in_the_way(state, booking, &gpus),
            at.max(window.start),
            true,
            told,
            at,
        );
        let moved = Event::WindowMoved {
            booking: id,
            scope,
            of,
            seats,
            gpus,
        };
        return std::iter::once(moved).chain(victims).collect();
    }
    let blocked = in_the_way(state, booking, &window.gpus).next().is_some();
    match window.phase {
        WindowPhase::Booked => Vec::new(),
        WindowPhase::Clearing if at < window.start => Vec::new(),
        WindowPhase::Clearing if blocked => {
            // One that could not be paused after all, or came by another way, is stopped.
            leave(
                state,
                in_the_way(state, booking, &window.gpus),
                at,
                false,
                told,
                at,
            )
        }
        WindowPhase::Clearing => vec![Event::WindowOpened {
            booking: id,
            scope,
            of,
            late_ms: at.since_ms(window.start),
        }],
        WindowPhase::Open { .. } if window.down.is_some() => match blocked {
            true => leave(
                state,
                in_the_way(state, booking, &window.gpus),
                at,
                false,
                told,
                at,
            ),
            false => vec![Event::WindowRestored {
                booking: id,
                scope,
                of,
            }],
        },
        WindowPhase::Open {
            since,
            used,
            extended,
        } => open(state, booking, window, since, used, extended, told, at),
    }
}

fn own_jobs<'a>(
    state: &'a State,
    booking: &'a Booking,
    window: &'a Window,
) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let gpus = window
        .gpus
        .iter()
        .filter_map(|(node, gpu)| state.fleet.node(*node)?.gpu(*gpu));
    let all = gpus.flat_map(|gpu| holders(state, gpu));
    all.filter(|(job, _)| is_own(state, booking, job))
}

fn open(
    state: &State,
    booking: &Booking,
    window: &Window,
    since: Time,
    used: bool,
    extended: bool,
    told: &mut BTreeSet<JobId>,
    at: Time,
) -> Vec<Event> {
    let terms = &state.terms;
    if !used && terms.no_show_s > 0 && at >= since.plus_ms(terms.no_show_s * SECOND_MS + window.lost_ms) {
        return close_no_show(state, booking, window, at);
    }
    let grace_s = own_jobs(state, booking, window)
        .map(|(job, _)| u64::from(job.spec.grace_s))
        .max();
    if grace_s.is_none_or(|grace_s| at.plus_ms(grace_s * SECOND_MS + NOTICE_MS) < window.end) {
        return Vec::new();
    }
    if !extended && terms.grace_s > 0 {
        let end = window.end.plus_ms(terms.grace_s * SECOND_MS);
        if can_extend(state, booking, window, end, at) {
            return vec![Event::WindowExtended {
                booking: booking.id,
                scope: booking.scope,
                of: window.of,
                end,
            }];
        }
    }
    leave(
        state,
        own_jobs(state, booking, window),
        window.end,
        false,
        told,
        at,
    )
}

/// Whether its seats are nobody else's for longer, and the time can be paid for.
pub fn can_extend(state: &State, booking: &Booking, window: &Window, end: Time, at: Time) -> bool {
    let rooms = rooms(state, booking.scope, &booking.spec.class, None);
    let shelf = state.bookings.shelf();
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
        had: &[],
    };
    let plan = wanted.plan(booking.resolved, at.plus_ms(state.terms.horizon_ms()));
    let mut missed: Vec<_> = plan.missed.iter().map(|(of, ..)| *of).collect();
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
        resolved: plan.resolved,
        more: plan.more,
    };
    let ended = over.then(|| ended(booking, "nothing more comes of it"));
    std::iter::once(renewed).chain(ended).collect()
}
