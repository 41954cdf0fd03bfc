//! Login: an ID token from the issuer, or for the console another key, becomes a key of limited life.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_api::v1::access::NewKey;
use tenure_api::v1::login::{Login, LoginView};
use tenure_domain::id::UserId;
use tenure_domain::tenancy::scope::{Identity, ScopeId};
use tenure_domain::time::HOUR_MS;
use tenure_domain::{Actor, Wish};

use super::access::{NewKeyWish, new_key};
use crate::auth::oidc::nobody;
use crate::auth::{self, Stranger};
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::{Answer, Fail};
use crate::idempotency::NotRepeatable;
use crate::openapi::{ChangeProblems, OpenProblems};

const LABEL: &str = "login";
const LIFE_MS: u64 = 12 * HOUR_MS;

/// Says where to log in; empty where only keys are taken.
#[utoipa::path(get, path = "/v1/login", tag = "access", security(()), responses((status = 200, body = LoginView), OpenProblems))]
pub(crate) async fn login_view(State(shared): State<Arc<Shared>>, _: Stranger) -> Json<LoginView> {
    let options = shared.oidc.as_ref().map(|oidc| &oidc.options);
    Json(LoginView {
        issuer: options.map(|o| o.issuer.clone()),
        client_id: options.map(|o| o.client_id.clone()),
    })
}

/// Gives a key of twelve hours for an ID token.
#[utoipa::path(post, path = "/v1/login", tag = "access", security(()), request_body = Login, responses((status = 201, body = NewKey), ChangeProblems))]
pub(crate) async fn login(
    State(shared): State<Arc<Shared>>,
    stranger: Stranger,
    _: NotRepeatable,
    body: JsonBody<Login>,
) -> Answer<(StatusCode, Json<NewKey>)> {
    let Some(oidc) = &shared.oidc else {
        return Err(nobody().hint("logins are not set up here; use a key").into());
    };
    let login = body.value;
    let identity = oidc.verify(login.id_token.reveal(), &login.nonce, now()).await?;
    let user = choose(&shared, &identity, login.user.as_deref())?;
    forget_expired(&shared, user, |label| label == LABEL).await;
    let wish = NewKeyWish {
        user,
        label: LABEL.into(),
        expires: Some(now().plus_ms(LIFE_MS)),
        allow: None,
    };
    let key = new_key(&shared, Actor::user(user), &stranger.request_id, wish).await?;
    Ok((StatusCode::CREATED, Json(key)))
}

/// Opens a session of the console with a key: one of twelve hours at most that may do what the key may, and ends with it.
pub(crate) async fn open_session(shared: &Shared, token: &str) -> Answer<NewKey> {
    let (user, wish) = {
        let state = shared.app.controller.view().read();
        let key = auth::key_of(token, &state)?;
        let latest = now().plus_ms(LIFE_MS);
        let wish = NewKeyWish {
            user: key.user,
            label: auth::derived_label(key.id),
            expires: Some(key.expires.map_or(latest, |expires| expires.min(latest))),
            allow: key.allow.clone(),
        };
        (key.user, wish)
    };
    forget_expired(shared, user, auth::is_derived).await;
    new_key(shared, Actor::user(user), "console", wish).await
}

/// The user a proven login stands for.
fn choose(shared: &Shared, identity: &Identity, wanted: Option<&str>) -> Answer<UserId> {
    let state = shared.app.controller.view().read();
    let users = state.tree.users_of_identity(identity);
    let wanted: Option<UserId> = wanted
        .map(|wanted| wanted.parse().map_err(|_| nobody()))
        .transpose()?;
    match (users, wanted) {
        (users, Some(wanted)) if users.contains(&wanted) => Ok(wanted),
        ([only], None) => Ok(*only),
        ([], _) | (_, Some(_)) => Err(nobody().into()),
        (several, None) => {
            let names: Vec<String> = several
                .iter()
                .map(|&user| format!("{user} ({})", state.tree.title(ScopeId::User(user))))
                .collect();
            Err(Fail::invalid("/user", "this login stands for several users")
                .hint(format!("say which: {}", names.join(", "))))
        }
    }
}

/// Keys of earlier logins that have run out make room for the new one.
async fn forget_expired(shared: &Shared, user: UserId, ours: fn(&str) -> bool) {
    let at = now();
    let expired: Vec<_> = {
        let state = shared.app.controller.view().read();
        let mine = state
            .keys
            .of_user(user)
            .filter(|key| ours(&key.label) && key.expires.is_some_and(|expires| expires <= at));
        mine.map(|key| key.id).collect()
    };
    for key in expired {
        // One that is gone already, or cannot be revoked now, is no reason to refuse the login.
        let _ = shared.app.controller.system(Wish::RevokeKey { key }).await;
    }
}
