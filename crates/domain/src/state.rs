//! The state: the fold of all events, holding only what is live.
//!
//! `apply` trusts events: they were decided against this very state. It asserts invariants and never refuses.

mod apply;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::audit::habit::Habits;
use crate::booking::record::Bookings;
use crate::booking::terms::Terms;
use crate::forecast::history::History;
use crate::forecast::probe::Probes;
use crate::id::{JobId, JoinTokenId, SecretId, SessionId, TenantId, UserId};
use crate::ledger::account::{AccountId, Accounts};
use crate::ledger::book::Books;
use crate::ledger::invoice::Invoices;
use crate::ledger::price::Prices;
use crate::market::record::Market;
use crate::refusal::Refusal;
use crate::schedule::calendar::Calendar;
use crate::schedule::fleet::Fleet;
use crate::schedule::queue::Queue;
use crate::storage::volume::Volumes;
use crate::tenancy::key::{Digest, Keys};
use crate::tenancy::scope::{Scope, ScopeId};
use crate::tenancy::share::Share;
use crate::tenancy::tree::Tree;
use crate::tenancy::webhook::Webhooks;
use crate::time::Time;
use crate::workload::job::{DoneJob, Job, Phase};
use crate::workload::learnt::Learnt;
use crate::workload::roster::Roster;
use crate::workload::session::Session;
use crate::workload::spec::{Priority, Sku};

/// The version of the snapshot encoding; a snapshot of another version is not read, the journal is replayed.
pub const SNAPSHOT_FORMAT: u32 = 5;

/// Everything that is live.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub name: String,
    pub tree: Tree,
    pub keys: Keys,
    #[serde(with = "secrets_as_rows")]
    pub secrets: BTreeMap<(ScopeId, String), SecretId>,
    #[serde(default)]
    pub volumes: Volumes,
    #[serde(default, skip_serializing_if = "Webhooks::is_empty")]
    pub webhooks: Webhooks,
    pub prices: Prices,
    /// What each level asks of the one below.
    #[serde(default, skip_serializing_if = "Books::is_empty")]
    pub books: Books,
    #[serde(default, skip_serializing_if = "Invoices::is_empty")]
    pub invoices: Invoices,
    pub skus: BTreeMap<String, Sku>,
    pub accounts: Accounts,
    pub join_tokens: BTreeMap<JoinTokenId, JoinToken>,
    pub fleet: Fleet,
    /// The operator's terms for bookings.
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    pub terms: Terms,
    #[serde(default, skip_serializing_if = "Bookings::is_empty")]
    pub bookings: Bookings,
    /// The exchange.
    #[serde(default, skip_serializing_if = "Market::is_empty")]
    pub market: Market,
    /// Room promised to waiting jobs.
    #[serde(default, skip_serializing_if = "Calendar::is_empty")]
    pub calendar: Calendar,
    pub jobs: Roster,
    /// Open sessions.
    #[serde(default)]
    pub sessions: BTreeMap<SessionId, Session>,
    /// What workloads usually do.
    #[serde(default)]
    pub habits: Habits,
    /// What jobs' run times were like.
    #[serde(default)]
    pub history: History,
    /// How long jobs waited, for what had been estimated.
    #[serde(default)]
    pub probes: Probes,
    /// What workloads took.
    #[serde(default, skip_serializing_if = "Learnt::is_empty")]
    pub learnt: Learnt,
    /// Waiting jobs.
    #[serde(skip)]
    pub queue: Queue,
    /// Live jobs by owner.
    #[serde(skip)]
    pub jobs_by_owner: BTreeMap<UserId, BTreeSet<JobId>>,
    /// Running jobs by tenant and priority: who might give way to whom.
    #[serde(skip)]
    pub running: BTreeMap<(Option<TenantId>, Priority), BTreeSet<JobId>>,
    /// No id above this was ever given.
    pub last_id: u64,
}

/// A token with which one node may join, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    pub digest: Digest,
    pub expires: Time,
    /// Whose the node is then; the platform's where nobody is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

/// What left the live state and belongs into history.
#[derive(Debug, Clone, PartialEq)]
pub enum Retired {
    Job {
        scope: String,
        job: Box<DoneJob>,
    },
    Scope {
        path: String,
        closed: Time,
        scope: Box<Scope>,
    },
}

impl State {
    pub fn job(&self, id: JobId) -> Result<&Job, Refusal> {
        self.jobs.get(&id).ok_or_else(Refusal::not_found)
    }

    /// After how long half of what was used is forgiven.
    pub fn half_life_ms(&self) -> u64 {
        self.platform_share().half_life_ms()
    }

    /// After how long a waiting job goes first, whatever its priority class.
    pub fn aged_ms(&self) -> u64 {
        self.platform_share().aged_ms()
    }

    fn platform_share(&self) -> &Share {
        &self
            .tree
            .get(ScopeId::Platform)
            .expect("INVARIANT: jobs are of a founded platform")
            .share
    }

    /// The size a job means by a name: that of its class, else the one for any class, else the only one there is.
    pub(crate) fn sku(&self, name: &str, class: Option<&str>) -> Result<&Sku, Refusal> {
        let of_class = class.and_then(|class| self.skus.get(&Sku::key_for(name, class)));
        if let Some(sku) = of_class.or_else(|| self.skus.get(name)) {
            return Ok(sku);
        }
        let classes: Vec<&Sku> = self.skus.values().filter(|sku| sku.name == name).collect();
        match (&classes[..], class) {
            ([one], None) => Ok(one),
            ([], _) => Err(Refusal::invalid("/sku", format!("there is no SKU named {name}"))
                .hint("`tenure sku list` shows them")),
            (some, _) => {
                let names: Vec<&str> = some
                    .iter()
                    .filter_map(|sku| sku.demand.class.as_deref())
                    .collect();
                Err(Refusal::invalid(
                    "/demand/class",
                    format!("SKU {name} is defined for {}", names.join(", ")),
                )
                .hint("say which GPU class"))
            }
        }
    }

    /// The account that pays for a scope's jobs.
    pub fn account_of(&self, scope: ScopeId) -> AccountId {
        self.tree
            .tenant_of(scope)
            .map_or(AccountId::Internal, AccountId::Tenant)
    }

    /// The secret a user means by a name: its own, else the nearest one above.
    pub fn secret(&self, user: UserId, name: &str) -> Option<SecretId> {
        self.tree
            .chain(ScopeId::User(user))
            .find_map(|scope| self.secrets.get(&(scope.id, name.to_owned())).copied())
    }

    /// The secrets stored at one scope.
    pub(crate) fn secrets_of(&self, scope: ScopeId) -> impl Iterator<Item = (ScopeId, String, SecretId)> {
        let rows = self
            .secrets
            .range((scope, String::new())..)
            .take_while(move |((of, _), _)| *of == scope);
        rows.map(|((scope, name), &secret)| (*scope, name.clone(), secret))
    }

    /// Jobs of a scope and everything below it.
    pub fn jobs_within(&self, scope: ScopeId) -> impl Iterator<Item = &Job> {
        let users = self.tree.subtree(scope).into_iter().filter_map(|id| match id {
            ScopeId::User(user) => Some(user),
            _ => None,
        });
        users
            .flat_map(|user| self.jobs_by_owner.get(&user).into_iter().flatten())
            .filter_map(|id| self.jobs.get(id))
    }

    /// Restores what a snapshot leaves out.
    pub fn rebuild_indexes(&mut self) {
        self.queue = self.jobs.values().collect();
        self.fleet.rebuild_index();
        self.bookings.rebuild_index(&self.tree);
        self.jobs_by_owner.clear();
        self.volumes.clear_jobs();
        for job in self.jobs.values() {
            self.volumes.add_job(job.id, &job.volumes);
            self.jobs_by_owner.entry(job.owner).or_default().insert(job.id);
        }
        self.running.clear();
        let running = self.jobs.values().filter(|job| job.phase == Phase::Running);
        for id in running.map(|job| job.id).collect::<Vec<_>>() {
            self.note_running(id);
        }
    }

    fn running_key(&self, job: &Job) -> (Option<TenantId>, Priority) {
        (self.tree.tenant_of(ScopeId::User(job.owner)), job.spec.priority)
    }

    /// A job of tasks is not among them: it has nothing to give way with.
    pub(crate) fn note_running(&mut self, id: JobId) {
        if self.jobs[&id].is_parent() {
            return;
        }
        let key = self.running_key(&self.jobs[&id]);
        self.running.entry(key).or_default().insert(id);
    }

    pub(crate) fn forget_running(&mut self, id: JobId) {
        let key = self.running_key(&self.jobs[&id]);
        if let Some(jobs) = self.running.get_mut(&key) {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.running.remove(&key);
            }
        }
    }
}

mod secrets_as_rows {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<(ScopeId, String), SecretId>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map.iter().map(|((scope, name), secret)| (scope, name, secret)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<(ScopeId, String), SecretId>, D::Error> {
        let rows = Vec::<(ScopeId, String, SecretId)>::deserialize(deserializer)?;
        Ok(rows
            .into_iter()
            .map(|(scope, name, secret)| ((scope, name), secret))
            .collect())
    }
}
