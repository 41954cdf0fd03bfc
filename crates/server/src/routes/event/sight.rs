//! Which events a caller sees: those about places and jobs it may look at, asked on the present state. What has
//! left the state is looked up in history, once.

use std::collections::HashMap;

use tenure_domain::event::Subject;
use tenure_domain::id::{JobId, KeyId, UserId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State};

use super::super::job::ended_job;
use super::super::past;
use super::price::Prices;
use crate::auth::Caller;
use crate::controller::Controller;

/// Answers of history kept; beyond it all are forgotten and asked again.
const MAX_KNOWN: usize = 10_000;

/// Where something is that an event speaks of.
#[derive(Clone)]
enum Place {
    Live(ScopeId),
    /// It left the state; this is the path it stood at.
    Past(ScopeId, String),
    /// Nothing is known of it.
    Unknown,
}

pub(crate) struct Sight {
    caller: Caller,
    /// Only events of this scope and below.
    within: Option<ScopeId>,
    ended: HashMap<JobId, Place>,
    closed: HashMap<ScopeId, Place>,
    keys: HashMap<KeyId, UserId>,
}

impl Sight {
    pub fn new(caller: Caller, within: Option<ScopeId>) -> Sight {
        Sight {
            caller,
            within,
            ended: HashMap::new(),
            closed: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// None where history could not be asked.
    pub async fn sees(&mut self, controller: &Controller, event: &Event) -> Option<bool> {
        if let Event::KeyCreated { key } = event {
            bounded(&mut self.keys).insert(key.id, key.user);
        }
        if let Some(seller) = seller(event) {
            let place = self.scope(controller, seller).await?;
            let state = controller.view().read();
            if self.is_within(&state, &place)
                && wanted(event)
                    .iter()
                    .any(|&action| self.may(&state, action, &place))
            {
                return Some(true);
            }
        }
        if let Some(scope) = between(event) {
            let state = controller.view().read();
            let own = state.tree.tenant_of(ScopeId::User(self.caller.user));
            let reads_all = self
                .caller
                .may(&state, Action::JournalRead, ScopeId::Platform)
                .is_ok();
            if own != state.tree.tenant_of(scope) && !reads_all {
                return Some(false);
            }
        }
        let place = match event.subject() {
            Subject::Platform => Place::Live(ScopeId::Platform),
            Subject::Scope(scope) => self.scope(controller, scope).await?,
            Subject::Key(key) => match self.user_of(controller, key) {
                Some(user) => self.scope(controller, ScopeId::User(user)).await?,
                None => Place::Unknown,
            },
            Subject::Job(job) => self.job(controller, job).await?,
        };
        let state = controller.view().read();
        Some(
            self.is_within(&state, &place)
                && wanted(event)
                    .iter()
                    .any(|&action| self.may(&state, action, &place)),
        )
    }

    /// Whose prices the caller sees of a job; none where history could not be asked.
    pub(super) async fn prices(&mut self, controller: &Controller, job: JobId) -> Option<Prices> {
        let place = self.job(controller, job).await?;
        let state = controller.view().read();
        let may = |action, scope| self.caller.may(&state, action, scope).is_ok();
        if may(Action::JournalRead, ScopeId::Platform) {
            return Some(Prices::All);
        }
        let tenant = match &place {
            Place::Live(owner) => state.tree.tenant_of(*owner),
            Place::Past(_, path) => path.split('/').next().and_then(|first| first.parse().ok()),
            Place::Unknown => None,
        };
        let own = state.tree.tenant_of(ScopeId::User(self.caller.user));
        Some(match tenant {
            Some(tenant) if own == Some(tenant) => match may(Action::CostRead, ScopeId::Tenant(tenant)) {
                true => Prices::All,
                false => Prices::Owner,
            },
            _ => Prices::Tenant,
        })
    }

    fn may(&self, state: &State, action: Action, place: &Place) -> bool {
        match place {
            Place::Live(scope) => self.caller.may(state, action, *scope).is_ok(),
            Place::Past(owner, path) => past::may(&self.caller, state, action, *owner, path).is_ok(),
            Place::Unknown => self
                .caller
                .may(state, Action::EventRead, ScopeId::Platform)
                .is_ok(),
        }
    }

    fn is_within(&self, state: &State, place: &Place) -> bool {
        let Some(within) = self.within.filter(|within| *within != ScopeId::Platform) else {
            return true;
        };
        match place {
            Place::Live(scope) => state.tree.is_within(*scope, within),
            Place::Past(_, path) => path.split('/').any(|step| step == within.to_string()),
            Place::Unknown => false,
        }
    }

    fn user_of(&self, controller: &Controller, key: KeyId) -> Option<UserId> {
        let state = controller.view().read();
        state
            .keys
            .get(key)
            .map(|key| key.user)
            .or_else(|| self.keys.get(&key).copied())
    }

    async fn scope(&mut self, controller: &Controller, scope: ScopeId) -> Option<Place> {
        if controller.view().read().tree.get(scope).is_some() {
            return Some(Place::Live(scope));
        }
        if let Some(known) = self.closed.get(&scope) {
            return Some(known.clone());
        }
        let row = controller
            .reader()
            .history_get("scope", &scope.to_string())
            .await
            .ok()?;
        let place = row.map_or(Place::Unknown, |row| Place::Past(scope, row.scope));
        bounded(&mut self.closed).insert(scope, place.clone());
        Some(place)
    }

    async fn job(&mut self, controller: &Controller, job: JobId) -> Option<Place> {
        if let Some(live) = controller.view().read().jobs.get(&job) {
            return Some(Place::Live(ScopeId::User(live.owner)));
        }
        if let Some(known) = self.ended.get(&job) {
            return Some(known.clone());
        }
        let ended = ended_job(controller, job).await.ok()?;
        let place = ended.map(|(done, path)| Place::Past(ScopeId::User(done.owner), path));
        let place = place.unwrap_or(Place::Unknown);
        bounded(&mut self.ended).insert(job, place.clone());
        Some(place)
    }
}

fn bounded<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= MAX_KNOWN {
        map.clear();
    }
    map
}

/// The other side of a trade, which sees it too.
fn seller(event: &Event) -> Option<ScopeId> {
    match event {
        Event::LeaseBegan { lease, .. } => Some(ScopeId::Tenant(lease.seller)),
        Event::LeaseRecalled { seller, .. } | Event::LeaseEnded { seller, .. } => {
            Some(ScopeId::Tenant(*seller))
        }
        _ => None,
    }
}

/// Whose people alone it is for: what a tenant asks of those below it and bills them.
fn between(event: &Event) -> Option<ScopeId> {
    let below = |scope: ScopeId| matches!(scope, ScopeId::Subscriber(_) | ScopeId::User(_)).then_some(scope);
    match event {
        Event::BookSet { entry } => Some(entry.seller).filter(|seller| *seller != ScopeId::Platform),
        Event::Adjusted { adjustment } => below(adjustment.scope),
        Event::InvoiceIssued { invoice } => below(invoice.draft.scope),
        Event::InvoicePaid { scope, .. } => below(*scope),
        _ => None,
    }
}

/// Any of these at the event's place shows it.
fn wanted(event: &Event) -> &'static [Action] {
    match event {
        Event::KeyCreated { .. } | Event::KeyRevoked { .. } => &[Action::KeyManage, Action::EventRead],
        Event::WebhookCreated { .. }
        | Event::WebhookRotated { .. }
        | Event::WebhookPaused { .. }
        | Event::WebhookResumed { .. }
        | Event::WebhookFailed { .. }
        | Event::WebhookRemoved { .. } => &[Action::WebhookManage, Action::EventRead],
        Event::SecretStored { .. } | Event::SecretErased { .. } => &[Action::SecretWrite, Action::EventRead],
        Event::BudgetsSet { .. }
        | Event::BudgetAlerted { .. }
        | Event::BookSet { .. }
        | Event::Adjusted { .. }
        | Event::InvoiceIssued { .. }
        | Event::InvoicePaid { .. }
        | Event::OfferMade { .. }
        | Event::OfferRenewed { .. }
        | Event::OfferWithdrawn { .. }
        | Event::AutoOfferSet { .. }
        | Event::AutoOfferRemoved { .. }
        | Event::BidPlaced { .. }
        | Event::BidEnded { .. }
        | Event::LeaseBegan { .. }
        | Event::LeaseRecalled { .. }
        | Event::LeaseVacating { .. }
        | Event::LeaseEnded { .. } => &[Action::CostRead, Action::EventRead],
        _ => match event.subject() {
            Subject::Job(_) => &[Action::JobRead, Action::EventRead],
            Subject::Scope(_) => &[Action::ScopeRead, Action::EventRead],
            Subject::Platform | Subject::Key(_) => &[Action::EventRead],
        },
    }
}
