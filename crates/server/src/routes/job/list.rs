//! Lists of jobs: live ones from the state, ended ones from history, only those the caller may see.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tenure_api::v1::job::{JobQuery, JobView};
use tenure_api::v1::page::Page;
use tenure_domain::State;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::schedule::order::precede::precedes;
use tenure_domain::schedule::pass::Ask;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Job, Phase};
use tenure_journal::HistoryRow;

use super::super::past;
use super::view;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Live,
    Done,
    All,
}

/// Where a page goes on: among the live jobs, or in history.
enum Place {
    Live(Option<JobId>),
    Done(Option<(i64, String)>),
}

impl Place {
    fn read(text: Option<&str>, show: Show) -> Option<Place> {
        let Some(text) = text else {
            return Some(if show == Show::Done {
                Place::Done(None)
            } else {
                Place::Live(None)
            });
        };
        if text == "done" {
            return Some(Place::Done(None));
        }
        if let Some((at_ms, id)) = text.split_once(' ') {
            return Some(Place::Done(Some((at_ms.parse().ok()?, id.to_owned()))));
        }
        Some(Place::Live(Some(text.parse().ok()?)))
    }
}

pub(super) async fn list(shared: &Shared, caller: &Caller, query: JobQuery) -> Answer<Page<JobView>> {
    let show = match query.show.as_deref() {
        None | Some("live") => Show::Live,
        Some("done") => Show::Done,
        Some("all") => Show::All,
        Some(_) => return Err(Fail::invalid("show", "not one of live, done, all")),
    };
    let roots = roots(shared, caller, query.scope.as_deref())?;
    let tasks = query.tasks.unwrap_or(false);
    let filters = format!(
        "jobs/{}/{}/{tasks}",
        query.scope.as_deref().unwrap_or_default(),
        query.show.as_deref().unwrap_or("live")
    );
    let turn = Turn::new(shared, caller, &filters, query.limit, query.cursor.as_deref())?;
    let place = Place::read(turn.after.as_deref(), show)
        .ok_or_else(|| Fail::invalid("cursor", "the cursor is not one of this list"))?;
    let mut items = Vec::new();
    let before = match place {
        Place::Live(after) => {
            let ids = live_ids(shared, caller, &roots, (after, tasks), turn.limit + 1);
            let more = ids.len() > turn.limit;
            let state = shared.app.controller.view().read();
            items.extend(
                ids.iter()
                    .take(turn.limit)
                    .filter_map(|id| state.jobs.get(id))
                    .map(|job| view::live(&state, job)),
            );
            if more {
                let next = ids.get(turn.limit - 1).map(|last| turn.seal(&last.to_string()));
                return Ok(Page { items, next });
            }
            if show == Show::Live {
                return Ok(Page { items, next: None });
            }
            if items.len() == turn.limit {
                return Ok(Page {
                    items,
                    next: Some(turn.seal("done")),
                });
            }
            None
        }
        Place::Done(before) => before,
    };
    let wanted = turn.limit - items.len();
    let (done, next) = done_jobs(shared, caller, &roots, before, wanted).await?;
    items.extend(done);
    Ok(Page {
        items,
        next: next.map(|(at_ms, id)| turn.seal(&format!("{at_ms} {id}"))),
    })
}

/// The highest scopes whose jobs are asked for and shown.
fn roots(shared: &Shared, caller: &Caller, scope: Option<&str>) -> Answer<Vec<ScopeId>> {
    let state = shared.app.controller.view().read();
    if let Some(scope) = scope {
        // As in a path: what cannot be an id is as absent as what nobody has.
        let scope = scope.parse().map_err(|_| Fail::not_found())?;
        caller.may(&state, Action::JobRead, scope)?;
        return Ok(vec![scope]);
    }
    caller.may_look(&state)?;
    Ok(readable(&state, caller))
}

/// The scopes where the caller was given sight of jobs, and itself; none below another.
pub(in crate::routes) fn readable(state: &State, caller: &Caller) -> Vec<ScopeId> {
    reached(state, caller, Action::JobRead)
}

/// The scopes where the caller was given this right, and itself; none below another.
pub(crate) fn reached(state: &State, caller: &Caller, right: Action) -> Vec<ScopeId> {
    let me = ScopeId::User(caller.user);
    let reach = state
        .tree
        .tenant_of(me)
        .map_or(ScopeId::Platform, ScopeId::Tenant);
    let granted = state
        .tree
        .subtree(reach)
        .into_iter()
        .filter_map(|id| state.tree.get(id));
    let granted = granted
        .filter(|scope| scope.roles.contains_key(&caller.user))
        .map(|scope| scope.id);
    let mut roots: Vec<ScopeId> = Vec::new();
    // Parents come before children.
    for id in granted.chain([me]) {
        let covered = roots.iter().any(|&root| state.tree.is_within(id, root));
        if !covered && caller.may(state, right, id).is_ok() {
            roots.push(id);
        }
    }
    roots
}

/// Live jobs the caller may see: how many in each phase, and what they cost by the hour at present.
#[derive(Default)]
pub(crate) struct Tally {
    /// Tasks are counted with the job they are of.
    pub phases: BTreeMap<Phase, u64>,
    /// Of what is held on nodes, tasks included, in the prices each job's owner pays.
    pub hourly_micros: i64,
}

pub(crate) fn tally(shared: &Shared, caller: &Caller) -> Answer<Tally> {
    let roots = roots(shared, caller, None)?;
    let state = shared.app.controller.view().read();
    let mut sight = Sight::of(caller);
    let mut tally = Tally::default();
    for job in roots.iter().flat_map(|&root| state.jobs_within(root)) {
        if !sight.sees(&state, job.owner) {
            continue;
        }
        if job.parent().is_none() {
            *tally.phases.entry(job.phase).or_default() += 1;
        }
        if let Some(admission) = job
            .admission
            .as_ref()
            .filter(|_| job.allocations().next().is_some())
        {
            tally.hourly_micros = tally.hourly_micros.saturating_add(admission.hold.own_hourly().0);
        }
    }
    Ok(tally)
}

/// Waiting jobs that the caller may see, in the order in which they are asked whether they can start: the first `limit`
/// of at most so many looked at.
pub(crate) fn waiting(shared: &Shared, caller: &Caller, limit: usize) -> Answer<Vec<JobId>> {
    let roots = roots(shared, caller, None)?;
    let state = shared.app.controller.view().read();
    let mut sight = Sight::of(caller);
    let queued = roots.iter().flat_map(|&root| state.jobs_within(root));
    let seen = queued
        .filter(|job| job.phase == Phase::Queued && job.tasks.is_none() && sight.sees(&state, job.owner));
    let mut jobs: Vec<&Job> = seen.collect();
    jobs.sort_by_key(|job| (std::cmp::Reverse(job.spec.priority), job.id));
    jobs.truncate(limit.saturating_mul(2));
    let mut order: Vec<&Job> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let ask = Ask::of(job);
        let at = order
            .iter()
            .position(|other| precedes(&state, &ask, &Ask::of(other), now()));
        order.insert(at.unwrap_or(order.len()), job);
    }
    Ok(order.iter().take(limit).map(|job| job.id).collect())
}

/// Who may be shown, asked once for each owner.
pub(in crate::routes) struct Sight<'a> {
    caller: &'a Caller,
    known: HashMap<UserId, bool>,
}

impl<'a> Sight<'a> {
    pub(in crate::routes) fn of(caller: &'a Caller) -> Sight<'a> {
        Sight {
            caller,
            known: HashMap::new(),
        }
    }

    pub(in crate::routes) fn sees(&mut self, state: &State, owner: UserId) -> bool {
        let caller = self.caller;
        *self
            .known
            .entry(owner)
            .or_insert_with(|| caller.may(state, Action::JobRead, ScopeId::User(owner)).is_ok())
    }
}

/// Live jobs before `after`, newest first; with their tasks only where those are wanted.
fn live_ids(
    shared: &Shared,
    caller: &Caller,
    roots: &[ScopeId],
    (after, tasks): (Option<JobId>, bool),
    limit: usize,
) -> Vec<JobId> {
    let state = shared.app.controller.view().read();
    let mut sight = Sight::of(caller);
    let end = after.unwrap_or(JobId(u64::MAX));
    if roots == [ScopeId::Platform] {
        let newest_first = state.jobs.range(..end).rev().map(|(_, job)| job);
        return newest_first
            .filter(|job| (tasks || job.parent().is_none()) && sight.sees(&state, job.owner))
            .take(limit)
            .map(|job| job.id)
            .collect();
    }
    let within = roots.iter().flat_map(|&root| state.jobs_within(root));
    let ids: BTreeSet<JobId> = within
        .filter(|job: &&Job| job.id < end && (tasks || job.parent().is_none()))
        .filter(|job| sight.sees(&state, job.owner))
        .map(|job| job.id)
        .collect();
    ids.into_iter().rev().take(limit).collect()
}

type Before = Option<(i64, String)>;

/// Ended jobs, last ended first, and where the next page goes on.
async fn done_jobs(
    shared: &Shared,
    caller: &Caller,
    roots: &[ScopeId],
    mut before: Before,
    wanted: usize,
) -> Answer<(Vec<JobView>, Before)> {
    let mut views = Vec::new();
    loop {
        let rows = rows(shared, roots, before.as_ref(), wanted + 1).await?;
        let last_page = rows.len() <= wanted;
        for row in rows {
            if views.len() == wanted {
                return Ok((views, before));
            }
            before = Some((row.at_ms, row.id.clone()));
            views.extend(shown(shared, caller, &row)?);
        }
        if last_page {
            return Ok((views, None));
        }
    }
}

fn shown(shared: &Shared, caller: &Caller, row: &HistoryRow) -> Answer<Option<JobView>> {
    let job: DoneJob = serde_json::from_str(&row.body).map_err(|error| Fail::internal(&error))?;
    let state = shared.app.controller.view().read();
    let seen = past::may(
        caller,
        &state,
        Action::JobRead,
        ScopeId::User(job.owner),
        &row.scope,
    )
    .is_ok();
    Ok(seen.then(|| view::done(&state, &job, &row.scope)))
}

/// History rows of several scopes as one list.
async fn rows(
    shared: &Shared,
    roots: &[ScopeId],
    before: Option<&(i64, String)>,
    limit: usize,
) -> Answer<Vec<HistoryRow>> {
    let paths: Vec<String> = {
        let state = shared.app.controller.view().read();
        roots.iter().map(|&root| state.tree.path(root)).collect()
    };
    let before = before.map(|(at_ms, id)| (*at_ms, id.as_str()));
    let limit_u32 = u32::try_from(limit).unwrap_or(u32::MAX);
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(
            shared
                .app
                .controller
                .reader()
                .history("job", Some(&path), before, limit_u32)
                .await?,
        );
    }
    rows.sort_by(|a, b| (b.at_ms, &b.id).cmp(&(a.at_ms, &a.id)));
    rows.dedup_by(|a, b| a.id == b.id);
    rows.truncate(limit);
    Ok(rows)
}
