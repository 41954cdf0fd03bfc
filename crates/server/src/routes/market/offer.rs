//! Offers and standing orders.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tenure_api::v1::market::{
    AutoOfferView, MakeOffer, OfferQuery, OfferView, OfferWindows, SetAutoOffer, TradeQuery,
};
use tenure_api::v1::page::Page;
use tenure_domain::booking::zone::Zone;
use tenure_domain::id::OfferId;
use tenure_domain::market::auto::{Auto, AutoSpec};
use tenure_domain::market::offer::{Offer, OfferSpec};
use tenure_domain::market::search::{Place, Search};
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State as Platform, Time, Wish};

use super::{buyers, fields, listed, seller};
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

fn view(state: &Platform, offer: &Offer, own: bool, at: Time) -> OfferView {
    let spec = &offer.spec;
    let span = offer.open.iter().find(|span| span.end > at);
    OfferView {
        id: offer.id,
        class: spec.class.to_string(),
        gpu_milli: spec.gpu_milli,
        left_milli: offer.left_milli(),
        region: spec.region.as_deref().map(Into::into),
        isolation: spec.isolation,
        price_micros: spec.price.0,
        min_lease_s: spec.min_lease_s,
        max_lease_s: spec.max_lease_s,
        notice_s: spec.notice_s,
        reliability_permille: state.market.reliability_permille(offer.seller, at),
        open_from: span.map(|span| span.start.into()),
        open_until: span
            .filter(|span| span.end < Time(i64::MAX))
            .map(|span| span.end.into()),
        made: offer.made.into(),
        seller: own.then(|| offer.seller.to_string()),
        forecast: offer.forecast.as_deref().filter(|_| own).map(Into::into),
    }
}

/// Finds offers, class by class, the cheapest first.
#[utoipa::path(get, path = "/v1/market/offers", tag = "market", params(OfferQuery), responses((status = 200, body = Page<OfferView>), ReadProblems))]
pub(crate) async fn offers(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<OfferQuery>,
) -> Answer<Json<Page<OfferView>>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let of = query
        .scope
        .as_deref()
        .map(|scope| listed(&state, &caller, Some(scope)))
        .transpose()?;
    let list = format!(
        "offers/{:?}",
        OfferQuery {
            limit: None,
            cursor: None,
            ..query.clone()
        }
    );
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let tenant = state.tree.tenant_of(ScopeId::User(caller.user));
    let trades = tenant.filter(|tenant| {
        let scope = ScopeId::Tenant(*tenant);
        caller.may(&state, Action::MarketTrade, scope).is_ok()
    });
    let search = Search {
        class: query.class.as_deref().map(Into::into),
        region: query.region.as_deref().map(Into::into),
        max_price: query.max_price_micros.map(Micros),
        min_reliability_permille: query.min_reliability_permille.unwrap_or(0),
        min_milli: query.min_gpu_milli.unwrap_or(0),
        min_isolation: query.min_isolation,
        buyer: tenant,
    };
    let after = turn.after.as_deref().and_then(|text| place(&state, text));
    let at = now();
    if let Some(of) = of {
        let after: Option<OfferId> = turn.after.as_ref().and_then(|after| after.parse().ok());
        let all = state.market.offers();
        let own = all.filter(|offer| {
            after.is_none_or(|after| offer.id > after)
                && state.tree.is_within(ScopeId::Tenant(offer.seller), of)
                && query
                    .class
                    .as_deref()
                    .is_none_or(|class| *offer.spec.class == *class)
        });
        let views = own.map(|offer| view(&state, offer, true, at));
        return Ok(Json(turn.page(views, |offer| offer.id.to_string())));
    }
    let found = search.find(&state.market, after.as_ref(), turn.limit + 1, at);
    let views = found
        .into_iter()
        .map(|offer| view(&state, offer, Some(offer.seller) == trades, at));
    Ok(Json(turn.page(views, |offer| {
        format!(
            "{} {} {} {}",
            offer.class, offer.price_micros, offer.made.0.0, offer.id
        )
    })))
}

/// Where a page ended. The offer itself may be gone since.
fn place(_: &Platform, text: &str) -> Option<Place> {
    let mut parts = text.split(' ');
    Some(Place {
        class: parts.next()?.into(),
        ask: (
            Micros(parts.next()?.parse().ok()?),
            Time(parts.next()?.parse().ok()?),
            parts.next()?.parse().ok()?,
        ),
    })
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let made = accepted.events.iter().find_map(|event| match &**event {
        Event::OfferMade { offer } => Some(offer),
        _ => None,
    })?;
    let offer = state.market.offer(made.id).unwrap_or(made);
    let json = serde_json::to_string(&view(state, offer, true, now())).ok()?;
    Some(("/v1/market/offers".into(), json))
}

/// Offers quota that lies idle, or nodes of the tenant's own.
#[utoipa::path(post, path = "/v1/market/offers", tag = "market", request_body = MakeOffer,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = OfferView), ChangeProblems))]
pub(crate) async fn make_offer(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<MakeOffer>,
) -> Answer<Response> {
    let MakeOffer {
        class,
        source,
        region,
        windows,
        isolation,
        ..
    } = body.value.clone();
    let seller = {
        let state = shared.app.controller.view().read();
        seller(&state, &caller, body.value.scope.as_deref())?
    };
    let (windows, zone) = match windows {
        OfferWindows::Always => (Windows::Always, None),
        OfferWindows::Once { start, end } => (
            Windows::Once {
                start: start.0,
                end: end.0,
            },
            None,
        ),
        OfferWindows::Daily {
            from_minute,
            until_minute,
            zone,
        } => {
            let known = Zone::bundled(&zone).ok().map(Box::new);
            let zone = zone.into();
            (
                Windows::Daily {
                    from_minute,
                    until_minute,
                    zone,
                },
                known,
            )
        }
    };
    let spec = OfferSpec {
        class: class.into(),
        source,
        gpu_milli: body.value.gpu_milli,
        region: region.map(Into::into),
        windows,
        price: Micros(body.value.price_micros),
        min_lease_s: body.value.min_lease_s,
        max_lease_s: body.value.max_lease_s,
        notice_s: body.value.notice_s,
        buyers: buyers(body.value.buyers.as_ref())?,
        isolation,
    };
    let spec = Box::new(spec);
    let wish = Wish::MakeOffer { seller, spec, zone };
    create(&shared, &caller, repeat, &body.bytes, wish, render)
        .await
        .map_err(fields)
}

/// Withdraws an offer; what is leased of it stays leased.
#[utoipa::path(delete, path = "/v1/market/offers/{offer}", tag = "market", params(("offer" = String, Path, description = "The offer's id")),
    responses((status = 204, description = "Withdrawn"), ChangeProblems))]
pub(crate) async fn withdraw_offer(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<StatusCode> {
    let wish = Wish::WithdrawOffer { offer: path.id(0)? };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn auto_view(state: &Platform, auto: &Auto) -> AutoOfferView {
    let spec = &auto.spec;
    let forecast = auto.forecast(state, now());
    AutoOfferView {
        seller: auto.seller.to_string(),
        seller_path: state.tree.title(ScopeId::Tenant(auto.seller)),
        class: spec.class.to_string(),
        floor_micros: spec.floor.0,
        reserve_milli: spec.reserve_milli,
        min_lease_s: spec.min_lease_s,
        max_lease_s: spec.max_lease_s,
        notice_s: spec.notice_s,
        buyers: spec
            .buyers
            .as_ref()
            .map(|all| all.iter().map(ToString::to_string).collect()),
        isolation: spec.isolation,
        made: auto.made.into(),
        offer: auto.offer,
        idle_milli: forecast.as_ref().map(|forecast| forecast.idle_milli),
        idle_until: forecast.as_ref().map(|forecast| forecast.until.into()),
        forecast: forecast.map(|forecast| forecast.basis),
    }
}

/// Lists the standing orders of a scope's tenants, with what their forecasts say.
#[utoipa::path(get, path = "/v1/market/auto-offers", tag = "market", params(TradeQuery), responses((status = 200, body = Page<AutoOfferView>), ReadProblems))]
pub(crate) async fn auto_offers(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<TradeQuery>,
) -> Answer<Json<Page<AutoOfferView>>> {
    let state = shared.app.controller.view().read();
    let of = listed(&state, &caller, query.scope.as_deref())?;
    let list = format!("auto-offers/{of}/{}", query.class.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let key = |auto: &Auto| format!("{} {}", auto.seller, auto.spec.class);
    let after = turn.after.as_deref().and_then(|after| after.split_once(' '));
    let after = after.and_then(|(seller, class)| Some((seller.parse().ok()?, class.to_owned())));
    let all = state.market.autos().filter(|auto| {
        after
            .as_ref()
            .is_none_or(|(seller, class)| (auto.seller, &*auto.spec.class) > (*seller, class))
            && state.tree.is_within(ScopeId::Tenant(auto.seller), of)
            && query
                .class
                .as_deref()
                .is_none_or(|class| *auto.spec.class == *class)
    });
    let rows = turn.page(all, |auto| key(auto));
    Ok(Json(Page {
        items: rows
            .items
            .into_iter()
            .map(|auto| auto_view(&state, auto))
            .collect(),
        next: rows.next,
    }))
}

/// Has what the forecast says lies idle of a class offered from now on.
#[utoipa::path(put, path = "/v1/market/auto-offers/{scope}/{class}", tag = "market", request_body = SetAutoOffer,
    params(("scope" = String, Path, description = "The tenant's id"), ("class" = String, Path, description = "The GPU class")),
    responses((status = 200, body = AutoOfferView), ChangeProblems))]
pub(crate) async fn set_auto_offer(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<2>,
    body: JsonBody<SetAutoOffer>,
) -> Answer<Json<AutoOfferView>> {
    let seller = {
        let state = shared.app.controller.view().read();
        let scope: ScopeId = path.id(0)?;
        seller(&state, &caller, Some(&scope.to_string()))?
    };
    let spec = AutoSpec {
        class: path.text(1).into(),
        floor: Micros(body.value.floor_micros),
        reserve_milli: body.value.reserve_milli,
        min_lease_s: body.value.min_lease_s,
        max_lease_s: body.value.max_lease_s,
        notice_s: body.value.notice_s,
        buyers: buyers(body.value.buyers.as_ref())?,
        isolation: body.value.isolation,
    };
    let class = spec.class.clone();
    let spec = Box::new(spec);
    let wish = Wish::SetAutoOffer { seller, spec };
    caller
        .submit(&shared.app.controller, wish)
        .await
        .map_err(fields)?;
    let state = shared.app.controller.view().read();
    let auto = state.market.auto(seller, &class).ok_or_else(Fail::not_found)?;
    Ok(Json(auto_view(&state, auto)))
}

/// Removes a standing order, and withdraws the offer it made.
#[utoipa::path(delete, path = "/v1/market/auto-offers/{scope}/{class}", tag = "market",
    params(("scope" = String, Path, description = "The tenant's id"), ("class" = String, Path, description = "The GPU class")),
    responses((status = 204, description = "Removed"), ChangeProblems))]
pub(crate) async fn remove_auto_offer(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<2>,
) -> Answer<StatusCode> {
    let seller = {
        let state = shared.app.controller.view().read();
        let scope: ScopeId = path.id(0)?;
        seller(&state, &caller, Some(&scope.to_string()))?
    };
    let class = path.text(1).to_owned();
    let wish = Wish::RemoveAutoOffer { seller, class };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}
