//! A platform in process: the real controller on a real journal, with a founder, tenants and a node as large as wished.

use std::sync::Arc;

use tenure_domain::id::{NodeId, SubscriberId, TenantId, UserId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Actor, Time, Wish};
use tenure_journal::{Journal, JournalError, Location, Options};
use tenure_server::controller::{self, Accepted, Controller, NotDone, WriterOptions};
use tenure_server::view::View;

/// A running controller.
pub struct Platform {
    pub controller: Controller,
    writing: tokio::task::JoinHandle<Result<Journal, JournalError>>,
}

impl Platform {
    pub async fn open(location: &Location, options: WriterOptions) -> anyhow::Result<Platform> {
        let journal = Journal::open_leader(location, "bench", Options::default()).await?;
        let recovered = controller::recover(&journal).await?;
        let view = Arc::new(View::new(recovered.state, recovered.seq));
        let controller = Controller::following(view, (**journal).clone());
        let writing = controller.lead(journal, options);
        Ok(Platform { controller, writing })
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.controller.close();
        self.writing.await??.close().await?;
        Ok(())
    }

    pub async fn wish(&self, wish: Wish) -> anyhow::Result<Accepted> {
        done(self.controller.system(wish).await)
    }

    /// Founds the platform with `tenants` tenants of `subscribers` subscribers of `users` users each.
    pub async fn populate(
        &self,
        tenants: usize,
        subscribers: usize,
        users: usize,
    ) -> anyhow::Result<Vec<UserId>> {
        let found = Wish::Found {
            platform: "bench".into(),
            owner: "owner".into(),
            key: Digest([0; 32]),
            prices: Prices::default(),
        };
        self.wish(found).await?;
        let mut made = Vec::new();
        for t in 0..tenants {
            let tenant = ScopeId::Tenant(TenantId(
                self.wish(Wish::CreateTenant {
                    name: format!("t{t}"),
                })
                .await?
                .ids,
            ));
            for s in 0..subscribers {
                let wish = Wish::CreateSubscriber {
                    tenant,
                    name: format!("s{s}"),
                };
                let parent = ScopeId::Subscriber(SubscriberId(self.wish(wish).await?.ids));
                let users = (0..users).map(|u| {
                    let wish = Wish::CreateUser {
                        parent,
                        name: format!("u{u}"),
                        kind: UserKind::Person,
                        identity: None,
                        role: Some(Role::Member),
                    };
                    self.wish(wish)
                });
                for user in futures_util::future::join_all(users).await {
                    made.push(UserId(user?.ids));
                }
            }
        }
        Ok(made)
    }

    /// A node that never fills up.
    pub async fn endless_node(&self) -> anyhow::Result<NodeId> {
        self.wish(Wish::CreateJoinToken {
            digest: Digest([1; 32]),
            expires: Time(i64::MAX),
            tenant: None,
        })
        .await?;
        let joined = self
            .wish(Wish::JoinNode {
                token: Digest([1; 32]),
                name: "endless".into(),
                key: Digest([2; 32]),
            })
            .await?;
        let node = NodeId(joined.ids);
        let inventory = Inventory {
            cpu_milli: u32::MAX,
            memory_mib: 1 << 39,
            gpus: Vec::new(),
            images: Vec::new(),
            volume_mib: 0,
        };
        self.wish(Wish::ReportInventory { node, inventory }).await?;
        Ok(node)
    }

    pub async fn submit(&self, owner: UserId, spec: Arc<JobSpec>) -> anyhow::Result<Accepted> {
        done(
            self.controller
                .submit(
                    Actor::user(owner),
                    Wish::Submit {
                        owner,
                        spec,
                        trace: None,
                    },
                    None,
                    None,
                )
                .await,
        )
    }
}

fn done(answer: Result<Accepted, NotDone>) -> anyhow::Result<Accepted> {
    answer.map_err(|not_done| anyhow::anyhow!("not done: {not_done:?}"))
}

/// A small job.
pub fn small_job() -> Arc<JobSpec> {
    let text = r#"{"name":"bench","command":["true"],"demand":{"cpu_milli":100,"memory_mib":64}}"#;
    Arc::new(serde_json::from_str(text).expect("a job"))
}
