//! What is changed at a place in the tree: it is suspended and let go on, somebody is made below it, a limit is set, keys are
//! made and revoked.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Method;
use serde_json::{Value, json};
use tenure_api::v1::access::NewKey;
use tenure_api::v1::limit::QuotaView;

use super::super::Console;
use super::super::desk::piece;
use super::super::fault::{Fault, Page, go};
use super::super::form::{Fields, Posted, wrong};
use super::super::session::Session;
use super::scope::{After, show_scope};
use super::tester::WhatIf;

/// Suspends a scope, or lets it go on.
pub(in crate::console) async fn act(
    State(_): State<Arc<Console>>,
    Path((id, what)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    if !matches!(what.as_str(), "suspend" | "resume") {
        return Err(Fault::not_found());
    }
    let id = piece(&id);
    posted
        .session
        .desk
        .act(Method::POST, &format!("/v1/scopes/{id}/{what}"))
        .await?;
    Ok(go(&format!("/console/admin/{id}")))
}

/// Makes a key for a user; its token is in this page and nowhere else.
pub(in crate::console) async fn make_key(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    let Posted { session, fields } = posted;
    let path = format!("/v1/users/{}/keys", piece(&id));
    let days: Option<u64> = fields.number("days")?;
    let mut body = json!({ "label": fields.text("label") });
    if let Some(days) = days {
        let expires = crate::controller::now().plus_ms(days.saturating_mul(86_400_000));
        body["expires"] = json!(expires.rfc3339());
    }
    let made: NewKey = session.desk.post(&path, &body).await?;
    let after = After {
        made: Some(made.token),
        problem: None,
    };
    show_scope(&session, &id, WhatIf::default(), after).await
}

pub(in crate::console) async fn revoke_key(
    State(_): State<Arc<Console>>,
    Path((id, key)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    posted
        .session
        .desk
        .act(Method::DELETE, &format!("/v1/keys/{}", piece(&key)))
        .await?;
    Ok(go(&format!("/console/admin/{}", piece(&id))))
}

/// The place again, with why its form was not taken; or on to it.
async fn settled(session: &Session, id: &str, done: Result<(), Fault>) -> Page {
    match done {
        Ok(()) => Ok(go(&format!("/console/admin/{}", piece(id)))),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => {
            let after = After {
                made: None,
                problem: Some(*problem),
            };
            show_scope(session, id, WhatIf::default(), after).await
        }
    }
}

/// Makes a tenant, a subscriber or a user below a place.
pub(in crate::console) async fn add(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    let Posted { session, fields } = posted;
    let done = added(&session, &id, &fields).await;
    settled(&session, &id, done).await
}

async fn added(session: &Session, id: &str, fields: &Fields) -> Result<(), Fault> {
    let name = fields.text("name");
    let (path, ask) = match fields.text("what") {
        "tenant" => ("/v1/tenants", json!({ "name": name })),
        "subscriber" => ("/v1/subscribers", json!({ "tenant": id, "name": name })),
        kind @ ("person" | "service") => {
            let mut ask = json!({ "parent": id, "name": name, "kind": kind });
            if let Some(role) = fields.some("role") {
                ask["role"] = json!(role);
            }
            ("/v1/users", ask)
        }
        _ => return Err(wrong("what", "this is nothing that can be made here")),
    };
    let _: Value = session.desk.post(path, &ask).await?;
    Ok(())
}

/// Sets one limit of a place, or takes it away; the others stay.
pub(in crate::console) async fn set_quota(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    let Posted { session, fields } = posted;
    let done = limited(&session, &id, &fields).await;
    settled(&session, &id, done).await
}

async fn limited(session: &Session, id: &str, fields: &Fields) -> Result<(), Fault> {
    let path = format!("/v1/scopes/{}/quota", piece(id));
    let now: QuotaView = session.desk.get(&path).await?;
    let mut limits = json!(now.limits);
    let meter = fields.text("meter");
    match fields.some("limit") {
        Some(text) => limits[meter] = json!(amount_of(meter, text)?),
        None => {
            if let Some(limits) = limits.as_object_mut() {
                limits.remove(meter);
            }
        }
    }
    let _: QuotaView = session.desk.put(&path, &json!({ "limits": limits })).await?;
    Ok(())
}

/// An amount as people write it, in the meter's own unit: GPUs and cores in thousandths, GiB in MiB.
fn amount_of(meter: &str, text: &str) -> Result<u64, Fault> {
    let kind = meter.split('@').next().unwrap_or(meter);
    let scale = match kind {
        _ if kind.ends_with("_milli") => 1000.0,
        _ if kind.ends_with("_mib") => 1024.0,
        _ => 1.0,
    };
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && (0.0..1e12).contains(number));
    let number = number.ok_or_else(|| wrong("limit", "this is not a number such as 2 or 0.5"))?;
    Ok((number * scale).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::amount_of;

    #[test]
    fn limits_are_written_as_people_count() {
        assert_eq!(amount_of("gpu_milli@class:H100", "1.5").unwrap(), 1500);
        assert_eq!(amount_of("memory_mib", "8").unwrap(), 8192);
        assert_eq!(amount_of("jobs", "3").unwrap(), 3);
        for text in ["-1", "many", "NaN", "1e99"] {
            assert!(amount_of("jobs", text).is_err(), "{text}");
        }
    }
}
