//! The pages of figures that scrapers read: our own, and devices in dcgm-exporter's words.
//!
//! Who may read metrics at the platform sees all of it; others see what is theirs. A key limited to `metric_read` is
//! what a scraper needs, and can do nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::metrics::dcgm::Dcgm;
use crate::metrics::own::{self, Server};
use crate::metrics::sight::Sight;
use crate::metrics::text::Form;
use crate::openapi::ReadProblems;

/// Between two looks at so many nodes, whoever publishes has the state.
const NODES_AT_ONCE: usize = 64;

/// Gives our own metrics, in OpenMetrics where that is asked for.
#[utoipa::path(get, path = "/metrics", tag = "metric",
    responses((status = 200, description = "OpenMetrics 1.0, or Prometheus text 0.0.4", body = String, content_type = "text/plain"), ReadProblems))]
pub(crate) async fn metrics(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
) -> Answer<Response> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let form = Form::asked(accept);
    let page = off_the_loop(move || {
        let controller = &shared.app.controller;
        let server = Server {
            leads: controller.is_leading(),
            seq: controller.view().seq(),
            agents: shared.app.engine.connected(),
        };
        let state = controller.view().read();
        caller.may_look(&state)?;
        let sight = Sight::of(&state, caller);
        Ok(own::page(
            form,
            controller.metrics(),
            (&state, now()),
            &shared.app.readings,
            &server,
            sight,
        ))
    });
    Ok(answer(form.media_type(), page.await?))
}

/// Gives what devices and their slices do, in dcgm-exporter's words, whoever made them.
#[utoipa::path(get, path = "/metrics/dcgm", tag = "metric",
    responses((status = 200, description = "Prometheus text 0.0.4", body = String, content_type = "text/plain"), ReadProblems))]
pub(crate) async fn dcgm_metrics(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<Response> {
    let page = off_the_loop(move || {
        let (mut page, nodes) = {
            let state = shared.app.controller.view().read();
            caller.may_look(&state)?;
            let page = Dcgm::new(Sight::of(&state, caller));
            let nodes = page.nodes(&state);
            (page, nodes)
        };
        for some in nodes.chunks(NODES_AT_ONCE) {
            let state = shared.app.controller.view().read();
            let held = shared.app.readings.held();
            for node in some.iter().filter_map(|&node| state.fleet.node(node)) {
                page.add(&state, &held, node);
            }
        }
        Ok(page.end())
    });
    Ok(answer(Form::Prometheus.media_type(), page.await?))
}

/// A large page takes a while to write.
async fn off_the_loop(write: impl FnOnce() -> Answer<String> + Send + 'static) -> Answer<String> {
    let written = tokio::task::spawn_blocking(write).await;
    written.unwrap_or_else(|error| Err(Fail::internal(&error)))
}

fn answer(media_type: &'static str, page: String) -> Response {
    ([(header::CONTENT_TYPE, media_type)], page).into_response()
}
