//! Headers on their way through: what concerns one connection alone stays with it, and what proves the caller to
//! Tenure never reaches a replica.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use tenure_domain::id::UserId;

/// Who asked, for the replica to know; said by Tenure alone.
const USER: HeaderName = HeaderName::from_static("tenure-user");
const OURS: &str = "tenure-";
/// What a replica is called: it knows no other name of itself.
pub(super) const HOST: &str = "localhost";

/// Of one connection (RFC 9110, 7.6.1), whether `Connection` names them or not.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What proves somebody, here or at another server of ours; a cookie is the session of a page of this origin.
const CREDENTIALS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// What a replica sees of a request's headers.
pub(super) fn towards_replica(headers: &mut HeaderMap, user: UserId, request_id: &str) {
    drop_hop_by_hop(headers);
    for name in CREDENTIALS {
        headers.remove(name);
    }
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OURS))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
    // A body is taken or refused here, so nobody waits to be told to go on.
    headers.remove(header::EXPECT);
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::HOST, HOST);
    set(USER, &user.to_string());
    set(crate::http::finish::REQUEST_ID, request_id);
}

/// What the caller sees of an answer's headers. A replica speaks for its service and not for the server's origin: it
/// sets no cookies there, and a page of it may run nothing.
pub(super) fn towards_caller(headers: &mut HeaderMap) {
    drop_hop_by_hop(headers);
    for name in [
        header::SET_COOKIE,
        header::STRICT_TRANSPORT_SECURITY,
        header::CONTENT_SECURITY_POLICY,
    ] {
        headers.remove(name);
    }
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for &(name, value) in pairs {
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn credentials_and_forgeries_stay_here() {
        let mut sent = headers(&[
            ("authorization", "Bearer tnr_secret"),
            ("proxy-authorization", "Basic x"),
            ("cookie", "session=1"),
            ("tenure-user", "usr_forged"),
            ("Tenure-Command", "x"),
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("host", "tenure.example"),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
        ]);
        towards_replica(&mut sent, UserId(7), "req_1");
        let mut left: Vec<String> = sent
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        left.sort();
        let user = format!("tenure-user: {}", UserId(7));
        assert_eq!(
            left,
            [
                "accept: text/event-stream",
                "content-type: application/json",
                "host: localhost",
                &user,
                "x-request-id: req_1",
            ]
        );
    }

    #[test]
    fn an_answer_brings_neither_cookies_nor_a_policy_of_its_own() {
        let mut answer = headers(&[
            ("set-cookie", "a=b"),
            ("keep-alive", "timeout=5"),
            ("connection", "keep-alive"),
            ("content-security-policy", "default-src *"),
            ("content-type", "text/html"),
        ]);
        towards_caller(&mut answer);
        assert_eq!(answer.len(), 2);
        assert!(
            answer["content-security-policy"]
                .to_str()
                .unwrap()
                .ends_with("sandbox")
        );
    }
}
