//! Fit: what a workload needs and which GPUs would do, asked of the view; nothing is submitted.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::fit::{AskFit, FitView};
use tenure_domain::schedule::fit::fit;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::JobSpec;

use super::job::owner_of;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::{Answer, Fail};
use crate::openapi::ChangeProblems;

/// Says what a workload needs, which GPUs would do and what they cost, and does nothing.
#[utoipa::path(post, path = "/v1/fit", tag = "job", request_body = AskFit, responses((status = 200, body = FitView), ChangeProblems))]
pub(crate) async fn fit_workload(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<AskFit>,
) -> Answer<Json<FitView>> {
    let asked = body.value;
    let owner = ScopeId::User(owner_of(&caller, asked.owner.as_deref())?);
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::JobSubmit, owner)?;
    let spec = JobSpec {
        demand: asked.demand,
        ..JobSpec::of_workload(asked.name.as_deref().unwrap_or("fit"), asked.workload)
    };
    let fit = fit(&state, owner, &spec, now()).map_err(Fail::from)?;
    Ok(Json(FitView {
        fit,
        currency: state.prices.currency.to_string(),
    }))
}
