//! What an event is about, and what it is called.

use super::Event;
use crate::id::{JobId, KeyId};
use crate::schedule::calendar::Promise;
use crate::tenancy::scope::ScopeId;
use crate::workload::session::Session;

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
            | Event::LogKeepingSet { scope, .. }
            | Event::BudgetsSet { scope, .. }
            | Event::BudgetAlerted { scope, .. }
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
            | Event::WindowClosed { scope, .. }
            | Event::BidEnded { scope, .. }
            | Event::LeaseRecalled { scope, .. }
            | Event::LeaseVacating { scope, .. }
            | Event::LeaseEnded { scope, .. }
            | Event::WebhookRotated { scope, .. }
            | Event::WebhookPaused { scope, .. }
            | Event::WebhookResumed { scope, .. }
            | Event::WebhookFailed { scope, .. }
            | Event::WebhookRemoved { scope, .. } => Subject::Scope(*scope),
            Event::WebhookCreated { webhook } => Subject::Scope(webhook.scope),
            Event::OfferMade { offer } => Subject::Scope(ScopeId::Tenant(offer.seller)),
            Event::OfferRenewed { seller, .. }
            | Event::OfferWithdrawn { seller, .. }
            | Event::AutoOfferSet { seller, .. }
            | Event::AutoOfferRemoved { seller, .. } => Subject::Scope(ScopeId::Tenant(*seller)),
            Event::BidPlaced { bid } => Subject::Scope(bid.scope),
            Event::LeaseBegan { lease, .. } => Subject::Scope(lease.scope),
            Event::BookingMade { booking } | Event::BookingChanged { booking, .. } => {
                Subject::Scope(booking.scope)
            }
            Event::IdentitySet { user, .. } => Subject::Scope(ScopeId::User(*user)),
            Event::Adjusted { adjustment } => Subject::Scope(adjustment.scope),
            Event::InvoiceIssued { invoice } => Subject::Scope(invoice.draft.scope),
            Event::InvoicePaid { scope, .. } => Subject::Scope(*scope),
            Event::BookSet { entry } => match entry.seller {
                ScopeId::Platform => Subject::Platform,
                seller => Subject::Scope(seller),
            },
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
            | Event::JobRepriced { job, .. }
            | Event::JobSaved { job, .. }
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
}

macro_rules! names {
    ($($name:ident)*) => {
        /// The names of all variants.
        pub const KINDS: &'static [&'static str] = &[$(stringify!($name),)*];

        /// The variant's name, by which streams are filtered.
        pub fn kind(&self) -> &'static str {
            match self { $(Event::$name { .. } => stringify!($name),)* }
        }
    };
}

impl Event {
    names! {
        PlatformFounded ScopeCreated ScopeSuspended ScopeResumed ScopeMoved ScopeClosed IdentitySet RoleGranted RoleRevoked
        KeyCreated KeyRevoked QuotaSet ShareSet LogKeepingSet BudgetsSet BudgetAlerted PolicySet RulesSet SecretStored SecretErased AccessRefused PricesSet BookSet Adjusted InvoiceIssued InvoicePaid
        VolumeCreated VolumeBound VolumeGrown VolumeRemoved VolumeErased
        SkuDefined SkuRemoved JoinTokenCreated NodeJoined NodeInventoried NodeLost NodeReturned NodeCordoned NodeUncordoned NodeLabelled
        NodeKeyAdded NodeKeyRevoked NodeRemoved DeviceScrubbed GpuQuarantined GpuReleased JobSubmitted TaskSubmitted PiecesReturned ServiceScaled ReplicaFailed ServiceUsed JobPromised PromiseWithdrawn JobAdmitted JobPlaced JobStarting JobRunning JobStopping MemberStarting MemberRunning MemberEnded JobResized JobRepriced JobSaved
        JobPausing JobPaused JobWanted JobResuming JobKept
        BookingTermsSet BookingMade BookingChanged BookingRenewed BookingEnded
        WindowClearing WindowOpened WindowDown WindowRestored WindowMoved WindowExtended WindowClosed
        MarketTermsSet OfferMade OfferRenewed OfferWithdrawn AutoOfferSet AutoOfferRemoved BidPlaced BidEnded
        LeaseBegan LeaseRecalled LeaseVacating LeaseEnded GpuCheckAsked GpuChecked
        UsageMetered JobRequeued JobEnded SessionOpened SessionEnded ConductNoted AnomalyFound
        WebhookCreated WebhookRotated WebhookPaused WebhookResumed WebhookFailed WebhookRemoved
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
