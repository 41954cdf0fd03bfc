//! Price books, and what a scope pays.
//!
//! A tenant's books are shown to people of that tenant alone, whatever roles others hold above; who pays sees the prices
//! it pays and never the book they come from, which would tell its seller's margin.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::page::{Page, PageQuery};
use tenure_api::v1::price_book::{PriceBookView, SetPriceBook};
use tenure_domain::ledger::book::BookEntry;
use tenure_domain::ledger::sheet::Sheet;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State as Platform, Time, Wish};

use super::bill::is_own;
use super::scope::id_in;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems};

fn view(state: &Platform, entry: &BookEntry, at: Time) -> PriceBookView {
    let alike = |other: &&BookEntry| other.buyer == entry.buyer && other.from <= at;
    let latest = state.books.of(entry.seller).filter(alike);
    let latest = latest.map(|other| other.from).max();
    PriceBookView {
        seller: entry.seller.to_string(),
        seller_path: state.tree.title(entry.seller),
        buyer: entry.buyer.map(|buyer| buyer.to_string()),
        buyer_path: entry.buyer.map(|buyer| state.tree.title(buyer)),
        from: entry.from.into(),
        current: latest == Some(entry.from),
        book: entry.book.clone(),
        tzdata: entry.tzdata.to_string(),
    }
}

/// Shows what a scope pays by the hour, all books included.
#[utoipa::path(get, path = "/v1/scopes/{scope}/prices", tag = "cost", params(("scope" = String, Path, description = "The scope's id, or `platform`")),
    responses((status = 200, body = Sheet), ReadProblems))]
pub(crate) async fn scope_prices(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<Sheet>> {
    let scope: ScopeId = path.id(0)?;
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::ScopeRead, scope)?;
    // Whoever stands above sees what the tenant pays.
    let payer = match state.tree.tenant_of(scope) {
        Some(tenant) if !is_own(&state, &caller, scope) => ScopeId::Tenant(tenant),
        _ => scope,
    };
    let sheet = Sheet::of(&state.prices, &state.books, &state.tree, payer, now());
    Ok(Json(sheet))
}

/// Lists the price books by which a scope sells: those that hold, and those to come.
#[utoipa::path(get, path = "/v1/scopes/{scope}/price-books", tag = "cost",
    params(("scope" = String, Path, description = "The seller: a tenant's id, or `platform`"), PageQuery),
    responses((status = 200, body = Page<PriceBookView>), ReadProblems))]
pub(crate) async fn price_books(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<PriceBookView>>> {
    let seller: ScopeId = path.id(0)?;
    let at = now();
    let state = shared.app.controller.view().read();
    caller.may(&state, Action::CostRead, seller)?;
    own_books(&state, &caller, seller)?;
    let list = format!("price-books/{seller}");
    let turn = Turn::whole(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let key = |from: Time, buyer: Option<ScopeId>| {
        let buyer = buyer.map_or_else(String::new, |buyer| buyer.to_string());
        (from, buyer)
    };
    let after = turn.after.as_deref().and_then(|after| {
        let (from, buyer) = after.split_once(' ')?;
        Some((Time(from.parse().ok()?), buyer.to_owned()))
    });
    let mut entries: Vec<&BookEntry> = state.books.of(seller).collect();
    entries.sort_by_key(|entry| key(entry.from, entry.buyer));
    let ahead = entries.into_iter().filter(|entry| {
        after
            .as_ref()
            .is_none_or(|after| key(entry.from, entry.buyer) > *after)
    });
    let views = ahead.map(|entry| view(&state, entry, at));
    Ok(Json(turn.page(views, |view| {
        format!("{} {}", view.from.0.0, view.buyer.as_deref().unwrap_or_default())
    })))
}

/// A tenant's books are nobody's matter outside it.
fn own_books(state: &Platform, caller: &Caller, seller: ScopeId) -> Answer<()> {
    let ScopeId::Tenant(tenant) = seller else {
        return Ok(());
    };
    let own = state.tree.tenant_of(ScopeId::User(caller.user)) == Some(tenant);
    own.then_some(()).ok_or_else(Fail::not_found)
}

/// Sets what a scope asks of those below it, from a moment on; what runs keeps its price.
#[utoipa::path(put, path = "/v1/scopes/{scope}/price-books", tag = "cost", request_body = SetPriceBook,
    params(("scope" = String, Path, description = "The seller: a tenant's id, or `platform`")),
    responses((status = 200, body = PriceBookView), ChangeProblems))]
pub(crate) async fn set_price_book(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<SetPriceBook>,
) -> Answer<Json<PriceBookView>> {
    let SetPriceBook { buyer, from, book } = body.value;
    let buyer = buyer.map(|buyer| id_in(&buyer, "/buyer", "a tenant or a subscriber"));
    let wish = Wish::SetBook {
        seller: path.id(0)?,
        buyer: buyer.transpose()?,
        from: from.map(|from| from.0),
        book: Box::new(book),
    };
    let accepted = caller
        .submit(&shared.app.controller, wish)
        .await
        .map_err(fields)?;
    let set = accepted.events.iter().find_map(|event| match &**event {
        Event::BookSet { entry } => Some(entry),
        _ => None,
    });
    let entry = set.ok_or_else(|| Fail::internal(&"a book was set without its event"))?;
    let state = shared.app.controller.view().read();
    Ok(Json(view(&state, entry, now().max(accepted.at))))
}

/// The seller is the path, and the rest of what the domain names stands in the book.
fn fields(mut fail: Fail) -> Fail {
    for error in &mut fail.problem.errors {
        match error.pointer.as_str() {
            "/seller" => "scope".clone_into(&mut error.pointer),
            "/buyer" | "/from" => {}
            _ => error.pointer.insert_str(0, "/book"),
        }
    }
    fail
}
