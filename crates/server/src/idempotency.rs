//! Idempotency-Key: a creation that is said twice happens once, and the second caller gets the first answer.
//! The outcome is written in the same transaction as the events; what is under way is known here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tenure_domain::{Event, State, Wish};

use crate::auth::Caller;
use crate::controller::{Accepted, Keyed};
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};

const KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What a request may be repeated under; absent where the caller gave no key.
pub(crate) struct RepeatKey {
    key: Option<String>,
    /// The operation, so that a key used on another one is told apart.
    place: String,
}

impl FromRequestParts<Arc<Shared>> for RepeatKey {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Answer<Self> {
        Ok(RepeatKey {
            key: read(&parts.headers)?,
            place: format!("{} {}", parts.method, parts.uri.path()),
        })
    }
}

/// For routes whose answer holds a secret: it cannot be kept to be told again.
pub(crate) struct NotRepeatable;

impl FromRequestParts<Arc<Shared>> for NotRepeatable {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Answer<Self> {
        match parts.headers.get(KEY) {
            None => Ok(NotRepeatable),
            Some(_) => Err(Fail::invalid(
                "Idempotency-Key",
                "the answer holds a secret that is shown once, so it cannot be repeated",
            )
            .hint("leave the header out; revoke what you do not need")),
        }
    }
}

fn read(headers: &HeaderMap) -> Answer<Option<String>> {
    let mut all = headers.get_all(KEY).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let visible =
        |key: &&str| (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    match value.to_str().ok().filter(visible) {
        Some(key) if all.next().is_none() => Ok(Some(key.to_owned())),
        _ => Err(Fail::invalid(
            "Idempotency-Key",
            "the key is 1 to 255 visible ASCII characters, given once",
        )),
    }
}

type Name = (String, String);

/// Keyed requests under way, with the digest of what each asked for.
#[derive(Default)]
pub(crate) struct InFlight {
    requests: Mutex<HashMap<Name, [u8; 32]>>,
}

/// Holds a key's place until dropped.
struct Place {
    shared: Arc<Shared>,
    name: Name,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared
            .in_flight
            .requests
            .lock()
            .expect("short and without panics")
            .remove(&self.name);
    }
}

fn take_place(shared: &Arc<Shared>, name: &Name, digest: [u8; 32]) -> Answer<Place> {
    let mut requests = shared
        .in_flight
        .requests
        .lock()
        .expect("short and without panics");
    match requests.get(name) {
        Some(other) if *other != digest => Err(reused()),
        Some(_) => Err(Fail::new(
            409,
            "idempotency_in_flight",
            "the first request with this key is still under way",
        )
        .hint("wait a moment and repeat it")
        .header(header::RETRY_AFTER, "1")),
        None => {
            requests.insert(name.clone(), digest);
            Ok(Place {
                shared: shared.clone(),
                name: name.clone(),
            })
        }
    }
}

fn reused() -> Fail {
    Fail::new(
        422,
        "idempotency_key_reused",
        "the key was used for another request before",
    )
    .field("Idempotency-Key")
    .hint("use a new key for each request that is not a repetition")
}

/// How an answer is written from the state right after the command: where what was made is found, and its view.
pub(crate) type Render = fn(&State, &Accepted) -> Option<(String, String)>;

/// Makes something: 201 with its view, once for each key.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    caller: &Caller,
    repeat: RepeatKey,
    body: &[u8],
    wish: Wish,
    render: Render,
) -> Answer<Response> {
    answer(shared, caller, repeat, body, wish, (201, render)).await
}

/// Changes something by an amount: 200 with its view, once for each key.
pub(crate) async fn change(
    shared: &Arc<Shared>,
    caller: &Caller,
    repeat: RepeatKey,
    body: &[u8],
    wish: Wish,
    render: Render,
) -> Answer<Response> {
    answer(shared, caller, repeat, body, wish, (200, render)).await
}

async fn answer(
    shared: &Arc<Shared>,
    caller: &Caller,
    repeat: RepeatKey,
    body: &[u8],
    wish: Wish,
    (status, render): (u16, Render),
) -> Answer<Response> {
    let Some(key) = repeat.key else {
        let accepted = caller.submit(&shared.app.controller, wish).await?;
        let made = render(&shared.app.controller.view().read(), &accepted);
        let (location, view) = match made {
            Some(made) => made,
            None => ended_already(shared, &accepted).await?,
        };
        return Ok(answered(status, Some(&location), view));
    };
    let mut hasher = Sha256::new();
    hasher.update(repeat.place.as_bytes());
    hasher.update([0]);
    hasher.update(body);
    let (name, digest) = ((caller.user.to_string(), key), hasher.finalize().into());
    let place = take_place(shared, &name, digest)?;
    // On a task of its own: a caller that goes away must not give the key's place away before the command is done.
    let (shared, caller) = (shared.clone(), caller.clone());
    let task = tokio::spawn(async move {
        let answer = answer_once(&shared, &caller, &name, digest, wish, (status, render)).await;
        drop(place);
        answer
    });
    task.await.unwrap_or_else(|error| Err(Fail::internal(&error)))
}

async fn answer_once(
    shared: &Arc<Shared>,
    caller: &Caller,
    (principal, key): &Name,
    digest: [u8; 32],
    wish: Wish,
    (status, render): (u16, Render),
) -> Answer<Response> {
    let controller = &shared.app.controller;
    let journal = controller.journal().ok_or_else(Fail::not_leader)?;
    if let Some(known) = journal.find_key(principal, key).await? {
        if known.digest != digest {
            return Err(reused());
        }
        let mut response = answered(known.status, None, known.reply);
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
        return Ok(response);
    }
    let rendered = Arc::new(Mutex::new(None));
    let keep = rendered.clone();
    let keyed = Keyed {
        principal: principal.clone(),
        key: key.clone(),
        digest,
        render: Box::new(move |state, accepted| {
            let (location, view) = render(state, accepted).unwrap_or_default();
            *keep.lock().expect("short and without panics") = Some((location, view.clone()));
            (status, view)
        }),
    };
    controller
        .submit(
            caller.actor.clone(),
            wish,
            Some(caller.request_id.clone()),
            Some(keyed),
        )
        .await?;
    let made = rendered.lock().expect("short and without panics").take();
    let (location, view) = made.ok_or_else(|| Fail::internal(&"an answer was not rendered"))?;
    Ok(answered(status, Some(&location), view))
}

/// A job may have run and ended before its answer was written.
async fn ended_already(shared: &Shared, accepted: &Accepted) -> Answer<(String, String)> {
    let job = accepted.events.iter().find_map(|event| match **event {
        Event::JobSubmitted { job, .. } => Some(job),
        _ => None,
    });
    let view = crate::routes::job::shown(shared, job.ok_or_else(Fail::not_found)?).await?;
    let json = serde_json::to_string(&view).map_err(|error| Fail::internal(&error))?;
    Ok((format!("/v1/jobs/{}", view.id), json))
}

fn answered(status: u16, location: Option<&str>, view: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::CREATED);
    let mut response = (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        Body::from(view),
    )
        .into_response();
    // What was changed is where it was.
    let location = location.filter(|location| !location.is_empty());
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
