//! Keys, roles, and who one is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_api::token;
use tenure_api::v1::access::{CreateKey, GrantRole, GrantView, KeyView, NewKey, WhoAmI};
use tenure_api::v1::page::{Page, PageQuery};
use tenure_domain::id::{KeyId, UserId};
use tenure_domain::tenancy::key::Key;
use tenure_domain::tenancy::role::{Action, Role};
use tenure_domain::tenancy::scope::{Scope, ScopeId};
use tenure_domain::{Actor, Event, State as Platform, Time, Wish};

use super::scope::id_in;
use crate::auth::{Caller, digest};
use crate::controller::Accepted;
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::NotRepeatable;
use crate::keyring::random;
use crate::openapi::{ChangeProblems, ReadProblems};

fn key_view(key: &Key) -> KeyView {
    KeyView {
        id: key.id,
        user: key.user,
        label: key.label.to_string(),
        created: key.created.into(),
        expires: key.expires.map(Into::into),
        allow: key.allow.clone(),
    }
}

fn grants_at<'a>(state: &'a Platform, scope: &'a Scope) -> impl Iterator<Item = GrantView> + 'a {
    scope.roles.iter().flat_map(move |(&user, roles)| {
        let user_path = state.tree.title(ScopeId::User(user));
        roles.iter().map(move |&role| GrantView {
            scope: scope.id,
            scope_path: state.tree.title(scope.id),
            user,
            user_path: user_path.clone(),
            role,
        })
    })
}

/// Says who the caller is and which roles they hold.
#[utoipa::path(get, path = "/v1/whoami", tag = "access", responses((status = 200, body = WhoAmI), ReadProblems))]
pub(crate) async fn whoami(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<Json<WhoAmI>> {
    let seq = shared.app.controller.view().seq();
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let me = state.tree.find(ScopeId::User(caller.user))?;
    // A tenant's user holds roles only inside its tenant.
    let reach = state
        .tree
        .tenant_of(me.id)
        .map_or(ScopeId::Platform, ScopeId::Tenant);
    let places = state
        .tree
        .subtree(reach)
        .into_iter()
        .filter_map(|id| state.tree.get(id));
    let held = places.filter(|scope| scope.roles.contains_key(&caller.user));
    let grants = held
        .flat_map(|scope| grants_at(&state, scope))
        .filter(|grant| grant.user == caller.user);
    Ok(Json(WhoAmI {
        user: super::scope::view(&state, me),
        grants: grants.collect(),
        platform: state.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        seq,
    }))
}

/// Lists a user's keys, without their secrets.
#[utoipa::path(get, path = "/v1/users/{user}/keys", tag = "access", params(("user" = String, Path, description = "The user's id"), PageQuery),
    responses((status = 200, body = Page<KeyView>), ReadProblems))]
pub(crate) async fn keys(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<KeyView>>> {
    let user: UserId = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::KeyManage, ScopeId::User(user))?;
    let turn = Turn::whole(
        &shared,
        &caller,
        &format!("keys/{user}"),
        query.limit,
        query.cursor.as_deref(),
    )?;
    let after = turn.after.as_deref();
    let ahead = state
        .keys
        .of_user(user)
        .filter(|key| after.is_none_or(|after| key.id.to_string().as_str() > after));
    Ok(Json(turn.page(ahead.map(key_view), |key| key.id.to_string())))
}

/// Makes a key and gives what shows it; the token is shown this once.
pub(super) async fn new_key(
    shared: &Shared,
    by: Actor,
    request_id: &str,
    wish: NewKeyWish,
) -> Answer<NewKey> {
    let bytes: [u8; 32] = random();
    let NewKeyWish {
        user,
        label,
        expires,
        allow,
    } = wish;
    let wish = Wish::CreateKey {
        user,
        label,
        digest: digest(&bytes),
        expires,
        allow,
    };
    let accepted = shared
        .app
        .controller
        .submit(by, wish, Some(request_id.to_owned()), None)
        .await?;
    let key = key_made(&accepted).ok_or_else(|| Fail::internal(&"no key was made"))?;
    Ok(NewKey {
        key,
        token: token::write(token::Kind::Key, &bytes).reveal().to_owned(),
    })
}

pub(super) struct NewKeyWish {
    pub user: UserId,
    pub label: String,
    pub expires: Option<Time>,
    pub allow: Option<std::collections::BTreeSet<Action>>,
}

fn key_made(accepted: &Accepted) -> Option<KeyView> {
    accepted.events.iter().find_map(|event| match &**event {
        Event::KeyCreated { key } => Some(key_view(key)),
        _ => None,
    })
}

/// Makes a key for a user. The token is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/users/{user}/keys", tag = "access", request_body = CreateKey, params(("user" = String, Path, description = "The user's id")),
    responses((status = 201, body = NewKey), ChangeProblems))]
pub(crate) async fn create_key(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NotRepeatable,
    body: JsonBody<CreateKey>,
) -> Answer<(StatusCode, Json<NewKey>)> {
    let CreateKey {
        label,
        expires,
        allow,
    } = body.value;
    let wish = NewKeyWish {
        user: path.id(0)?,
        label,
        expires: expires.map(|moment| moment.0),
        allow,
    };
    let key = new_key(&shared, caller.actor.clone(), &caller.request_id, wish).await?;
    Ok((StatusCode::CREATED, Json(key)))
}

/// Revokes a key: the next request with it is refused.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "access", params(("key" = String, Path, description = "The key's id")),
    responses((status = 204, description = "Revoked"), ChangeProblems))]
pub(crate) async fn revoke_key(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let key: KeyId = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::RevokeKey { key })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists who holds which role at a scope.
#[utoipa::path(get, path = "/v1/scopes/{scope}/roles", tag = "access", params(("scope" = String, Path, description = "The scope's id, or `platform`"), PageQuery),
    responses((status = 200, body = Page<GrantView>), ReadProblems))]
pub(crate) async fn roles(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<GrantView>>> {
    let id: ScopeId = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::ScopeRead, id)?;
    let turn = Turn::whole(
        &shared,
        &caller,
        &format!("roles/{id}"),
        query.limit,
        query.cursor.as_deref(),
    )?;
    let place = |grant: &GrantView| format!("{} {}", grant.user, grant.role as u8);
    let after = turn.after.as_deref();
    let ahead = grants_at(&state, state.tree.find(id)?)
        .filter(|grant| after.is_none_or(|after| place(grant).as_str() > after));
    Ok(Json(turn.page(ahead, place)))
}

/// Grants a role at a scope.
#[utoipa::path(post, path = "/v1/scopes/{scope}/roles", tag = "access", request_body = GrantRole, params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 201, body = GrantView), ChangeProblems))]
pub(crate) async fn grant_role(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<GrantRole>,
) -> Answer<(StatusCode, Json<GrantView>)> {
    let scope = path.id(0)?;
    let (user, role) = (id_in(&body.value.user, "/user", "a user")?, body.value.role);
    caller
        .submit(&shared.app.controller, Wish::GrantRole { scope, user, role })
        .await?;
    let state = shared.app.controller.view().read();
    let (scope_path, user_path) = (state.tree.title(scope), state.tree.title(ScopeId::User(user)));
    Ok((
        StatusCode::CREATED,
        Json(GrantView {
            scope,
            scope_path,
            user,
            user_path,
            role,
        }),
    ))
}

/// Takes a role away.
#[utoipa::path(delete, path = "/v1/scopes/{scope}/roles/{user}/{role}", tag = "access",
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("user" = String, Path, description = "The user's id"), ("role" = String, Path, description = "The role's name")),
    responses((status = 204, description = "Taken away"), ChangeProblems))]
pub(crate) async fn revoke_role(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<3>,
    _: NoBody,
) -> Answer<StatusCode> {
    let (scope, user, role): (ScopeId, UserId, Role) = (path.id(0)?, path.id(1)?, path.id(2)?);
    caller
        .submit(&shared.app.controller, Wish::RevokeRole { scope, user, role })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
