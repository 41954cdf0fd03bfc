//! Webhooks: making, showing, pausing and removing them, other keys, and a test. URL and key are sealed into the erasable
//! store before the event that names their place, and erased after the event that forgets it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_api::v1::page::Page;
use tenure_api::v1::webhook::{
    CreateWebhook, DeliveryView, FailingView, NewWebhook, PingView, ResumeWebhook, RotateWebhook,
    WebhookQuery, WebhookStanding, WebhookView,
};
use tenure_domain::id::{SecretId, WebhookId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::webhook::{Standing, Webhook};
use tenure_domain::{Code, Event, Refusal, State as Platform, Wish};
use tokio::time::Instant;

use super::scope::id_in;
use super::secret::{erase, erase_values, fresh_id};
use crate::auth::Caller;
use crate::controller::{Accepted, now};
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::NotRepeatable;
use crate::openapi::{ChangeProblems, ReadProblems};
use crate::webhook::{DAY_S, Kept, Mark, Message, WEEK_S, origin};

fn view(state: &Platform, webhook: &Webhook, mark: Option<&Mark>, head: u64) -> WebhookView {
    let unknown = Mark::default();
    let mark = mark.unwrap_or(&unknown);
    let failing = mark.failing_as(webhook);
    let (standing, why) = match &webhook.standing {
        Standing::Active if failing.is_some() => (WebhookStanding::Retrying, None),
        Standing::Active => (WebhookStanding::Active, None),
        Standing::Paused => (WebhookStanding::Paused, None),
        Standing::Failed { why, .. } => (WebhookStanding::Failed, Some(why.clone())),
    };
    let done = mark.done_of(webhook);
    WebhookView {
        id: webhook.id,
        scope: webhook.scope.to_string(),
        scope_path: state.tree.title(webhook.scope),
        name: webhook.name.clone(),
        owner: webhook.owner,
        owner_path: state.tree.title(ScopeId::User(webhook.owner)),
        origin: webhook.origin.clone(),
        kinds: webhook.kinds.clone(),
        created: webhook.created.into(),
        standing,
        why,
        delivery: DeliveryView {
            delivered: mark.delivered,
            last_success: mark.last_success.map(Into::into),
            done,
            behind: head.saturating_sub(done),
            failing: failing.map(|failing| FailingView {
                event: failing.event,
                since: failing.since.into(),
                tries: failing.tries,
                next_try: failing.next.into(),
                why: failing.why.clone(),
            }),
        },
        revision: webhook.revision,
    }
}

/// A webhook the caller may manage.
fn found(shared: &Shared, caller: &Caller, id: WebhookId) -> Answer<Webhook> {
    let state = shared.app.controller.view().read();
    let webhook = state.webhooks.get(id).ok_or_else(Refusal::not_found)?;
    caller.may(&state, Action::WebhookManage, webhook.scope)?;
    Ok(webhook.clone())
}

/// The webhook as it is after a change.
async fn shown(shared: &Shared, id: WebhookId) -> Answer<WebhookView> {
    let marks = shared.webhooks.marks().await?;
    let view_of = shared.app.controller.view();
    let (head, state) = (view_of.seq(), view_of.read());
    let webhook = state.webhooks.get(id).ok_or_else(Refusal::not_found)?;
    Ok(view(&state, webhook, marks.get(&id), head))
}

async fn changed(shared: &Shared, caller: &Caller, id: WebhookId, wish: Wish) -> Answer<Json<WebhookView>> {
    caller.submit(&shared.app.controller, wish).await?;
    shared.webhooks.poke();
    Ok(Json(shown(shared, id).await?))
}

/// Puts URL and key away, has the event written that names their place, and erases what that forgot. On a task of its
/// own: a caller that goes away must not leave behind what nobody knows of.
async fn keep_and_submit(
    shared: &Arc<Shared>,
    caller: Caller,
    scope: ScopeId,
    (secret, kept): (SecretId, &Kept),
    wish: Wish,
) -> Answer<Accepted> {
    let controller = &shared.app.controller;
    let journal = controller.journal().ok_or_else(Fail::not_leader)?;
    let sealed = kept.sealed(&shared.app.keyring, secret);
    let store_path = controller.view().read().tree.path(scope);
    let shared = shared.clone();
    let task = tokio::spawn(async move {
        journal
            .put_secret(&secret.to_string(), &store_path, sealed)
            .await?;
        match caller.submit(&shared.app.controller, wish).await {
            Ok(accepted) => {
                erase_values(&shared, &accepted).await;
                shared.webhooks.poke();
                Ok(accepted)
            }
            Err(fail) => {
                erase(&shared, secret).await;
                Err(fail)
            }
        }
    });
    task.await.unwrap_or_else(|error| Err(Fail::internal(&error)))
}

/// Has a receiver told what happens at a scope and below, as far as the caller may see it on the event stream. The answer
/// holds the key that messages are signed with, this once.
#[utoipa::path(post, path = "/v1/webhooks", tag = "webhook", request_body = CreateWebhook,
    responses((status = 201, body = NewWebhook), ChangeProblems))]
pub(crate) async fn create_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    _: NotRepeatable,
    body: JsonBody<CreateWebhook>,
) -> Answer<Response> {
    let CreateWebhook {
        scope,
        name,
        url,
        kinds,
    } = body.value;
    let scope = id_in(&scope, "/scope", "a scope")?;
    let after = {
        let view = shared.app.controller.view();
        caller.may(&view.read(), Action::WebhookManage, scope)?;
        view.seq()
    };
    let read = shared.webhooks.post.check(url.reveal());
    let read = read.map_err(|why| {
        Fail::invalid("/url", why)
            .hint("a receiver has a public address; others are for the operator to list")
    })?;
    let (kept, shown_once) = Kept::new(url);
    let secret = fresh_id();
    let wish = Wish::CreateWebhook {
        scope,
        name,
        origin: origin(&read),
        kinds,
        secret,
        after,
    };
    let accepted = keep_and_submit(&shared, caller, scope, (secret, &kept), wish).await?;
    let made = accepted.events.iter().find_map(|event| match &**event {
        Event::WebhookCreated { webhook } => Some(webhook.id),
        _ => None,
    });
    let id = made.ok_or_else(|| Fail::internal(&"no webhook was made"))?;
    let made = NewWebhook {
        webhook: shown(&shared, id).await?,
        secret: shown_once,
    };
    let location = [(axum::http::header::LOCATION, format!("/v1/webhooks/{id}"))];
    Ok((StatusCode::CREATED, location, Json(made)).into_response())
}

/// Lists webhooks in the order they were made, and how far each has come.
#[utoipa::path(get, path = "/v1/webhooks", tag = "webhook", params(WebhookQuery), responses((status = 200, body = Page<WebhookView>), ReadProblems))]
pub(crate) async fn webhooks(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<WebhookQuery>,
) -> Answer<Json<Page<WebhookView>>> {
    let marks = shared.webhooks.marks().await?;
    let view_of = shared.app.controller.view();
    let (head, state) = (view_of.seq(), view_of.read());
    let within: Option<ScopeId> = match &query.scope {
        // As in a path: what cannot be an id is as absent as what nobody has.
        Some(scope) => Some(scope.parse().map_err(|_| Fail::not_found())?),
        None => None,
    };
    match within {
        Some(scope) => caller.may(&state, Action::WebhookManage, scope)?,
        None => caller.may_look(&state)?,
    }
    let list = format!("webhooks/{}", query.scope.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<WebhookId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let views = state
        .webhooks
        .iter()
        .filter(|webhook| after.is_none_or(|after| webhook.id > after))
        .filter(|webhook| within.is_none_or(|scope| state.tree.is_within(webhook.scope, scope)))
        .filter(|webhook| caller.may(&state, Action::WebhookManage, webhook.scope).is_ok())
        .map(|webhook| view(&state, webhook, marks.get(&webhook.id), head));
    Ok(Json(turn.page(views, |webhook| webhook.id.to_string())))
}

/// Shows a webhook and how far it has come.
#[utoipa::path(get, path = "/v1/webhooks/{webhook}", tag = "webhook", params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 200, body = WebhookView), ReadProblems))]
pub(crate) async fn webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<WebhookView>> {
    let webhook = found(&shared, &caller, path.id(0)?)?;
    Ok(Json(shown(&shared, webhook.id).await?))
}

/// Sends nothing more until it is resumed; what happens meanwhile is told then.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/pause", tag = "webhook", params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 200, body = WebhookView), ChangeProblems))]
pub(crate) async fn pause_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<WebhookView>> {
    let id = path.id(0)?;
    changed(&shared, &caller, id, Wish::PauseWebhook { webhook: id }).await
}

/// Goes on where it was paused or failed, or with what happens from now on.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/resume", tag = "webhook", request_body = ResumeWebhook,
    params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 200, body = WebhookView), ChangeProblems))]
pub(crate) async fn resume_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<ResumeWebhook>,
) -> Answer<Json<WebhookView>> {
    let id = path.id(0)?;
    let head = shared.app.controller.view().seq();
    let wish = Wish::ResumeWebhook {
        webhook: id,
        after: body.value.skip.then_some(head),
    };
    changed(&shared, &caller, id, wish).await
}

/// Signs with another key from now on, and with the old one too for a while. The answer holds the new one, this once.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/rotate", tag = "webhook", request_body = RotateWebhook,
    params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 200, body = NewWebhook), ChangeProblems))]
pub(crate) async fn rotate_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NotRepeatable,
    body: JsonBody<RotateWebhook>,
) -> Answer<Json<NewWebhook>> {
    let webhook = found(&shared, &caller, path.id(0)?)?;
    let keep_old_s = body.value.keep_old_s.unwrap_or(DAY_S);
    if keep_old_s > WEEK_S {
        let sentence = format!("an old key signs for {WEEK_S} seconds at most");
        return Err(Fail::invalid("/keep_old_s", sentence));
    }
    let old = webhook.secret;
    let (kept, shown_once) = {
        let now = now();
        kept_of(&shared, &webhook)
            .await?
            .rotated(now, now.plus_ms(keep_old_s * 1000))
    };
    let secret = fresh_id();
    let wish = Wish::RotateWebhook {
        webhook: webhook.id,
        old,
        secret,
    };
    keep_and_submit(&shared, caller, webhook.scope, (secret, &kept), wish).await?;
    Ok(Json(NewWebhook {
        webhook: shown(&shared, webhook.id).await?,
        secret: shown_once,
    }))
}

async fn kept_of(shared: &Shared, webhook: &Webhook) -> Answer<Kept> {
    let reader = shared.app.controller.reader();
    let kept = Kept::find(&shared.app.keyring, reader, webhook.secret).await;
    let kept = kept.map_err(|error| Fail::internal(&error))?;
    Ok(kept.ok_or_else(|| {
        Refusal::new(
            Code::WrongPhase,
            "its URL and key are not in this platform's store",
        )
        .hint("backups leave them out; remove the webhook and make it anew")
    })?)
}

/// Sends a test now, whatever waits, and says what became of it.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/ping", tag = "webhook", params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 200, body = PingView), ChangeProblems))]
pub(crate) async fn ping_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<PingView>> {
    let webhook = found(&shared, &caller, path.id(0)?)?;
    if !shared.app.controller.is_leading() {
        return Err(Fail::not_leader());
    }
    let kept = kept_of(&shared, &webhook).await?;
    let platform = shared.app.controller.reader().platform();
    let message = Message::ping(webhook.id, platform, now());
    let begun = Instant::now();
    let said = shared.webhooks.send(&webhook, &kept, &message).await;
    Ok(Json(PingView {
        taken: said.is_taken(),
        status: said.status(),
        why: (!said.is_taken()).then(|| said.why()),
        took_ms: begun.elapsed().as_millis() as u64,
    }))
}

/// Removes a webhook, with its URL and key. Its receiver is told nothing more.
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", tag = "webhook", params(("webhook" = String, Path, description = "The webhook's id")),
    responses((status = 204, description = "Removed"), ChangeProblems))]
pub(crate) async fn remove_webhook(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let wish = Wish::RemoveWebhook { webhook: path.id(0)? };
    let accepted = caller.submit(&shared.app.controller, wish).await?;
    shared.webhooks.poke();
    erase_values(&shared, &accepted).await;
    Ok(StatusCode::NO_CONTENT)
}
