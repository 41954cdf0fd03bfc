//! Buying at once, and bids that wait.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tenure_api::v1::market::{BidView, Buy, FillView, PlaceBid, PlacedView, PurchaseView, TradeQuery};
use tenure_api::v1::page::Page;
use tenure_domain::id::BidId;
use tenure_domain::market::bid::{Bid, BidKind, BidSpec};
use tenure_domain::market::lease::Lease;
use tenure_domain::market::offer::MAX_PRICE_MICROS;
use tenure_domain::money::Micros;
use tenure_domain::{Command, Event, State as Platform, Wish, decide};

use super::{fields, lease, listed, trader};
use crate::auth::Caller;
use crate::controller::{Accepted, now};
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::{ChangeProblems, ReadProblems};

fn view(state: &Platform, bid: &Bid) -> BidView {
    let spec = &bid.spec;
    BidView {
        id: bid.id,
        scope: bid.scope.to_string(),
        scope_path: state.tree.title(bid.scope),
        class: spec.class.to_string(),
        gpu_milli: spec.gpu_milli,
        left_milli: bid.left_milli,
        duration_s: spec.duration_s,
        price_micros: spec.price.0,
        spot: spec.is_spot(),
        expires: spec.expires().map(Into::into),
        region: spec.region.as_deref().map(Into::into),
        min_isolation: spec.min_isolation,
        min_reliability_permille: spec.min_reliability_permille,
        held_micros: bid.held().0,
        made: bid.made.into(),
    }
}

fn begun<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<&'a Lease> {
    let leases = events.filter_map(|event| match event {
        Event::LeaseBegan { lease, .. } => Some(&**lease),
        _ => None,
    });
    leases.collect()
}

fn purchase(state: &Platform, leases: &[&Lease], dry_run: bool) -> PurchaseView {
    let at = now();
    let fills = leases.iter().map(|lease| FillView {
        lease: (!dry_run).then_some(lease.id),
        offer: lease.offer,
        class: lease.class.to_string(),
        gpu_milli: lease.gpu_milli,
        price_micros: lease.price.0,
        cost_micros: lease.escrow.0,
        start: lease.start.into(),
        end: lease.end.into(),
        notice_s: lease.notice_s,
        reliability_permille: state.market.reliability_permille(lease.seller, at),
    });
    PurchaseView {
        dry_run,
        fills: fills.collect(),
        gpu_milli: leases.iter().map(|lease| lease.gpu_milli).sum(),
        cost_micros: leases
            .iter()
            .map(|lease| lease.escrow.0)
            .fold(0, i64::saturating_add),
        currency: state.prices.currency.to_string(),
    }
}

fn render_purchase(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let leases = begun(accepted.events.iter().map(|event| &**event));
    let json = serde_json::to_string(&purchase(state, &leases, false)).ok()?;
    Some(("/v1/market/leases".into(), json))
}

/// Buys the best offers there are now, or shows what it would buy.
#[utoipa::path(post, path = "/v1/market/buy", tag = "market", request_body = Buy,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 200, description = "What would be bought", body = PurchaseView), (status = 201, body = PurchaseView), ChangeProblems))]
pub(crate) async fn buy(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<Buy>,
) -> Answer<Response> {
    let asked = &body.value;
    let scope = {
        let state = shared.app.controller.view().read();
        trader(&state, &caller, asked.scope.as_deref())?
    };
    let spec = BidSpec {
        class: asked.class.as_str().into(),
        gpu_milli: asked.gpu_milli,
        duration_s: asked.duration_s,
        price: Micros(asked.price_micros.unwrap_or(MAX_PRICE_MICROS)),
        kind: BidKind::Now {
            partial: asked.partial,
        },
        region: asked.region.as_deref().map(Into::into),
        min_isolation: asked.min_isolation,
        min_reliability_permille: asked.min_reliability_permille,
    };
    let spec = Box::new(spec);
    let wish = Wish::PlaceBid { scope, spec };
    if asked.dry_run {
        let state = shared.app.controller.view().read();
        let command = Command {
            at: now(),
            by: caller.actor.clone(),
            // Nothing of it is kept.
            ids: 0,
            wish,
        };
        let events = decide(&state, &command).map_err(|refusal| fields(refusal.into()))?;
        return Ok(Json(purchase(&state, &begun(events.iter()), true)).into_response());
    }
    create(&shared, &caller, repeat, &body.bytes, wish, render_purchase)
        .await
        .map_err(fields)
}

fn render_bid(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let events = || accepted.events.iter().map(|event| &**event);
    let placed = events().find_map(|event| match event {
        Event::BidPlaced { bid } => state.market.bid(bid.id),
        _ => None,
    });
    let at = now();
    let leases = begun(events());
    let answer = PlacedView {
        bid: placed.map(|bid| view(state, bid)),
        leases: leases.iter().map(|of| lease::view(state, of, true, at)).collect(),
    };
    let json = serde_json::to_string(&answer).ok()?;
    Some(("/v1/market/bids".into(), json))
}

/// Places a bid that waits for offers at its price.
#[utoipa::path(post, path = "/v1/market/bids", tag = "market", request_body = PlaceBid,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = PlacedView), ChangeProblems))]
pub(crate) async fn place_bid(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<PlaceBid>,
) -> Answer<Response> {
    let asked = &body.value;
    let scope = {
        let state = shared.app.controller.view().read();
        trader(&state, &caller, asked.scope.as_deref())?
    };
    let expires = asked.expires.0;
    let spec = BidSpec {
        class: asked.class.as_str().into(),
        gpu_milli: asked.gpu_milli,
        duration_s: asked.duration_s,
        price: Micros(asked.price_micros),
        kind: match asked.spot {
            true => BidKind::Spot { expires },
            false => BidKind::Limit { expires },
        },
        region: asked.region.as_deref().map(Into::into),
        min_isolation: asked.min_isolation,
        min_reliability_permille: asked.min_reliability_permille,
    };
    let spec = Box::new(spec);
    let wish = Wish::PlaceBid { scope, spec };
    create(&shared, &caller, repeat, &body.bytes, wish, render_bid)
        .await
        .map_err(fields)
}

/// Lists bids that wait, of a scope and below.
#[utoipa::path(get, path = "/v1/market/bids", tag = "market", params(TradeQuery), responses((status = 200, body = Page<BidView>), ReadProblems))]
pub(crate) async fn bids(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<TradeQuery>,
) -> Answer<Json<Page<BidView>>> {
    let state = shared.app.controller.view().read();
    let of = listed(&state, &caller, query.scope.as_deref())?;
    let list = format!("bids/{of}/{}", query.class.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<BidId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let found = state.market.bids().filter(|bid| {
        after.is_none_or(|after| bid.id > after)
            && state.tree.is_within(bid.scope, of)
            && query
                .class
                .as_deref()
                .is_none_or(|class| *bid.spec.class == *class)
    });
    let views = found.map(|bid| view(&state, bid));
    Ok(Json(turn.page(views, |bid| bid.id.to_string())))
}

/// Cancels a bid; what was held for it is free.
#[utoipa::path(delete, path = "/v1/market/bids/{bid}", tag = "market", params(("bid" = String, Path, description = "The bid's id")),
    responses((status = 204, description = "Cancelled"), ChangeProblems))]
pub(crate) async fn cancel_bid(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<StatusCode> {
    let bid: BidId = path.id(0).map_err(|_| Fail::not_found())?;
    caller
        .submit(&shared.app.controller, Wish::CancelBid { bid })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
