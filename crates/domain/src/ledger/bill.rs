//! Bill rows: every change of what somebody owes, one row each, as history keeps them and invoices open down to them.
//!
//! A row is made from an event and the state it was decided on; it names its event, so that it can be found in the
//! journal. Those of one owner and event lie together (`sheaf.rs`). It holds what the tenant pays and, where there is one, what the subscriber pays; who may see which is
//! decided where rows are read (`seen`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{AccountId, Posting};
use super::adjust::AdjustmentKind;
use crate::event::{Charge, Event};
use crate::id::{AllocationId, BookingId, JobId, NodeId, TenantId, UserId};
use crate::kind::Kind;
use crate::market::lease::Lease;
use crate::money::Micros;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Job;
use crate::workload::spec::Isolation;
use crate::workload::usage::Usage;

/// What a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum What {
    Usage,
    Booking,
    /// Of the exchange: paid into escrow, and what of it came back or was earned.
    Lease,
    Credit,
    Refund,
    Correction,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            What::Usage => "usage",
            What::Booking => "booking",
            What::Lease => "lease",
            What::Credit => "credit",
            What::Refund => "refund",
            What::Correction => "correction",
        }
    }
}

/// One change of what is owed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillRow {
    /// Its event's number in the journal; known when it is committed.
    #[serde(default)]
    pub event: u64,
    pub at: Time,
    pub what: What,
    pub owner: ScopeId,
    /// Of a job or a booking; of a lease its class; of an adjustment its reason.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<BookingId>,
    /// What the tenant pays.
    pub money: Micros,
    /// What the subscriber pays its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resold: Option<Micros>,
    /// The platform's part of that, which the tenant pays.
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub fee: Micros,
    /// Of a refund or a correction of an invoice: when the time that was for ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects_until: Option<Time>,
}

/// A metered interval of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub allocation: AllocationId,
    pub job: JobId,
    pub node: NodeId,
    pub from_ms: u64,
    pub to_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<Arc<str>>,
    pub kind: Kind,
    pub isolation: Isolation,
    /// How many devices it has a slice of.
    pub slices: u32,
    /// Compute share and device memory, of all of them.
    pub gpu_milli: u64,
    pub vram_mib: u64,
    pub gpu_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
    /// Frames that were made, with the last of its intervals.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frames: u64,
    /// What is the same in all intervals of its job on that node; rows of before it was kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Arc<About>>,
}

/// What a bill is put together by, and held against, beyond what it was counted by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its user's own words about the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the job was to do, where that was said: of a model or of a scene (`Workload::subject`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Box<str>>,
    /// Where its node stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Box<str>>,
    /// What the like costs by the hour by the platform's list, before any book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Micros>,
    /// The same to the subscriber, by its tenant's book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resold_listed: Option<Micros>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Interval {
    pub fn ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }
}

/// Rows with their place in history: whose they are, and under which id. Several are intervals of one event (`sheaf.rs`).
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub id: String,
    /// The path of ids of their owner.
    pub path: String,
    pub rows: Vec<BillRow>,
}

/// The rows that come of an event, on the state before it.
pub fn rows(state: &State, at: Time, event: &Event) -> Vec<Placed> {
    match event {
        Event::UsageMetered { node, charges } => metered(state, at, *node, charges),
        Event::BookingChanged { booking, charge, .. } => {
            let money = charge.as_ref().map_or(0, |posting| posting.amount.0);
            booked(state, at, booking.scope, booking.id, "changed", money)
        }
        Event::BookingEnded {
            booking,
            scope,
            charge,
            ..
        } => {
            let money = charge.as_ref().map_or(0, |posting| posting.amount.0);
            booked(state, at, *scope, *booking, "ended", money)
        }
        Event::WindowClosed {
            booking,
            scope,
            charge,
            refund,
            of,
            ..
        } => {
            let paid = charge.as_ref().map_or(0, |posting| posting.amount.0);
            let back = refund.as_ref().map_or(0, |posting| posting.amount.0);
            // Several may close at one moment.
            booked(state, at, *scope, *booking, &of.to_string(), paid - back)
        }
        Event::LeaseBegan { lease, escrow } => {
            leased(state, at, lease, "began", lease.scope, escrow.amount.0)
        }
        Event::LeaseEnded { lease, postings, .. } => {
            let Some(lease) = state.market.lease(*lease) else {
                return vec![];
            };
            let owes = |tenant: TenantId| {
                let account = AccountId::Tenant(tenant);
                let of = |posting: &Posting| match (posting.from == account, posting.to == account) {
                    (true, false) => posting.amount.0,
                    (false, true) => -posting.amount.0,
                    _ => 0,
                };
                postings.iter().map(of).sum::<i64>()
            };
            let seller = ScopeId::Tenant(lease.seller);
            let mut rows = leased(state, at, lease, "ended", lease.scope, owes(lease.buyer));
            rows.extend(leased(state, at, lease, "earned", seller, owes(lease.seller)));
            rows
        }
        Event::Adjusted { adjustment } => {
            let owed = Micros(-adjustment.amount.0);
            let of_subscriber = matches!(adjustment.scope, ScopeId::Subscriber(_));
            vec![Placed {
                id: adjustment.id.to_string(),
                path: state.tree.path(adjustment.scope),
                rows: vec![BillRow {
                    event: 0,
                    at,
                    what: match adjustment.kind {
                        AdjustmentKind::Credit => What::Credit,
                        AdjustmentKind::Refund => What::Refund,
                        AdjustmentKind::Correction => What::Correction,
                    },
                    owner: adjustment.scope,
                    name: adjustment.reason.clone(),
                    interval: None,
                    booking: None,
                    money: if of_subscriber { Micros::ZERO } else { owed },
                    resold: of_subscriber.then_some(owed),
                    fee: Micros::ZERO,
                    corrects_until: adjustment
                        .invoice
                        .and_then(|id| Some(state.invoices.get(id)?.draft.until)),
                }],
            }]
        }
        _ => vec![],
    }
}

fn booked(state: &State, at: Time, scope: ScopeId, id: BookingId, part: &str, money: i64) -> Vec<Placed> {
    if money == 0 {
        return vec![];
    }
    let booking = state.bookings.get(id);
    vec![Placed {
        id: format!("{id}:{}:{part}", at.0),
        path: state.tree.path(scope),
        rows: vec![BillRow {
            event: 0,
            at,
            what: What::Booking,
            owner: scope,
            name: booking.map_or_else(|| id.to_string(), |booking| booking.spec.name.to_string()),
            interval: None,
            booking: Some(id),
            money: Micros(money),
            resold: None,
            fee: Micros::ZERO,
            corrects_until: None,
        }],
    }]
}

fn leased(state: &State, at: Time, lease: &Lease, part: &str, owner: ScopeId, money: i64) -> Vec<Placed> {
    if money == 0 {
        return vec![];
    }
    vec![Placed {
        id: format!("{}:{part}", lease.id),
        path: state.tree.path(owner),
        rows: vec![BillRow {
            event: 0,
            at,
            what: What::Lease,
            owner,
            name: lease.class.to_string(),
            interval: None,
            booking: None,
            money: Micros(money),
            resold: None,
            fee: Micros::ZERO,
            corrects_until: None,
        }],
    }]
}

/// The intervals of each owner together.
fn metered(state: &State, at: Time, node: NodeId, charges: &[Charge]) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::new();
    let mut of_owner: BTreeMap<UserId, usize> = BTreeMap::new();
    for charge in charges {
        let job = &state.jobs[&charge.job];
        let place = *of_owner.entry(job.owner).or_insert_with(|| {
            placed.push(Placed {
                // Of the first of them, which is in no other event: with what is due at the end an interval may be empty, and
                // stands beside the one before it. The moment goes first: rows are then kept in the order in which they
                // come, and what is written lies together.
                id: format!(
                    "{:013}:{}:{:013}:{:013}",
                    at.0, charge.allocation, charge.from_ms, charge.to_ms
                ),
                path: state.tree.path(ScopeId::User(job.owner)),
                rows: Vec::new(),
            });
            placed.len() - 1
        });
        placed[place].rows.push(usage(state, at, node, job, charge));
    }
    placed
}

fn usage(state: &State, at: Time, node: NodeId, job: &Job, charge: &Charge) -> BillRow {
    let allocation = &state.fleet.allocations[&charge.allocation];
    let hold = job.admission.as_ref().map(|admission| &admission.hold);
    let slices = &allocation.slices;
    let share = slices.iter().map(|slice| u64::from(slice.compute_permille)).sum();
    let vram_mib = slices.iter().map(|slice| slice.vram_mib).sum();
    let interval = Interval {
        allocation: charge.allocation,
        job: charge.job,
        node,
        from_ms: charge.from_ms,
        to_ms: charge.to_ms,
        class: hold.and_then(|hold| hold.class.clone()),
        sku: job.spec.sku.as_deref().map(Into::into),
        kind: job.spec.kind,
        isolation: allocation.isolation,
        slices: u32::try_from(slices.len()).unwrap_or(u32::MAX),
        gpu_milli: share,
        vram_mib,
        gpu_ms: charge.cost.gpu_ms,
        used: charge.used,
        frames: charge.cost.frames,
        about: Some(Arc::new(about(state, node, job, vram_mib))),
    };
    let resold = charge.resale.as_deref();
    let fee = resold.and_then(|resold| resold.fee.as_ref());
    BillRow {
        event: 0,
        at,
        what: What::Usage,
        owner: ScopeId::User(job.owner),
        name: job.spec.name.clone(),
        interval: Some(interval),
        booking: None,
        money: charge.cost.money,
        resold: resold.map(|resold| resold.posting.amount),
        fee: fee.map_or(Micros::ZERO, |fee| fee.amount),
        corrects_until: None,
    }
}

fn about(state: &State, node: NodeId, job: &Job, vram_mib: u64) -> About {
    let spec = &job.spec;
    let hold = job.admission.as_ref().map(|admission| &admission.hold);
    let class = hold.and_then(|hold| hold.class.as_deref());
    let resale = hold.and_then(|hold| Some((hold.resale.as_deref()?, hold.members)));
    About {
        labels: spec.labels.clone(),
        workload: spec.workload.as_deref().map(|of| of.subject(&spec.name).into()),
        region: state.fleet.node(node).and_then(|node| node.labels.region.clone()),
        listed: Some(state.prices.hourly_of_one(&spec.demand, class, vram_mib)),
        resold_listed: resale.map(|(resale, members)| Micros(resale.hourly.0 / i64::from(members))),
    }
}

/// From where a row is looked at: who pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eye {
    /// The tenant, towards the platform.
    Tenant,
    /// A subscriber, towards its tenant.
    Subscriber,
    /// A user, in the prices of its own level.
    User,
}

impl Eye {
    pub fn of(scope: ScopeId) -> Eye {
        match scope {
            ScopeId::Platform | ScopeId::Tenant(_) => Eye::Tenant,
            ScopeId::Subscriber(_) => Eye::Subscriber,
            ScopeId::User(_) => Eye::User,
        }
    }
}

impl BillRow {
    pub fn about(&self) -> Option<&About> {
        self.interval.as_ref()?.about.as_deref()
    }

    /// What it comes to from there; none where it is none of that payer's.
    pub fn seen(&self, eye: Eye) -> Option<Micros> {
        // What a tenant gives its subscriber is between the two of them.
        let between = self.interval.is_none() && matches!(self.owner, ScopeId::Subscriber(_));
        match eye {
            Eye::Tenant if between && self.resold.is_some() => None,
            Eye::Tenant => Some(Micros(self.money.0.saturating_add(self.fee.0))),
            Eye::Subscriber => self.resold,
            Eye::User => Some(self.resold.unwrap_or(self.money)),
        }
    }
}
