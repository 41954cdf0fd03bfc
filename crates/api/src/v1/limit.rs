//! Quotas, budgets, policies and rules of a scope.

use serde::{Deserialize, Serialize};
use tenure_domain::meter::Amounts;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::time::Period;
use utoipa::ToSchema;

use super::time::Moment;

/// Limits by meter: `gpu_milli`, `slices`, `vram_mib`, `cpu_milli`, `memory_mib`, `jobs`, each also `@class:NAME`
/// or `@sku:NAME`; `jobs`, `gpu_milli` and `vram_mib` also `@kind:NAME` and, of models of one size, `@kind:NAME:13b`.
/// A meter that is absent is unlimited.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuota {
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub limits: Amounts,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuotaView {
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub limits: Amounts,
    /// In use by this scope and everything below it.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub used: Amounts,
    /// Meters whose limit stands below what is in use: nothing new is admitted until use falls.
    pub over: Vec<Over>,
    pub revision: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Over {
    pub meter: String,
    pub limit: u64,
    pub used: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBudgets {
    pub budgets: Vec<Budget>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BudgetsView {
    pub budgets: Vec<BudgetView>,
    pub currency: String,
    pub revision: u64,
}

/// A budget with what is gone of it in the present period.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BudgetView {
    pub budget: Budget,
    pub period_start: Option<Moment>,
    pub spent_micros: i64,
    pub held_micros: i64,
    pub spent_gpu_seconds: u64,
    pub held_gpu_seconds: u64,
    #[serde(default)]
    pub spent_frames: u64,
    #[serde(default)]
    pub held_frames: u64,
}

impl BudgetView {
    pub fn period(&self) -> Period {
        self.budget.period
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    pub policy: Policy,
    pub revision: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRules {
    /// Cedar policies that forbid.
    #[schema(max_length = 65536)]
    pub rules: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RulesView {
    pub rules: String,
    pub revision: u64,
}
