//! The share of a scope.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tenure_api::v1::share::{ClassUse, ShareView};
use tenure_domain::schedule::order::lend::use_of;
use tenure_domain::schedule::order::share::level_of;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::Scope;
use tenure_domain::tenancy::share::Share;
use tenure_domain::{State as Platform, Wish};

use super::limit::{changed, revision, show};
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::etag::IfMatch;
use crate::http::fail::Answer;
use crate::http::path::Segments;
use crate::openapi::{ChangeProblems, ReadProblems};

fn share_view(state: &Platform, scope: &Scope) -> ShareView {
    let at = now();
    let of_class = |class: &str| {
        use_of(scope, class).map(|of| ClassUse {
            gpu_milli: of.used_milli,
            borrowed_milli: of.borrowed_milli(),
            lent_milli: of.lent_milli(),
        })
    };
    let classes = scope.share.nominal.keys();
    ShareView {
        share: scope.share.clone(),
        used: classes
            .filter_map(|class| Some((class.clone(), of_class(class)?)))
            .collect(),
        lately_gpu_seconds: scope.lately.gpu_ms(state.half_life_ms(), at) / 1000,
        over_milli: level_of(state, scope, at).over_milli().min(1_000_000),
        revision: scope.revision,
    }
}

fn use_in(view: &ShareView) -> serde_json::Value {
    serde_json::json!([view.used, view.lately_gpu_seconds, view.over_milli])
}

/// Shows a scope's weight and nominal quotas, and how it stands to them.
#[utoipa::path(get, path = "/v1/scopes/{scope}/share", tag = "limit", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = ShareView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn share(
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
        share_view,
        use_in,
    )
}

/// Sets a scope's share as a whole.
#[utoipa::path(put, path = "/v1/scopes/{scope}/share", tag = "limit", request_body = Share,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = ShareView), ChangeProblems))]
pub(crate) async fn set_share(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<Share>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetShare {
        scope,
        share: body.value,
        revision: revision(&shared, &condition, scope),
    };
    caller.submit(&shared.app.controller, wish).await?;
    changed(&shared, scope, share_view)
}
