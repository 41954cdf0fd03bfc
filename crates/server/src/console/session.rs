//! Sessions: a signed-in browser holds a key of twelve hours in a cookie that no script and no other site can use. The
//! state keeps its digest; a key made of another ends with it.
//!
//! Whatever changes something also brings a token made of the session's secret (`csrf`), which only our pages know.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::hmac;
use subtle::ConstantTimeEq;
use tenure_api::secret_text::SecretText;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::Console;
use super::desk::Desk;
use super::fault::Fault;
use crate::auth::Caller;
use crate::http::Peer;

/// How long a session lasts.
pub(super) const LIFE_S: u64 = 12 * 3600;

/// A signed-in reader.
pub(super) struct Session {
    pub console: Arc<Console>,
    pub caller: Caller,
    pub desk: Desk,
    pub csrf: String,
    pub theme: Theme,
    /// The path asked for.
    pub path: String,
    token: SecretText,
}

impl Session {
    pub fn new(
        console: &Arc<Console>,
        headers: &HeaderMap,
        peer: Option<Peer>,
        path: &str,
    ) -> Result<Session, Fault> {
        let token = cookie(headers, console.session_cookie()).ok_or(Fault::SignIn)?;
        let from = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
        let request_id = format!("req_{:016x}", u64::from_le_bytes(crate::keyring::random()));
        let caller = Caller::by_key(&console.shared, &token, from, request_id).map_err(|fail| match fail
            .problem
            .status
        {
            401 => Fault::SignIn,
            _ => Fault::Problem(fail.problem),
        })?;
        let token = SecretText::new(&token);
        Ok(Session {
            desk: Desk::new(console.api.clone(), token.clone(), peer),
            csrf: csrf(token.reveal()),
            theme: Theme::of(headers),
            path: path.to_owned(),
            console: console.clone(),
            caller,
            token,
        })
    }

    /// Whether pages of this kind have anything for the reader: the one authorization function answers.
    pub fn may(&self, action: Action, scope: ScopeId) -> bool {
        let state = self.console.shared.app.controller.view().read();
        self.caller.may(&state, action, scope).is_ok()
    }

    /// The scopes from the reader up to the platform.
    pub fn above(&self) -> Vec<ScopeId> {
        let state = self.console.shared.app.controller.view().read();
        state
            .tree
            .chain(ScopeId::User(self.caller.user))
            .map(|scope| scope.id)
            .collect()
    }

    /// The widest scope above the reader at which they may do this, and the places below it but for users, a few hundred
    /// at most.
    pub fn places(&self, action: Action) -> Vec<ScopeId> {
        const MOST: usize = 300;
        let state = self.console.shared.app.controller.view().read();
        let chain = state.tree.chain(ScopeId::User(self.caller.user));
        let may = chain
            .map(|scope| scope.id)
            .filter(|scope| self.caller.may(&state, action, *scope).is_ok());
        let Some(widest) = may.last() else {
            return Vec::new();
        };
        let below = state.tree.subtree(widest).into_iter();
        let places = below.filter(|scope| *scope == widest || !matches!(scope, ScopeId::User(_)));
        let mut places: Vec<ScopeId> = places.take(MOST).collect();
        // Each right below what it is in.
        places.sort_by_key(|scope| (*scope != widest, state.tree.title(*scope)));
        places
    }

    /// The tenant the reader belongs to; none for the platform's own people.
    pub fn tenant(&self) -> Option<ScopeId> {
        let state = self.console.shared.app.controller.view().read();
        state
            .tree
            .tenant_of(ScopeId::User(self.caller.user))
            .map(ScopeId::Tenant)
    }

    /// GPU classes that there are, or that have a price of their own.
    pub fn classes(&self) -> Vec<String> {
        let state = self.console.shared.app.controller.view().read();
        let there = state
            .fleet
            .nodes()
            .flat_map(|node| &node.gpus)
            .map(|gpu| &*gpu.facts.class);
        let classes: BTreeSet<&str> = there
            .chain(state.prices.classes.keys().map(|class| &**class))
            .collect();
        classes.into_iter().map(str::to_owned).collect()
    }

    /// A scope's names, the platform's own where it is that.
    pub fn title(&self, scope: ScopeId) -> String {
        let state = self.console.shared.app.controller.view().read();
        match scope {
            ScopeId::Platform => state.name.to_string(),
            scope => state.tree.title(scope),
        }
    }

    /// Who or what ids name, such as those of who caused something: people, places, keys and nodes by their names. What
    /// is nobody's, or no longer, is said as it stands.
    pub fn named(&self, ids: &str) -> String {
        let state = self.console.shared.app.controller.view().read();
        let names = ids.split_whitespace().map(|id| {
            let scope = id.parse().ok().filter(|&scope| state.tree.get(scope).is_some());
            let key = || Some(format!("key {}", state.keys.get(id.parse().ok()?)?.label));
            let node = || Some(format!("node {}", state.fleet.node(id.parse().ok()?)?.name));
            let name = scope.map(|scope| match scope {
                ScopeId::Platform => state.name.to_string(),
                scope => state.tree.title(scope),
            });
            name.or_else(key).or_else(node).unwrap_or_else(|| id.to_owned())
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// What money is counted in here.
    pub fn currency(&self) -> String {
        self.console
            .shared
            .app
            .controller
            .view()
            .read()
            .prices
            .currency
            .to_string()
    }

    pub fn token(&self) -> &SecretText {
        &self.token
    }
}

impl FromRequestParts<Arc<Console>> for Session {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Fault> {
        let peer = parts.extensions.get::<Peer>().copied();
        Session::new(console, &parts.headers, peer, parts.uri.path())
    }
}

impl Console {
    /// With TLS the browser itself sees to it that the cookie is ours.
    pub fn session_cookie(&self) -> &'static str {
        if self.tls {
            "__Host-tenure_session"
        } else {
            "tenure_session"
        }
    }

    /// A cookie for the whole console; an empty value takes it away.
    pub fn set_cookie(&self, name: &str, value: &str, life_s: u64, same_site: &str) -> HeaderValue {
        let secure = if self.tls { "; Secure" } else { "" };
        let life_s = if value.is_empty() { 0 } else { life_s };
        let text =
            format!("{name}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite={same_site}{secure}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// The value of a cookie; none where it came twice, for then one of the two is not ours.
pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut ours = pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(of, _)| *of == name);
    let value = ours.next()?.1;
    (ours.next().is_none() && !value.is_empty()).then(|| value.to_owned())
}

/// What a form of this session brings.
pub(super) fn csrf(secret: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, b"tenure console form"))
}

pub(super) fn is_csrf(secret: &str, brought: &str) -> bool {
    csrf(secret).as_bytes().ct_eq(brought.as_bytes()).into()
}

/// Whether a page of ours sent the request, as far as the browser says.
pub(super) fn is_from_here(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    if let Some(site) = site {
        return matches!(site, "same-origin" | "none");
    }
    let said = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    match (said(header::ORIGIN), said(header::HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, of)| of == host),
        (Some(_), None) => false,
    }
}

/// How pages look: as the system does, unless the reader says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    pub const COOKIE: &str = "tenure_theme";

    pub fn of(headers: &HeaderMap) -> Theme {
        cookie(headers, Theme::COOKIE).map_or(Theme::System, |text| Theme::read(&text))
    }

    pub fn read(text: &str) -> Theme {
        match text {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::System,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_cookie_is_read_once_or_not_at_all() {
        assert_eq!(
            cookie(&headers(&[("cookie", "a=1; b=2")]), "b").as_deref(),
            Some("2")
        );
        assert_eq!(cookie(&headers(&[("cookie", "b=1; b=2")]), "b"), None);
        assert_eq!(
            cookie(&headers(&[("cookie", "b=1"), ("cookie", "b=2")]), "b"),
            None
        );
        assert_eq!(cookie(&headers(&[("cookie", "ab=1; b=")]), "b"), None);
    }

    #[test]
    fn forms_of_other_sites_and_sessions_are_told_apart() {
        assert!(is_csrf("one", &csrf("one")));
        assert!(!is_csrf("one", &csrf("two")) && !is_csrf("one", ""));
        assert!(is_from_here(&headers(&[("sec-fetch-site", "same-origin")])));
        assert!(!is_from_here(&headers(&[("sec-fetch-site", "same-site")])));
        assert!(!is_from_here(&headers(&[("sec-fetch-site", "cross-site")])));
        assert!(is_from_here(&headers(&[
            ("origin", "http://here:1"),
            ("host", "here:1")
        ])));
        assert!(!is_from_here(&headers(&[
            ("origin", "http://there"),
            ("host", "here:1")
        ])));
        assert!(!is_from_here(&headers(&[("origin", "null"), ("host", "here:1")])));
    }
}
