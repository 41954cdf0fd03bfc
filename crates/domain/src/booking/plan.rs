//! What a booking would be: its windows with their seats and prices, or why it cannot be had.
//!
//! The same for a quote as for the booking itself, so that what was shown is what is held. Every window has room, fits
//! each booking quota above and every budget, or nothing is booked. Called by `decide/booking` and by whoever quotes.

use std::borrow::Cow;

use jiff::SignedDuration;

use super::alternative;
use super::record::{Booking, BookingSpec, Exception, Size, Window, WindowPhase, sum};
use super::shelf::{Room, Seat, Shelf};
use super::zone::{Wall, Zone};
use crate::id::{BookingId, NodeId};
use crate::meter::{Meter, Of, Resource};
use crate::money::Micros;
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::schedule::fleet::{Node, NodeStatus};
use crate::state::State;
use crate::tenancy::budget::{self, Cost};
use crate::tenancy::scope::ScopeId;
use crate::time::{Period, SECOND_MS, Time};
use crate::workload::spec::{MAX_GPUS, MAX_NODES};

/// Windows of one booking that are held at once; what is beyond follows as these end.
pub const MAX_WINDOWS: usize = 1000;
const MIN_LENGTH_S: i64 = 60;
const MAX_LENGTH_S: i64 = 366 * 86_400;
/// A start this little in the past is now: people's clocks and ours differ.
const PAST_MS: u64 = 60 * SECOND_MS;
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
    /// Occurrences whose windows it has already.
    pub begun: &'a [Wall],
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
        let found = self.spec.recurrence.occurrences(self.zone, until, LOOKED_AT);
        let mut plan = Plan {
            windows: Vec::new(),
            missed: Vec::new(),
            resolved: until,
            more: found.cut,
        };
        let mut liked = self.liked.to_vec();
        let wanted = found.all.iter().filter(|occurrence| occurrence.at >= from);
        for occurrence in wanted.filter(|occurrence| !self.begun.contains(&occurrence.wall)) {
            if plan.windows.len() + plan.missed.len() >= MAX_WINDOWS {
                (plan.resolved, plan.more) = (occurrence.at, true);
                break;
            }
            let exception = self
                .exceptions
                .iter()
                .find(|exception| exception.of == occurrence.wall);
            let Some((start, end, size)) = self.times(occurrence.wall, occurrence.at, exception) else {
                continue;
            };
            let take = size.take(vram_mib);
            let seats = self
                .shelf
                .seats(&rooms, &self.spec.class, take, start, end, &liked);
            let Some(seats) = seats else {
                plan.missed.push((occurrence.wall, start, end));
                continue;
            };
            // A series stays where it is as far as it can: files and images are there.
            liked = seats.iter().map(|seat| seat.node).collect();
            plan.windows
                .push(self.window(occurrence.wall, start, end, size, seats, vram_mib));
        }
        plan.windows.sort_by_key(|window| window.start);
        plan
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
        let horizon = self.at.plus_ms(state.terms.horizon_ms());
        let from = Time(self.at.0.saturating_sub_unsigned(PAST_MS));
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

/// Refuses windows that pass a booking quota above.
pub fn fits_quotas(
    state: &State,
    scope: ScopeId,
    windows: &[Window],
    but: Option<BookingId>,
) -> Result<(), Refusal> {
    for above in state.tree.chain(scope) {
        let limits = above.quota.iter();
        let limits = limits.filter(|(meter, _)| meter.resource == Resource::BookedMilli);
        for (Meter { of, .. }, limit) in limits {
            let class = match of {
                Of::All => None,
                Of::Class(class) => Some(&**class),
                Of::Sku(_) | Of::Kind(_) => continue,
            };
            let line = state.bookings.held_by(&state.tree.subtree(above.id), class, but);
            for window in windows {
                let seats = window.seats.iter();
                let of_class = seats.filter(|seat| class.is_none_or(|class| *seat.class == *class));
                let asked: u64 = of_class.map(|seat| u64::from(seat.gpus) * 1000).sum();
                let held = line.peak(window.start, window.end);
                if asked > 0 && held.saturating_add(asked) > limit {
                    let title = state.tree.title(above.id);
                    let sentence = format!(
                        "{title} may hold {limit} of booked_milli at once; {held} are booked in the window of {} and {asked} more do not fit",
                        window.start.rfc3339()
                    );
                    return Err(Refusal::new(Code::ExceedsQuota, sentence)
                        .field("/size/count")
                        .hint(format!(
                            "book less or another time, or have the quota of {title} raised"
                        )));
                }
            }
        }
    }
    Ok(())
}

/// Refuses a cost that does not fit a budget above, or that cannot be counted.
pub fn fits_budgets(state: &State, scope: ScopeId, class: &str, cost: Cost, at: Time) -> Result<(), Refusal> {
    let total = state
        .tree
        .find(ScopeId::Platform)?
        .spending
        .at(&Of::All, Period::Total, at);
    let money = [total.spent.money, total.held.money];
    let money = money.into_iter().try_fold(cost.money, Micros::checked_add);
    let gpu_ms = [total.spent.gpu_ms, total.held.gpu_ms];
    let gpu_ms = gpu_ms.into_iter().try_fold(cost.gpu_ms, u64::checked_add);
    if money.is_none_or(|money| money.0 == i64::MAX) || gpu_ms.is_none() {
        return Err(
            Refusal::new(Code::ExceedsBudget, "it costs more than the ledger can count").field("/size/count"),
        );
    }
    let ofs = [Of::All, Of::Class(class.into())];
    for above in state.tree.chain(scope) {
        let Some(over) = budget::first_exceeded(&above.budgets, &above.spending, &ofs, cost, at) else {
            continue;
        };
        let title = state.tree.title(above.id);
        let what = if over.by_money { "money" } else { "GPU time" };
        let sentence = format!(
            "all windows together cost {}, more {what} than is left of the {} budget of {title}",
            cost.money,
            over.budget.period.as_str()
        );
        return Err(Refusal::new(Code::ExceedsBudget, sentence)
            .field("/size/count")
            .hint(format!(
                "book fewer or shorter windows, or have the budget of {title} raised"
            )));
    }
    Ok(())
}

/// Refuses a class that a policy above leaves out.
pub fn allowed(state: &State, scope: ScopeId, class: &str) -> Result<(), Refusal> {
    if let Some(suspended) = state.tree.suspended_above(scope) {
        let title = state.tree.title(suspended.id);
        return Err(Refusal::new(Code::Suspended, format!("{title} is suspended")));
    }
    for above in state.tree.chain(scope) {
        if above
            .policy
            .classes
            .as_ref()
            .is_some_and(|classes| !classes.contains(class))
        {
            let title = state.tree.title(above.id);
            let sentence = format!("GPU class {class} is not allowed by the policy of {title}");
            return Err(Refusal::new(Code::PolicyExcludes, sentence).field("/class"));
        }
    }
    Ok(())
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
    let wanted = Wanted {
        state,
        scope,
        spec,
        exceptions: &[],
        zone,
        at,
        shelf: &shelf,
        liked: &[],
        begun: &[],
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
    })
}

/// By how much one cost is above another.
pub fn more(before: Cost, after: Cost) -> Cost {
    Cost {
        money: Micros(after.money.0.saturating_sub(before.money.0).max(0)),
        gpu_ms: after.gpu_ms.saturating_sub(before.gpu_ms),
        frames: 0,
    }
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
