//! Conditional requests. A tag is the scope's revision in quotes, followed by a fingerprint where the answer
//! also shows what changes without it, such as use. A change needs only the revision to match.

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Shared;
use super::fail::{Answer, Fail};

/// The revisions a change accepts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// No condition, or `*`.
    Any,
    OneOf(Vec<u64>),
}

impl IfMatch {
    /// The revision to ask for, given the present one: none where any will do.
    pub fn revision(&self, present: Option<u64>) -> Option<u64> {
        match self {
            IfMatch::Any => None,
            // No tag that could match: one that no scope ever has.
            IfMatch::OneOf(list) => Some(
                present
                    .filter(|now| list.contains(now))
                    .or(list.first().copied())
                    .unwrap_or(0),
            ),
        }
    }
}

impl FromRequestParts<Arc<Shared>> for IfMatch {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Answer<Self> {
        let Some(tags) = tags(&parts.headers, header::IF_MATCH, "If-Match")? else {
            return Ok(IfMatch::Any);
        };
        if tags == ["*"] {
            return Ok(IfMatch::Any);
        }
        // A weak tag never matches a change (RFC 9110, 13.1.1); neither does one we never gave.
        let revisions = tags.iter().filter_map(|tag| {
            tag.split('.')
                .next()?
                .strip_prefix('"')?
                .trim_end_matches('"')
                .parse()
                .ok()
        });
        Ok(IfMatch::OneOf(revisions.collect()))
    }
}

/// The tags of a condition, each in its quotes.
fn tags(headers: &HeaderMap, name: HeaderName, shown: &str) -> Answer<Option<Vec<String>>> {
    let bad = || Fail::malformed("the condition is not a list of tags in quotes, or *").field(shown);
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        let text = value.to_str().map_err(|_| bad())?;
        for tag in text.split(',').map(str::trim) {
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let quoted = opaque.len() >= 2
                && opaque.starts_with('"')
                && opaque.ends_with('"')
                && !opaque[1..opaque.len() - 1].contains('"');
            if tag != "*" && !quoted {
                return Err(bad());
            }
            tags.push(tag.to_owned());
        }
    }
    if tags.len() > 1 && tags.iter().any(|tag| tag == "*") {
        return Err(bad());
    }
    Ok(if tags.is_empty() { None } else { Some(tags) })
}

/// Answers with a tag; 304 where the caller has this very answer.
pub(crate) fn tagged(
    headers: &HeaderMap,
    revision: u64,
    changing: &impl Serialize,
    view: impl Serialize,
) -> Answer<Response> {
    let changing = serde_json::to_vec(changing).unwrap_or_default();
    let tag = if changing == b"null" {
        format!("\"{revision}\"")
    } else {
        format!("\"{revision}.{}\"", fingerprint(&changing))
    };
    let known = tags(headers, header::IF_NONE_MATCH, "If-None-Match")?.unwrap_or_default();
    let same = known
        .iter()
        .any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    let mut response = if same {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(view).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

fn fingerprint(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes)[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
