//! Tenants, subscribers and users.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tenure_api::v1::page::{Page, PageQuery};
use tenure_api::v1::scope::{CreateSubscriber, CreateTenant, CreateUser, MoveScope, ScopeView, SetIdentity};
use tenure_domain::id::UserId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::{Scope, ScopeId};
use tenure_domain::{Event, State as Platform, Wish};

use crate::auth::Caller;
use crate::controller::Accepted;
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::etag::tagged;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::{ChangeProblems, ReadProblems};

pub(super) fn view(state: &Platform, scope: &Scope) -> ScopeView {
    ScopeView {
        id: scope.id,
        level: scope.id.level(),
        parent: scope.parent,
        name: scope.name.to_string(),
        path: state.tree.title(scope.id),
        created: scope.created.into(),
        suspended: scope.suspended,
        revision: scope.revision,
        kind: scope.user.as_ref().map(|user| user.kind),
        identity: scope.user.as_ref().and_then(|user| user.identity.clone()),
    }
}

/// An id in a body, by the pointer of its field.
pub(super) fn id_in<T: std::str::FromStr>(text: &str, field: &str, what: &str) -> Answer<T> {
    text.parse()
        .map_err(|_| Fail::invalid(field, format!("this is not the id of {what}")))
}

/// Shows a scope after a change.
fn shown(shared: &Shared, scope: ScopeId) -> Answer<Json<ScopeView>> {
    let state = shared.app.controller.view().read();
    Ok(Json(view(&state, state.tree.find(scope)?)))
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let made = accepted.events.iter().find_map(|event| match **event {
        Event::ScopeCreated { scope, .. } => Some(scope),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, state.tree.get(made)?)).ok()?;
    Some((format!("/v1/scopes/{made}"), json))
}

/// Creates a tenant.
#[utoipa::path(post, path = "/v1/tenants", tag = "scope", request_body = CreateTenant,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = ScopeView), ChangeProblems))]
pub(crate) async fn create_tenant(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<CreateTenant>,
) -> Answer<Response> {
    let wish = Wish::CreateTenant {
        name: body.value.name,
    };
    create(&shared, &caller, repeat, &body.bytes, wish, render).await
}

/// Creates a subscriber of a tenant.
#[utoipa::path(post, path = "/v1/subscribers", tag = "scope", request_body = CreateSubscriber,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = ScopeView), ChangeProblems))]
pub(crate) async fn create_subscriber(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<CreateSubscriber>,
) -> Answer<Response> {
    let tenant = id_in(&body.value.tenant, "/tenant", "a tenant")?;
    let wish = Wish::CreateSubscriber {
        tenant,
        name: body.value.name,
    };
    create(&shared, &caller, repeat, &body.bytes, wish, render).await
}

/// Creates a user.
#[utoipa::path(post, path = "/v1/users", tag = "scope", request_body = CreateUser,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = ScopeView), ChangeProblems))]
pub(crate) async fn create_user(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<CreateUser>,
) -> Answer<Response> {
    let CreateUser {
        parent,
        name,
        kind,
        identity,
        role,
    } = body.value;
    let parent = id_in(&parent, "/parent", "a scope")?;
    create(
        &shared,
        &caller,
        repeat,
        &body.bytes,
        Wish::CreateUser {
            parent,
            name,
            kind,
            identity,
            role,
        },
        render,
    )
    .await
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// Names from the tenant down, such as `acme/research/ada`; or `platform`.
    path: String,
}

/// Finds a scope by its names.
#[utoipa::path(get, path = "/v1/scopes", tag = "scope", params(PathQuery),
    responses((status = 200, body = ScopeView), ReadProblems))]
pub(crate) async fn scope_by_path(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<PathQuery>,
) -> Answer<Json<ScopeView>> {
    let state = shared.app.controller.view().read();
    let names = query.path.split('/').filter(|_| query.path != "platform");
    let mut place = ScopeId::Platform;
    for name in names {
        place = state.tree.child_named(place, name).ok_or_else(Fail::not_found)?;
    }
    caller.may(&state, Action::ScopeRead, place)?;
    Ok(Json(view(&state, state.tree.find(place)?)))
}

/// Shows a scope.
#[utoipa::path(get, path = "/v1/scopes/{scope}", tag = "scope", params(("scope" = String, Path, description = "`platform`, or the id of a tenant, subscriber or user")),
    responses((status = 200, body = ScopeView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn scope(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    let id = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::ScopeRead, id)?;
    let scope = state.tree.find(id)?;
    tagged(&headers, scope.revision, &(), view(&state, scope))
}

/// Lists the scopes right below a scope, by name.
#[utoipa::path(get, path = "/v1/scopes/{scope}/children", tag = "scope", params(("scope" = String, Path, description = "The scope's id, or `platform`"), PageQuery),
    responses((status = 200, body = Page<ScopeView>), ReadProblems))]
pub(crate) async fn children(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<ScopeView>>> {
    let id: ScopeId = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::ScopeRead, id)?;
    let turn = Turn::new(
        &shared,
        &caller,
        &format!("children/{id}"),
        query.limit,
        query.cursor.as_deref(),
    )?;
    let after = turn.after.as_deref();
    let ahead = state
        .tree
        .children(id)
        .filter(|child| after.is_none_or(|after| &*child.name > after));
    let seen = ahead.filter(|child| caller.may(&state, Action::ScopeRead, child.id).is_ok());
    Ok(Json(turn.page(seen.map(|child| view(&state, child)), |child| {
        child.name.clone()
    })))
}

/// Suspends a scope: nobody in it can act and nothing new starts.
#[utoipa::path(post, path = "/v1/scopes/{scope}/suspend", tag = "scope", params(("scope" = String, Path, description = "The scope's id")),
    responses((status = 200, body = ScopeView), ChangeProblems))]
pub(crate) async fn suspend(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<ScopeView>> {
    let scope = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::Suspend { scope })
        .await?;
    shown(&shared, scope)
}

/// Resumes a suspended scope.
#[utoipa::path(post, path = "/v1/scopes/{scope}/resume", tag = "scope", params(("scope" = String, Path, description = "The scope's id")),
    responses((status = 200, body = ScopeView), ChangeProblems))]
pub(crate) async fn resume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<ScopeView>> {
    let scope = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::Resume { scope })
        .await?;
    shown(&shared, scope)
}

/// Moves a scope with all below it to another parent.
#[utoipa::path(post, path = "/v1/scopes/{scope}/move", tag = "scope", request_body = MoveScope, params(("scope" = String, Path, description = "The scope's id")),
    responses((status = 200, body = ScopeView), ChangeProblems))]
pub(crate) async fn move_scope(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<MoveScope>,
) -> Answer<Json<ScopeView>> {
    let scope = path.id(0)?;
    let parent = id_in(&body.value.parent, "/parent", "a scope")?;
    caller
        .submit(&shared.app.controller, Wish::Move { scope, parent })
        .await?;
    shown(&shared, scope)
}

/// Closes a scope and everything below it; its secrets are erased.
#[utoipa::path(delete, path = "/v1/scopes/{scope}", tag = "scope", params(("scope" = String, Path, description = "The scope's id")),
    responses((status = 204, description = "Closed"), ChangeProblems))]
pub(crate) async fn close(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let scope = path.id(0)?;
    let accepted = caller
        .submit(&shared.app.controller, Wish::Close { scope })
        .await?;
    super::secret::erase_values(&shared, &accepted).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets or takes away the login that stands for a user.
#[utoipa::path(put, path = "/v1/users/{user}/identity", tag = "access", request_body = SetIdentity, params(("user" = String, Path, description = "The user's id")),
    responses((status = 200, body = ScopeView), ChangeProblems))]
pub(crate) async fn set_identity(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<SetIdentity>,
) -> Answer<Json<ScopeView>> {
    let user: UserId = path.id(0)?;
    caller
        .submit(
            &shared.app.controller,
            Wish::SetIdentity {
                user,
                identity: body.value.identity,
            },
        )
        .await?;
    shown(&shared, ScopeId::User(user))
}
