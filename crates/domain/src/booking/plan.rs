//! What a booking would be: its windows with their seats and prices, or why it cannot be had.
//!
//! The same for a quote as for the booking itself, so that what was shown is what is held. Every window has room, fits
//! each booking quota above and every budget, or nothing is booked. Called by `decide/booking` and by whoever quotes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::allow::{allowed, fits_budgets, more};
use super::alternative;
use super::quota::fits_quotas;
use super::record::{Booking, BookingSpec, Exception, Size, Window, WindowPhase, sum, window_at};
use super::shelf::{Room, Seat, Shelf};
use super::zone::{Wall, Zone};
use crate::id::{BookingId, NodeId};
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
const MAX_LENGTH_S: i64 = 366 * 86_400;
/// A start this little in the past is now: people's clocks and ours differ.
const PAST_MS: u64 = 60 * SECOND_MS;
/// Nodes that are looked at before others.
pub const MAX_LIKED: usize = 16;
/// Occurrences looked at, of which windows are made.
const LOOKED_AT: usize = 200_000;

/// Windows for the occurrences of a booking within a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub windows: Vec<Window>,
    /// Occurrences there is no room for.
    pub missed: Vec<(Wall, Time, Time)>,
    pub resolved: Time,
    pub more: bool,
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
    /// Windows it has already. Those that began are left alone; others stay where nothing of them is to be different.
    pub had: &'a [Window],
}

impl BookingSpec {
    pub fn length(&self) -> SignedDuration {
        self.recurrence.start.0.duration_until(self.end.0)
    }

    /// Refuses what no fleet and no calendar could give.
    pub fn check(&self) -> Result<(), Refusal> {
        name::check(&self.name, "/name")?;
        name::check(&self.class, "/class")?;
        self.region
            .as_deref()
            .map_or(Ok(()), |region| name::check(region, "/region"))?;
        self.recurrence.check()?;
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
    let up = |node: &&Node| node.status == NodeStatus::Up && node.labels.admit(tenant, region);
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
        let mut plan = Plan {
            windows: Vec::new(),
            missed: Vec::new(),
            resolved: until,
            more: false,
        };
        let mut liked = self.liked.to_vec();
        for (of, start, end, size) in self.slots(from, &mut plan) {
            let had = window_at(self.had, of, start).filter(|had| had.end == end);
            let seats = match had {
                Some(had) => Some(had.seats.clone()),
                None => self
                    .shelf
                    .seats(&rooms, &self.spec.class, size.take(vram_mib), start, end, &liked),
            };
            let Some(seats) = seats else {
                plan.missed.push((of, start, end));
                continue;
            };
            // A series stays where it is as far as it can: files and images are there.
            liked.clear();
            liked.extend(seats.iter().map(|seat| seat.node));
            plan.windows.push(match had {
                Some(had) => had.clone(),
                None => self.window(of, start, end, size, seats, vram_mib),
            });
        }
        plan.windows.sort_by_key(|window| window.start);
        plan
    }

    /// When there is to be a window, and how large, but for those that began; how far that goes is noted in the plan.
    fn slots(&self, from: Time, plan: &mut Plan) -> Vec<(Wall, Time, Time, Size)> {
        let found = self
            .spec
            .recurrence
            .occurrences(self.zone, plan.resolved, LOOKED_AT);
        plan.more = found.cut;
        let exceptions: BTreeMap<Wall, &Exception> = self
            .exceptions
            .iter()
            .map(|exception| (exception.of, exception))
            .collect();
        let begun = self.had.iter().filter(|window| window.has_begun(self.at));
        let begun: BTreeSet<Wall> = begun.map(|window| window.of).collect();
        let mut slots = Vec::new();
        let wanted = found.all.iter().filter(|occurrence| occurrence.at >= from);
        for occurrence in wanted.filter(|occurrence| !begun.contains(&occurrence.wall)) {
            if slots.len() >= MAX_WINDOWS {
                (plan.resolved, plan.more) = (occurrence.at, true);
                break;
            }
            let exception = exceptions.get(&occurrence.wall).copied();
            let times = self.times(occurrence.wall, occurrence.at, exception);
            slots.extend(times.map(|(start, end, size)| (occurrence.wall, start, end, size)));
        }
        slots
    }

    /// Of a booking's windows, those that stay as they are: nothing of them is to be different.
    pub fn unchanged(&self, booking: &Booking) -> Vec<Window> {
        let same_kind = (&booking.spec.class, &booking.spec.region) == (&self.spec.class, &self.spec.region);
        if !same_kind {
            let begun = booking.windows.iter().filter(|window| window.has_begun(self.at));
            return begun.cloned().collect();
        }
        let (from, until) = self.reach();
        let mut plan = Plan {
            windows: Vec::new(),
            missed: Vec::new(),
            resolved: until,
            more: false,
        };
        let slots = self.slots(from, &mut plan);
        let slots: BTreeMap<Wall, (Time, Time, Size)> = slots
            .into_iter()
            .map(|(of, start, end, size)| (of, (start, end, size)))
            .collect();
        let stays = booking.windows.iter().filter(|window| {
            let same = (window.start, window.end, booking.size_of(window.of));
            window.has_begun(self.at) || slots.get(&window.of) == Some(&same)
        });
        stays.cloned().collect()
    }

    /// From when on and until when windows are made of what is wanted now.
    fn reach(&self) -> (Time, Time) {
        let from = Time(self.at.0.saturating_sub_unsigned(PAST_MS));
        (from, self.at.plus_ms(self.state.terms.horizon_ms()))
    }

    fn times(&self, wall: Wall, at: Time, exception: Option<&Exception>) -> Option<(Time, Time, Size)> {
        let (start, end, size) = match exception {
            Some(exception) => (
                self.zone.moment(exception.start.0)?,
                exception.end.0,
                exception.size,
            ),
            None => (at, wall.0.checked_add(self.spec.length()).ok()?, self.spec.size),
        };
        let end = self.zone.moment_or_later(end)?;
        (start < end).then_some((start, end, size))
    }

    fn window(
        &self,
        of: Wall,
        start: Time,
        end: Time,
        size: Size,
        seats: Vec<Seat>,
        vram_mib: u64,
    ) -> Window {
        let (hourly, gpu_milli) = price(self.state, &self.spec.class, size, &seats, vram_mib);
        Window {
            of,
            start,
            end,
            seats,
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
        let (state, spec) = (self.state, self.spec);
        let (from, horizon) = self.reach();
        let plan = self.plan(from, horizon);
        if let Some((_, start, end)) = plan.missed.first() {
            return Err(alternative::booked_out(self, &plan, *start, *end));
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
        spec.check()?;
        Ok(plan)
    }

    /// Why there is no window at all.
    fn nothing(&self, from: Time, horizon: Time) -> Refusal {
        let (zone, start) = (self.zone, self.spec.recurrence.start);
        if self.spec.recurrence.rule.is_some() {
            return Refusal::invalid("/rule", "no window comes of it from now to the horizon").hint(format!(
                "windows are held {} days ahead",
                self.state.terms.horizon_days
            ));
        }
        match zone.moment(start.0) {
            None => Refusal::invalid(
                "/start",
                format!(
                    "there is no {start} in {}: clocks are put forward over it",
                    zone.name.name
                ),
            ),
            Some(at) if at < from => Refusal::invalid("/start", "the window would have begun in the past"),
            Some(at) if at >= horizon => beyond(self.state),
            Some(_) => Refusal::invalid("/except", "every date is left out"),
        }
    }
}

fn beyond(state: &State) -> Refusal {
    let days = state.terms.horizon_days;
    Refusal::invalid("/start", format!("windows are held at most {days} days ahead"))
}

fn price(state: &State, class: &str, size: Size, seats: &[Seat], of_class_mib: u64) -> (Micros, u64) {
    let prices = &state.prices;
    if let Size::Slices {
        count,
        compute_permille,
        vram_mib,
    } = size
    {
        let milli = u64::from(count) * u64::from(compute_permille);
        return (
            prices.hourly_of_gpus(class, milli, vram_mib.saturating_mul(count.into())),
            milli,
        );
    }
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
    quote_instead(state, scope, spec, zone, at, None, &[])
}

/// The same, with these windows of another booking given up for it.
pub fn quote_instead(
    state: &State,
    scope: ScopeId,
    spec: &BookingSpec,
    zone: &Zone,
    at: Time,
    of: Option<BookingId>,
    given_up: &[&Window],
) -> Result<Booking, Refusal> {
    spec.check()?;
    allowed(state, scope, &spec.class)?;
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
        had: &[],
    };
    let plan = wanted.all()?;
    fits_quotas(state, scope, &plan.windows, of)?;
    let before = sum(given_up.iter().map(|window| window.cost()));
    let after = sum(plan.windows.iter().map(Window::cost));
    fits_budgets(state, scope, &spec.class, more(before, after), at)?;
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
