//! What was spent: jobs that ended in a span of time, and those still running.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::cost::{CostLine, CostQuery, CostView, PieceCost};
use tenure_api::v1::time::Moment;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::workload::job::{DoneJob, Phase};
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::task::Tasks;
use tenure_domain::workload::task::progress::one;
use tenure_domain::{State as Platform, Time};
use tenure_journal::HistoryRow;

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
    let moment = |text: Option<&str>, name: &str| -> Answer<Option<Time>> {
        let parsed = text.map(|text| text.parse::<Moment>().map(|moment| moment.0));
        parsed.transpose().map_err(|why| Fail::invalid(name, why))
    };
    let since = moment(query.since.as_deref(), "since")?.unwrap_or(Period::Month.start(at));
    let until = moment(query.until.as_deref(), "until")?.unwrap_or(at);
    if since > until {
        return Err(Fail::invalid("since", "the span ends before it begins"));
    }
    let (mut view, path) = {
        let state = shared.app.controller.view().read();
        let scope = choose(&state, &caller, query.scope.as_deref())?;
        let mut view = empty(&state, scope, since, until);
        // What runs now belongs to any span that has not ended.
        if until >= at {
            add_live(&state, scope, &mut view);
        }
        (view, state.tree.path(scope))
    };
    add_done(&shared, &path, &mut view).await?;
    Ok(Json(view))
}

/// The scope asked for, or the widest one above the caller whose costs it may see.
fn choose(state: &Platform, caller: &Caller, asked: Option<&str>) -> Answer<ScopeId> {
    if let Some(asked) = asked {
        let scope = asked.parse().map_err(|_| Fail::not_found())?;
        caller.may(state, Action::CostRead, scope)?;
        return Ok(scope);
    }
    let me = ScopeId::User(caller.user);
    let above: Vec<ScopeId> = state.tree.chain(me).map(|scope| scope.id).collect();
    let widest = above
        .into_iter()
        .rev()
        .find(|&scope| caller.may(state, Action::CostRead, scope).is_ok());
    widest.map_or_else(
        || {
            Err(caller
                .may(state, Action::CostRead, me)
                .err()
                .map_or_else(Fail::not_found, Fail::from))
        },
        Ok,
    )
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

fn add_live(state: &Platform, scope: ScopeId, view: &mut CostView) {
    let mut gpu_ms = 0;
    for job in state
        .jobs_within(scope)
        .filter(|job| job.phase != Phase::Queued || job.ran_ms > 0)
    {
        let held = job
            .admission
            .as_ref()
            .map_or(0, |admission| admission.hold.left.money.0);
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
            charged_micros: job.charged.money.0,
            pieces: pieces(&job.spec, job.tasks.as_deref(), job.charged.money.0),
        };
        add(view, &mut gpu_ms, line);
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
async fn add_done(shared: &Shared, path: &str, view: &mut CostView) -> Answer<()> {
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
            let line = line_of(shared, &row)?;
            add(view, &mut gpu_ms, line);
        }
        if last_page {
            return Ok(());
        }
    }
}

fn line_of(shared: &Shared, row: &HistoryRow) -> Answer<CostLine> {
    let job: DoneJob = serde_json::from_str(&row.body).map_err(|error| Fail::internal(&error))?;
    let state = shared.app.controller.view().read();
    Ok(CostLine {
        job: job.id,
        name: job.spec.name.clone(),
        owner_path: owner_path(&state, job.owner, &row.scope),
        ended: Some(job.ended.into()),
        ran_ms: job.ran_ms,
        gpu_ms: job.charged.gpu_ms,
        charged_micros: job.charged.money.0,
        pieces: pieces(&job.spec, job.tasks.as_deref(), job.charged.money.0),
    })
}
