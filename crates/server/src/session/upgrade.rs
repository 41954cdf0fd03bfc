//! The request to become a WebSocket: looked at only after it is known who asks and that they may.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use tenure_api::v1::session::MAX_MESSAGE;

use crate::http::fail::{Answer, Fail};
use crate::http::{Peer, Shared};

pub(crate) struct Upgrade {
    upgrade: Option<WebSocketUpgrade>,
    same_origin: bool,
    from: String,
}

impl FromRequestParts<Arc<Shared>> for Upgrade {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let from = parts
            .extensions
            .get::<Peer>()
            .map_or_else(String::new, |peer| peer.0.ip().to_string());
        let same_origin = same_origin(&parts.headers);
        let upgrade = WebSocketUpgrade::from_request_parts(parts, shared).await.ok();
        Ok(Upgrade {
            upgrade,
            same_origin,
            from,
        })
    }
}

/// A browser says where the page is from that asks; other programs say nothing.
fn same_origin(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return true;
    };
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, host)| host);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origins.next().is_none() && origin.is_some() && origin == host
}

impl Upgrade {
    /// The address it comes from.
    pub fn from(&self) -> String {
        self.from.clone()
    }

    /// Refuses what cannot become a WebSocket, before anything is opened for it.
    pub fn check(&self) -> Answer<()> {
        if !self.same_origin {
            return Err(Fail::new(
                403,
                "not_permitted",
                "a page of another origin may not open sessions here",
            ));
        }
        if self.upgrade.is_none() {
            return Err(Fail::malformed("this route speaks WebSocket, over HTTP/1.1")
                .hint("`tenure attach`, `tenure exec` and `tenure port` do"));
        }
        Ok(())
    }

    pub fn go<F>(self, then: impl FnOnce(WebSocket) -> F + Send + 'static) -> Answer<Response>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(upgrade) = self.upgrade else {
            return Err(Fail::malformed("this route speaks WebSocket"));
        };
        Ok(upgrade
            .max_message_size(MAX_MESSAGE)
            .max_frame_size(MAX_MESSAGE)
            .on_upgrade(then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_server_ask() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let mut map = HeaderMap::new();
            for &(name, value) in pairs {
                map.append(name, value.parse().unwrap());
            }
            map
        };
        let host = ("host", "tenure.example:8443");
        assert!(same_origin(&headers(&[host])));
        assert!(same_origin(&headers(&[
            host,
            ("origin", "https://tenure.example:8443")
        ])));
        for origin in ["https://evil.example", "null", "https://tenure.example", ""] {
            assert!(!same_origin(&headers(&[host, ("origin", origin)])), "{origin}");
        }
        let own = ("origin", "https://tenure.example:8443");
        assert!(!same_origin(&headers(&[host, own, own])));
    }
}
