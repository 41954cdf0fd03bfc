//! Quotas, budgets, policies and rules of a scope.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tenure_api::v1::limit::{
    BudgetView, BudgetsView, Over, PolicyView, QuotaView, RulesView, SetBudgets, SetQuota, SetRules,
};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::{Scope, ScopeId};
use tenure_domain::time::Period;
use tenure_domain::{State as Platform, Wish};

use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::etag::{IfMatch, tagged};
use crate::http::fail::Answer;
use crate::http::path::Segments;
use crate::openapi::{ChangeProblems, ReadProblems};

fn quota_view(scope: &Scope) -> QuotaView {
    let over = scope.over(&scope.quota).into_iter();
    QuotaView {
        limits: scope.quota.clone(),
        used: scope.used.clone(),
        over: over
            .map(|over| Over {
                meter: over.meter.to_string(),
                limit: over.limit,
                used: over.used,
            })
            .collect(),
        revision: scope.revision,
    }
}

fn budgets_view(state: &Platform, scope: &Scope) -> BudgetsView {
    let at = now();
    let view = |budget: &Budget| {
        let spend = scope.spending.at(&budget.of(), budget.period, at);
        BudgetView {
            budget: budget.clone(),
            period_start: (budget.period != Period::Total).then(|| budget.period.start(at).into()),
            spent_micros: spend.spent.money.0,
            held_micros: spend.held.money.0,
            spent_gpu_seconds: spend.spent.gpu_ms / 1000,
            held_gpu_seconds: spend.held.gpu_ms / 1000,
            spent_frames: spend.spent.frames,
            held_frames: spend.held.frames,
        }
    };
    BudgetsView {
        budgets: scope.budgets.iter().map(view).collect(),
        currency: state.prices.currency.to_string(),
        revision: scope.revision,
    }
}

fn policy_view(scope: &Scope) -> PolicyView {
    PolicyView {
        policy: scope.policy.clone(),
        revision: scope.revision,
    }
}

fn rules_view(scope: &Scope) -> RulesView {
    RulesView {
        rules: scope.rules.text().to_owned(),
        revision: scope.revision,
    }
}

/// The revision a change is for, from its condition and what stands now.
pub(super) fn revision(shared: &Shared, condition: &IfMatch, scope: ScopeId) -> Option<u64> {
    let state = shared.app.controller.view().read();
    condition.revision(state.tree.get(scope).map(|scope| scope.revision))
}

/// Shows a scope's limits with a tag, once the caller may see them.
pub(super) fn show<V: serde::Serialize>(
    shared: &Shared,
    headers: &HeaderMap,
    caller: &Caller,
    (action, scope): (Action, ScopeId),
    view: impl Fn(&Platform, &Scope) -> V,
    changing: impl Fn(&V) -> serde_json::Value,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    caller.may(&state, action, scope)?;
    let found = state.tree.find(scope)?;
    let view = view(&state, found);
    tagged(headers, found.revision, &changing(&view), view)
}

/// Shows a scope right after a change: the caller may have lost sight of it by that very change.
pub(super) fn changed<V: serde::Serialize>(
    shared: &Shared,
    scope: ScopeId,
    view: impl Fn(&Platform, &Scope) -> V,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let found = state.tree.find(scope)?;
    tagged(&HeaderMap::new(), found.revision, &(), view(&state, found))
}

fn used_of(view: &QuotaView) -> serde_json::Value {
    serde_json::json!([view.used])
}

fn spent_of(view: &BudgetsView) -> serde_json::Value {
    serde_json::json!([view.budgets])
}

/// Shows a scope's quota and what is in use of it.
#[utoipa::path(get, path = "/v1/scopes/{scope}/quota", tag = "limit", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = QuotaView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn quota(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    show(
        &shared,
        &headers,
        &caller,
        (Action::ScopeRead, path.id(0)?),
        |_, scope| quota_view(scope),
        used_of,
    )
}

/// Sets a scope's quota as a whole.
#[utoipa::path(put, path = "/v1/scopes/{scope}/quota", tag = "limit", request_body = SetQuota,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = QuotaView), ChangeProblems))]
pub(crate) async fn set_quota(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<SetQuota>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetQuota {
        scope,
        quota: body.value.limits,
        revision: revision(&shared, &condition, scope),
    };
    caller
        .submit(&shared.app.controller, wish)
        .await
        .map_err(|fail| fail.under("/limits"))?;
    changed(&shared, scope, |_, scope| quota_view(scope))
}

/// Shows a scope's budgets and what is gone of them.
#[utoipa::path(get, path = "/v1/scopes/{scope}/budgets", tag = "limit", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = BudgetsView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn budgets(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    show(
        &shared,
        &headers,
        &caller,
        (Action::CostRead, path.id(0)?),
        budgets_view,
        spent_of,
    )
}

/// Sets a scope's budgets as a whole.
#[utoipa::path(put, path = "/v1/scopes/{scope}/budgets", tag = "limit", request_body = SetBudgets,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = BudgetsView), ChangeProblems))]
pub(crate) async fn set_budgets(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<SetBudgets>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetBudgets {
        scope,
        budgets: body.value.budgets,
        revision: revision(&shared, &condition, scope),
    };
    caller
        .submit(&shared.app.controller, wish)
        .await
        .map_err(|fail| fail.under("/budgets"))?;
    changed(&shared, scope, budgets_view)
}

/// Shows a scope's policy.
#[utoipa::path(get, path = "/v1/scopes/{scope}/policy", tag = "limit", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = PolicyView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn policy(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    let plain = |_: &PolicyView| serde_json::Value::Null;
    show(
        &shared,
        &headers,
        &caller,
        (Action::ScopeRead, path.id(0)?),
        |_, scope| policy_view(scope),
        plain,
    )
}

/// Sets a scope's policy as a whole.
#[utoipa::path(put, path = "/v1/scopes/{scope}/policy", tag = "limit", request_body = Policy,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = PolicyView), ChangeProblems))]
pub(crate) async fn set_policy(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<Policy>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetPolicy {
        scope,
        policy: body.value,
        revision: revision(&shared, &condition, scope),
    };
    caller.submit(&shared.app.controller, wish).await?;
    changed(&shared, scope, |_, scope| policy_view(scope))
}

/// Shows a scope's rules.
#[utoipa::path(get, path = "/v1/scopes/{scope}/rules", tag = "limit", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = RulesView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn rules(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    let plain = |_: &RulesView| serde_json::Value::Null;
    show(
        &shared,
        &headers,
        &caller,
        (Action::ScopeRead, path.id(0)?),
        |_, scope| rules_view(scope),
        plain,
    )
}

/// Sets a scope's rules as a whole: Cedar policies that forbid.
#[utoipa::path(put, path = "/v1/scopes/{scope}/rules", tag = "limit", request_body = SetRules,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = RulesView), ChangeProblems))]
pub(crate) async fn set_rules(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<SetRules>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetRules {
        scope,
        rules: body.value.rules,
        revision: revision(&shared, &condition, scope),
    };
    caller.submit(&shared.app.controller, wish).await?;
    changed(&shared, scope, |_, scope| rules_view(scope))
}
