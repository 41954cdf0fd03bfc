//! Query strings: each name known and said once, each value of its kind.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Shared;
use super::fail::{Answer, Fail};
use super::strict;

pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Shared>> for Query<T> {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Answer<Self> {
        let fields = pairs(parts.uri.query().unwrap_or_default())?;
        strict::from_texts(&Value::Object(fields))
            .map(Query)
            .map_err(|fault| Fail::invalid(fault.name().to_owned(), fault.message))
    }
}

/// Refuses names the operation does not know.
pub(crate) fn check_names(query: Option<&str>, known: &[String]) -> Answer<()> {
    for name in pairs(query.unwrap_or_default())?.keys() {
        if !known.contains(name) {
            let shown: String = name.chars().take(64).collect();
            return Err(Fail::malformed("there is no such query parameter").field(shown));
        }
    }
    Ok(())
}

fn pairs(query: &str) -> Answer<Map<String, Value>> {
    let mut fields = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if fields.contains_key(&name) {
            return Err(Fail::malformed("the query parameter stands twice").field(name));
        }
        fields.insert(name, Value::String(value));
    }
    Ok(fields)
}

fn decoded(text: &str) -> Answer<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(Fail::malformed("the query string has a broken escape"));
                };
                (high << 4 | low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Fail::malformed("the query string is not UTF-8"))
}
