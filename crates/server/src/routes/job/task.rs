//! Tasks of a job: those that live, then those that ended. Whoever sees the job sees them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::job::JobView;
use tenure_api::v1::page::Page;
use tenure_api::v1::task::{EtaView, TaskQuery, TaskView, TasksView};
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::workload::derive::Derivation;
use tenure_domain::workload::job::{DoneJob, Job, Phase};
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::task::progress::{Progress, named, one, pieces_of};
use tenure_domain::workload::task::{Tasks, Work};
use tenure_domain::{State as Platform, Time};
use tenure_journal::HistoryRow;

use super::{Found, find, view};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::ReadProblems;

/// Rows of history looked at a time.
const PAGE: u32 = 1000;

/// Lists the tasks of a job: the live ones, newest first, then those that ended, last ended first.
#[utoipa::path(get, path = "/v1/jobs/{job}/tasks", tag = "job", params(("job" = String, Path, description = "The job's id"), TaskQuery),
    responses((status = 200, body = Page<JobView>), ReadProblems))]
pub(crate) async fn job_tasks(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<TaskQuery>,
) -> Answer<Json<Page<JobView>>> {
    let of: JobId = path.id(0)?;
    let found = find(&shared, &caller, of, Action::JobRead).await?;
    let turn = Turn::new(
        &shared,
        &caller,
        &format!("tasks/{of}"),
        query.limit,
        query.cursor.as_deref(),
    )?;
    let bad = || Fail::invalid("cursor", "the cursor is not one of this list");
    let mut items = Vec::new();
    let before = match turn.after.as_deref() {
        Some("done") => None,
        Some(after) if after.contains(' ') => {
            let (at_ms, id) = after.split_once(' ').ok_or_else(bad)?;
            Some((at_ms.parse().map_err(|_| bad())?, id.to_owned()))
        }
        after => {
            let after: Option<JobId> = after.map(|after| after.parse().map_err(|_| bad())).transpose()?;
            let page = turn.page(living(&shared, &found, after).into_iter(), |view| {
                view.id.to_string()
            });
            if page.next.is_some() {
                return Ok(Json(page));
            }
            items = page.items;
            if items.len() == turn.limit {
                let next = Some(turn.seal("done"));
                return Ok(Json(Page { items, next }));
            }
            None
        }
    };
    let wanted = turn.limit - items.len();
    let mut rows = ended(
        &shared,
        of,
        before.as_ref(),
        u32::try_from(wanted + 1).unwrap_or(PAGE),
    )
    .await?;
    let more = rows.len() > wanted;
    rows.truncate(wanted);
    let next = rows.last().filter(|_| more);
    let next = next.map(|row| turn.seal(&format!("{} {}", row.at_ms, row.id)));
    let path = match &found {
        Found::Done { path, .. } => path.clone(),
        Found::Live(_) => String::new(),
    };
    let state = shared.app.controller.view().read();
    for row in &rows {
        items.push(view::done(&state, &read(row)?, &path));
    }
    Ok(Json(Page { items, next }))
}

fn living(shared: &Shared, found: &Found, before: Option<JobId>) -> Vec<JobView> {
    let Found::Live(parent) = found else {
        return Vec::new();
    };
    let state = shared.app.controller.view().read();
    let ids = parent.tasks.iter().flat_map(|tasks| tasks.living.values().rev());
    let ids = ids.filter(|id| before.is_none_or(|before| **id < before));
    let jobs = ids.filter_map(|id| state.jobs.get(id));
    jobs.map(|job| view::live(&state, job)).collect()
}

async fn ended(
    shared: &Shared,
    of: JobId,
    before: Option<&(i64, String)>,
    limit: u32,
) -> Answer<Vec<HistoryRow>> {
    let before = before.map(|(at_ms, id)| (*at_ms, id.as_str()));
    let reader = shared.app.controller.reader();
    Ok(reader
        .history("task", Some(&of.to_string()), before, limit)
        .await?)
}

fn read(row: &HistoryRow) -> Answer<DoneJob> {
    serde_json::from_str(&row.body).map_err(|error| Fail::internal(&error))
}

/// The task of a job with this number, wherever it is.
pub(super) async fn numbered(shared: &Shared, found: &Found, number: u32) -> Answer<JobId> {
    let (of, tasks) = match found {
        Found::Live(job) => (job.id, job.tasks.as_deref()),
        Found::Done { job, .. } => (job.id, job.tasks.as_deref()),
    };
    let none = || Fail::invalid("task", format!("the job has no task {number}"));
    let tasks = tasks.ok_or_else(|| Fail::invalid("task", "the job has no tasks"))?;
    if let Some(living) = tasks.living.get(&number) {
        return Ok(*living);
    }
    if number >= tasks.made {
        return Err(none());
    }
    let mut before = None;
    loop {
        let rows = ended(shared, of, before.as_ref(), PAGE).await?;
        for row in &rows {
            let job = read(row)?;
            if job.spec.task.as_ref().is_some_and(|task| task.number == number) {
                return Ok(job.id);
            }
        }
        match rows.last().filter(|_| rows.len() == PAGE as usize) {
            Some(last) => before = Some((last.at_ms, last.id.clone())),
            None => return Err(none()),
        }
    }
}

/// How far a live job of tasks is.
pub(super) fn progress(state: &Platform, job: &Job, now: Time) -> Option<TasksView> {
    let tasks = job.tasks.as_deref().filter(|tasks| tasks.serving().is_none())?;
    let progress = Progress::of(tasks.pieces(), tasks.jobs(&state.jobs));
    let goes_on = !matches!(job.phase, Phase::Paused | Phase::Stopping);
    let derivation = job.derivation.as_deref().filter(|_| goes_on);
    Some(shown(
        &job.spec,
        tasks,
        &progress,
        derivation,
        goes_on.then_some(now),
    ))
}

/// What became of one that ended.
pub(super) fn outcome(job: &DoneJob) -> Option<TasksView> {
    let tasks = job.tasks.as_deref().filter(|tasks| tasks.serving().is_none())?;
    let progress = Progress::of(tasks.pieces(), std::iter::empty());
    Some(shown(&job.spec, tasks, &progress, None, None))
}

fn shown(
    spec: &JobSpec,
    tasks: &Tasks,
    progress: &Progress,
    derivation: Option<&Derivation>,
    now: Option<Time>,
) -> TasksView {
    let pieces = tasks.pieces();
    let cut = spec.tasks.unwrap_or_default();
    let left = progress.waiting + progress.running > 0;
    let eta = now.filter(|_| left).and_then(|now| {
        let eta = progress.eta(pieces, derivation)?;
        Some(EtaView {
            at: now.plus_ms(eta.left_ms).into(),
            basis: eta.basis,
        })
    });
    TasksView {
        piece: one(spec).into(),
        total: progress.total,
        done: progress.done,
        running: progress.running,
        waiting: progress.waiting,
        failed: progress.failed,
        failed_pieces: (progress.failed > 0).then(|| named(spec, &pieces.failed)),
        retries: pieces.retries,
        made: tasks.made,
        tasks_running: progress.tasks_running,
        tasks_waiting: progress.tasks_waiting,
        parallel: cut.parallel(),
        per_task: cut.per_task.unwrap_or(1),
        each_ms: (progress.done > 0).then(|| pieces.done_ms.div_ceil(progress.done)),
        each_micros: pieces.each_micros(),
        eta,
    }
}

/// Which part of another job it is, having cost so much.
pub(super) fn part(spec: &JobSpec, charged_micros: i64) -> Option<TaskView> {
    let task = spec.task.as_deref()?;
    let count = task.work.span().count;
    Some(TaskView {
        of: task.of,
        number: task.number,
        pieces: match task.work {
            Work::Pieces(_) => pieces_of(spec),
            Work::Replica => "replica".into(),
        },
        count,
        tries: task.tries,
        each_micros: charged_micros / i64::try_from(count).unwrap_or(i64::MAX).max(1),
    })
}
