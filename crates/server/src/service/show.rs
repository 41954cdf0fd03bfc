//! How a service is shown, and what its requests wait for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_api::v1::service::ServiceView;
use tenure_domain::State;
use tenure_domain::schedule::why::why;
use tenure_domain::workload::job::{Job, Phase};

use super::{Desk, Services, replicas, serving};
use crate::controller::now;

/// Where a service answers.
pub(crate) fn endpoint(job: tenure_domain::id::JobId) -> String {
    format!("/v1/services/{job}/")
}

/// A service, with what this server counted of it; none for a job that is none.
pub(crate) fn view(services: &Arc<Services>, state: &State, job: &Job) -> Option<ServiceView> {
    let serving = serving(job)?;
    let desk = services.desk(job)?;
    let (ready, in_flight, waiting) = desk.now();
    let counts = &desk.counts;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    Some(ServiceView {
        endpoint: endpoint(job.id),
        replicas: serving.replicas,
        wanted: serving.wanted,
        living: replicas(state, job).count() as u32,
        ready,
        in_flight,
        waiting,
        requests: count(&counts.arrived),
        answered: count(&counts.answered),
        failed: count(&counts.failed),
        lost: count(&counts.lost),
        turned_away: count(&counts.turned_away),
        waited_p50_ms: counts.waited.quantile_ms(500),
        waited_p99_ms: counts.waited.quantile_ms(990),
        took_p50_ms: counts.took.quantile_ms(500),
        took_p99_ms: counts.took.quantile_ms(990),
        journalled_requests: serving.requests,
        waits_for: (ready == 0).then(|| waits_for(state, &desk)),
    })
}

/// What stands between a request and its place, in a sentence.
pub(crate) fn waits_for(state: &State, desk: &Desk) -> String {
    let (ready, ..) = desk.now();
    if ready > 0 {
        let each = desk.service.in_flight;
        return format!("its {ready} ready replicas work on {each} requests each, as many as they take");
    }
    let Some(job) = state.jobs.get(&desk.job) else {
        return "the service has ended".to_owned();
    };
    let Some(serving) = serving(job) else {
        return "the job is no service".to_owned();
    };
    let of = |wanted: fn(Phase) -> bool| replicas(state, job).find(|replica| wanted(replica.phase));
    if of(|phase| phase == Phase::Running).is_some() {
        let said = desk.said.lock().expect("short and without panics").clone();
        let said = said.unwrap_or_else(|| "it has not answered yet".to_owned());
        return format!("its replica runs and is not ready: {said}");
    }
    if of(|phase| matches!(phase, Phase::Placed | Phase::Starting | Phase::Admitted)).is_some() {
        return "its replica is starting".to_owned();
    }
    if let Some(queued) = of(|phase| phase == Phase::Queued) {
        let reason = why(state, queued.id, now());
        let reason = reason.map_or_else(
            || "its turn comes".to_owned(),
            |reason| reason.sentence.to_string(),
        );
        return format!("its replica waits: {reason}");
    }
    match (
        &serving.trouble,
        serving.restart_after.filter(|after| *after > now()),
    ) {
        (Some(trouble), Some(after)) => {
            format!(
                "its replicas failed: {trouble}; the next is started at {}",
                after.rfc3339()
            )
        }
        _ => format!("no replica is there; the job is {}", job.phase.as_str()),
    }
}
