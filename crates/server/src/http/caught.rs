//! The trace a request belongs to, from its `traceparent` header. What W3C Trace Context does not know is ignored, as it
//! asks: a trace is never a reason to refuse a request.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tenure_domain::workload::trace::TraceParent;

const HEADER: &str = "traceparent";

/// Where in whose trace the caller is.
pub(crate) struct Caught(pub Option<TraceParent>);

impl<S: Sync> FromRequestParts<S> for Caught {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caught, Infallible> {
        Ok(Caught(read(&parts.headers)))
    }
}

fn read(headers: &HeaderMap) -> Option<TraceParent> {
    let mut all = headers.get_all(HEADER).iter();
    let only = all.next().filter(|_| all.next().is_none())?;
    only.to_str().ok()?.parse().ok()
}
