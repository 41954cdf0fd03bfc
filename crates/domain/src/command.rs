//! Commands: wishes. A command brings its moment, its actor and its fresh ids along, so deciding needs nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actor::Actor;
use crate::audit::conduct::SignedConduct;
use crate::booking::change::{Edit, Which};
use crate::booking::record::BookingSpec;
use crate::booking::terms::Terms;
use crate::booking::zone::{Wall, Zone};
use crate::event::RefusedAccess;
use crate::id::{
    AllocationId, BidId, BookingId, GpuId, InvoiceId, JobId, KeyId, LeaseId, NodeId, OfferId, SecretId,
    SessionId, TenantId, UserId, VolumeId, WebhookId,
};
use crate::ledger::adjust::AdjustmentKind;
use crate::ledger::book::Book;
use crate::ledger::invoice::Draft;
use crate::ledger::price::Prices;
use crate::market::auto::AutoSpec;
use crate::market::bid::BidSpec;
use crate::market::check::GpuReport;
use crate::market::offer::OfferSpec;
use crate::market::terms::MarketTerms;
use crate::meter::Amounts;
use crate::money::Micros;
use crate::schedule::fleet::Inventory;
use crate::schedule::label::Labels;
use crate::schedule::receipt::Receipt;
use crate::tenancy::budget::Budget;
use crate::tenancy::keeping::Keeping;
use crate::tenancy::key::Digest;
use crate::tenancy::policy::Policy;
use crate::tenancy::role::{Action, Role};
use crate::tenancy::scope::{Identity, ScopeId, UserKind};
use crate::tenancy::share::Share;
use crate::time::Time;
use crate::workload::job::{PauseReason, StopReason};
use crate::workload::service::{Replicas, ServiceUse};
use crate::workload::session::{SessionEnd, SessionKind};
use crate::workload::spec::{JobSpec, Sku};
use crate::workload::trace::TraceParent;
use crate::workload::usage::Usage;

/// A wish with everything needed to decide it.
#[derive(Debug, Clone)]
pub struct Command {
    pub at: Time,
    pub by: Actor,
    /// First of the block of ids set apart for this command.
    pub ids: u64,
    pub wish: Wish,
}

/// What is wished.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Sets up an empty journal: the platform, its first owner and that owner's key.
    Found {
        platform: String,
        owner: String,
        key: Digest,
        prices: Prices,
    },

    CreateTenant {
        name: String,
    },
    CreateSubscriber {
        tenant: ScopeId,
        name: String,
    },
    CreateUser {
        parent: ScopeId,
        name: String,
        kind: UserKind,
        identity: Option<Identity>,
        role: Option<Role>,
    },
    Suspend {
        scope: ScopeId,
    },
    Resume {
        scope: ScopeId,
    },
    Move {
        scope: ScopeId,
        parent: ScopeId,
    },
    Close {
        scope: ScopeId,
    },
    SetIdentity {
        user: UserId,
        identity: Option<Identity>,
    },
    GrantRole {
        scope: ScopeId,
        user: UserId,
        role: Role,
    },
    RevokeRole {
        scope: ScopeId,
        user: UserId,
        role: Role,
    },
    CreateKey {
        user: UserId,
        label: String,
        digest: Digest,
        expires: Option<Time>,
        allow: Option<BTreeSet<Action>>,
    },
    RevokeKey {
        key: KeyId,
    },
    /// `revision` is what the caller read; absent means whatever it is now.
    SetQuota {
        scope: ScopeId,
        quota: Amounts,
        revision: Option<u64>,
    },
    SetShare {
        scope: ScopeId,
        share: Share,
        revision: Option<u64>,
    },
    SetLogKeeping {
        scope: ScopeId,
        keeping: Keeping,
        revision: Option<u64>,
    },
    SetBudgets {
        scope: ScopeId,
        budgets: Vec<Budget>,
        revision: Option<u64>,
    },
    SetPolicy {
        scope: ScopeId,
        policy: Policy,
        revision: Option<u64>,
    },
    SetRules {
        scope: ScopeId,
        rules: String,
        revision: Option<u64>,
    },
    /// The value was put into the erasable store under `secret` before.
    StoreSecret {
        scope: ScopeId,
        name: String,
        secret: SecretId,
    },
    EraseSecret {
        scope: ScopeId,
        name: String,
    },
    CreateVolume {
        scope: ScopeId,
        name: String,
        size_mib: u64,
    },
    /// `revision` is what the caller read; absent means whatever it is now.
    GrowVolume {
        volume: VolumeId,
        size_mib: u64,
        revision: Option<u64>,
    },
    RemoveVolume {
        volume: VolumeId,
    },
    /// A node has erased what was removed.
    NoteVolumeErased {
        node: NodeId,
        volume: VolumeId,
    },
    /// URL and key were put into the erasable store under `secret` before. `after` is where the journal stood then.
    CreateWebhook {
        scope: ScopeId,
        name: String,
        origin: String,
        kinds: BTreeSet<String>,
        secret: SecretId,
        after: u64,
    },
    /// What lies under `old` lies under `secret` with another key.
    RotateWebhook {
        webhook: WebhookId,
        old: SecretId,
        secret: SecretId,
    },
    PauseWebhook {
        webhook: WebhookId,
    },
    /// Goes on where it stopped; or after a later event, and what is before that is not told.
    ResumeWebhook {
        webhook: WebhookId,
        after: Option<u64>,
    },
    RemoveWebhook {
        webhook: WebhookId,
    },
    /// The receiver of the webhook as it was at `revision` takes nothing.
    FailWebhook {
        webhook: WebhookId,
        revision: u64,
        why: String,
    },
    CountRefusals {
        counts: Vec<RefusedAccess>,
    },

    SetPrices {
        prices: Prices,
    },
    /// Gives money, or takes it where something was charged too low, with a reason.
    Adjust {
        scope: ScopeId,
        kind: AdjustmentKind,
        amount: Micros,
        invoice: Option<InvoiceId>,
        reason: String,
    },
    /// Issues what was counted up from a scope's bill rows.
    IssueInvoice {
        draft: Box<Draft>,
    },
    PayInvoice {
        invoice: InvoiceId,
        reference: String,
    },
    /// Says what a seller asks of one buyer, or of all it has, from a moment on; absent means from now.
    SetBook {
        seller: ScopeId,
        buyer: Option<ScopeId>,
        from: Option<Time>,
        book: Box<Book>,
    },
    DefineSku {
        sku: Sku,
    },
    RemoveSku {
        name: String,
    },

    CreateJoinToken {
        digest: Digest,
        expires: Time,
        /// Who brings the node, if not the platform.
        tenant: Option<TenantId>,
    },
    JoinNode {
        token: Digest,
        name: String,
        key: Digest,
    },
    ReportInventory {
        node: NodeId,
        inventory: Inventory,
    },
    LoseNode {
        node: NodeId,
    },
    ReturnNode {
        node: NodeId,
    },
    CordonNode {
        node: NodeId,
    },
    UncordonNode {
        node: NodeId,
    },
    /// Says anew what an operator knows of the node; what is not said is no longer so. `revision` is what the caller
    /// read; absent means whatever it is now.
    LabelNode {
        node: NodeId,
        labels: Labels,
        revision: Option<u64>,
    },
    AddNodeKey {
        node: NodeId,
        key: Digest,
    },
    RevokeNodeKey {
        node: NodeId,
        key: Digest,
    },
    RemoveNode {
        node: NodeId,
    },
    /// A node scrubbed a device, or could not; the signature was checked before.
    NoteScrub {
        node: NodeId,
        receipt: Box<Receipt>,
    },
    ReleaseGpu {
        gpu: GpuId,
    },

    SetBookingTerms {
        terms: Terms,
    },
    /// Holds windows, at no more than the price that was shown.
    Book {
        scope: ScopeId,
        spec: Box<BookingSpec>,
        zone: Box<Zone>,
        shown: Option<Micros>,
    },
    /// `revision` is what the caller read; absent means whatever it is now.
    EditBooking {
        booking: BookingId,
        edit: Box<Edit>,
        zone: Box<Zone>,
        revision: Option<u64>,
    },
    ExtendBooking {
        booking: BookingId,
        of: Wall,
        more_s: u64,
        /// None where the tz database has no such zone any more.
        zone: Option<Box<Zone>>,
    },
    TransferBooking {
        booking: BookingId,
        to: ScopeId,
    },
    /// The zone is needed where a series is cut.
    CancelBooking {
        booking: BookingId,
        which: Which,
        zone: Option<Box<Zone>>,
    },
    /// Does what time has made due. The zones are those known today.
    AdvanceBookings {
        zones: fn(&str) -> Option<Zone>,
    },
    /// Reads wall times anew by another edition of the tz database, one booking at a time.
    ResolveBookings {
        zones: fn(&str) -> Option<Zone>,
        edition: &'static str,
    },

    SetMarketTerms {
        terms: MarketTerms,
    },
    /// The zone of its windows, where they are daily.
    MakeOffer {
        seller: TenantId,
        spec: Box<OfferSpec>,
        zone: Option<Box<Zone>>,
    },
    /// What is leased of it stays leased.
    WithdrawOffer {
        offer: OfferId,
    },
    /// Has what the forecast says lies idle offered from now on.
    SetAutoOffer {
        seller: TenantId,
        spec: Box<AutoSpec>,
    },
    RemoveAutoOffer {
        seller: TenantId,
        class: String,
    },
    /// Buys what there is now, or waits for it, as it says.
    PlaceBid {
        scope: ScopeId,
        spec: Box<BidSpec>,
    },
    CancelBid {
        bid: BidId,
    },
    /// The seller wants it back, after its notice.
    RecallLease {
        lease: LeaseId,
    },
    /// The buyer has no more use for it.
    ReturnLease {
        lease: LeaseId,
    },
    /// A node measured one of its GPUs, as it was asked.
    AnswerGpuCheck {
        node: NodeId,
        gpu: GpuId,
        number: u64,
        report: GpuReport,
    },
    /// Does what time has made due. The zones are those known today.
    AdvanceMarket {
        zones: fn(&str) -> Option<Zone>,
    },

    Submit {
        owner: UserId,
        spec: Arc<JobSpec>,
        /// Where in whose trace it was asked for.
        trace: Option<TraceParent>,
    },
    /// Submits a job that takes its turn: others who wait may be about to get what it wants.
    Enqueue {
        owner: UserId,
        spec: Arc<JobSpec>,
        trace: Option<TraceParent>,
    },
    Stop {
        job: JobId,
        reason: StopReason,
    },
    /// Makes a running job's slices larger or smaller; what is not said stays.
    Resize {
        job: JobId,
        compute_permille: Option<u16>,
        vram_mib: Option<u64>,
    },
    /// Says between how many replicas a service has.
    Scale {
        job: JobId,
        replicas: Replicas,
    },
    /// Wants so many replicas of a service now, and starts those that are missing. Of those that are too many the ones
    /// in `leave` go, which have nothing left to do.
    Steer {
        job: JobId,
        wanted: u32,
        leave: Vec<JobId>,
        why: String,
    },
    /// A replica runs and does not serve.
    FailReplica {
        replica: JobId,
        why: String,
    },
    NoteServiceUse {
        job: JobId,
        uses: Vec<ServiceUse>,
    },
    /// Takes a running job's GPUs from it for a while, without a loss.
    Pause {
        job: JobId,
        reason: PauseReason,
    },
    /// Wants a paused job to go on as soon as there is room.
    ResumeJob {
        job: JobId,
    },
    OpenSession {
        job: JobId,
        member: u32,
        kind: SessionKind,
        from: String,
    },
    EndSession {
        session: SessionId,
        end: SessionEnd,
    },
    /// Starts a waiting job if it can start now; the refusal says what it waits for.
    Schedule {
        job: JobId,
    },
    /// Has others give way to a queued job that found no room, or promises it what there will be; nothing where neither
    /// is possible.
    Promise {
        job: JobId,
    },
    /// Withdraws promises that are kept for nothing now.
    Withdraw,
    Observe {
        node: NodeId,
        allocation: AllocationId,
        observation: Observation,
    },
    /// Run time and use of a node's allocations so far, each since its start.
    Meter {
        node: NodeId,
        ran: Vec<Ran>,
    },
    /// What an allocation did at its devices' boundary. Its signature was checked before, against the node's keys.
    NoteConduct {
        node: NodeId,
        record: Box<SignedConduct>,
    },
}

/// How far an allocation has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub allocation: AllocationId,
    pub ran_ms: u64,
    /// Of its devices, where it was measured.
    pub usage: Option<Usage>,
}

/// What an engine saw of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    Starting,
    Running,
    /// Its GPUs are free, and its processes wait for them.
    Paused {
        ran_ms: u64,
        usage: Option<Usage>,
    },
    /// It could not be paused, or not resumed, and is as it was.
    Kept {
        why: String,
    },
    /// The job said that what it did is safe, so long ago.
    Saved {
        ago_ms: u64,
    },
    /// It ended; `by` says who ended it where it was not the job itself.
    Exited {
        exit_code: Option<i32>,
        signal: Option<i32>,
        ran_ms: u64,
        by: Option<StopReason>,
        usage: Option<Usage>,
    },
    NotStarted {
        why: String,
    },
    /// The node does not know it and never will: its attempt is over.
    Vanished,
}
