//! Signing in and out: a key, or a login at the issuer, opens a session; the reader's theme is kept beside it.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Extension, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_api::secret_text::SecretText;
use tenure_api::v1::access::NewKey;
use tenure_api::v1::login::Login;
use tenure_domain::{Actor, Wish};

use super::Console;
use super::desk::{Desk, Said, piece};
use super::fault::{Fault, Page, go, page};
use super::form::{Fields, Posted, fields, foreign, wrong};
use super::frame::Frame;
use super::session::{LIFE_S, Session, Theme, cookie, csrf, is_csrf};
use crate::http::Peer;
use crate::keyring::random;

/// Marks a browser that is about to sign in, so that no other site can do it in its place.
const VISIT: &str = "tenure_visit";
/// What a login at the issuer was begun with.
const LOGIN: &str = "tenure_login";
const MINUTES_S: u64 = 600;

#[derive(Template)]
#[template(path = "sign-in.html")]
struct SignIn {
    frame: Frame,
    csrf: String,
    next: String,
    next_piece: String,
    issuer: Option<String>,
    said: Option<String>,
}

/// Where a reader wanted to go: a page of the console and nowhere else.
fn next_of(text: &str) -> &str {
    let ours = text == "/console" || text.starts_with("/console/") || text.starts_with("/console?");
    let leads_back = text.starts_with("/console/sign-") || text.contains(['\\', '\r', '\n']);
    if ours && !leads_back { text } else { "/console" }
}

fn query(text: Option<&str>, name: &str) -> Option<String> {
    let uri = format!("http://x/?{}", text.unwrap_or_default());
    let url = reqwest::Url::parse(&uri).ok()?;
    let mut found = url.query_pairs().filter(|(of, _)| of == name);
    found.next().map(|(_, value)| value.into_owned())
}

async fn issuer(console: &Console) -> Option<String> {
    let options = console.shared.oidc.as_ref()?;
    let url = reqwest::Url::parse(&options.options.issuer).ok()?;
    url.host_str().map(str::to_owned)
}

pub(super) async fn form(
    State(console): State<Arc<Console>>,
    RawQuery(asked): RawQuery,
    headers: HeaderMap,
) -> Page {
    let next = query(asked.as_deref(), "next").unwrap_or_default();
    ask(&console, &headers, next_of(&next), None).await
}

/// The form, with what was wrong with it before.
async fn ask(console: &Arc<Console>, headers: &HeaderMap, next: &str, said: Option<String>) -> Page {
    let visit = cookie(headers, VISIT).unwrap_or_else(token);
    let template = SignIn {
        frame: Frame::stranger(Theme::of(headers)),
        csrf: csrf(&visit),
        next: next.to_owned(),
        next_piece: piece(next),
        issuer: issuer(console).await,
        said: said.clone(),
    };
    let mut response = page(&template)?;
    if said.is_some() {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    let set = console.set_cookie(VISIT, &visit, MINUTES_S, "Strict");
    response.headers_mut().append(header::SET_COOKIE, set);
    Ok(response)
}

fn token() -> String {
    let bytes: [u8; 16] = random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) async fn sign_in(State(console): State<Arc<Console>>, request: Request<Body>) -> Page {
    let headers = request.headers().clone();
    let peer = request.extensions().get::<Peer>().copied();
    let fields = fields(request).await?;
    let visit = cookie(&headers, VISIT).unwrap_or_default();
    if visit.is_empty() || !is_csrf(&visit, fields.raw("csrf")) {
        let said = "this page was open for too long, or the browser keeps no cookies; try again";
        return ask(&console, &headers, next_of(fields.raw("next")), Some(said.into())).await;
    }
    let next = next_of(fields.raw("next")).to_owned();
    match open(&console, &fields, peer).await {
        Ok(key) => Ok(enter(&console, &key.token, &next)),
        Err(fault) => {
            let problem = fault.problem();
            let said = match problem.hint {
                Some(hint) if problem.status != 401 => format!("{}; {hint}", problem.detail),
                _ => problem.detail,
            };
            ask(&console, &headers, &next, Some(said)).await
        }
    }
}

/// A session's key, made of the one that was given.
async fn open(console: &Console, fields: &Fields, peer: Option<Peer>) -> Result<NewKey, Fault> {
    let given = fields
        .some("key")
        .ok_or_else(|| wrong("key", "a key is wanted"))?;
    // Asked as any client: a wrong key is counted, and costs the stranger who tries it.
    let desk = Desk::new(console.api.clone(), SecretText::new(given), peer);
    let _: serde_json::Value = desk.get("/v1/whoami").await?;
    let made = crate::routes::login::open_session(&console.shared, given).await;
    made.map_err(|fail| Fault::Problem(fail.problem))
}

/// Into the console with a fresh session.
fn enter(console: &Console, key: &str, next: &str) -> Response {
    let mut response = go(next);
    let session = console.set_cookie(console.session_cookie(), key, LIFE_S, "Strict");
    let visit = console.set_cookie(VISIT, "", 0, "Strict");
    response.headers_mut().append(header::SET_COOKIE, session);
    response.headers_mut().append(header::SET_COOKIE, visit);
    response
}

pub(super) async fn sign_out(posted: Posted) -> Page {
    let Session { console, caller, .. } = &posted.session;
    let wish = Wish::RevokeKey { key: caller.key };
    let request = Some(caller.request_id.clone());
    let by = Actor::user(caller.user);
    let revoked = console
        .shared
        .app
        .controller
        .submit(by, wish, request, None)
        .await;
    revoked.map_err(|not_done| Fault::Problem(crate::http::fail::Fail::from(not_done).problem))?;
    let mut response = go("/console/sign-in");
    let gone = console.set_cookie(console.session_cookie(), "", 0, "Strict");
    response.headers_mut().append(header::SET_COOKIE, gone);
    Ok(response)
}

/// Keeps how pages are to look, and goes back to where the reader was.
pub(super) async fn theme(State(console): State<Arc<Console>>, request: Request<Body>) -> Page {
    let fields = fields(request).await?;
    let theme = Theme::read(fields.text("theme"));
    let mut response = go(next_of(fields.raw("next")));
    let kept = match theme {
        Theme::System => console.set_cookie(Theme::COOKIE, "", 0, "Strict"),
        theme => console.set_cookie(Theme::COOKIE, theme.as_str(), 400 * 24 * 3600, "Strict"),
    };
    response.headers_mut().append(header::SET_COOKIE, kept);
    Ok(response)
}

/// Where the issuer sends the reader back to, as the browser knows this server.
fn back(console: &Console, headers: &HeaderMap) -> Result<String, Fault> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host
        .filter(|host| host.parse::<axum::http::uri::Authority>().is_ok())
        .ok_or_else(Fault::not_found)?;
    let scheme = if console.tls { "https" } else { "http" };
    Ok(format!("{scheme}://{host}/console/sign-in/back"))
}

/// On to the issuer, where one is set up.
pub(super) async fn to_issuer(
    State(console): State<Arc<Console>>,
    RawQuery(asked): RawQuery,
    headers: HeaderMap,
) -> Page {
    let oidc = console.shared.oidc.as_ref().ok_or_else(Fault::not_found)?;
    let next = query(asked.as_deref(), "next").unwrap_or_default();
    let (state, nonce, verifier) = (token(), token(), token() + &token());
    let place = oidc
        .begin(&back(&console, &headers)?, &state, &nonce, &verifier)
        .await;
    let place = place.map_err(|fail| Fault::Problem(fail.problem))?;
    let mut response = go(&place);
    let kept = format!("{state}.{nonce}.{verifier}.{}", piece(next_of(&next)));
    // The browser comes back from the issuer, so from another site.
    let login = console.set_cookie(LOGIN, &kept, MINUTES_S, "Lax");
    response.headers_mut().append(header::SET_COOKIE, login);
    Ok(response)
}

/// Back from the issuer with a code.
pub(super) async fn from_issuer(
    State(console): State<Arc<Console>>,
    RawQuery(asked): RawQuery,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Page {
    let kept = cookie(&headers, LOGIN).unwrap_or_default();
    let mut parts = kept.splitn(4, '.');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (state, nonce, verifier, next) = (part(), part(), part(), part());
    let next = query(Some(&format!("next={next}")), "next").unwrap_or_default();
    let asked = asked.as_deref();
    if state.is_empty() || query(asked, "state").as_deref() != Some(state.as_str()) {
        return Err(foreign());
    }
    let done = match query(asked, "code") {
        Some(code) => {
            redeem(
                &console,
                peer.map(|Extension(peer)| peer),
                &headers,
                [&code, &nonce, &verifier],
            )
            .await
        }
        None => {
            let why = query(asked, "error_description").or_else(|| query(asked, "error"));
            Err(wrong(
                "code",
                why.unwrap_or_else(|| "the issuer gave no code".into()),
            ))
        }
    };
    match done {
        // The browser sends the new cookie only where our own page leads: this one does, at once.
        Ok(key) => {
            let mut response = enter(&console, &key.token, "/console");
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(header::LOCATION);
            let refresh = format!("0; url={}", next_of(&next));
            if let Ok(refresh) = refresh.parse() {
                response.headers_mut().insert("refresh", refresh);
            }
            let gone = console.set_cookie(LOGIN, "", 0, "Lax");
            response.headers_mut().append(header::SET_COOKIE, gone);
            Ok(response.into_response())
        }
        Err(fault) => {
            let said = fault.problem();
            ask(&console, &headers, next_of(&next), Some(said.detail)).await
        }
    }
}

async fn redeem(
    console: &Console,
    peer: Option<Peer>,
    headers: &HeaderMap,
    [code, nonce, verifier]: [&str; 3],
) -> Result<NewKey, Fault> {
    let oidc = console.shared.oidc.as_ref().ok_or_else(Fault::not_found)?;
    let token = oidc.redeem(code, &back(console, headers)?, verifier).await;
    let login = Login {
        id_token: token.map_err(|fail| Fault::Problem(fail.problem))?,
        nonce: nonce.to_owned(),
        user: None,
    };
    let desk = Desk::stranger(console.api.clone(), peer);
    let made: Said<NewKey> = desk.post("/v1/login", &login).await;
    Ok(made?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_away_from_the_console() {
        for good in ["/console", "/console/jobs?show=done", "/console/fleet"] {
            assert_eq!(next_of(good), good);
        }
        for bad in [
            "",
            "//evil",
            "https://evil",
            "/consoleevil",
            "/v1/jobs",
            "/console/sign-in",
            "/console/\\evil",
        ] {
            assert_eq!(next_of(bad), "/console", "{bad}");
        }
    }
}
