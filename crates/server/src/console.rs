//! The console: the platform in a browser, below `/console`. Pages are made here and work before any script runs;
//! scripts then keep them live.
//!
//! A page asks the API as every client does, in process (`desk`), so it shows what its reader may see and decides
//! nothing. What the journal tells of a device or a job is found once for all readers (`memo`) and shown to those who may
//! see it. Absent: decisions (domain), authorization (`auth`), what the API has no route for. `http::router` mounts it.

mod admin;
mod asset;
mod audit;
mod budget;
mod calendar;
mod desk;
mod device;
mod door;
mod exchange;
mod fault;
mod fleet;
mod form;
mod frame;
mod health;
mod home;
mod html;
mod job;
mod log;
mod memo;
mod money;
mod session;
mod show;
mod sign;
mod told;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::Redirect;
use axum::routing::{any, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::http::Shared;

/// What the pages stand on.
pub(crate) struct Console {
    shared: Arc<Shared>,
    /// The API with all its layers.
    api: Router,
    /// Browsers reach it over TLS.
    tls: bool,
    /// What was found in the journal, for all who look.
    memo: Arc<memo::Memo>,
}

/// The most a form may hold: a job file.
const MAX_FORM_BYTES: usize = 256 * 1024;

/// The console's pages, in front of the API they ask.
pub(crate) fn router(shared: Arc<Shared>, api: Router, tls: bool) -> Router {
    let console = Arc::new(Console {
        shared,
        api,
        tls,
        memo: Arc::default(),
    });
    let pages = Router::new()
        .route("/console", get(home::home))
        .route("/console/sign-in", get(sign::form).post(sign::sign_in))
        .route("/console/sign-in/issuer", get(sign::to_issuer))
        .route("/console/sign-in/back", get(sign::from_issuer))
        .route("/console/sign-out", post(sign::sign_out))
        .route("/console/theme", post(sign::theme))
        .route("/console/fleet", get(fleet::fleet))
        .route("/console/fleet/live", get(fleet::live))
        .route("/console/fleet/{gpu}", get(device::device))
        .route("/console/fleet/{gpu}/release", post(device::release))
        .route("/console/jobs", get(job::list))
        .route(
            "/console/jobs/new",
            get(job::submit::form).post(job::submit::submit),
        )
        .route("/console/jobs/preview", post(job::submit::preview))
        .route("/console/jobs/{job}", get(job::one::one))
        .route("/console/jobs/{job}/stop", post(job::one::stop))
        .route("/console/jobs/{job}/pause", post(job::one::pause))
        .route("/console/jobs/{job}/resume", post(job::one::resume))
        .route("/console/logs", get(log::logs))
        .route("/console/logs/export", get(log::export))
        .route("/console/calendar", get(calendar::calendar).post(calendar::book))
        .route("/console/calendar/{booking}", get(calendar::one))
        .route("/console/calendar/{booking}/cancel", post(calendar::cancel))
        .route("/console/exchange", get(exchange::exchange))
        .route("/console/exchange/buy", post(exchange::buy))
        .route("/console/exchange/sell", post(exchange::sell::sell))
        .route("/console/exchange/bid", post(exchange::bid_for))
        .route(
            "/console/exchange/auto/{seller}/{class}",
            post(exchange::stop_auto),
        )
        .route("/console/exchange/{kind}/{id}/{what}", post(exchange::act))
        .route("/console/money", get(money::money))
        .route("/console/money/invoices/{invoice}", get(money::invoice::invoice))
        .route("/console/health", get(health::health))
        .route("/console/health/{node}/{what}", post(health::act))
        .route("/console/audit", get(audit::audit))
        .route("/console/audit/{seq}", get(audit::proof))
        .route("/console/admin", get(admin::admin))
        .route("/console/admin/{scope}", get(admin::scope::scope))
        .route("/console/admin/{scope}/{what}", post(admin::change::act))
        .route("/console/admin/{scope}/add", post(admin::change::add))
        .route("/console/admin/{scope}/quota", post(admin::change::set_quota))
        .route("/console/admin/{scope}/keys", post(admin::change::make_key))
        .route(
            "/console/admin/{scope}/keys/{key}/revoke",
            post(admin::change::revoke_key),
        )
        .route("/console/api/{*path}", any(door::pass))
        .route("/console/{*path}", any(fault::no_page))
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(CatchPanicLayer::custom(fault::panicked))
        .layer(from_fn_with_state(console.clone(), fault::finish))
        .with_state(console);
    Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console/asset/{name}", get(asset::asset))
        .merge(pages)
}
