//! Who is calling. A key is proven by its checksum, its digest and its term, on the state as committed, so a
//! revoked one stops working with the next request. What the caller may do is asked elsewhere, of `authorize`.

pub mod oidc;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use tenure_api::token;
use tenure_domain::id::{KeyId, UserId};
use tenure_domain::tenancy::authorize::authorize;
use tenure_domain::tenancy::key::{Digest, Key};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::webhook::Webhook;
use tenure_domain::{Actor, Refusal, State, Wish};

use crate::controller::{Accepted, Controller, now};
use crate::http::fail::{Answer, Fail};
use crate::http::query::check_names;
use crate::http::{Notes, Peer, Shared};
use crate::throttle::Payer;

/// A proven caller.
#[derive(Clone)]
pub(crate) struct Caller {
    pub actor: Actor,
    pub user: UserId,
    pub key: KeyId,
    pub request_id: String,
}

impl Caller {
    /// Asks the one authorization function.
    pub fn may(&self, state: &State, action: Action, scope: ScopeId) -> Result<(), Refusal> {
        authorize(&state.tree, &self.actor, action, scope, None, now())
    }

    /// For what every user may see: only that neither they nor a scope above them is suspended.
    pub fn may_look(&self, state: &State) -> Result<(), Refusal> {
        authorize(
            &state.tree,
            &Actor::user(self.user),
            Action::ScopeRead,
            ScopeId::User(self.user),
            None,
            now(),
        )
    }

    /// Whoever a webhook belongs to, as far as the key it was made with allowed.
    pub fn owner_of(webhook: &Webhook) -> Caller {
        Caller {
            actor: Actor::User {
                user: webhook.owner,
                key: None,
                allow: webhook.allow.clone(),
            },
            user: webhook.owner,
            key: KeyId(0),
            request_id: String::new(),
        }
    }

    pub async fn submit(&self, controller: &Controller, wish: Wish) -> Answer<Accepted> {
        let request_id = Some(self.request_id.clone());
        Ok(controller
            .submit(self.actor.clone(), wish, request_id, None)
            .await?)
    }

    /// Whether the key still stands, for answers that go on for long.
    pub fn stands(&self, state: &State) -> bool {
        state.keys.get(self.key).is_some_and(|key| lives(state, key)) && self.may_look(state).is_ok()
    }
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let notes = notes(parts)?;
        let proven = credential(parts)
            .and_then(|key| prove(&key, &shared.app.controller.view().read()))
            .map_err(|fail| match parts.uri.path() == FEED {
                true => fail.header(
                    header::WWW_AUTHENTICATE,
                    "Basic realm=\"tenure\", charset=\"UTF-8\"",
                ),
                false => fail,
            });
        let (actor, user, key, payer) = match proven {
            Ok(proven) => proven,
            Err(fail) => {
                shared.throttle.take(Payer::stranger(ip(parts)), Instant::now())?;
                return Err(fail);
            }
        };
        // A request is proven once.
        let _ = notes.principal.set(user.to_string());
        shared.throttle.take(payer, Instant::now())?;
        check_query(parts, &notes)?;
        Ok(Caller {
            actor,
            user,
            key,
            request_id: notes.request_id.clone(),
        })
    }
}

impl Caller {
    /// Proves a caller by a key that came otherwise than in a header, and has them pay for the request.
    pub fn by_key(shared: &Shared, key: &str, from: IpAddr, request_id: String) -> Answer<Caller> {
        let proven = prove(key, &shared.app.controller.view().read());
        let payer = proven.as_ref().map_or(Payer::stranger(from), |proven| proven.3);
        shared.throttle.take(payer, Instant::now())?;
        proven.map(|(actor, user, key, _)| Caller {
            actor,
            user,
            key,
            request_id,
        })
    }
}

/// Somebody on a route that needs no key.
pub(crate) struct Stranger {
    pub request_id: String,
}

impl FromRequestParts<Arc<Shared>> for Stranger {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let notes = notes(parts)?;
        shared.throttle.take(Payer::stranger(ip(parts)), Instant::now())?;
        check_query(parts, &notes)?;
        Ok(Stranger {
            request_id: notes.request_id.clone(),
        })
    }
}

fn notes(parts: &Parts) -> Answer<Arc<Notes>> {
    parts
        .extensions
        .get::<Arc<Notes>>()
        .cloned()
        .ok_or_else(|| Fail::internal(&"the outermost layer is missing"))
}

fn check_query(parts: &Parts, notes: &Notes) -> Answer<()> {
    if notes
        .operation
        .as_ref()
        .is_some_and(|operation| operation.any_query)
    {
        return Ok(());
    }
    let known = notes
        .operation
        .as_ref()
        .map_or(&[][..], |operation| &operation.query);
    check_names(parts.uri.query(), known)
}

fn ip(parts: &Parts) -> IpAddr {
    parts
        .extensions
        .get::<Peer>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip())
}

type Proven = (Actor, UserId, KeyId, Payer);

fn prove(key: &str, state: &State) -> Answer<Proven> {
    let key = key_of(key, state)?;
    let actor = Actor::User {
        user: key.user,
        key: Some(key.id),
        allow: key.allow.clone(),
    };
    Ok((actor, key.user, key.id, Payer::of(state, key.user)))
}

/// The key a token proves.
pub(crate) fn key_of<'a>(token: &str, state: &'a State) -> Answer<&'a Key> {
    let digest = digest_of(token)?;
    let unknown = || Fail::unauthenticated("the key is unknown, revoked or expired");
    let key = state.keys.by_digest(&digest).ok_or_else(unknown)?;
    let same: bool = key.digest.0.ct_eq(&digest.0).into();
    if !same || !lives(state, key) || state.tree.get(ScopeId::User(key.user)).is_none() {
        return Err(unknown());
    }
    Ok(key)
}

fn expired(key: &Key) -> bool {
    key.expires.is_some_and(|expires| expires <= now())
}

/// What the label of a key begins with that was made of another, whose id follows.
const DERIVED: &str = "console.";

/// The label of a console session opened with a key.
pub(crate) fn derived_label(of: KeyId) -> String {
    format!("{DERIVED}{of}")
}

pub(crate) fn is_derived(label: &str) -> bool {
    label.starts_with(DERIVED)
}

/// Not expired; nor is the key it was made of, where it was made of one.
fn lives(state: &State, key: &Key) -> bool {
    let of = key.label.strip_prefix(DERIVED).map(str::parse::<KeyId>);
    !expired(key)
        && match of {
            Some(Ok(of)) => state
                .keys
                .get(of)
                .is_some_and(|of| of.user == key.user && !expired(of)),
            Some(Err(_)) | None => true,
        }
}

/// The one route where a key may be the password of a name: calendars know nothing else, and only read there. Nowhere
/// else, for browsers send passwords by themselves, whoever's page asks them to.
const FEED: &str = "/v1/calendar.ics";

fn credential(parts: &Parts) -> Answer<Cow<'_, str>> {
    let (scheme, token) = authorization(&parts.headers)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Cow::Borrowed(token));
    }
    if scheme.eq_ignore_ascii_case("basic") && parts.uri.path() == FEED {
        let bytes = BASE64_STANDARD.decode(token).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let password = text.as_deref().and_then(|text| text.split_once(':'));
        let (_, key) =
            password.ok_or_else(|| Fail::unauthenticated("the name and password are not readable"))?;
        return Ok(Cow::Owned(key.to_owned()));
    }
    Err(Fail::unauthenticated("only Bearer authorization is known here"))
}

fn authorization(headers: &HeaderMap) -> Answer<(&str, &str)> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else {
        return Err(Fail::unauthenticated("this needs a key"));
    };
    if all.next().is_some() {
        return Err(Fail::malformed("there is more than one Authorization header").field("Authorization"));
    }
    let text = value
        .to_str()
        .map_err(|_| Fail::unauthenticated("the Authorization header is not readable"))?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    Ok((scheme, token.trim()))
}

/// The digest under which a key is known.
fn digest_of(text: &str) -> Answer<Digest> {
    let bytes = token::read(token::Kind::Key, text)
        .map_err(|bad| Fail::unauthenticated(format!("this is not a key: {bad}")))?;
    Ok(digest(&bytes))
}

/// The digest of a token's random bytes, as kept in the state.
pub(crate) fn digest(bytes: &[u8; 32]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}
