//! Credits, refunds and corrections.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tenure_api::v1::adjustment::{Adjust, AdjustmentView};
use tenure_domain::ledger::adjust::Adjustment;
use tenure_domain::money::Micros;
use tenure_domain::{Event, State as Platform, Time, Wish};

use super::scope::id_in;
use crate::auth::Caller;
use crate::controller::Accepted;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::Answer;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::ChangeProblems;

fn view(state: &Platform, adjustment: &Adjustment, at: Time) -> AdjustmentView {
    AdjustmentView {
        id: adjustment.id.to_string(),
        scope: adjustment.scope.to_string(),
        path: state.tree.title(adjustment.scope),
        kind: adjustment.kind,
        amount_micros: adjustment.amount.0,
        currency: state.prices.currency.to_string(),
        invoice: adjustment.invoice.map(|invoice| invoice.to_string()),
        reason: adjustment.reason.clone(),
        at: at.into(),
    }
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let made = accepted.events.iter().find_map(|event| match &**event {
        Event::Adjusted { adjustment } => Some(adjustment),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, made, accepted.at)).ok()?;
    Some(("/v1/bill-rows".into(), json))
}

/// Gives a tenant or a subscriber money back, or takes what was charged too low. It is the seller's to do.
#[utoipa::path(post, path = "/v1/adjustments", tag = "invoice", request_body = Adjust,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = AdjustmentView), ChangeProblems))]
pub(crate) async fn adjust(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<Adjust>,
) -> Answer<Response> {
    let asked = body.value;
    let invoice = asked
        .invoice
        .map(|invoice| id_in(&invoice, "/invoice", "an invoice"));
    let wish = Wish::Adjust {
        scope: id_in(&asked.scope, "/scope", "a scope")?,
        kind: asked.kind,
        amount: Micros(asked.amount_micros),
        invoice: invoice.transpose()?,
        reason: asked.reason,
    };
    create(&shared, &caller, repeat, &body.bytes, wish, render).await
}
