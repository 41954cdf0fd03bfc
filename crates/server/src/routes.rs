//! The routes. One file a noun; a handler reads the request, asks `authorize` or the controller, and shows the
//! noun. Its name is the operation's id and the client's method.

pub mod access;
pub mod adjustment;
pub mod analysis;
pub mod bill;
pub mod booking;
pub mod cost;
pub mod event;
pub mod fit;
pub mod gpu;
pub mod invoice;
pub mod job;
pub mod journal;
pub mod limit;
pub mod log;
pub mod login;
pub mod market;
pub mod metric;
pub mod node;
mod past;
pub mod platform;
pub mod price_book;
pub mod scope;
pub mod secret;
pub mod service;
pub mod share;
pub mod volume;
pub mod webhook;

use std::sync::Arc;

use axum::Router;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::Shared;
use crate::openapi::{ENDPOINT, ENDPOINT_ROOT};

/// All routes and their description.
pub(crate) fn routes() -> (Router<Arc<Shared>>, OpenApi) {
    let router = OpenApiRouter::<Arc<Shared>>::with_openapi(crate::openapi::frame())
        .routes(routes!(platform::healthz))
        .routes(routes!(platform::readyz))
        .routes(routes!(platform::openapi_document))
        .routes(routes!(platform::error_page))
        .routes(routes!(platform::prices, platform::set_prices))
        .routes(routes!(platform::skus))
        .routes(routes!(platform::define_sku, platform::remove_sku))
        .routes(routes!(login::login_view, login::login))
        .routes(routes!(access::whoami))
        .routes(routes!(access::keys, access::create_key))
        .routes(routes!(access::revoke_key))
        .routes(routes!(access::roles, access::grant_role))
        .routes(routes!(access::revoke_role))
        .routes(routes!(scope::create_tenant))
        .routes(routes!(scope::create_subscriber))
        .routes(routes!(scope::create_user))
        .routes(routes!(scope::scope_by_path))
        .routes(routes!(scope::scope, scope::close))
        .routes(routes!(scope::children))
        .routes(routes!(scope::suspend))
        .routes(routes!(scope::resume))
        .routes(routes!(scope::move_scope))
        .routes(routes!(scope::set_identity))
        .routes(routes!(limit::quota, limit::set_quota))
        .routes(routes!(share::share, share::set_share))
        .routes(routes!(limit::budgets, limit::set_budgets))
        .routes(routes!(limit::policy, limit::set_policy))
        .routes(routes!(limit::rules, limit::set_rules))
        .routes(routes!(log::search_logs))
        .routes(routes!(log::log_keeping, log::set_log_keeping))
        .routes(routes!(secret::secrets))
        .routes(routes!(secret::set_secret, secret::erase_secret))
        .routes(routes!(volume::volumes, volume::create_volume))
        .routes(routes!(volume::volume, volume::remove_volume))
        .routes(routes!(volume::grow_volume))
        .routes(routes!(webhook::webhooks, webhook::create_webhook))
        .routes(routes!(webhook::webhook, webhook::remove_webhook))
        .routes(routes!(webhook::pause_webhook))
        .routes(routes!(webhook::resume_webhook))
        .routes(routes!(webhook::rotate_webhook))
        .routes(routes!(webhook::ping_webhook))
        .routes(routes!(booking::bookings, booking::make_booking))
        .routes(routes!(booking::quote_booking))
        .routes(routes!(booking::booking))
        .routes(routes!(booking::edit_booking))
        .routes(routes!(booking::extend_booking))
        .routes(routes!(booking::transfer_booking))
        .routes(routes!(booking::cancel_booking))
        .routes(routes!(booking::booking_terms, booking::set_booking_terms))
        .routes(routes!(booking::calendar::calendar))
        .routes(routes!(booking::calendar::calendar_feed))
        .routes(routes!(market::offer::offers, market::offer::make_offer))
        .routes(routes!(market::offer::withdraw_offer))
        .routes(routes!(market::offer::auto_offers))
        .routes(routes!(
            market::offer::set_auto_offer,
            market::offer::remove_auto_offer
        ))
        .routes(routes!(market::order::buy))
        .routes(routes!(market::order::bids, market::order::place_bid))
        .routes(routes!(market::order::cancel_bid))
        .routes(routes!(market::lease::leases))
        .routes(routes!(market::lease::recall_lease))
        .routes(routes!(market::lease::return_lease))
        .routes(routes!(market::price::market_book))
        .routes(routes!(market::price::price_index))
        .routes(routes!(
            market::price::market_terms,
            market::price::set_market_terms
        ))
        .routes(routes!(job::jobs, job::submit_job))
        .routes(routes!(job::plan::plan_job))
        .routes(routes!(fit::fit_workload))
        .routes(routes!(job::job))
        .routes(routes!(job::stop_job))
        .routes(routes!(job::pause::pause_job))
        .routes(routes!(job::pause::resume_job))
        .routes(routes!(job::resize::resize_job))
        .routes(routes!(job::task::job_tasks))
        .routes(routes!(job::why))
        .routes(routes!(job::audit::job_audit))
        .routes(routes!(job::log::logs))
        .routes(routes!(job::session::attach_job))
        .routes(routes!(job::session::exec_job))
        .routes(routes!(job::session::port_job))
        .routes(routes!(service::scale_job))
        .routes(routes!(service::services))
        .routes(routes!(cost::costs))
        .routes(routes!(price_book::scope_prices))
        .routes(routes!(price_book::price_books, price_book::set_price_book))
        .routes(routes!(bill::bill_rows))
        .routes(routes!(adjustment::adjust))
        .routes(routes!(invoice::draft_invoice))
        .routes(routes!(invoice::invoices, invoice::issue_invoice))
        .routes(routes!(invoice::invoice))
        .routes(routes!(invoice::pay_invoice))
        .routes(routes!(invoice::invoice_rows))
        .routes(routes!(invoice::invoice_file))
        .routes(routes!(analysis::analysis))
        .routes(routes!(analysis::forecast))
        .routes(routes!(node::nodes))
        .routes(routes!(node::create_join_token))
        .routes(routes!(node::node, node::remove_node))
        .routes(routes!(node::cordon))
        .routes(routes!(node::uncordon))
        .routes(routes!(node::label_node))
        .routes(routes!(node::revoke_node))
        .routes(routes!(gpu::gpus))
        .routes(routes!(gpu::gpu))
        .routes(routes!(gpu::release_gpu))
        .routes(routes!(metric::metrics))
        .routes(routes!(metric::dcgm_metrics))
        .routes(routes!(journal::journal_head))
        .routes(routes!(journal::journal_proof))
        .routes(routes!(event::events));
    let (router, document) = router.split_for_parts();
    // Whatever the method: what it means is the service's to say.
    let router = router
        .route(ENDPOINT, axum::routing::any(service::call_service))
        .route(ENDPOINT_ROOT, axum::routing::any(service::call_service));
    (router, document)
}
