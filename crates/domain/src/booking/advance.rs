//! What time does to windows: they are cleared, opened, moved off broken nodes, given up when nobody comes, and closed.
//!
//! The very GPUs are chosen when a window is cleared, those from which the least has to leave. Whoever is on them and
//! would stay beyond the start leaves by the common way out. Deliberately absent: looking at the clock; the server asks
//! every second, and nothing happens where nothing is due.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Wanted, fits_budgets, fits_quotas, rooms, vram_of};
use super::record::{Booking, Size, Window, WindowPhase, sum};
use super::shelf::Seat;
use super::zone::Zone;
use crate::decide::cannot_pause;
use crate::event::{CloseReason, Event};
use crate::id::{GpuId, JobId, NodeId};
use crate::ledger::account::{AccountId, Posting};
use crate::money::Micros;
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::ends_by;
use crate::schedule::fleet::{Gpu, NodeStatus};
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, PauseReason, Phase, StopReason};

/// Windows begun on at once, so that a decision stays short; the next second has the others.
const AT_ONCE: usize = 64;
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

/// Whether the job may use what its scope booked.
pub fn is_own(state: &State, booking: &Booking, job: &Job) -> bool {
    state.tree.is_within(ScopeId::User(job.owner), booking.scope)
}

fn works(state: &State, (node, gpu): (NodeId, GpuId)) -> bool {
    let node = state
        .fleet
        .node(node)
        .filter(|node| node.status == NodeStatus::Up);
    let gpu = node.and_then(|node| node.gpu(gpu));
    gpu.is_some_and(|gpu| gpu.present && gpu.quarantine.is_none())
}

/// Living allocations on a device, with their jobs.
fn holders<'a>(state: &'a State, gpu: &'a Gpu) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let holders = gpu.holders.iter().filter_map(|id| state.fleet.allocation(*id));
    holders.filter_map(|allocation| Some((state.jobs.get(&allocation.job)?, allocation)))
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

/// GPUs that other windows have now, and until when.
fn others(state: &State, booking: &Booking, window: &Window) -> BTreeMap<GpuId, Time> {
    let live = state.bookings.live();
    let others = live.filter(|(of, other)| (of.id, other.of) != (booking.id, window.of));
    let mut ends = BTreeMap::new();
    for (_, other) in others {
        for (_, gpu) in &other.gpus {
            let end = ends.entry(*gpu).or_insert(other.end);
            *end = other.end.max(*end);
        }
    }
    ends
}

/// The GPUs of these seats from which the least has to leave; none if there are not enough.
fn choose(
    state: &State,
    booking: &Booking,
    window: &Window,
    seats: &[Seat],
    chosen: &BTreeSet<GpuId>,
    at: Time,
) -> Option<Vec<(NodeId, GpuId)>> {
    let others = others(state, booking, window);
    let mut gpus = Vec::new();
    for seat in seats {
        let node = state
            .fleet
            .node(seat.node)
            .filter(|node| node.status == NodeStatus::Up)?;
        let free = node.gpus.iter().filter(|gpu| *gpu.facts.class == *seat.class);
        let free = free.filter(|gpu| gpu.present && gpu.quarantine.is_none());
        let free = free.filter(|gpu| !chosen.contains(&gpu.id));
        // What another window has until this one begins is had, but only where there is nothing else.
        let free = free.filter(|gpu| others.get(&gpu.id).is_none_or(|end| *end <= window.start));
        let mut ranked: Vec<(bool, u64, GpuId)> = free
            .map(|gpu| {
                let stay = holders(state, gpu).filter(|(job, _)| !is_own(state, booking, job));
                let lost =
                    stay.map(
                        |(job, allocation)| match ends_by(state, allocation, at) > window.start {
                            true => {
                                1 + at
                                    .since_ms(job.since)
                                    .saturating_mul(allocation.slices.len() as u64)
                            }
                            false => 0,
                        },
                    );
                (
                    others.contains_key(&gpu.id),
                    lost.fold(0, u64::saturating_add),
                    gpu.id,
                )
            })
            .collect();
        ranked.sort_unstable();
        if ranked.len() < seat.gpus as usize {
            return None;
        }
        gpus.extend(
            ranked
                .into_iter()
                .take(seat.gpus as usize)
                .map(|(_, _, gpu)| (seat.node, gpu)),
        );
    }
    Some(gpus)
}

/// Seats, and the very GPUs of them.
type Chosen = (Vec<Seat>, Vec<(NodeId, GpuId)>);

/// The same on these seats, or on others where these are not to be had any more.
fn choose_anywhere(
    state: &State,
    booking: &Booking,
    window: &Window,
    chosen: &BTreeSet<GpuId>,
    at: Time,
) -> Option<Chosen> {
    if let Some(gpus) = choose(state, booking, window, &window.seats, chosen, at) {
        return Some((window.seats.clone(), gpus));
    }
    let spec = &booking.spec;
    let exception = booking
        .exceptions
        .iter()
        .find(|exception| exception.of == window.of);
    let size = exception.map_or(spec.size, |exception| exception.size);
    let take = size.take(vram_of(state, &spec.class));
    let mut rooms = rooms(state, booking.scope, &spec.class, spec.region.as_deref());
    // What it has itself, it has already: only rooms without a seat of its own are asked, the others are kept.
    let from = window.start.max(at);
    let own = |node: NodeId| window.seats.iter().any(|seat| seat.node == node);
    let sound =
        |seat: &&Seat| choose(state, booking, window, std::slice::from_ref(*seat), chosen, at).is_some();
    let sound: Vec<Seat> = window.seats.iter().filter(sound).cloned().collect();
    rooms.retain(|room| !own(room.node));
    let seats = match (size, take) {
        (Size::Gpus { spread: false, .. }, _) => {
            state
                .bookings
                .shelf()
                .seats(&rooms, &spec.class, take, from, window.end, &[])?
        }
        _ => {
            let mut seats = sound.clone();
            for broken in window.seats.iter().filter(|seat| !sound.contains(seat)) {
                let take = match size {
                    Size::Nodes { .. } => super::shelf::Take::Nodes(1),
                    _ => super::shelf::Take::Spread(broken.gpus),
                };
                let instead =
                    state
                        .bookings
                        .shelf()
                        .seats(&rooms, &broken.class, take, from, window.end, &[])?;
                rooms.retain(|room| instead.iter().all(|seat| seat.node != room.node));
                seats.extend(instead);
            }
            seats
        }
    };
    let gpus = choose(state, booking, window, &seats, chosen, at)?;
    Some((seats, gpus))
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
        let pauses = pausing && job.phase == Phase::Running && cannot_pause(state, job, allocation).is_none();
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
    if grace_s.is_none_or(|grace_s| at.plus_ms(grace_s * SECOND_MS) < window.end) {
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

/// Settles a window: its price, and what of it was not had back.
fn close(booking: &Booking, window: &Window, why: CloseReason, at: Time) -> Vec<Event> {
    let down_ms = window.down.map_or(0, |down| at.min(window.end).since_ms(down));
    let lost_ms = match why {
        CloseReason::NotHad => window.length_ms(),
        _ => window.lost_ms.saturating_add(down_ms).min(window.length_ms()),
    };
    let had = window.cost_of(window.length_ms() - lost_ms);
    let price = window.cost().money;
    settled(booking, window, why, price, Micros(price.0 - had.money.0), had)
}

fn close_no_show(state: &State, booking: &Booking, window: &Window, at: Time) -> Vec<Event> {
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
    settled(booking, window, CloseReason::NoShow, price, Micros::ZERO, cost)
}

fn settled(
    booking: &Booking,
    window: &Window,
    why: CloseReason,
    price: Micros,
    refund: Micros,
    cost: Cost,
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
    let last = booking.windows.len() == 1 && !booking.more;
    let ended = last.then(|| ended(booking, "its last window is over"));
    std::iter::once(closed).chain(ended).collect()
}

fn ended(booking: &Booking, why: &str) -> Event {
    Event::BookingEnded {
        booking: booking.id,
        scope: booking.scope,
        why: why.into(),
        cost: Cost::default(),
        charge: None,
    }
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
        begun: &[],
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
