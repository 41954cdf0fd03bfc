//! Events: facts, the only thing that is stored. Encoded as JSON by variant name.
//!
//! A released variant keeps its name and fields for ever: fields may be added with a default, a change of
//! meaning gets a new variant. `tests/golden/events.jsonl` holds one of each and must stay readable.

mod charge;
mod close;
mod packed;
mod subject;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::audit::anomaly::Anomaly;
use crate::audit::conduct::SignedConduct;
use crate::booking::record::{Booking, Window};
use crate::booking::shelf::Seat;
use crate::booking::terms::Terms;
use crate::booking::zone::Wall;
use crate::id::{
    AllocationId, BidId, BookingId, GpuId, InvoiceId, JobId, JoinTokenId, KeyId, LeaseId, NodeId, OfferId,
    SecretId, SessionId, TenantId, UserId, VolumeId, WebhookId,
};
use crate::ledger::account::Posting;
use crate::ledger::adjust::Adjustment;
use crate::ledger::book::BookEntry;
use crate::ledger::invoice::Invoice;
use crate::ledger::price::Prices;
use crate::market::auto::AutoSpec;
use crate::market::bid::Bid;
use crate::market::check::GpuReport;
use crate::market::lease::{Lease, LeaseEnd, RecallReason};
use crate::market::offer::Offer;
use crate::market::terms::MarketTerms;
use crate::market::window::Span as OpenSpan;
use crate::meter::Amounts;
use crate::money::Micros;
use crate::schedule::allocation::{Allocation, Slice};
use crate::schedule::calendar::Promise;
use crate::schedule::fleet::Inventory;
use crate::schedule::label::Labels;
use crate::schedule::receipt::Receipt;
use crate::tenancy::alert::Alert;
use crate::tenancy::budget::{Budget, Cost};
use crate::tenancy::keeping::Keeping;
use crate::tenancy::key::{Digest, Key};
use crate::tenancy::policy::Policy;
use crate::tenancy::role::Role;
use crate::tenancy::rule::Rules;
use crate::tenancy::scope::{Identity, ScopeId, UserFacts};
use crate::tenancy::share::Share;
use crate::tenancy::webhook::Webhook;
use crate::time::Time;
use crate::workload::derive::Derivation;
use crate::workload::job::{Admission, Outcome, PauseReason, StopReason};
use crate::workload::member::MemberEnd;
use crate::workload::service::{Replicas, ServiceUse};
use crate::workload::session::{Session, SessionEnd};
use crate::workload::spec::{Demand, JobSpec, Sku};
use crate::workload::task::Task;
use crate::workload::task::pieces::Again;
use crate::workload::task::span::Span;
use crate::workload::trace::TraceParent;

pub use charge::{Charge, Resold};
pub use close::CloseReason;
pub use subject::Subject;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    PlatformFounded {
        name: String,
        prices: Prices,
    },

    ScopeCreated {
        scope: ScopeId,
        parent: ScopeId,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserFacts>,
    },
    ScopeSuspended {
        scope: ScopeId,
    },
    ScopeResumed {
        scope: ScopeId,
    },
    ScopeMoved {
        scope: ScopeId,
        parent: ScopeId,
    },
    ScopeClosed {
        scope: ScopeId,
    },
    IdentitySet {
        user: UserId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<Identity>,
    },
    RoleGranted {
        scope: ScopeId,
        user: UserId,
        role: Role,
    },
    RoleRevoked {
        scope: ScopeId,
        user: UserId,
        role: Role,
    },
    KeyCreated {
        key: Key,
    },
    KeyRevoked {
        key: KeyId,
    },
    QuotaSet {
        scope: ScopeId,
        quota: Amounts,
    },
    ShareSet {
        scope: ScopeId,
        share: Share,
    },
    LogKeepingSet {
        scope: ScopeId,
        keeping: Keeping,
    },
    BudgetsSet {
        scope: ScopeId,
        budgets: Vec<Budget>,
    },
    /// The first time in its period that so much of a budget is spent.
    BudgetAlerted {
        scope: ScopeId,
        alert: Alert,
    },
    PolicySet {
        scope: ScopeId,
        policy: Policy,
    },
    RulesSet {
        scope: ScopeId,
        rules: Rules,
    },
    /// The value is in the erasable store under `secret`, never here.
    SecretStored {
        scope: ScopeId,
        name: String,
        secret: SecretId,
    },
    SecretErased {
        scope: ScopeId,
        name: String,
        secret: SecretId,
    },
    VolumeCreated {
        volume: VolumeId,
        scope: ScopeId,
        name: String,
        size_mib: u64,
    },
    /// Its files are on this node from here on; decided with the job that uses it first.
    VolumeBound {
        volume: VolumeId,
        scope: ScopeId,
        node: NodeId,
    },
    VolumeGrown {
        volume: VolumeId,
        scope: ScopeId,
        size_mib: u64,
    },
    /// Nobody's any more: quota returned. What was bound is erased by its node.
    VolumeRemoved {
        volume: VolumeId,
        scope: ScopeId,
    },
    VolumeErased {
        volume: VolumeId,
        scope: ScopeId,
        node: NodeId,
    },
    /// Refused authorizations of one minute, counted.
    AccessRefused {
        counts: Vec<RefusedAccess>,
    },

    PricesSet {
        prices: Prices,
    },
    /// A credit, a refund or a correction.
    Adjusted {
        adjustment: Box<Adjustment>,
    },
    InvoiceIssued {
        invoice: Box<Invoice>,
    },
    /// Money came from outside; for a user's invoice none is counted here.
    InvoicePaid {
        invoice: InvoiceId,
        scope: ScopeId,
        reference: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        posting: Option<Posting>,
    },
    /// What a seller asks from a moment on.
    BookSet {
        entry: Box<BookEntry>,
    },
    SkuDefined {
        sku: Sku,
    },
    SkuRemoved {
        name: String,
    },

    JoinTokenCreated {
        token: JoinTokenId,
        digest: Digest,
        expires: Time,
        /// Who brings the node, if not the platform.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<TenantId>,
    },
    NodeJoined {
        node: NodeId,
        name: String,
        key: Digest,
        token: JoinTokenId,
        /// Who brought it, if not the platform.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<TenantId>,
    },
    /// The node's devices changed; each GPU with the id it has here.
    NodeInventoried {
        node: NodeId,
        inventory: Inventory,
        gpus: Vec<GpuId>,
    },
    NodeLost {
        node: NodeId,
    },
    NodeReturned {
        node: NodeId,
    },
    NodeCordoned {
        node: NodeId,
    },
    NodeUncordoned {
        node: NodeId,
    },
    /// What an operator says of the node from now on.
    NodeLabelled {
        node: NodeId,
        labels: Labels,
    },
    NodeKeyAdded {
        node: NodeId,
        key: Digest,
    },
    NodeKeyRevoked {
        node: NodeId,
        key: Digest,
    },
    NodeRemoved {
        node: NodeId,
    },
    /// A device was scrubbed between tenants, or could not be.
    DeviceScrubbed {
        node: NodeId,
        gpu: GpuId,
        receipt: Box<Receipt>,
    },
    /// The device gets no work until an operator releases it; what runs there goes on.
    GpuQuarantined {
        node: NodeId,
        gpu: GpuId,
        why: String,
    },
    GpuReleased {
        node: NodeId,
        gpu: GpuId,
    },

    JobSubmitted {
        job: JobId,
        owner: UserId,
        spec: Arc<JobSpec>,
        /// What the names of its volumes meant, in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<VolumeId>,
        /// How its demand came about, where it said what it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        derivation: Option<Box<Derivation>>,
        /// Where in whose trace it was submitted; absent where it has a trace of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceParent>,
    },
    /// A task of a job was made, and waits. It is its job's in all but its part of the work.
    TaskSubmitted {
        job: JobId,
        task: Task,
    },
    /// A task of the job did not end well, or was withdrawn: what becomes of its pieces.
    PiecesReturned {
        job: JobId,
        task: JobId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<Again>,
        /// Tried as often as they may be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Span>,
        /// It was not tried.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        withdrawn: bool,
    },
    /// A service is to have so many replicas from now on; those made or stopped for it have events of their own.
    ServiceScaled {
        job: JobId,
        /// Between how many.
        replicas: Replicas,
        wanted: u32,
        why: String,
    },
    /// A replica of the service ran and was of no use; it is stopped by its own event.
    ReplicaFailed {
        job: JobId,
        task: JobId,
        why: String,
    },
    /// Who asked how much of a service within a minute.
    ServiceUsed {
        job: JobId,
        uses: Vec<ServiceUse>,
    },
    /// Room is kept for a waiting job until it starts; its victims, if any, are told to leave by their own events.
    JobPromised {
        promise: Promise,
    },
    /// The room is anybody's again. Where the job started or ended, its promise went without this.
    PromiseWithdrawn {
        job: JobId,
        why: String,
    },
    JobAdmitted {
        job: JobId,
        admission: Admission,
    },
    /// All members were placed, together.
    JobPlaced {
        job: JobId,
        allocation: Allocation,
        /// Of the members after the first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<Allocation>,
    },
    JobStarting {
        job: JobId,
    },
    JobRunning {
        job: JobId,
    },
    JobStopping {
        job: JobId,
        reason: StopReason,
    },
    /// One member of a gang is starting; the job is, once all are.
    MemberStarting {
        job: JobId,
        allocation: AllocationId,
    },
    /// One member of a gang runs; the job does, once all do.
    MemberRunning {
        job: JobId,
        allocation: AllocationId,
    },
    /// One member of a gang ended and gave its place back; quota and hold are the job's until it ends.
    MemberEnded {
        job: JobId,
        allocation: AllocationId,
        end: MemberEnd,
    },
    /// A running job's slices changed their size where they are.
    JobResized {
        job: JobId,
        demand: Demand,
        admission: Admission,
        slices: Vec<Slice>,
    },
    /// What a job on GPUs costs is another from now on: a window of its owner opened there, and the booking pays for them.
    JobRepriced {
        job: JobId,
        admission: Admission,
    },
    /// A running job said that what it did until then is safe.
    JobSaved {
        job: JobId,
        saved: Time,
    },
    /// A running job is to give its GPUs back for a while.
    JobPausing {
        job: JobId,
        reason: PauseReason,
    },
    /// It gave them back, with quota and hold; its processes wait on their node.
    JobPaused {
        job: JobId,
    },
    /// It is wanted again, and waits for room.
    JobWanted {
        job: JobId,
    },
    /// It has GPUs again, and quota and a hold for the rest of its time.
    JobResuming {
        job: JobId,
        admission: Admission,
        slices: Vec<Slice>,
    },
    /// It could not be paused, or not resumed, and is as it was.
    JobKept {
        job: JobId,
        why: String,
    },
    /// Usage of a node's allocations, charged.
    UsageMetered {
        node: NodeId,
        #[serde(with = "packed")]
        charges: Vec<Charge>,
    },
    /// The attempt ended by no fault of the job: back to the queue, hold and quota returned.
    JobRequeued {
        job: JobId,
        why: String,
        /// Device memory of each slice from now on, where it outgrew what it had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vram_mib: Option<u64>,
    },
    /// The job ended: hold and quota returned, the job moves to history.
    JobEnded {
        job: JobId,
        outcome: Outcome,
    },

    /// What an allocation did at its devices' boundary, said and signed by its node.
    ConductNoted {
        job: JobId,
        node: NodeId,
        record: Box<SignedConduct>,
        /// It was not like the workload's runs before it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        strange: bool,
    },
    /// Something in an allocation's conduct is out of order: a matter of security for its tenant and the operator.
    AnomalyFound {
        job: JobId,
        allocation: AllocationId,
        anomaly: Anomaly,
    },

    BookingTermsSet {
        terms: Terms,
    },
    /// Its windows are held, and its price.
    BookingMade {
        booking: Box<Booking>,
    },
    /// It is this now: edited, transferred, or read anew by another edition of the tz database.
    BookingChanged {
        booking: Box<Booking>,
        why: String,
        /// What was due for windows given up on short notice.
        #[serde(default)]
        cost: Cost,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charge: Option<Posting>,
    },
    /// More windows of a series, as time went on.
    BookingRenewed {
        booking: BookingId,
        scope: ScopeId,
        windows: Vec<Window>,
        /// Occurrences for which there was no room, or no money.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missed: Vec<Wall>,
        /// Dates left out before then are over; in journals from before, nothing is said of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over: Option<Wall>,
        resolved: Time,
        more: bool,
    },
    /// Nothing of it is left: over or cancelled.
    BookingEnded {
        booking: BookingId,
        scope: ScopeId,
        why: String,
        #[serde(default)]
        cost: Cost,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charge: Option<Posting>,
    },
    /// Its start is near: these are its GPUs, and whoever is on them leaves, by events of their own.
    WindowClearing {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
        seats: Vec<Seat>,
        gpus: Vec<(NodeId, GpuId)>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        victims: Vec<JobId>,
    },
    WindowOpened {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
        late_ms: u64,
    },
    /// Something of it broke and nothing else is free; the time is not charged.
    WindowDown {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
    },
    WindowRestored {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
    },
    /// It is on other GPUs, for some of its own broke.
    WindowMoved {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
        seats: Vec<Seat>,
        gpus: Vec<(NodeId, GpuId)>,
    },
    WindowExtended {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
        end: Time,
    },
    /// It is over and settled: the price, and what of it goes back for time it was not to be had.
    WindowClosed {
        booking: BookingId,
        scope: ScopeId,
        of: Wall,
        why: CloseReason,
        cost: Cost,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charge: Option<Posting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refund: Option<Posting>,
    },

    MarketTermsSet {
        terms: MarketTerms,
    },
    OfferMade {
        offer: Box<Offer>,
    },
    /// More days of its windows, as time went on.
    OfferRenewed {
        offer: OfferId,
        seller: TenantId,
        open: Vec<OpenSpan>,
    },
    /// Nothing more is sold of it; what is leased stays leased.
    OfferWithdrawn {
        offer: OfferId,
        seller: TenantId,
        why: String,
    },
    /// A standing order, or the same on other terms.
    AutoOfferSet {
        seller: TenantId,
        spec: Box<AutoSpec>,
    },
    AutoOfferRemoved {
        seller: TenantId,
        class: String,
    },
    /// It waits, and what it may cost is held.
    BidPlaced {
        bid: Box<Bid>,
    },
    /// It waits no longer, and what was held is free. Where it was filled whole it went without this.
    BidEnded {
        bid: BidId,
        scope: ScopeId,
        why: String,
    },
    /// The buyer's quota grew, the seller's shrank, and the price is in escrow.
    LeaseBegan {
        lease: Box<Lease>,
        escrow: Posting,
    },
    /// It ends sooner.
    LeaseRecalled {
        lease: LeaseId,
        scope: ScopeId,
        seller: TenantId,
        by: RecallReason,
        end: Time,
    },
    /// Its end is near: it leaves the buyer's quota, and whoever runs beyond what is left leaves, by events of their own.
    LeaseVacating {
        lease: LeaseId,
        scope: ScopeId,
        victims: Vec<JobId>,
    },
    /// It is over and settled out of escrow: what it cost for the time it was had, and every movement.
    LeaseEnded {
        lease: LeaseId,
        scope: ScopeId,
        seller: TenantId,
        why: LeaseEnd,
        had_ms: u64,
        cost: Micros,
        postings: Vec<Posting>,
    },
    /// A node is to measure one of its GPUs.
    GpuCheckAsked {
        node: NodeId,
        gpu: GpuId,
        number: u64,
        due: Time,
    },
    GpuChecked {
        node: NodeId,
        gpu: GpuId,
        number: u64,
        report: GpuReport,
        /// What is not as claimed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lie: Option<String>,
        next: Time,
    },

    /// Somebody was let into a running job; written before anything was opened.
    SessionOpened {
        session: Session,
    },
    SessionEnded {
        session: SessionId,
        job: JobId,
        owner: UserId,
        user: UserId,
        end: SessionEnd,
    },

    /// Its URL and key are in the erasable store, never here.
    WebhookCreated {
        webhook: Box<Webhook>,
    },
    /// It has another key, in another place of the store.
    WebhookRotated {
        webhook: WebhookId,
        scope: ScopeId,
        old: SecretId,
        secret: SecretId,
    },
    WebhookPaused {
        webhook: WebhookId,
        scope: ScopeId,
    },
    /// It is told what happened since, or what happened after an event that was asked for.
    WebhookResumed {
        webhook: WebhookId,
        scope: ScopeId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    },
    /// Its receiver took nothing for too long, or wants nothing more; it is told nothing until somebody resumes it.
    WebhookFailed {
        webhook: WebhookId,
        scope: ScopeId,
        why: String,
    },
    WebhookRemoved {
        webhook: WebhookId,
        scope: ScopeId,
        secret: SecretId,
    },
}

/// How often one principal was refused one action within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedAccess {
    pub principal: String,
    pub action: String,
    pub code: String,
    pub count: u64,
}
