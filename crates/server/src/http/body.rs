//! Request bodies: JSON, bounded, in time, and exactly of the shape the route wants.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::Shared;
use super::fail::{Answer, Fail};
use super::strict;

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// A body of type `T`, with the bytes it was read from.
pub(crate) struct JsonBody<T> {
    pub value: T,
    pub bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for JsonBody<T> {
    type Rejection = Fail;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Answer<Self> {
        let (parts, body) = request.into_parts();
        must_be_json(&parts.headers)?;
        let bytes = collect(&parts.headers, body, shared.app.options.body_limit_bytes).await?;
        let value = read(&bytes)?;
        Ok(JsonBody { value, bytes })
    }
}

/// For routes that take no body: an empty one, or an empty object.
pub(crate) struct NoBody;

impl FromRequest<Arc<Shared>> for NoBody {
    type Rejection = Fail;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Answer<Self> {
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body, shared.app.options.body_limit_bytes).await?;
        if bytes.is_empty() {
            return Ok(NoBody);
        }
        must_be_json(&parts.headers)?;
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        read::<Nothing>(&bytes).map(|Nothing {}| NoBody)
    }
}

fn must_be_json(headers: &HeaderMap) -> Answer<()> {
    if headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|coding| coding != "identity")
    {
        return Err(Fail::media_type("compressed bodies are not taken").field("Content-Encoding"));
    }
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (kind, more) = (kinds.next(), kinds.next());
    let kind = kind
        .and_then(|kind| kind.to_str().ok())
        .map(str::to_ascii_lowercase);
    let plain = kind
        .as_deref()
        .and_then(|kind| kind.strip_prefix("application/json"))
        .map(str::trim);
    let fine = plain.is_some_and(|rest| {
        let rest = rest.replace([' ', '"'], "");
        rest.is_empty() || rest == ";charset=utf-8"
    });
    if fine && more.is_none() {
        return Ok(());
    }
    Err(Fail::media_type("the body must be application/json").field("Content-Type"))
}

async fn collect(headers: &HeaderMap, body: Body, limit: usize) -> Answer<Bytes> {
    let too_large = || {
        Fail::new(
            413,
            "body_too_large",
            format!("the body is larger than {limit} bytes"),
        )
        .hint("send less, or in several requests")
    };
    let said = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(PATIENCE, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Fail::malformed("the body did not arrive whole")),
        Err(_) => Err(Fail::malformed(format!(
            "the body did not arrive within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    if bytes.is_empty() {
        return Err(Fail::malformed("the body is empty; JSON is wanted"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Fail::malformed("the body is not UTF-8"))?;
    let value = strict::parse(text)
        .map_err(|error| Fail::malformed(format!("the body is not JSON as wanted: {error}")))?;
    strict::from_json(&value).map_err(|fault| Fail::invalid(fault.pointer(), fault.message))
}
