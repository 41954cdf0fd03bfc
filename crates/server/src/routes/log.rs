//! Kept logs: searching them, taking them out, and how they are kept. Reading one job's log from its first byte on is
//! `routes/job/log`; collecting and erasing is `log`.

mod export;
mod query;
mod walk;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use tenure_api::v1::log::{LogKeepingView, LogPage, LogSearch};
use tenure_domain::tenancy::keeping::Keeping;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::{Scope, ScopeId};
use tenure_domain::{State as Platform, Time, Wish};

use super::limit::{changed, revision, show};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::etag::IfMatch;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems};
use query::{Form, Sought};
use walk::{Place, Walk};

/// Searches what jobs wrote, of all jobs the caller may read: by text, level, label and time, in pages; or takes it out whole.
#[utoipa::path(get, path = "/v1/logs", tag = "log", params(LogSearch),
    responses((status = 200, description = "A page; with `format` ndjson or text, lines as they are found", body = LogPage), ReadProblems))]
pub(crate) async fn search_logs(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(search): Query<LogSearch>,
) -> Answer<Response> {
    let sought = Sought::read(&shared, &caller, &search).await?;
    if sought.form != Form::Page {
        return export::export(shared, caller, sought).await;
    }
    let list = format!("logs/{}", sought.bound);
    let turn = Turn::new(&shared, &caller, &list, search.limit, search.cursor.as_deref())?;
    let from = match turn.after.as_deref() {
        None => None,
        Some(text) => Some(
            Place::read(text).ok_or_else(|| Fail::invalid("cursor", "the cursor is not one of this list"))?,
        ),
    };
    let store = &shared.app.logs;
    let newest_first = sought.newest_first;
    let erased = match &sought.tenant {
        Some(tenant) => store.erased(tenant).await?,
        None => None,
    };
    let mut walk = Walk::begin(&shared, caller.clone(), sought, from).await?;
    let found = walk.step(&shared, turn.limit).await?;
    let items = {
        let state = shared.app.controller.view().read();
        caller.may_look(&state)?;
        found.into_iter().map(|found| found.view()).collect()
    };
    let more = !walk.is_done();
    let next = walk
        .place()
        .filter(|_| more || !newest_first)
        .map(|place| turn.seal(&place.to_string()));
    let page = LogPage {
        items,
        more,
        next,
        erased_before: erased.map(|(_, last_ms)| Time(last_ms.saturating_add(1)).into()),
    };
    Ok(Json(page).into_response())
}

fn keeping_view(state: &Platform, scope: &Scope) -> LogKeepingView {
    let kept = match scope.id {
        ScopeId::Platform => state.logs_of_platform(),
        id => state.logs_of(state.tree.tenant_of(id)),
    };
    LogKeepingView {
        said: scope.keeping,
        days: kept.days,
        mib: kept.mib,
        job_mib: kept.job_mib,
        revision: scope.revision,
    }
}

/// Shows how long, and how much of, the logs of a scope's jobs are kept.
#[utoipa::path(get, path = "/v1/scopes/{scope}/log-keeping", tag = "log", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = LogKeepingView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn log_keeping(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    // What holds may change with the platform's word alone.
    let holds = |view: &LogKeepingView| serde_json::json!([view.days, view.mib, view.job_mib]);
    show(
        &shared,
        &headers,
        &caller,
        (Action::ScopeRead, path.id(0)?),
        keeping_view,
        holds,
    )
}

/// Says how logs are kept: by the platform for everybody, and by a tenant less for its own.
#[utoipa::path(put, path = "/v1/scopes/{scope}/log-keeping", tag = "log", request_body = Keeping,
    params(("scope" = String, Path, description = "A tenant's id, or `platform`"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = LogKeepingView), ChangeProblems))]
pub(crate) async fn set_log_keeping(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<Keeping>,
) -> Answer<Response> {
    let scope = path.id(0)?;
    let wish = Wish::SetLogKeeping {
        scope,
        keeping: body.value,
        revision: revision(&shared, &condition, scope),
    };
    caller.submit(&shared.app.controller, wish).await?;
    changed(&shared, scope, keeping_view)
}
