//! What a job would cost and whether it would be taken, decided on the view and forgotten.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::job::{Filled, Plan, PlanTasks, SubmitJob};
use tenure_domain::id::{Ids, JobId};
use tenure_domain::ledger::tariff;
use tenure_domain::money::Micros;
use tenure_domain::schedule::pass::{self, Ask};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::derive::Derivation;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::task::Tasks;
use tenure_domain::workload::task::progress::one;
use tenure_domain::{Command, Event, State as Platform, Time, Wish, decide};

use super::owner_of;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::{Answer, Fail};
use crate::openapi::ChangeProblems;

/// Ids that no journal ever holds.
pub(super) const THROWAWAY: u64 = u64::MAX - Ids::BLOCK;

/// Says what submitting a job would do, and does nothing.
#[utoipa::path(post, path = "/v1/jobs/plan", tag = "job", request_body = SubmitJob, responses((status = 200, body = Plan), ChangeProblems))]
pub(crate) async fn plan_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<SubmitJob>,
) -> Answer<Json<Plan>> {
    let owner = owner_of(&caller, body.value.owner.as_deref())?;
    let at = now();
    let wish = Wish::Submit {
        owner,
        spec: Arc::new(body.value.spec),
        trace: None,
    };
    let command = Command {
        at,
        by: caller.actor.clone(),
        ids: THROWAWAY,
        wish,
    };
    let state = shared.app.controller.view().read();
    let events = decide(&state, &command).map_err(|refusal| Fail::from(refusal).under("/spec"))?;
    Ok(Json(read(&state, ScopeId::User(owner), &events, at)))
}

fn read(state: &Platform, owner: ScopeId, events: &[Event], at: Time) -> Plan {
    let mut plan = Plan {
        starts_now: false,
        waiting: None,
        hold_micros: 0,
        hourly_micros: 0,
        currency: state.prices.currency.to_string(),
        node_name: None,
        isolation: None,
        filled: None,
        derivation: None,
        tasks: None,
    };
    for event in events {
        match event {
            Event::JobSubmitted { spec, derivation, .. } => {
                estimate(state, owner, spec, &mut plan);
                plan.tasks = tasks(spec, plan.hourly_micros, derivation.as_deref());
                plan.derivation.clone_from(derivation);
                let filled = || Filled {
                    demand: spec.demand.clone(),
                    run_time_s: spec.run_time_s,
                };
                plan.filled = (spec.sku.is_some() || derivation.is_some()).then(filled);
            }
            event => placed(state, event, &mut plan),
        }
    }
    if !plan.starts_now {
        let ask = events.iter().find_map(|event| match event {
            Event::JobSubmitted { spec, volumes, .. } => Some(Ask {
                owner,
                spec,
                volumes,
                job: JobId(THROWAWAY),
                attempt: 1,
            }),
            _ => None,
        });
        let mut ids = Ids::starting_at(THROWAWAY);
        let of_tasks = ask.as_ref().is_some_and(|ask| Tasks::of(ask.spec).is_some());
        let started = ask.map(|ask| pass::start(state, &ask, &mut ids, at));
        match started {
            Some(Err(waits)) => plan.waiting = Some(waits.into()),
            // What a job of tasks waits for is what one of them would as the job itself.
            Some(Ok(started)) if of_tasks => {
                started.iter().for_each(|event| placed(state, event, &mut plan));
            }
            _ => {}
        }
    }
    plan
}

fn placed(state: &Platform, event: &Event, plan: &mut Plan) {
    match event {
        Event::JobAdmitted { admission, .. } => {
            plan.hourly_micros = admission.hold.own_hourly().0;
            plan.hold_micros = admission.hold.own_left().0;
        }
        Event::JobPlaced { allocation, .. } => {
            plan.starts_now = true;
            plan.isolation = Some(allocation.isolation);
            plan.node_name = state
                .fleet
                .node(allocation.node)
                .map(|node| node.name.to_string());
        }
        _ => {}
    }
}

/// How it would be cut, at the price by the list.
fn tasks(spec: &JobSpec, hourly_micros: i64, derivation: Option<&Derivation>) -> Option<PlanTasks> {
    let tasks = Tasks::of(spec).filter(|tasks| tasks.serving().is_none())?;
    let cut = spec.tasks.unwrap_or_default();
    let run_ms = derivation.and_then(|derivation| derivation.run_ms);
    Some(PlanTasks {
        piece: one(spec).into(),
        total: tasks.pieces().total,
        per_task: cut.per_task.unwrap_or(1),
        parallel: cut.parallel(),
        expected_micros: run_ms.map(|run_ms| Micros(hourly_micros).for_ms_at_hourly(run_ms).0),
    })
}

/// The price by the list, for a job that has no place yet.
fn estimate(state: &Platform, owner: ScopeId, spec: &JobSpec, plan: &mut Plan) {
    let class = spec.demand.class.as_deref().or(Some(""));
    let ask = tariff::Ask::of(spec, class, spec.demand.vram_total_mib());
    let hourly = tariff::own_hourly(&state.prices, &state.books, &state.tree, owner, &ask, now());
    plan.hourly_micros = hourly.0;
    plan.hold_micros = hourly
        .for_ms_at_hourly((spec.run_time_s + u64::from(spec.grace_s)) * 1000)
        .0;
}
