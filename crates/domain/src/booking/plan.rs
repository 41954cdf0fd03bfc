//! What a booking would be: its windows with their seats and prices, or why it cannot be had.
//!
//! The same for a quote as for the booking itself, so that what was shown is what is held. Every window has room, fits
//! each booking quota above and every budget, or nothing is booked. Called by `decide/booking` and by whoever quotes.

use jiff::SignedDuration;
use std::borrow::Cow;

use super::allow::{allowed, fits_budgets};
use super::alternative;
use super::quota::fits_quotas;
use super::record::{Booking, BookingSpec, Exception, Size, Window, WindowPhase, window_at};
use super::recurrence::Recurrence;
use super::shelf::{Room, Seat, Shelf};
use super::slot::Slot;
use super::zone::{Wall, Zone};
use crate::id::{BookingId, NodeId};
use crate::ledger::tariff::booked_hourly;
use crate::money::Micros;
use crate::name;
use crate::refusal::Refusal;
use crate::schedule::fleet::{Node, NodeStatus};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::spec::{MAX_GPUS, MAX_NODES};

/// Windows of one booking that are held at once; what is beyond follows as these end.
pub const MAX_WINDOWS: usize = 1000;
const MIN_LENGTH_S: i64 = 60;
pub const MAX_LENGTH_S: i64 = 366 * 86_400;
/// A start this little in the past is now: people's clocks and ours differ.
pub const PAST_MS: u64 = 60 * SECOND_MS;
/// Nodes that are looked at before others.
pub const MAX_LIKED: usize = 16;

/// Windows for the occurrences of a booking within a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub windows: Vec<Window>,
    /// Occurrences there is no room for.
    pub missed: Vec<Slot>,
    pub resolved: Time,
    pub more: bool,
}

impl Plan {
    pub(super) fn until(until: Time) -> Plan {
        Plan {
            windows: Vec::new(),
            missed: Vec::new(),
            resolved: until,
            more: false,
        }
    }
}

/// Somebody who wants windows.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub state: &'a State,
    pub scope: ScopeId,
    pub spec: &'a BookingSpec,
    pub exceptions: &'a [Exception],
    pub zone: &'a Zone,
    pub at: Time,
    /// What is booked, without what is given up for it.
    pub shelf: &'a Shelf,
    pub liked: &'a [NodeId],
    /// The booking as it was, where it is made anew.
    pub known: Option<&'a Booking>,
    /// Windows it has already. Those that began are left alone; others stay where nothing of them is to be different.
    pub had: &'a [Window],
    /// So many windows are made at most.
    pub most: usize,
}

impl BookingSpec {
    pub fn length(&self) -> SignedDuration {
        self.recurrence.start.0.duration_until(self.end.0)
    }

    /// Refuses what no fleet and no calendar could give.
    pub fn check(&self) -> Result<(), Refusal> {
        self.check_beside(&Recurrence::once(self.recurrence.start))
    }

    /// The same of one that was known: dates that were left out already are nobody's wish, and are not counted again.
    pub fn check_beside(&self, known: &Recurrence) -> Result<(), Refusal> {
        name::check(&self.name, "/name")?;
        name::check(&self.class, "/class")?;
        self.region
            .as_deref()
            .map_or(Ok(()), |region| name::check(region, "/region"))?;
        self.recurrence.check_beside(known)?;
        check_size(self.size)?;
        check_length(self.recurrence.start, self.end)
    }
}

fn check_size(size: Size) -> Result<(), Refusal> {
    let most = if matches!(size, Size::Nodes { .. }) {
        MAX_NODES
    } else {
        MAX_GPUS
    };
    if !(1..=most).contains(&size.count()) {
        return Err(Refusal::invalid(
            "/size/count",
            format!("a booking is for 1 to {most} of them"),
        ));
    }
    if let Size::Slices {
        compute_permille,
        vram_mib,
        ..
    } = size
    {
        if !(1..=1000).contains(&compute_permille) {
            return Err(Refusal::invalid(
                "/size/compute_permille",
                "a share is 1 to 1000 thousandths of a GPU",
            ));
        }
        if vram_mib == 0 || vram_mib > 1 << 40 {
            return Err(Refusal::invalid("/size/vram_mib", "a slice needs its VRAM said"));
        }
    }
    Ok(())
}

fn check_length(start: Wall, end: Wall) -> Result<(), Refusal> {
    let length_s = start.0.duration_until(end.0).as_secs();
    if length_s <= 0 {
        return Err(Refusal::invalid("/end", "a window ends after it begins"));
    }
    if !(MIN_LENGTH_S..=MAX_LENGTH_S).contains(&length_s) {
        return Err(Refusal::invalid("/end", "a window is a minute to 366 days long"));
    }
    Ok(())
}

impl Exception {
    pub fn check(&self) -> Result<(), Refusal> {
        check_size(self.size)?;
        check_length(self.start, self.end)
    }
}

/// The nodes whose GPUs the scope could book, with how many there are.
pub fn rooms(state: &State, scope: ScopeId, class: &str, region: Option<&str>) -> Vec<Room> {
    let tenant = state.tree.tenant_of(scope);
    let up = |node: &&Node| node.status == NodeStatus::Up && node.admits(tenant, region);
    let nodes = state.fleet.nodes().filter(up);
    let rooms = nodes.filter_map(|node| {
        let mut room = Room {
            node: node.id,
            gpus: Default::default(),
        };
        let working = node
            .gpus
            .iter()
            .filter(|gpu| gpu.present && gpu.quarantine.is_none());
        for gpu in working {
            match room.gpus.get_mut(&gpu.facts.class) {
                Some(count) => *count += 1,
                None => drop(room.gpus.insert(gpu.facts.class.clone(), 1)),
            }
        }
        room.gpus.contains_key(class).then_some(room)
    });
    rooms.collect()
}

/// The memory every GPU of a class has at least.
pub fn vram_of(state: &State, class: &str) -> u64 {
    let gpus = state.fleet.nodes().flat_map(|node| &node.gpus);
    let of_class = gpus.filter(|gpu| *gpu.facts.class == *class);
    of_class.map(|gpu| gpu.facts.vram_mib).min().unwrap_or(0)
}

/// Refuses slices with more memory than a GPU of their class has. What nobody has is refused for want of room.
pub fn fits_device(state: &State, class: &str, size: Size) -> Result<(), Refusal> {
    let has_mib = vram_of(state, class);
    match size {
        Size::Slices { vram_mib, .. } if has_mib > 0 && vram_mib > has_mib => Err(Refusal::invalid(
            "/size/vram_mib",
            format!("a GPU of class {class} has {has_mib} MiB, and a slice of it no more"),
        )
        .hint("whole GPUs are booked by their number")),
        _ => Ok(()),
    }
}

impl<'a> Wanted<'a> {
    /// Windows for what happens from one moment to another.
    pub fn plan(&self, from: Time, until: Time) -> Plan {
        let rooms = rooms(
            self.state,
            self.scope,
            &self.spec.class,
            self.spec.region.as_deref(),
        );
        let vram_mib = vram_of(self.state, &self.spec.class);
        let mut plan = Plan::until(until);
        let mut liked = self.liked.to_vec();
        for slot in self.slots(from, &mut plan) {
            let Slot { of, start, end, size } = slot;
            let had = window_at(self.had, of, start).filter(|had| had.end == end);
            let seats = match had {
                Some(had) => Some(had.seats.clone()),
                None => self
                    .shelf
                    .seats(&rooms, &self.spec.class, size.take(vram_mib), start, end, &liked),
            };
            let Some(seats) = seats else {
                plan.missed.push(slot);
                continue;
            };
            // A series stays where it is as far as it can: files and images are there.
            liked.clear();
            liked.extend(seats.iter().map(|seat| seat.node));
            plan.windows.push(match had {
                Some(had) => had.clone(),
                None => self.window(slot, seats, vram_mib),
            });
        }
        plan.windows.sort_by_key(|window| window.start);
        plan
    }

    /// From when on and until when windows are made of what is wanted now.
    pub(super) fn reach(&self) -> (Time, Time) {
        let from = Time(self.at.0.saturating_sub_unsigned(PAST_MS));
        (from, self.at.plus_ms(self.state.terms.horizon_ms()))
    }

    fn window(&self, slot: Slot, seats: Vec<Seat>, vram_mib: u64) -> Window {
        let Slot { of, start, end, size } = slot;
        let (listed, gpu_milli) = price(self.state, &self.spec.class, &seats, vram_mib);
        let (books, tree) = (&self.state.books, &self.state.tree);
        let hourly = booked_hourly(
            books,
            tree,
            self.scope,
            &self.spec.class,
            gpu_milli,
            listed,
            self.at,
        );
        Window {
            of,
            start,
            end,
            seats,
            size: Some(size),
            hourly,
            gpu_milli,
            phase: WindowPhase::Booked,
            gpus: Vec::new(),
            lost_ms: 0,
            down: None,
        }
    }

    /// The same, all of it or nothing: from now on to the horizon.
    pub fn all(&self) -> Result<Plan, Refusal> {
        let state = self.state;
        let (from, horizon) = self.reach();
        let plan = self.plan(from, horizon);
        if let Some(slot) = plan.missed.first() {
            return Err(alternative::booked_out(self, &plan, slot));
        }
        let Some(last) = plan.windows.last() else {
            return Err(self.nothing(from, horizon));
        };
        if last.end > horizon.plus_ms(MAX_LENGTH_S as u64 * SECOND_MS) {
            return Err(beyond(state));
        }
        let meets = |pair: &[Window]| pair[0].end > pair[1].start;
        if plan.windows.windows(2).any(meets) {
            return Err(Refusal::invalid(
                "/end",
                "a window ends before the next of its booking begins",
            ));
        }
        Ok(plan)
    }

    /// Why there is no window at all.
    fn nothing(&self, from: Time, horizon: Time) -> Refusal {
        let (zone, start) = (self.zone, self.spec.recurrence.start);
        if self.had.iter().any(|window| window.has_begun(self.at)) {
            return Refusal::invalid(
                "/start",
                "nothing would come of it beside the window that has begun",
            )
            .hint("that one can be extended, or cancelled for what is left of it");
        }
        if self.spec.recurrence.rule.is_some() {
            return Refusal::invalid("/rule", "no window comes of it from now to the horizon").hint(format!(
                "windows are held {} days ahead",
                self.state.terms.horizon_days
            ));
        }
        match zone.moment(start.0) {
            None => no_such_time(start, zone),
            Some(at) if at < from => Refusal::invalid("/start", "the window would have begun in the past"),
            Some(at) if at >= horizon => beyond(self.state),
            Some(_) => Refusal::invalid("/except", "every date is left out"),
        }
    }
}

pub(super) fn no_such_time(wall: Wall, zone: &Zone) -> Refusal {
    Refusal::invalid(
        "/start",
        format!(
            "there is no {wall} in {}: clocks are put forward over it",
            zone.name.name
        ),
    )
}

pub(super) fn beyond(state: &State) -> Refusal {
    let days = state.terms.horizon_days;
    Refusal::invalid("/start", format!("windows are held at most {days} days ahead"))
}

/// The price by the hour of what a window withholds from others, and the GPUs that is, in thousandths. Slices fill GPUs
/// of their own, and those are withheld whole.
fn price(state: &State, class: &str, seats: &[Seat], of_class_mib: u64) -> (Micros, u64) {
    let prices = &state.prices;
    let mut hourly = Micros::ZERO;
    let mut milli = 0;
    for seat in seats {
        let gpus = u64::from(seat.gpus);
        let each_mib = match *seat.class == *class {
            true => of_class_mib,
            false => vram_of(state, &seat.class),
        };
        let vram_mib = each_mib.saturating_mul(gpus);
        let more = prices.hourly_of_gpus(&seat.class, gpus * 1000, vram_mib);
        hourly = Micros(hourly.0.saturating_add(more.0));
        milli += gpus * 1000;
    }
    (hourly, milli)
}

/// The booking as it would be made now, under an id that is nobody's yet.
pub fn quote(
    state: &State,
    scope: ScopeId,
    spec: &BookingSpec,
    zone: &Zone,
    at: Time,
) -> Result<Booking, Refusal> {
    let booking = quote_instead(state, scope, spec, zone, at, &[])?;
    fits_budgets(state, scope, &spec.class, booking.held(), at)?;
    Ok(booking)
}

/// The same, with these windows of another booking of the scope given up for it; whether there is money is asked by
/// whoever knows what is due for them.
pub fn quote_instead(
    state: &State,
    scope: ScopeId,
    spec: &BookingSpec,
    zone: &Zone,
    at: Time,
    given_up: &[&Window],
) -> Result<Booking, Refusal> {
    spec.check()?;
    allowed(state, scope, &spec.class)?;
    fits_device(state, &spec.class, spec.size)?;
    let shelf = shelf_without(state, given_up.iter().copied());
    // Where it has volumes, its jobs have to run.
    let volumes = state.volumes.of(scope).filter_map(|volume| volume.node);
    let liked: Vec<NodeId> = volumes.take(MAX_LIKED).collect();
    let wanted = Wanted {
        state,
        scope,
        spec,
        exceptions: &[],
        zone,
        at,
        shelf: &shelf,
        liked: &liked,
        known: None,
        had: &[],
        most: MAX_WINDOWS,
    };
    let plan = wanted.all()?;
    fits_quotas(state, scope, &plan.windows, Some((scope, given_up)))?;
    Ok(Booking {
        id: BookingId(0),
        scope,
        by: None,
        made: at,
        spec: spec.clone(),
        zone: zone.name.clone(),
        exceptions: Vec::new(),
        windows: plan.windows,
        resolved: plan.resolved,
        more: plan.more,
        account: state.account_of(scope),
        revision: 1,
        note: None,
    })
}

/// What is booked without these windows.
pub fn shelf_without<'a, 'w>(state: &'a State, windows: impl Iterator<Item = &'w Window>) -> Cow<'a, Shelf> {
    let mut shelf = Cow::Borrowed(state.bookings.shelf());
    for window in windows {
        for seat in &window.seats {
            shelf.to_mut().remove(seat, window.start, window.end);
        }
    }
    shelf
}
