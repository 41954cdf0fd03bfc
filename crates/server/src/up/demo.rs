//! A small platform to look around in: two tenants, their subscribers and users, quotas and a budget.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_api::secret_text::SecretText;
use tenure_domain::id::{SubscriberId, TenantId, UserId};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::time::Period;
use tenure_domain::workload::spec::{Demand, Sku};
use tenure_domain::{Actor, Wish};

use super::UpError;
use super::found::{new_key, wish, write_secret};
use crate::controller::Controller;

/// Who is in the demo, with a token for each.
#[derive(Serialize, Deserialize)]
pub struct Demo {
    pub users: Vec<DemoUser>,
}

#[derive(Serialize, Deserialize)]
pub struct DemoUser {
    pub path: String,
    pub role: String,
    pub token: SecretText,
}

/// Makes the demo once; later starts read its tokens back.
pub async fn demo(controller: &Controller, data_dir: &Path) -> Result<Demo, UpError> {
    let file = data_dir.join("demo.json");
    if let Ok(text) = std::fs::read_to_string(&file) {
        return serde_json::from_str(&text)
            .map_err(|error| UpError::Found(format!("{} is not readable: {error}", file.display())));
    }
    let mut maker = Maker {
        controller,
        demo: Demo { users: Vec::new() },
    };
    maker.make().await?;
    let text = serde_json::to_string_pretty(&maker.demo).expect("texts encode");
    write_secret(&file, &text).map_err(|error| UpError::DataDir(file.clone(), error))?;
    Ok(maker.demo)
}

struct Maker<'a> {
    controller: &'a Controller,
    demo: Demo,
}

impl Maker<'_> {
    async fn wish(&self, it: Wish) -> Result<u64, UpError> {
        wish(self.controller, Actor::System, it).await
    }

    async fn make(&mut self) -> Result<(), UpError> {
        for (name, cpu_milli, memory_mib) in
            [("small", 500, 256), ("medium", 1000, 1024), ("large", 2000, 4096)]
        {
            let demand = Demand {
                cpu_milli,
                memory_mib,
                ..Demand::default()
            };
            self.wish(Wish::DefineSku {
                sku: Sku {
                    name: name.into(),
                    demand,
                },
            })
            .await?;
        }
        let acme = self.tenant("acme", &[("jobs", 4), ("cpu_milli", 4000)]).await?;
        let research = self.subscriber(acme, "research").await?;
        let studio = self.subscriber(acme, "studio").await?;
        let globex = self.tenant("globex", &[("jobs", 2), ("cpu_milli", 2000)]).await?;
        let labs = self.subscriber(globex, "labs").await?;
        self.user(acme, "acme/alma", Role::Owner).await?;
        self.user(research, "acme/research/ada", Role::Member).await?;
        self.user(studio, "acme/studio/bo", Role::Member).await?;
        self.user(globex, "globex/gus", Role::Owner).await?;
        self.user(labs, "globex/labs/cleo", Role::Member).await?;
        let budget = Budget {
            period: Period::Month,
            class: None,
            sku: None,
            money_micros: Some(50_000_000),
            kind: None,
            gpu_seconds: None,
            frames: None,
            alerts_permille: Vec::new(),
        };
        self.wish(Wish::SetBudgets {
            scope: globex,
            budgets: vec![budget],
            revision: None,
        })
        .await
        .map(drop)
    }

    async fn tenant(&self, name: &str, quota: &[(&str, u64)]) -> Result<ScopeId, UpError> {
        let scope = ScopeId::Tenant(TenantId(
            self.wish(Wish::CreateTenant { name: name.into() }).await?,
        ));
        let limits = quota
            .iter()
            .map(|(meter, limit)| (meter.parse().expect("a meter"), *limit));
        self.wish(Wish::SetQuota {
            scope,
            quota: limits.collect(),
            revision: None,
        })
        .await?;
        // The demo's tenants agree to share devices with one another.
        let policy = Policy {
            share_guarded: Some(true),
            ..Policy::default()
        };
        self.wish(Wish::SetPolicy {
            scope,
            policy,
            revision: None,
        })
        .await?;
        Ok(scope)
    }

    async fn subscriber(&self, tenant: ScopeId, name: &str) -> Result<ScopeId, UpError> {
        Ok(ScopeId::Subscriber(SubscriberId(
            self.wish(Wish::CreateSubscriber {
                tenant,
                name: name.into(),
            })
            .await?,
        )))
    }

    async fn user(&mut self, parent: ScopeId, path: &str, role: Role) -> Result<(), UpError> {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let user = UserId(
            self.wish(Wish::CreateUser {
                parent,
                name,
                kind: UserKind::Person,
                identity: None,
                role: Some(role),
            })
            .await?,
        );
        let (token, digest) = new_key();
        self.wish(Wish::CreateKey {
            user,
            label: "demo".into(),
            digest,
            expires: None,
            allow: None,
        })
        .await?;
        self.demo.users.push(DemoUser {
            path: path.into(),
            role: role.as_str().into(),
            token,
        });
        Ok(())
    }
}
