//! Quotas, budgets, policies and rules of a scope. Cutting below what is in use is allowed: it stops new
//! admissions, and `over` says by how much.

use crate::decide::Case;
use crate::event::Event;
use crate::kind::Kind;
use crate::meter::Amounts;
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::tenancy::budget::Budget;
use crate::tenancy::policy::Policy;
use crate::tenancy::role::Action;
use crate::tenancy::rule::{Rules, locks_out};
use crate::tenancy::scope::{Scope, ScopeId};

const MAX_LIMITS: usize = 200;
const MAX_ALERTS: usize = 10;

impl Case<'_> {
    /// Limits of a scope are set from above it, so that nobody raises their own; the platform sets its own.
    pub(super) fn may_limit(
        &self,
        action: Action,
        scope: ScopeId,
        revision: Option<u64>,
    ) -> Result<&Scope, Refusal> {
        self.may(Action::ScopeRead, scope)?;
        let place = self.state.tree.find(scope)?;
        self.may(action, place.parent.unwrap_or(scope))?;
        match revision {
            Some(read) if read != place.revision => Err(Refusal::new(
                Code::RevisionMismatch,
                "the scope was changed since you read it",
            )
            .hint("read it again and repeat the change")),
            _ => Ok(place),
        }
    }

    pub(crate) fn set_quota(
        &self,
        scope: ScopeId,
        quota: &Amounts,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let place = self.may_limit(Action::QuotaSet, scope, revision)?;
        if quota.len() > MAX_LIMITS {
            return Err(Refusal::invalid(
                "",
                format!("a quota has at most {MAX_LIMITS} meters"),
            ));
        }
        Ok(if place.quota == *quota {
            vec![]
        } else {
            vec![Event::QuotaSet {
                scope,
                quota: quota.clone(),
            }]
        })
    }

    pub(crate) fn set_budgets(
        &self,
        scope: ScopeId,
        budgets: &[Budget],
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let place = self.may_limit(Action::BudgetSet, scope, revision)?;
        if budgets.len() > MAX_LIMITS {
            return Err(Refusal::invalid(
                "",
                format!("a scope has at most {MAX_LIMITS} budgets"),
            ));
        }
        for (i, budget) in budgets.iter().enumerate() {
            budget
                .class
                .as_deref()
                .map_or(Ok(()), |class| name::check(class, "/class"))?;
            budget
                .sku
                .as_deref()
                .map_or(Ok(()), |sku| name::check(sku, "/sku"))?;
            let groups = [
                budget.class.is_some(),
                budget.sku.is_some(),
                budget.kind.is_some(),
            ];
            if groups.into_iter().filter(|given| *given).count() > 1 {
                return Err(Refusal::invalid(
                    format!("/{i}"),
                    "a budget is for one class, one SKU, one kind, or everything",
                ));
            }
            if budget.kind == Some(Kind::Batch) {
                return Err(Refusal::invalid(
                    format!("/{i}/kind"),
                    "batch is whatever says nothing of itself; limit everything instead",
                ));
            }
            if budget.money_micros.is_none() && budget.gpu_seconds.is_none() && budget.frames.is_none() {
                return Err(Refusal::invalid(
                    format!("/{i}"),
                    "a budget limits money, GPU time or frames",
                ));
            }
            let rising = budget.alerts_permille.windows(2).all(|pair| pair[0] < pair[1]);
            let shares = budget
                .alerts_permille
                .iter()
                .all(|share| (1..=1000).contains(share));
            if !rising || !shares || budget.alerts_permille.len() > MAX_ALERTS {
                return Err(Refusal::invalid(
                    format!("/{i}/alerts_permille"),
                    "at most ten shares of the limit, each from 1 to 1000 thousandths and above the one before",
                ));
            }
            if budget
                .money_micros
                .is_some_and(|money| i64::try_from(money).is_err())
            {
                return Err(Refusal::invalid(
                    format!("/{i}/money_micros"),
                    "the amount is too large",
                ));
            }
            if budgets[..i]
                .iter()
                .any(|other| other.period == budget.period && other.of() == budget.of())
            {
                return Err(Refusal::invalid(
                    format!("/{i}"),
                    "two budgets for the same period and group",
                ));
            }
        }
        Ok(if place.budgets == budgets {
            vec![]
        } else {
            vec![Event::BudgetsSet {
                scope,
                budgets: budgets.to_vec(),
            }]
        })
    }

    pub(crate) fn set_policy(
        &self,
        scope: ScopeId,
        policy: &Policy,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let place = self.may_limit(Action::PolicySet, scope, revision)?;
        policy.check()?;
        Ok(if place.policy == *policy {
            vec![]
        } else {
            vec![Event::PolicySet {
                scope,
                policy: policy.clone(),
            }]
        })
    }

    pub(crate) fn set_rules(
        &self,
        scope: ScopeId,
        rules: &str,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        let place = self.may_limit(Action::PolicySet, scope, revision)?;
        let parsed = Rules::parse(rules)?;
        if self
            .command
            .by
            .user_id()
            .is_some_and(|user| locks_out(&parsed, &self.state.tree, user, scope, self.command.at))
        {
            return Err(Refusal::new(
                Code::InvalidRule,
                "the rules would keep you from ever changing them again",
            )
            .field("/rules")
            .hint("forbid less: leave scope_read and policy_set to yourself"));
        }
        Ok(if place.rules == parsed {
            vec![]
        } else {
            vec![Event::RulesSet { scope, rules: parsed }]
        })
    }
}
