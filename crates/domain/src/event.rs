//! Events: facts, the only thing that is stored. Encoded as JSON by variant name.
//!
//! A released variant keeps its name and fields for ever: fields may be added with a default, a change of
//! meaning gets a new variant. `tests/golden/events.jsonl` holds one of each and must stay readable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::audit::anomaly::Anomaly;
use crate::audit::conduct::SignedConduct;
use crate::booking::record::{Booking, Window};
use crate::booking::shelf::Seat;
use crate::booking::terms::Terms;
use crate::booking::zone::Wall;
use crate::id::{
    AllocationId, BookingId, GpuId, JobId, JoinTokenId, KeyId, NodeId, SecretId, SessionId, UserId, VolumeId,
};
use crate::ledger::account::Posting;
use crate::ledger::price::Prices;
use crate::meter::Amounts;
use crate::schedule::allocation::{Allocation, Slice};
use crate::schedule::calendar::Promise;
use crate::schedule::fleet::Inventory;
use crate::schedule::label::Labels;
use crate::schedule::receipt::Receipt;
use crate::tenancy::budget::{Budget, Cost};
use crate::tenancy::key::{Digest, Key};
use crate::tenancy::policy::Policy;
use crate::tenancy::role::Role;
use crate::tenancy::rule::Rules;
use crate::tenancy::scope::{Identity, ScopeId, UserFacts};
use crate::tenancy::share::Share;
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
use crate::workload::usage::Usage;

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
    BudgetsSet {
        scope: ScopeId,
        budgets: Vec<Budget>,
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
    },
    NodeJoined {
        node: NodeId,
        name: String,
        key: Digest,
        token: JoinTokenId,
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
}

/// One metered interval and what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub allocation: AllocationId,
    pub job: JobId,
    /// Run time since the allocation's start, in milliseconds: the interval is `[from_ms, to_ms)`.
    pub from_ms: u64,
    pub to_ms: u64,
    pub cost: Cost,
    pub posting: Posting,
    /// Use of devices in the interval, where it was measured; its peak is that of the allocation so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
}

/// Why a window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    Over,
    /// Nobody came, and the rest was given up.
    NoShow,
    /// It could not be given at all.
    NotHad,
}

/// How often one principal was refused one action within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedAccess {
    pub principal: String,
    pub action: String,
    pub code: String,
    pub count: u64,
}

impl Event {
    /// The scope whose readers may see the event; none for what only the platform's auditors see.
    /// For jobs the caller resolves the owner.
    pub fn subject(&self) -> Subject {
        match self {
            Event::ScopeCreated { scope, .. }
            | Event::ScopeSuspended { scope }
            | Event::ScopeResumed { scope }
            | Event::ScopeMoved { scope, .. }
            | Event::ScopeClosed { scope }
            | Event::RoleGranted { scope, .. }
            | Event::RoleRevoked { scope, .. }
            | Event::QuotaSet { scope, .. }
            | Event::ShareSet { scope, .. }
            | Event::BudgetsSet { scope, .. }
            | Event::PolicySet { scope, .. }
            | Event::RulesSet { scope, .. }
            | Event::SecretStored { scope, .. }
            | Event::SecretErased { scope, .. }
            | Event::VolumeCreated { scope, .. }
            | Event::VolumeBound { scope, .. }
            | Event::VolumeGrown { scope, .. }
            | Event::VolumeRemoved { scope, .. }
            | Event::VolumeErased { scope, .. }
            | Event::BookingRenewed { scope, .. }
            | Event::BookingEnded { scope, .. }
            | Event::WindowClearing { scope, .. }
            | Event::WindowOpened { scope, .. }
            | Event::WindowDown { scope, .. }
            | Event::WindowRestored { scope, .. }
            | Event::WindowMoved { scope, .. }
            | Event::WindowExtended { scope, .. }
            | Event::WindowClosed { scope, .. } => Subject::Scope(*scope),
            Event::BookingMade { booking } | Event::BookingChanged { booking, .. } => {
                Subject::Scope(booking.scope)
            }
            Event::IdentitySet { user, .. } => Subject::Scope(ScopeId::User(*user)),
            Event::KeyCreated { key } => Subject::Scope(ScopeId::User(key.user)),
            Event::KeyRevoked { key } => Subject::Key(*key),
            Event::SessionOpened {
                session: Session { job, .. },
            }
            | Event::SessionEnded { job, .. }
            | Event::ConductNoted { job, .. }
            | Event::AnomalyFound { job, .. }
            | Event::JobSubmitted { job, .. }
            | Event::TaskSubmitted { job, .. }
            | Event::PiecesReturned { job, .. }
            | Event::ServiceScaled { job, .. }
            | Event::ReplicaFailed { job, .. }
            | Event::ServiceUsed { job, .. }
            | Event::JobPromised {
                promise: Promise { job, .. },
            }
            | Event::PromiseWithdrawn { job, .. }
            | Event::JobAdmitted { job, .. }
            | Event::JobPlaced { job, .. }
            | Event::JobStarting { job }
            | Event::JobRunning { job }
            | Event::JobStopping { job, .. }
            | Event::MemberStarting { job, .. }
            | Event::MemberRunning { job, .. }
            | Event::MemberEnded { job, .. }
            | Event::JobResized { job, .. }
            | Event::JobPausing { job, .. }
            | Event::JobPaused { job }
            | Event::JobWanted { job }
            | Event::JobResuming { job, .. }
            | Event::JobKept { job, .. }
            | Event::JobRequeued { job, .. }
            | Event::JobEnded { job, .. } => Subject::Job(*job),
            _ => Subject::Platform,
        }
    }

    /// The variant's name, by which streams are filtered.
    pub fn kind(&self) -> &'static str {
        macro_rules! names { ($($name:ident)*) => { match self { $(Event::$name { .. } => stringify!($name),)* } } }
        names! {
            PlatformFounded ScopeCreated ScopeSuspended ScopeResumed ScopeMoved ScopeClosed IdentitySet RoleGranted RoleRevoked
            KeyCreated KeyRevoked QuotaSet ShareSet BudgetsSet PolicySet RulesSet SecretStored SecretErased AccessRefused PricesSet
            VolumeCreated VolumeBound VolumeGrown VolumeRemoved VolumeErased
            SkuDefined SkuRemoved JoinTokenCreated NodeJoined NodeInventoried NodeLost NodeReturned NodeCordoned NodeUncordoned NodeLabelled
            NodeKeyAdded NodeKeyRevoked NodeRemoved DeviceScrubbed GpuQuarantined GpuReleased JobSubmitted TaskSubmitted PiecesReturned ServiceScaled ReplicaFailed ServiceUsed JobPromised PromiseWithdrawn JobAdmitted JobPlaced JobStarting JobRunning JobStopping MemberStarting MemberRunning MemberEnded JobResized
            JobPausing JobPaused JobWanted JobResuming JobKept
            BookingTermsSet BookingMade BookingChanged BookingRenewed BookingEnded
            WindowClearing WindowOpened WindowDown WindowRestored WindowMoved WindowExtended WindowClosed
            UsageMetered JobRequeued JobEnded SessionOpened SessionEnded ConductNoted AnomalyFound
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Platform,
    Scope(ScopeId),
    Key(KeyId),
    Job(JobId),
}
