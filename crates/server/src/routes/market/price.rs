//! What everybody may know: the depth of each class, what was traded at which price, and the operator's terms.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::market::{BookView, ClassQuery, LevelView, PriceHourView};
use tenure_api::v1::page::Page;
use tenure_domain::market::book::Lists;
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{State as Platform, Wish};

use crate::auth::Caller;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::Answer;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems};

/// Prices shown on each side.
const DEPTH: usize = 50;

fn levels(orders: impl Iterator<Item = (i64, u64)>) -> Vec<LevelView> {
    let mut levels: Vec<LevelView> = Vec::new();
    for (price_micros, gpu_milli) in orders {
        let is_deep = levels.len() == DEPTH;
        match levels
            .last_mut()
            .filter(|level| level.price_micros == price_micros)
        {
            Some(level) => {
                level.gpu_milli = level.gpu_milli.saturating_add(gpu_milli);
                level.orders += 1;
            }
            None if is_deep => break,
            None => levels.push(LevelView {
                price_micros,
                gpu_milli,
                orders: 1,
            }),
        }
    }
    levels
}

fn view(state: &Platform, caller: &Caller, class: &str, lists: &Lists) -> BookView {
    let market = &state.market;
    let tenant = state.tree.tenant_of(ScopeId::User(caller.user));
    let offers = lists.asks.keys().filter_map(|(.., id)| market.offer(*id));
    let open =
        offers.filter(|offer| tenant.is_none_or(|tenant| offer.seller == tenant || offer.sells_to(tenant)));
    let bids = lists.bids.iter().filter_map(|(.., id)| market.bid(*id));
    BookView {
        class: class.to_owned(),
        asks: levels(open.map(|offer| (offer.spec.price.0, offer.left_milli()))),
        bids: levels(bids.map(|bid| (bid.spec.price.0, bid.left_milli))),
    }
}

/// Shows the depth of each class: what is offered and wanted at each price.
#[utoipa::path(get, path = "/v1/market/book", tag = "market", params(ClassQuery), responses((status = 200, body = Page<BookView>), ReadProblems))]
pub(crate) async fn market_book(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<ClassQuery>,
) -> Answer<Json<Page<BookView>>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let wanted = |class: &str| query.class.as_deref().is_none_or(|wanted| wanted == class);
    let classes = state.market.book().classes().filter(|(class, _)| wanted(class));
    let items = classes.map(|(class, lists)| view(&state, &caller, class, lists));
    Ok(Json(Page {
        items: items.collect(),
        next: None,
    }))
}

/// Shows what was traded of each class in each hour of the last week, and at which prices.
#[utoipa::path(get, path = "/v1/market/index", tag = "market", params(ClassQuery), responses((status = 200, body = Page<PriceHourView>), ReadProblems))]
pub(crate) async fn price_index(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<ClassQuery>,
) -> Answer<Json<Page<PriceHourView>>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let prices = state.market.prices();
    let wanted = |class: &&str| query.class.as_deref().is_none_or(|wanted| wanted == *class);
    let items = prices.classes().filter(wanted).flat_map(|class| {
        prices.of(class).map(move |hour| PriceHourView {
            class: class.to_owned(),
            hour: hour.start.into(),
            trades: hour.trades,
            gpu_ms: hour.gpu_ms,
            mean_micros: hour.mean().0,
            low_micros: hour.low.0,
            high_micros: hour.high.0,
            last_micros: hour.last.0,
        })
    });
    Ok(Json(Page {
        items: items.collect(),
        next: None,
    }))
}

/// Shows the operator's terms for the exchange.
#[utoipa::path(get, path = "/v1/market/terms", tag = "market", responses((status = 200, body = MarketTerms), ReadProblems))]
pub(crate) async fn market_terms(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> Answer<Json<MarketTerms>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    Ok(Json(state.market.terms.clone()))
}

/// Sets the operator's terms for the exchange as a whole.
#[utoipa::path(put, path = "/v1/market/terms", tag = "market", request_body = MarketTerms, responses((status = 200, body = MarketTerms), ChangeProblems))]
pub(crate) async fn set_market_terms(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<MarketTerms>,
) -> Answer<Json<MarketTerms>> {
    let wish = Wish::SetMarketTerms { terms: body.value };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(Json(shared.app.controller.view().read().market.terms.clone()))
}
