//! The HTTP layer: what every route shares. Requests are read strictly, callers proven and throttled, refusals
//! answered as problems, and connections bounded.
//!
//! Deliberately absent: what a route does (`routes/`), who somebody is (`auth`), decisions (domain). `tenure up`
//! calls `serve`.

pub mod body;
pub(crate) mod caught;
pub mod cursor;
pub mod etag;
pub mod fail;
pub(crate) mod finish;
pub mod page;
pub mod path;
pub mod query;
mod serve;
mod strict;
mod tls;

use std::sync::Arc;

use axum::Router;
use tenure_domain::tenancy::key::Digest;
use tenure_engine::Engine;
use tenure_journal::{LogStore, SigningKey};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::audit::Audit;
use crate::auth::oidc::Oidc;
use crate::controller::Controller;
use crate::idempotency::InFlight;
use crate::keyring::Keyring;
use crate::openapi::Operations;
use crate::reading::Readings;
use crate::routes::event::Streams;
use crate::service::Services;
use crate::session::Ports;
use crate::throttle::Throttle;
use crate::webhook::Webhooks;

pub use crate::auth::oidc::OidcOptions;
pub use crate::webhook::WebhookOptions;
pub(crate) use finish::Notes;
pub use serve::{Peer, serve};
pub use tls::tls_config;

/// What the routes stand on.
#[derive(Clone)]
pub struct App {
    pub controller: Controller,
    pub keyring: Arc<Keyring>,
    /// For logs and sessions.
    pub engine: Arc<dyn Engine>,
    /// What jobs wrote, kept.
    pub logs: LogStore,
    /// What nodes last measured.
    pub readings: Arc<Readings>,
    /// Signs the journal's heads.
    pub signing_key: Arc<SigningKey>,
    /// Fingerprint of the authority that nodes will trust; part of join tickets.
    pub authority: Digest,
    pub options: HttpOptions,
}

#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Requests a second each tenant may make; also the platform's staff together, and each stranger.
    pub rate_per_tenant: u32,
    /// Requests a tenant may make at once after a pause.
    pub burst_per_tenant: u32,
    pub body_limit_bytes: usize,
    pub max_connections: usize,
    pub oidc: Option<OidcOptions>,
    pub webhooks: WebhookOptions,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            rate_per_tenant: 1000,
            burst_per_tenant: 2000,
            body_limit_bytes: 1 << 20,
            max_connections: 10_000,
            oidc: None,
            webhooks: WebhookOptions::default(),
        }
    }
}

/// What handlers share.
pub(crate) struct Shared {
    pub app: App,
    pub throttle: Throttle,
    pub audit: Arc<Audit>,
    pub in_flight: InFlight,
    pub operations: Operations,
    pub oidc: Option<Oidc>,
    pub streams: Streams,
    pub ports: Ports,
    pub services: Arc<Services>,
    pub webhooks: Arc<Webhooks>,
    /// Ends streams that would go on for ever.
    pub stop: CancellationToken,
    /// The document as it is served.
    pub document: String,
}

/// The routes and the console, ready to be served. Refused accesses are counted into `audit`; streams end with `stop`.
pub(crate) fn router(
    app: App,
    audit: Arc<Audit>,
    (services, webhooks): (Arc<Services>, Arc<Webhooks>),
    stop: CancellationToken,
    tls: bool,
) -> Router {
    let (routes, document) = crate::routes::routes();
    let document = crate::openapi::finish(document);
    let options = &app.options;
    let shared = Arc::new(Shared {
        throttle: Throttle::new(options.rate_per_tenant, options.burst_per_tenant),
        audit,
        in_flight: InFlight::default(),
        operations: Operations::of(&document),
        oidc: options.oidc.clone().map(Oidc::new),
        streams: Streams::default(),
        ports: Ports::default(),
        services,
        webhooks,
        stop,
        document: serde_json::to_string(&document).expect("the document encodes"),
        app,
    });
    let api = routes
        .with_state(shared.clone())
        .merge(crate::openapi::docs())
        .fallback(finish::no_route)
        .layer(CatchPanicLayer::custom(finish::panicked))
        .layer(axum::middleware::from_fn_with_state(
            shared.clone(),
            finish::finish,
        ));
    crate::console::router(shared, api.clone(), tls).merge(api)
}
