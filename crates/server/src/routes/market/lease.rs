//! Leases: shown to both sides, recalled by the seller, given back by the buyer.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_api::v1::market::{LeaseView, TradeQuery};
use tenure_api::v1::page::Page;
use tenure_domain::id::LeaseId;
use tenure_domain::market::lease::{Lease, RecallReason};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State as Platform, Time, Wish};

use super::listed;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::NoBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems};

/// Which of its scopes bought it is the buyer's own matter.
pub(super) fn view(state: &Platform, lease: &Lease, to_buyer: bool, at: Time) -> LeaseView {
    let buyer = match to_buyer {
        true => lease.scope,
        false => ScopeId::Tenant(lease.buyer),
    };
    LeaseView {
        id: lease.id,
        seller: lease.seller.to_string(),
        seller_path: state.tree.title(ScopeId::Tenant(lease.seller)),
        buyer: buyer.to_string(),
        buyer_path: state.tree.title(buyer),
        class: lease.class.to_string(),
        gpu_milli: lease.gpu_milli,
        price_micros: lease.price.0,
        start: lease.start.into(),
        end: lease.end.into(),
        min_lease_s: lease.min_lease_s,
        notice_s: lease.notice_s,
        spot: lease.spot.is_some(),
        escrow_micros: lease.escrow.0,
        cost_micros: lease.cost_of(lease.had_ms(at)).min(lease.escrow).0,
        recalled: lease.recalled.map(|by| {
            match by {
                RecallReason::Seller => "seller",
                RecallReason::Outbid(_) => "outbid",
            }
            .to_owned()
        }),
        vacating: lease.vacating,
    }
}

/// Lists live leases a scope and those below bought or sold.
#[utoipa::path(get, path = "/v1/market/leases", tag = "market", params(TradeQuery), responses((status = 200, body = Page<LeaseView>), ReadProblems))]
pub(crate) async fn leases(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<TradeQuery>,
) -> Answer<Json<Page<LeaseView>>> {
    let state = shared.app.controller.view().read();
    let of = listed(&state, &caller, query.scope.as_deref())?;
    let list = format!("leases/{of}/{}", query.class.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<LeaseId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let bought = |lease: &Lease| state.tree.is_within(lease.scope, of);
    let sold = |lease: &Lease| state.tree.is_within(ScopeId::Tenant(lease.seller), of);
    let found = state.market.leases().filter(|lease| {
        after.is_none_or(|after| lease.id > after)
            && (bought(lease) || sold(lease))
            && query.class.as_deref().is_none_or(|class| *lease.class == *class)
    });
    let at = now();
    let views = found.map(|lease| view(&state, lease, bought(lease), at));
    Ok(Json(turn.page(views, |lease| lease.id.to_string())))
}

/// Wants a lease back: it ends after its notice.
#[utoipa::path(post, path = "/v1/market/leases/{lease}/recall", tag = "market", params(("lease" = String, Path, description = "The lease's id")),
    responses((status = 200, body = LeaseView), ChangeProblems))]
pub(crate) async fn recall_lease(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<LeaseView>> {
    let lease: LeaseId = path.id(0)?;
    let before = shared.app.controller.view().read().market.lease(lease).cloned();
    let accepted = caller
        .submit(&shared.app.controller, Wish::RecallLease { lease })
        .await?;
    let state = shared.app.controller.view().read();
    // Without notice it may have ended by now.
    let mut found = before.ok_or_else(Fail::not_found)?;
    if let Some(now) = state.market.lease(lease) {
        found = now.clone();
    }
    for event in &accepted.events {
        if let Event::LeaseRecalled { by, end, .. } = **event {
            (found.recalled, found.end) = (Some(by), end);
        }
    }
    Ok(Json(view(&state, &found, false, now())))
}

/// Gives a lease back; its minimum is paid all the same.
#[utoipa::path(post, path = "/v1/market/leases/{lease}/return", tag = "market", params(("lease" = String, Path, description = "The lease's id")),
    responses((status = 204, description = "Given back"), ChangeProblems))]
pub(crate) async fn return_lease(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let wish = Wish::ReturnLease { lease: path.id(0)? };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}
