//! Secrets by name. A value is sealed and kept in the erasable store before the event that names it, and erased
//! after the event that forgets it: what the journal names is always there.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_api::v1::page::{Page, PageQuery};
use tenure_api::v1::secret::{SecretView, SetSecret};
use tenure_domain::id::SecretId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, Wish, name};

use crate::auth::Caller;
use crate::controller::{Accepted, now};
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::keyring::random;
use crate::openapi::{ChangeProblems, ReadProblems};

const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Lists the names of a scope's secrets.
#[utoipa::path(get, path = "/v1/scopes/{scope}/secrets", tag = "secret", params(("scope" = String, Path, description = "The scope's id, or `platform`"), PageQuery),
    responses((status = 200, body = Page<SecretView>), ReadProblems))]
pub(crate) async fn secrets(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<SecretView>>> {
    let scope: ScopeId = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::ScopeRead, scope)?;
    let turn = Turn::whole(
        &shared,
        &caller,
        &format!("secrets/{scope}"),
        query.limit,
        query.cursor.as_deref(),
    )?;
    let from = turn.after.clone().unwrap_or_default();
    let here = state
        .secrets
        .range((scope, from.clone())..)
        .take_while(|((of, _), _)| *of == scope);
    let ahead = here.filter(|((_, name), _)| turn.after.is_none() || *name != from);
    let views = ahead.map(|((_, name), _)| SecretView {
        name: name.clone(),
        scope: scope.to_string(),
    });
    Ok(Json(turn.page(views, |secret| secret.name.clone())))
}

/// Stores a secret, in place of one of the same name. Its value never comes out again.
#[utoipa::path(put, path = "/v1/scopes/{scope}/secrets/{name}", tag = "secret", request_body = SetSecret,
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("name" = String, Path, description = "The secret's name")),
    responses((status = 200, body = SecretView), ChangeProblems))]
pub(crate) async fn set_secret(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<2>,
    body: JsonBody<SetSecret>,
) -> Answer<Json<SecretView>> {
    let (scope, named): (ScopeId, String) = (path.id(0)?, path.text(1).to_owned());
    let (store_path, secret) = {
        let state = shared.app.controller.view().read();
        caller.may(&state, Action::SecretWrite, scope)?;
        (state.tree.path(scope), fresh_id())
    };
    name::check(&named, "/name")?;
    let value = body.value.value.reveal();
    if value.is_empty() || value.len() > MAX_VALUE_BYTES || value.contains('\0') {
        return Err(Fail::invalid(
            "/value",
            format!("a secret has 1 to {MAX_VALUE_BYTES} bytes and no NUL"),
        ));
    }
    let journal = shared.app.controller.journal().ok_or_else(Fail::not_leader)?;
    // On a task of its own: a caller that goes away must not leave a value nobody knows of.
    let view = SecretView {
        name: named.clone(),
        scope: scope.to_string(),
    };
    let sealed = shared.app.keyring.seal(&secret.to_string(), value.as_bytes());
    let task = tokio::spawn(async move {
        journal
            .put_secret(&secret.to_string(), &store_path, sealed)
            .await?;
        match caller
            .submit(
                &shared.app.controller,
                Wish::StoreSecret {
                    scope,
                    name: named,
                    secret,
                },
            )
            .await
        {
            Ok(accepted) => {
                erase_values(&shared, &accepted).await;
                Ok(())
            }
            Err(fail) => {
                erase(&shared, secret).await;
                Err(fail)
            }
        }
    });
    task.await.unwrap_or_else(|error| Err(Fail::internal(&error)))?;
    Ok(Json(view))
}

/// Erases a secret and its value.
#[utoipa::path(delete, path = "/v1/scopes/{scope}/secrets/{name}", tag = "secret",
    params(("scope" = String, Path, description = "The scope's id, or `platform`"), ("name" = String, Path, description = "The secret's name")),
    responses((status = 204, description = "Erased"), ChangeProblems))]
pub(crate) async fn erase_secret(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<2>,
    _: NoBody,
) -> Answer<StatusCode> {
    let (scope, name) = (path.id(0)?, path.text(1).to_owned());
    let accepted = caller
        .submit(&shared.app.controller, Wish::EraseSecret { scope, name })
        .await?;
    erase_values(&shared, &accepted).await;
    Ok(StatusCode::NO_CONTENT)
}

/// An id like the controller's own, of this moment; which of its millisecond is left to chance.
pub(super) fn fresh_id() -> SecretId {
    let moment = u64::try_from(now().0).unwrap_or(0) << 22;
    SecretId(moment | u64::from(u32::from_le_bytes(random()) >> 10))
}

/// Erases the values that a durable command has forgotten.
pub(super) async fn erase_values(shared: &Arc<Shared>, accepted: &Accepted) {
    for event in &accepted.events {
        match **event {
            Event::SecretErased { secret, .. }
            | Event::WebhookRotated { old: secret, .. }
            | Event::WebhookRemoved { secret, .. } => erase(shared, secret).await,
            _ => {}
        }
    }
}

pub(super) async fn erase(shared: &Arc<Shared>, secret: SecretId) {
    let Some(journal) = shared.app.controller.journal() else {
        return;
    };
    if let Err(error) = journal.erase_secret(&secret.to_string()).await {
        tracing::error!(%error, %secret, "an erased secret's value is still in the store");
    }
}
