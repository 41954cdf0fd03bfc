//! Segments of a path. One that cannot be an id answers exactly like an id that nobody has.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use super::Shared;
use super::fail::{Answer, Fail};

/// The parameters of the path, in order.
pub(crate) struct Segments<const N: usize>([String; N]);

impl<const N: usize> Segments<N> {
    /// A segment as an id.
    pub fn id<T: FromStr>(&self, at: usize) -> Answer<T> {
        self.0[at].parse().map_err(|_| Fail::not_found())
    }

    pub fn text(&self, at: usize) -> &str {
        &self.0[at]
    }
}

impl<const N: usize> FromRequestParts<Arc<Shared>> for Segments<N> {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let params = RawPathParams::from_request_parts(parts, shared)
            .await
            .map_err(|_| Fail::not_found())?;
        let segments: Vec<String> = params.iter().map(|(_, value)| value.to_owned()).collect();
        segments.try_into().map(Segments).map_err(|_| Fail::not_found())
    }
}
