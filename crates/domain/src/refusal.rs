//! Every "no" and every "not yet" as a value: a stable code, one sentence, and what would change it.
//! The same value reaches the API, the CLI and the console. Codes are documented in `docs/errors/`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $text:literal $class:ident;)*) => {
        /// The stable reason codes. Their text never changes meaning once released.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $text)] $name,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $text,)* } }
            pub fn class(self) -> Class { match self { $(Code::$name => Class::$class,)* } }
        }
    };
}

/// What kind of "no" it is; the API maps each class to one HTTP status, the CLI to one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request itself is wrong: 422.
    Invalid,
    /// The actor may not: 403.
    Forbidden,
    /// There is no such thing, or the actor may not know of it: 404.
    Absent,
    /// The present state does not allow it: 409.
    Conflict,
    /// A limit, budget or policy says no: 403 with its own code, exit 3.
    Denied,
    /// Not now: capacity or quota in use; as a refusal 409, as a waiting reason not an error at all.
    Waiting,
}

codes! {
    /// A field has a value outside its domain.
    InvalidField "invalid_field" Invalid;
    /// The actor lacks a role that allows the action here.
    NotPermitted "not_permitted" Forbidden;
    /// A rule written by an operator forbids the action.
    ForbiddenByRule "forbidden_by_rule" Forbidden;
    /// The actor, or a scope above it, is suspended.
    Suspended "suspended" Forbidden;
    /// There is no such object here.
    NotFound "not_found" Absent;
    /// A sibling has the name already.
    NameTaken "name_taken" Conflict;
    /// The object changed since it was read.
    RevisionMismatch "revision_mismatch" Conflict;
    /// The object is not in a phase that allows this.
    WrongPhase "wrong_phase" Conflict;
    /// As many sessions are open as there may be.
    TooManySessions "too_many_sessions" Conflict;
    /// The scope still has live jobs.
    JobsStillLive "jobs_still_live" Conflict;
    /// Volumes are still there, and would be lost.
    VolumesStillThere "volumes_still_there" Conflict;
    /// The volumes of one job are on different nodes.
    VolumesApart "volumes_apart" Conflict;
    /// Bookings are still there, and would be lost.
    BookingsStillThere "bookings_still_there" Conflict;
    /// There is no room for a window; the hint says what there is room for.
    BookedOut "booked_out" Conflict;
    /// The exchange has nothing like it at that price now; the hint says what there is.
    NoOffers "no_offers" Conflict;
    /// The only offers that would do are its own tenant's.
    SelfTrade "self_trade" Denied;
    /// The seller has no more of its own to offer.
    NothingToSell "nothing_to_sell" Denied;
    /// Offers, bids or leases are still there, and would be lost.
    TradesStillThere "trades_still_there" Conflict;
    /// It costs more than what the caller was shown.
    PriceChanged "price_changed" Conflict;
    /// A scope can only stand under a parent of the level above.
    WrongParent "wrong_parent" Invalid;
    /// The last owner of the platform cannot be removed.
    LastOwner "last_owner" Conflict;
    /// Nobody grants what they lack.
    GrantExceedsGrantor "grant_exceeds_grantor" Forbidden;
    /// The platform was set up before.
    AlreadyFounded "already_founded" Conflict;
    /// A policy of a scope above excludes the request.
    PolicyExcludes "policy_excludes" Denied;
    /// The request is larger than a quota and could never fit.
    ExceedsQuota "exceeds_quota" Denied;
    /// The estimated cost does not fit what is left of a budget.
    ExceedsBudget "exceeds_budget" Denied;
    /// No device of the fleet could ever hold the request.
    ExceedsFleet "exceeds_fleet" Denied;
    /// The rule text does not parse, does not match the schema, or tries to permit.
    InvalidRule "invalid_rule" Invalid;
    /// A join token is unknown, used or expired.
    BadJoinToken "bad_join_token" Forbidden;
    /// A report contradicts what is known and was not taken.
    ContradictoryReport "contradictory_report" Conflict;
    /// Waiting: quota is in use by other jobs.
    QuotaInUse "quota_in_use" Waiting;
    /// Waiting: a scope above borrows as much as it may beyond its nominal quota.
    BorrowLimit "borrow_limit" Waiting;
    /// Waiting: beyond nominal quota, and what others lend is used.
    NotLent "not_lent" Waiting;
    /// Waiting: budget is held by other jobs.
    BudgetHeld "budget_held" Waiting;
    /// Waiting: a scope above is suspended.
    ScopeSuspended "scope_suspended" Waiting;
    /// Waiting: no node has room now.
    NoCapacity "no_capacity" Waiting;
    /// Waiting: the node a volume is on takes no more now, or no node has room for a new one.
    VolumeUnavailable "volume_unavailable" Waiting;
    /// Waiting: there is room, but a wall around the job or a neighbour is not met there.
    NotShared "not_shared" Waiting;
    /// Waiting: there is room, but it is promised to a job ahead.
    Promised "promised" Waiting;
    /// Waiting: the booking it is attached to has no window open now.
    BookingClosed "booking_closed" Waiting;
    /// Waiting: it was paused, and nobody asked for it since.
    Paused "paused" Waiting;
    /// Waiting: no node has joined yet.
    NoNodes "no_nodes" Waiting;
    /// Waiting: jobs ahead in the queue go first.
    BehindOthers "behind_others" Waiting;
}

/// Why not, and what would change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: Code,
    /// One sentence a person reads.
    pub sentence: Cow<'static, str>,
    /// What would change the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Cow<'static, str>>,
    /// JSON Pointer of the field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'static, str>>,
}

impl Refusal {
    pub fn new(code: Code, sentence: impl Into<Cow<'static, str>>) -> Self {
        Refusal {
            code,
            sentence: sentence.into(),
            hint: None,
            field: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn field(mut self, pointer: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(pointer.into());
        self
    }

    /// The one answer for what is absent and for what the actor may not know of.
    pub fn not_found() -> Self {
        Refusal::new(Code::NotFound, "there is no such object here")
    }

    pub fn invalid(field: impl Into<Cow<'static, str>>, sentence: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(Code::InvalidField, sentence).field(field)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.sentence)
    }
}

impl std::error::Error for Refusal {}
