//! Jobs: the lists of those that live, wait and are done. One job is in `one`, submitting one in `submit`.

mod log;
pub(super) mod one;
pub(super) mod spec;
pub(super) mod submit;
mod task;
mod way;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tenure_api::v1::job::{JobPhase, JobView, StartsView, Why};
use tenure_api::v1::page::Page as List;
use tenure_domain::workload::spec::JobSpec;

use super::desk::piece;
use super::fault::{Fault, Page, page};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;
use crate::routes::job::list::waiting;

const PAGE: u32 = 50;
/// Waiting jobs that are told in their order, with reasons.
const TOLD: usize = 50;

#[derive(Deserialize)]
pub(super) struct Asked {
    show: Option<String>,
    cursor: Option<String>,
}

struct Row {
    id: String,
    name: Html,
    owner: Html,
    kind: String,
    state: Html,
    place: Html,
    needs: String,
    when: Html,
    ran: String,
    cost: String,
}

struct Waits {
    place: usize,
    id: String,
    name: Html,
    owner: Html,
    priority: &'static str,
    needs: String,
    since: Html,
    starts: Html,
    reason: Html,
}

#[derive(Template)]
#[template(path = "job/list.html")]
struct Jobs {
    frame: Frame,
    plus: Html,
    show: &'static str,
    rows: Vec<Row>,
    waits: Vec<Waits>,
    next: Option<String>,
    later: bool,
}

pub(super) async fn list(session: Session, Query(asked): Query<Asked>) -> Page {
    let frame = Frame::of(&session, "jobs").await?;
    let mut jobs = Jobs {
        frame,
        plus: show::icon("plus"),
        show: match asked.show.as_deref() {
            Some("waiting") => "waiting",
            Some("done") => "done",
            _ => "live",
        },
        rows: Vec::new(),
        waits: Vec::new(),
        next: None,
        later: asked.cursor.is_some(),
    };
    if jobs.show == "waiting" {
        jobs.waits = in_line(&session).await?;
        return page(&jobs);
    }
    let cursor = asked
        .cursor
        .as_deref()
        .map(|cursor| format!("&cursor={}", piece(cursor)));
    let path = format!(
        "/v1/jobs?show={}&limit={PAGE}{}",
        jobs.show,
        cursor.unwrap_or_default()
    );
    let found: List<JobView> = session.desk.get(&path).await?;
    let currency = session.currency();
    jobs.rows = found.items.iter().map(|job| row(job, &currency)).collect();
    jobs.next = found.next.as_deref().map(piece);
    page(&jobs)
}

fn row(job: &JobView, currency: &str) -> Row {
    let place = job
        .allocation
        .as_ref()
        .map(|allocation| show::name(&allocation.node_name));
    Row {
        id: job.id.to_string(),
        name: show::name(&job.spec.name),
        owner: show::name(&job.owner_path),
        kind: show::words(job.spec.kind.as_str()),
        state: state(job),
        place: place.unwrap_or_else(show::none),
        needs: needs(&job.spec),
        when: show::time(job.ended.as_ref().unwrap_or(&job.submitted)),
        ran: if job.ran_ms == 0 {
            "–".into()
        } else {
            show::span(job.ran_ms)
        },
        cost: show::money(job.charged_micros, currency),
    }
}

/// Where a job is in its life, or how it ended.
fn state(job: &JobView) -> Html {
    match (&job.outcome, job.phase) {
        (Some(outcome), JobPhase::Done) => show::pill(outcome.as_str()),
        (_, phase) => show::pill(phase.as_str()),
    }
}

/// What a job asks for, in a few words.
fn needs(spec: &JobSpec) -> String {
    let demand = &spec.demand;
    let members = if demand.nodes > 1 {
        format!("{} × ", demand.nodes)
    } else {
        String::new()
    };
    if demand.gpus == 0 {
        return format!(
            "{members}{} CPU, {}",
            show::milli(demand.cpu_milli.into()),
            show::mib(demand.memory_mib)
        );
    }
    let class = demand
        .class
        .as_deref()
        .map_or("GPU".to_owned(), super::html::inert);
    let size = match (demand.compute_permille, demand.vram_mib) {
        (1000, 0) => String::new(),
        (1000, vram) => format!(", {}", show::mib(vram)),
        (share, vram) => format!(", {} with {}", show::permille(share.into()), show::mib(vram)),
    };
    format!("{members}{} × {class}{size}", demand.gpus)
}

/// When a job is likely to start, in a cell.
fn starts(starts: Option<&StartsView>) -> Html {
    starts.map_or_else(show::none, |starts| match starts.from == starts.to {
        true => show::time(&starts.from),
        false => Html::made(format!(
            "{} – {}",
            show::time(&starts.from),
            show::time(&starts.to)
        )),
    })
}

async fn in_line(session: &Session) -> Result<Vec<Waits>, Fault> {
    let order = waiting(&session.console.shared, &session.caller, TOLD)
        .map_err(|fail| Fault::Problem(fail.problem))?;
    let mut waits = Vec::with_capacity(order.len());
    for (before, id) in order.into_iter().enumerate() {
        // One that started meanwhile waits no more.
        let (Ok(job), Ok(why)) = (
            session.desk.get::<JobView>(&format!("/v1/jobs/{id}")).await,
            session.desk.get::<Why>(&format!("/v1/jobs/{id}/why")).await,
        ) else {
            continue;
        };
        waits.push(Waits {
            place: before + 1,
            id: id.to_string(),
            name: show::name(&job.spec.name),
            owner: show::name(&job.owner_path),
            priority: job.spec.priority.as_str(),
            needs: needs(&job.spec),
            since: show::time(&job.submitted),
            starts: starts(why.starts.as_ref()),
            reason: show::name(&why.sentence),
        });
    }
    Ok(waits)
}
