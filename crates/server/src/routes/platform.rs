//! Prices, SKUs, and the server's own pages.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_api::v1::page::{Page, PageQuery};
use tenure_api::v1::platform::Health;
use tenure_domain::Wish;
use tenure_domain::ledger::price::Prices;
use tenure_domain::ledger::sheet::Sheet;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::{Demand, Sku};

use crate::auth::{Caller, Stranger};
use crate::controller::now;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::http::{Shared, page};
use crate::openapi::{ChangeProblems, OpenProblems, ReadProblems};

fn health(shared: &Shared) -> Health {
    let controller = &shared.app.controller;
    let role = if controller.is_leading() {
        "leader"
    } else {
        "follower"
    };
    Health {
        status: "ok".into(),
        role: role.into(),
        seq: controller.view().seq(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Says that the server lives.
#[utoipa::path(get, path = "/healthz", tag = "platform", security(()), responses((status = 200, body = Health), OpenProblems))]
pub(crate) async fn healthz(State(shared): State<Arc<Shared>>, _: Stranger) -> Json<Health> {
    Json(health(&shared))
}

/// Says that the server answers, and whether it leads.
#[utoipa::path(get, path = "/readyz", tag = "platform", security(()), responses((status = 200, body = Health), OpenProblems))]
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>, _: Stranger) -> Answer<Json<Health>> {
    if shared.stop.is_cancelled() {
        return Err(Fail::unavailable("the server is stopping"));
    }
    if shared.app.controller.view().read().tree.is_empty() {
        return Err(Fail::unavailable("the platform is not set up yet"));
    }
    Ok(Json(health(&shared)))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "platform", security(()),
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json"), OpenProblems))]
pub(crate) async fn openapi_document(State(shared): State<Arc<Shared>>, _: Stranger) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        shared.document.clone(),
    )
        .into_response()
}

/// Explains an error code.
#[utoipa::path(get, path = "/errors/{code}", tag = "platform", security(()), params(("code" = String, Path, description = "A code as problems carry it")),
    responses((status = 200, description = "The code's page", content_type = "text/markdown"),
              (status = 404, description = "There is no such code", body = tenure_api::problem::Problem, content_type = "application/problem+json"), OpenProblems))]
pub(crate) async fn error_page(_: Stranger, path: Segments<1>) -> Answer<Response> {
    let page = page::page(path.text(0)).ok_or_else(Fail::not_found)?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], page).into_response())
}

/// Shows the price list, as the caller's own level pays it.
#[utoipa::path(get, path = "/v1/prices", tag = "platform", responses((status = 200, body = Prices), ReadProblems))]
pub(crate) async fn prices(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<Json<Prices>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let me = ScopeId::User(caller.user);
    let sheet = Sheet::of(&state.prices, &state.books, &state.tree, me, now());
    Ok(Json(sheet.prices()))
}

/// Sets the price list as a whole; what is running keeps its price.
#[utoipa::path(put, path = "/v1/prices", tag = "platform", request_body = Prices, responses((status = 200, body = Prices), ChangeProblems))]
pub(crate) async fn set_prices(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<Prices>,
) -> Answer<Json<Prices>> {
    caller
        .submit(&shared.app.controller, Wish::SetPrices { prices: body.value })
        .await?;
    Ok(Json(shared.app.controller.view().read().prices.clone()))
}

/// Lists the SKUs by name.
#[utoipa::path(get, path = "/v1/skus", tag = "platform", params(PageQuery), responses((status = 200, body = Page<Sku>), ReadProblems))]
pub(crate) async fn skus(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Answer<Json<Page<Sku>>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let turn = Turn::whole(&shared, &caller, "skus", query.limit, query.cursor.as_deref())?;
    let ahead = state
        .skus
        .iter()
        .filter(|(key, _)| turn.after.as_ref().is_none_or(|after| *key > after))
        .map(|(_, sku)| sku.clone());
    Ok(Json(turn.page(ahead, Sku::key)))
}

/// Defines a SKU, in place of one of the same name and GPU class.
#[utoipa::path(put, path = "/v1/skus/{name}", tag = "platform", request_body = Demand, params(("name" = String, Path, description = "The SKU's name")),
    responses((status = 200, body = Sku), ChangeProblems))]
pub(crate) async fn define_sku(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<Demand>,
) -> Answer<Json<Sku>> {
    let sku = Sku {
        name: path.text(0).to_owned(),
        demand: body.value,
    };
    caller
        .submit(&shared.app.controller, Wish::DefineSku { sku: sku.clone() })
        .await
        .map_err(|fail| fail.without("/demand"))?;
    Ok(Json(sku))
}

/// Removes a SKU; jobs that have it keep what they were given.
#[utoipa::path(delete, path = "/v1/skus/{name}", tag = "platform", params(("name" = String, Path, description = "The SKU's name")),
    responses((status = 204, description = "Removed"), ChangeProblems))]
pub(crate) async fn remove_sku(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let name = path.text(0).to_owned();
    caller
        .submit(&shared.app.controller, Wish::RemoveSku { name })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
