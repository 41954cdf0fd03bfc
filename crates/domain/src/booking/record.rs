//! A booking and its windows, and all of them together with what is derived from them.
//!
//! INVARIANT: the shelf and the quotas' lines are what the windows say, no more and no less; whatever changes a booking
//! goes through `insert`, `remove` and `change_window`, so nobody but they can. Absent: decisions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::quota::Held;
use super::recurrence::Recurrence;
use super::shelf::{Seat, Shelf, Take};
use super::zone::{Wall, ZoneName};
use crate::id::{BookingId, GpuId, NodeId, UserId};
use crate::ledger::account::AccountId;
use crate::meter::Of;
use crate::money::Micros;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::tree::Tree;
use crate::time::Time;

/// How much is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "unit", deny_unknown_fields)]
pub enum Size {
    /// Slices of GPUs; they fill GPUs of the booking's own.
    Slices {
        count: u32,
        compute_permille: u16,
        vram_mib: u64,
    },
    /// GPUs of one node, or wherever they are.
    Gpus {
        count: u32,
        #[serde(default)]
        spread: bool,
    },
    /// Nodes with all they have.
    Nodes { count: u32 },
}

impl Size {
    pub fn count(self) -> u32 {
        match self {
            Size::Slices { count, .. } | Size::Gpus { count, .. } | Size::Nodes { count } => count,
        }
    }

    pub fn with_count(self, to: u32) -> Size {
        let mut size = self;
        match &mut size {
            Size::Slices { count, .. } | Size::Gpus { count, .. } | Size::Nodes { count } => *count = to,
        }
        size
    }

    /// What it takes off the shelf, on GPUs with this much memory.
    pub fn take(self, vram_mib: u64) -> Take {
        match self {
            Size::Slices {
                count,
                compute_permille,
                vram_mib: each,
            } => {
                let by_share = 1000 / u64::from(compute_permille.max(1));
                let by_vram = vram_mib.checked_div(each).unwrap_or(by_share);
                let on_one = by_share.min(by_vram).max(1);
                Take::Spread(u64::from(count).div_ceil(on_one) as u32)
            }
            Size::Gpus { count, spread: false } => Take::Together(count),
            Size::Gpus { count, spread: true } => Take::Spread(count),
            Size::Nodes { count } => Take::Nodes(count),
        }
    }
}

/// What somebody books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookingSpec {
    pub name: Box<str>,
    pub class: Box<str>,
    pub size: Size,
    /// Only nodes of this region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Box<str>>,
    pub recurrence: Recurrence,
    /// When the first window ends.
    pub end: Wall,
}

/// One occurrence that is not as the others are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// When it would have begun.
    pub of: Wall,
    pub start: Wall,
    pub end: Wall,
    pub size: Size,
}

/// How far a window has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowPhase {
    #[default]
    Booked,
    /// Whoever is on its GPUs has been told to leave.
    Clearing,
    Open {
        since: Time,
        /// A job of its owner ran there.
        used: bool,
        /// It got its grace already.
        extended: bool,
    },
}

/// Capacity from one moment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Which occurrence of its booking it is.
    pub of: Wall,
    pub start: Time,
    pub end: Time,
    pub seats: Vec<Seat>,
    /// How large it is; in journals from before, as large as its booking says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Its price by the hour, and the GPUs it is counted as, in thousandths.
    pub hourly: Micros,
    pub gpu_milli: u64,
    #[serde(default, skip_serializing_if = "is_booked")]
    pub phase: WindowPhase,
    /// The very GPUs, from when it is cleared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<(NodeId, GpuId)>,
    /// How long it was not to be had since its start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_ms: u64,
    /// Since when it is not to be had, though open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Time>,
}

fn is_booked(phase: &WindowPhase) -> bool {
    *phase == WindowPhase::Booked
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Window {
    pub fn length_ms(&self) -> u64 {
        self.end.since_ms(self.start)
    }

    pub fn cost(&self) -> Cost {
        self.cost_of(self.length_ms())
    }

    /// What so long of it costs.
    pub fn cost_of(&self, ms: u64) -> Cost {
        let gpu_ms = u128::from(ms) * u128::from(self.gpu_milli) / 1000;
        Cost {
            money: self.hourly.for_ms_at_hourly(ms),
            gpu_ms: u64::try_from(gpu_ms).unwrap_or(u64::MAX),
            frames: 0,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.phase, WindowPhase::Open { .. })
    }

    /// Whether its time has come, or somebody was told to leave for it.
    pub fn has_begun(&self, at: Time) -> bool {
        self.phase != WindowPhase::Booked || self.start <= at
    }

    /// How long it was not to be had until now.
    pub fn lost_until_ms(&self, at: Time) -> u64 {
        let down_ms = self.down.map_or(0, |down| at.min(self.end).since_ms(down));
        self.lost_ms.saturating_add(down_ms).min(self.length_ms())
    }
}

/// A live booking; it goes when its last window has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    pub id: BookingId,
    /// Whose it is: their jobs may use it, and they pay.
    pub scope: ScopeId,
    pub by: Option<UserId>,
    pub made: Time,
    pub spec: BookingSpec,
    pub zone: ZoneName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<Exception>,
    /// Windows that have not ended, in order.
    pub windows: Vec<Window>,
    /// Until when occurrences have been made windows of.
    pub resolved: Time,
    /// There are more beyond.
    pub more: bool,
    /// Who pays, fixed until it is transferred.
    pub account: AccountId,
    pub revision: u64,
    /// What its owner should know of it and did not do: windows that moved, or were not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Box<str>>,
}

impl Booking {
    /// Money and GPU time set aside for what has not ended.
    pub fn held(&self) -> Cost {
        sum(self.windows.iter().map(Window::cost))
    }

    pub fn window(&self, of: Wall) -> Option<&Window> {
        self.windows.iter().find(|window| window.of == of)
    }

    /// How large an occurrence of it is.
    pub fn size_of(&self, of: Wall) -> Size {
        let exception = self.exceptions.iter().find(|exception| exception.of == of);
        exception.map_or(self.spec.size, |exception| exception.size)
    }

    /// How large a window of it is, whatever became of the booking since it was made.
    pub fn size_in(&self, window: &Window) -> Size {
        window.size.unwrap_or_else(|| self.size_of(window.of))
    }

    pub fn counted_as(&self) -> [Of; 2] {
        [Of::All, Of::Class((*self.spec.class).into())]
    }
}

/// The window of an occurrence, by when it begins. INVARIANT: windows are in the order of their starts.
pub fn window_at(windows: &[Window], of: Wall, start: Time) -> Option<&Window> {
    let first = windows.partition_point(|window| window.start < start);
    let same = windows[first..].iter().take_while(|window| window.start == start);
    same.into_iter().find(|window| window.of == of)
}

pub fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |sum, cost| Cost {
        money: Micros(sum.money.0.saturating_add(cost.money.0)),
        gpu_ms: sum.gpu_ms.saturating_add(cost.gpu_ms),
        frames: 0,
    })
}

/// All live bookings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bookings {
    all: BTreeMap<BookingId, Booking>,
    shelf: Shelf,
    held: Held,
    by_scope: BTreeMap<ScopeId, BTreeSet<BookingId>>,
    /// When windows that wait for their time begin.
    coming: BTreeSet<(Time, BookingId, Wall)>,
    /// Windows being cleared or open.
    live: BTreeSet<(BookingId, Wall)>,
    /// Series without an end, by how far they are resolved.
    growing: BTreeSet<(Time, BookingId)>,
    /// Windows by node and start.
    on_nodes: BTreeMap<NodeId, BTreeSet<(Time, BookingId, Wall)>>,
}

impl Bookings {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn get(&self, id: BookingId) -> Option<&Booking> {
        self.all.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Booking> {
        self.all.values()
    }

    pub fn of(&self, scope: ScopeId) -> impl Iterator<Item = &Booking> {
        let ids = self.by_scope.get(&scope).into_iter().flatten();
        ids.filter_map(|id| self.all.get(id))
    }

    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Windows that wait and begin before this moment, first first.
    pub fn coming_before(&self, at: Time) -> impl Iterator<Item = (&Booking, &Window)> {
        let before = self.coming.iter().take_while(move |(start, ..)| *start < at);
        before.filter_map(|(start, id, of)| self.starting(*start, *id, *of))
    }

    /// Windows being cleared or open.
    pub fn live(&self) -> impl Iterator<Item = (&Booking, &Window)> {
        self.live.iter().filter_map(|(id, of)| self.pair(*id, *of))
    }

    /// Series with more to come that are resolved to before this moment.
    pub fn resolved_before(&self, at: Time) -> impl Iterator<Item = &Booking> {
        let before = self
            .growing
            .iter()
            .take_while(move |(resolved, _)| *resolved < at);
        before.filter_map(|(_, id)| self.all.get(id))
    }

    /// Windows with a seat on this node that are live or begin before this moment.
    pub fn on(&self, node: NodeId, until: Time) -> impl Iterator<Item = (&Booking, &Window)> {
        let starts = self.on_nodes.get(&node).into_iter().flatten();
        let starts = starts.take_while(move |(start, ..)| *start < until);
        starts.filter_map(|(start, id, of)| self.starting(*start, *id, *of))
    }

    /// Nodes with a seat of a window that is live or begins before this moment.
    pub fn nodes_before(&self, until: Time) -> impl Iterator<Item = NodeId> {
        let nodes = self.on_nodes.iter();
        let booked =
            nodes.filter(move |(_, starts)| starts.first().is_some_and(|(start, ..)| *start < until));
        booked.map(|(node, _)| *node)
    }

    fn starting(&self, start: Time, id: BookingId, of: Wall) -> Option<(&Booking, &Window)> {
        let booking = self.all.get(&id)?;
        Some((booking, window_at(&booking.windows, of, start)?))
    }

    fn pair(&self, id: BookingId, of: Wall) -> Option<(&Booking, &Window)> {
        let booking = self.all.get(&id)?;
        Some((booking, booking.window(of)?))
    }

    pub(crate) fn insert(&mut self, tree: &Tree, booking: Booking) {
        self.index(tree, &booking);
        let before = self.all.insert(booking.id, booking);
        assert!(before.is_none(), "INVARIANT: a booking is put in once");
    }

    fn index(&mut self, tree: &Tree, booking: &Booking) {
        for window in &booking.windows {
            self.note(tree, booking, window);
        }
        if booking.more {
            self.growing.insert((booking.resolved, booking.id));
        }
        self.by_scope.entry(booking.scope).or_default().insert(booking.id);
    }

    pub(crate) fn remove(&mut self, tree: &Tree, id: BookingId) -> Booking {
        let booking = self
            .all
            .remove(&id)
            .expect("INVARIANT: events name live bookings");
        for window in &booking.windows {
            self.forget(tree, &booking, window);
        }
        self.growing.remove(&(booking.resolved, booking.id));
        if let Some(ids) = self.by_scope.get_mut(&booking.scope) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_scope.remove(&booking.scope);
            }
        }
        booking
    }

    /// Changes one window, or ends it where `change` gives none.
    pub(crate) fn change_window(
        &mut self,
        tree: &Tree,
        id: BookingId,
        of: Wall,
        change: impl FnOnce(Window) -> Option<Window>,
    ) {
        let mut booking = self
            .all
            .remove(&id)
            .expect("INVARIANT: events name live bookings");
        let index = booking.windows.iter().position(|window| window.of == of);
        let index = index.expect("INVARIANT: events name windows there are");
        let window = booking.windows.remove(index);
        self.forget(tree, &booking, &window);
        if let Some(changed) = change(window) {
            self.note(tree, &booking, &changed);
            booking.windows.insert(index, changed);
        }
        self.all.insert(id, booking);
    }

    /// A scope's booking quota may be another, or the scope gone: what it holds is counted anew.
    pub(crate) fn count_for(&mut self, tree: &Tree, scope: ScopeId) {
        let within = tree.subtree(scope);
        let ids = within.iter().filter_map(|scope| self.by_scope.get(scope));
        let bookings = ids.flatten().filter_map(|id| self.all.get(id));
        self.held.set(scope, tree, bookings);
    }

    /// Restores what a snapshot leaves out.
    pub(crate) fn rebuild_index(&mut self, tree: &Tree) {
        let all = std::mem::take(self).all;
        for booking in all.values() {
            self.index(tree, booking);
        }
        self.all = all;
        for scope in tree.iter() {
            self.count_for(tree, scope.id);
        }
    }

    fn note(&mut self, tree: &Tree, booking: &Booking, window: &Window) {
        self.held.add(tree, booking.scope, window);
        let key = (booking.id, window.of);
        for seat in &window.seats {
            self.shelf.add(seat, window.start, window.end);
            let starts = self.on_nodes.entry(seat.node).or_default();
            starts.insert((window.start, key.0, key.1));
        }
        match window.phase {
            WindowPhase::Booked => drop(self.coming.insert((window.start, key.0, key.1))),
            _ => drop(self.live.insert(key)),
        }
    }

    fn forget(&mut self, tree: &Tree, booking: &Booking, window: &Window) {
        self.held.remove(tree, booking.scope, window);
        let key = (booking.id, window.of);
        for seat in &window.seats {
            self.shelf.remove(seat, window.start, window.end);
            if let Some(starts) = self.on_nodes.get_mut(&seat.node) {
                starts.remove(&(window.start, key.0, key.1));
                if starts.is_empty() {
                    self.on_nodes.remove(&seat.node);
                }
            }
        }
        self.coming.remove(&(window.start, key.0, key.1));
        self.live.remove(&key);
    }
}

impl Serialize for Bookings {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.all.values())
    }
}

impl<'de> Deserialize<'de> for Bookings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<Booking>::deserialize(deserializer)?;
        Ok(Bookings {
            all: all.into_iter().map(|booking| (booking.id, booking)).collect(),
            ..Bookings::default()
        })
    }
}
