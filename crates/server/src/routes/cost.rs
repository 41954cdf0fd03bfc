//! What was spent: jobs that ended in a span of time, and those still running.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::cost::{CostLine, CostQuery, CostView, PieceCost};
use tenure_domain::ledger::bill::Eye;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Phase};
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::task::Tasks;
use tenure_domain::workload::task::progress::one;
use tenure_domain::{State as Platform, Time};
use tenure_journal::HistoryRow;

use super::bill::{choose, eye, span};
use super::job::view::owner_path;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::query::Query;
use crate::openapi::ReadProblems;

const MAX_LINES: usize = 1000;
const PAGE: u32 = 1000;

/// Sums up what a scope's jobs cost.
#[utoipa::path(get, path = "/v1/costs", tag = "cost", params(CostQuery), responses((status = 200, body = CostView), ReadProblems))]
pub(crate) async fn costs(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<CostQuery>,
) -> Answer<Json<CostView>> {
    let at = now();
    let span = span(query.since.as_deref(), query.until.as_deref(), at)?;
    let (mut view, path, eye) = {
        let state = shared.app.controller.view().read();
        let scope = choose(&state, &caller, query.scope.as_deref())?;
        let eye = eye(&state, &caller, scope);
        let mut view = empty(&state, scope, span.start, span.end);
        // What runs now belongs to any span that has not ended.
        if span.end >= at {
            add_live(&state, scope, eye, &mut view);
        }
        (view, state.tree.path(scope), eye)
    };
    add_done(&shared, &path, eye, &mut view).await?;
    Ok(Json(view))
}

fn empty(state: &Platform, scope: ScopeId, since: Time, until: Time) -> CostView {
    CostView {
        scope,
        path: state.tree.title(scope),
        currency: state.prices.currency.to_string(),
        since: since.into(),
        until: until.into(),
        charged_micros: 0,
        held_micros: 0,
        gpu_seconds: 0,
        lines: Vec::new(),
        truncated: false,
    }
}

fn add(view: &mut CostView, gpu_ms: &mut u64, line: CostLine) {
    view.charged_micros = view.charged_micros.saturating_add(line.charged_micros);
    *gpu_ms = gpu_ms.saturating_add(line.gpu_ms);
    view.gpu_seconds = *gpu_ms / 1000;
    if view.lines.len() < MAX_LINES {
        view.lines.push(line);
    } else {
        view.truncated = true;
    }
}

fn add_live(state: &Platform, scope: ScopeId, eye: Eye, view: &mut CostView) {
    let mut gpu_ms = 0;
    for job in state
        .jobs_within(scope)
        .filter(|job| job.phase != Phase::Queued || job.ran_ms > 0)
    {
        let held = job
            .admission
            .as_ref()
            .map_or(0, |admission| admission.hold.left_at(scope).money.0);
        view.held_micros = view.held_micros.saturating_add(held);
        // Its job has its cost.
        if job.parent().is_some() {
            continue;
        }
        let line = CostLine {
            job: job.id,
            name: job.spec.name.clone(),
            owner_path: state.tree.title(ScopeId::User(job.owner)),
            ended: None,
            ran_ms: job.ran_ms,
            gpu_ms: job.charged.gpu_ms,
            charged_micros: paid(eye, job.charged.money, job.resold),
            pieces: pieces(
                &job.spec,
                job.tasks.as_deref(),
                paid(eye, job.charged.money, job.resold),
            ),
        };
        add(view, &mut gpu_ms, line);
    }
}

/// What a job cost, in the prices of the level that asks: a tenant's own towards the platform, a subscriber's and a
/// user's towards their tenant.
fn paid(eye: Eye, charged: Micros, resold: Option<Micros>) -> i64 {
    match eye {
        Eye::Tenant => charged.0,
        Eye::Subscriber | Eye::User => resold.unwrap_or(charged).0,
    }
}

/// What each piece of a job of tasks cost, whatever that took.
fn pieces(spec: &JobSpec, tasks: Option<&Tasks>, charged_micros: i64) -> Option<PieceCost> {
    let done = tasks
        .filter(|tasks| tasks.serving().is_none())?
        .pieces()
        .done
        .count();
    Some(PieceCost {
        piece: one(spec).into(),
        done,
        each_micros: charged_micros.checked_div(i64::try_from(done).ok()?)?,
    })
}

/// Adds every job of the span, last ended first, page by page.
async fn add_done(shared: &Shared, path: &str, eye: Eye, view: &mut CostView) -> Answer<()> {
    let (since, until) = (view.since.0, view.until.0);
    let mut gpu_ms: u64 = view.lines.iter().map(|line| line.gpu_ms).sum();
    // Ids are never empty, so this stands before every row that ended at `until` or later.
    let mut before = (until.0, String::new());
    loop {
        let rows = shared
            .app
            .controller
            .reader()
            .history("job", Some(path), Some((before.0, &before.1)), PAGE)
            .await?;
        let last_page = rows.len() < PAGE as usize;
        for row in rows {
            if row.at_ms < since.0 {
                return Ok(());
            }
            before = (row.at_ms, row.id.clone());
            let line = line_of(shared, eye, &row)?;
            add(view, &mut gpu_ms, line);
        }
        if last_page {
            return Ok(());
        }
    }
}

fn line_of(shared: &Shared, eye: Eye, row: &HistoryRow) -> Answer<CostLine> {
    let job: DoneJob = serde_json::from_str(&row.body).map_err(|error| Fail::internal(&error))?;
    let state = shared.app.controller.view().read();
    let charged_micros = paid(eye, job.charged.money, job.resold);
    Ok(CostLine {
        job: job.id,
        name: job.spec.name.clone(),
        owner_path: owner_path(&state, job.owner, &row.scope),
        ended: Some(job.ended.into()),
        ran_ms: job.ran_ms,
        gpu_ms: job.charged.gpu_ms,
        charged_micros,
        pieces: pieces(&job.spec, job.tasks.as_deref(), charged_micros),
    })
}
