//! One job: why it waits or what it does, its way so far, its log, what it uses of what it has, what it costs, and what
//! its nodes noted of it. Also stopping, pausing and resuming it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method};
use serde::Deserialize;
use tenure_api::v1::audit::JobAuditView;
use tenure_api::v1::gpu::DeviceView;
use tenure_api::v1::job::{JobPhase, JobView, Why};
use tenure_api::v1::page::Page as List;

use super::super::Console;
use super::super::desk::piece;
use super::super::fault::{Page, go, page};
use super::super::form::Posted;
use super::super::frame::Frame;
use super::super::html::{Html, escape, inert};
use super::super::session::Session;
use super::super::show;
use super::log::Log;
use super::task::Tasks;
use super::way::{said, sentence, spans};
use super::{needs, starts, state};

/// With this header scripts ask for a page again, to put in what changed.
const LIVE: &str = "x-tenure-live";

struct Slice {
    gpu: String,
    node: Html,
    compute: String,
    busy: String,
    busy_bar: Html,
    vram: String,
    vram_bar: Html,
}

#[derive(Template)]
#[template(path = "job/one.html")]
struct One {
    frame: Frame,
    id: String,
    name: Html,
    state: Html,
    ended: bool,
    may_pause: bool,
    may_resume: bool,
    why: Html,
    hint: Option<String>,
    starts: Option<Html>,
    unforeseen: Option<String>,
    instead: Vec<(String, &'static str, Option<Html>)>,
    figures: Vec<(&'static str, String, String)>,
    way: Vec<(&'static str, i64, i64, Html, Html)>,
    way_said: Option<String>,
    slices: Vec<Slice>,
    usage: Vec<(&'static str, String)>,
    tasks: Option<Tasks>,
    service: Vec<(&'static str, String)>,
    terms: Vec<(String, String, Html)>,
    differs: Vec<Html>,
    facts: Vec<(&'static str, Html)>,
    log: Option<Log>,
    anomalies: Vec<(Html, Html)>,
    records: Vec<Vec<(&'static str, String)>>,
    spec: String,
}

#[derive(Deserialize)]
pub(in crate::console) struct Asked {
    stream: Option<String>,
    /// Where the page of tasks goes on.
    tasks: Option<String>,
}

pub(in crate::console) async fn one(
    session: Session,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Page {
    let frame = Frame::of(&session, "jobs").await?;
    let path = format!("/v1/jobs/{}", piece(&id));
    let job: JobView = session.desk.get(&path).await?;
    let why: Why = session.desk.get(&format!("{path}/why")).await?;
    let audit: JobAuditView = session.desk.get(&format!("{path}/audit")).await?;
    let currency = session.currency();
    let ended = job.phase == JobPhase::Done;
    let stream = if asked.stream.as_deref() == Some("stderr") {
        "stderr"
    } else {
        "stdout"
    };
    // Who asks to have the page kept live reads the log by itself.
    let log = match job.tasks.is_some() || headers.contains_key(LIVE) {
        true => None,
        false => Some(Log::read(&session, &path, stream, ended).await),
    };
    let controller = &session.console.shared.app.controller;
    let trodden = session.console.memo.way(controller, &job).await;
    page(&One {
        id: job.id.to_string(),
        name: show::name(&job.spec.name),
        state: state(&job),
        ended,
        may_pause: matches!(
            job.phase,
            JobPhase::Running | JobPhase::Starting | JobPhase::Placed
        ),
        may_resume: matches!(job.phase, JobPhase::Paused | JobPhase::Pausing),
        why: sentence(&job, &why, &trodden, &currency),
        hint: why
            .waiting
            .as_ref()
            .and_then(|waiting| waiting.hint.as_deref().map(inert)),
        starts: why.starts.as_ref().map(|at| starts(Some(at))),
        unforeseen: why.unforeseen.as_ref().map(|no| inert(&no.sentence)),
        instead: instead(&why),
        figures: figures(&job, &currency),
        way: spans(&trodden),
        way_said: said(&trodden),
        slices: slices(&session, &job).await,
        usage: usage(&job),
        tasks: Tasks::of(&session, &job, &path, asked.tasks.as_deref()).await,
        service: service(&job),
        terms: terms(&job),
        differs: job
            .derivation
            .iter()
            .flat_map(|derivation| &derivation.differs)
            .map(|text| show::name(text))
            .collect(),
        facts: facts(&job),
        log,
        anomalies: audit
            .anomalies
            .iter()
            .map(|anomaly| (show::pill(anomaly.kind.as_str()), show::name(&anomaly.why)))
            .collect(),
        records: audit
            .records
            .iter()
            .rev()
            .take(5)
            .map(|signed| conduct(&signed.conduct))
            .collect(),
        spec: serde_json::to_string_pretty(&job.spec)
            .map(|text| super::super::html::log(&text))
            .unwrap_or_default(),
        frame,
    })
}

/// What would let it start otherwise, and when that would be.
fn instead(why: &Why) -> Vec<(String, &'static str, Option<Html>)> {
    let ways = why.instead.iter().map(|way| {
        let words = match (way.evicts, &way.starts) {
            (true, _) => "when others have left for it",
            (false, Some(_)) => "likely",
            (false, None) => "now",
        };
        let then = way.starts.as_ref().map(|at| starts(Some(at)));
        (inert(&way.change), words, then)
    });
    ways.collect()
}

fn figures(job: &JobView, currency: &str) -> Vec<(&'static str, String, String)> {
    let hourly = job.allocation.as_ref().map(|allocation| allocation.hourly_micros);
    let held = match job.held_micros {
        0 => "nothing held".to_owned(),
        held => format!("{} held", show::money(held, currency)),
    };
    vec![
        ("Cost so far", show::money(job.charged_micros, currency), held),
        (
            "Price",
            hourly.map_or("–".into(), |hourly| show::money(hourly, currency)),
            if hourly.is_some() {
                "an hour".into()
            } else {
                "nothing is charged now".into()
            },
        ),
        (
            "Ran",
            show::span(job.ran_ms),
            format!("of {} at most", show::span(job.spec.run_time_s * 1000)),
        ),
        (
            "GPU time",
            show::gpu_time(job.gpu_ms),
            format!("attempt {} of {}", job.attempt.max(1), job.spec.max_attempts),
        ),
    ]
}

fn facts(job: &JobView) -> Vec<(&'static str, Html)> {
    let text = |text: String| Html::made(escape(&text));
    let spec = &job.spec;
    let mut facts = vec![
        ("Owner", show::name(&job.owner_path)),
        ("Kind", text(show::words(spec.kind.as_str()))),
        ("Priority", text(spec.priority.as_str().into())),
        ("Needs", text(needs(spec))),
    ];
    if let Some(allocation) = &job.allocation {
        facts.push(("Node", show::name(&allocation.node_name)));
        facts.push((
            "Isolation",
            Html::made(format!(
                "{}<br><small>{}</small>",
                allocation.isolation.as_str(),
                show::name(&allocation.isolation_why)
            )),
        ));
    }
    if let Some(task) = &job.task {
        facts.push((
            "Task of",
            Html::made(format!(
                "<a href=\"/console/jobs/{0}\">{0}</a>, {1}",
                task.of,
                show::name(&task.pieces)
            )),
        ));
    }
    facts.extend(spec.sku.as_deref().map(|sku| ("SKU", show::name(sku))));
    facts.extend(spec.image.as_deref().map(|image| ("Image", show::name(image))));
    if !spec.command.is_empty() {
        facts.push((
            "Command",
            Html::made(format!("<code>{}</code>", show::name(&spec.command.join(" ")))),
        ));
    }
    facts.extend(spec.booking.map(|booking| ("Booking", text(booking.to_string()))));
    facts.push(("Submitted", show::time(&job.submitted)));
    facts.extend(
        job.started
            .as_ref()
            .map(|started| ("Started", show::time(started))),
    );
    facts.extend(job.ended.as_ref().map(|ended| ("Ended", show::time(ended))));
    for member in &job.members {
        let phase = show::pill(member.phase.as_str());
        facts.push((
            "Member",
            Html::made(format!(
                "{} on {} {phase}",
                member.member,
                show::name(&member.node_name)
            )),
        ));
    }
    facts
}

/// What it has of each device, and how much of that it uses now.
async fn slices(session: &Session, job: &JobView) -> Vec<Slice> {
    let mut nodes: Vec<String> = job.members.iter().map(|member| member.node.to_string()).collect();
    nodes.extend(
        job.allocation
            .iter()
            .filter(|allocation| !allocation.slices.is_empty())
            .map(|allocation| allocation.node.to_string()),
    );
    nodes.sort();
    nodes.dedup();
    let mut slices = Vec::new();
    for node in nodes.iter().take(16) {
        let Ok(found) = session
            .desk
            .get::<List<DeviceView>>(&format!("/v1/gpus?node={node}&limit=1000"))
            .await
        else {
            continue;
        };
        for device in &found.items {
            let ours = device
                .slices
                .iter()
                .filter(|slice| slice.holder.as_ref().is_some_and(|holder| holder.job == job.id));
            for slice in ours {
                let used = slice.used.as_ref().filter(|_| !device.stale);
                let busy = used.and_then(|used| used.busy_permille).map(u64::from);
                slices.push(Slice {
                    gpu: device.gpu.id.to_string(),
                    node: show::name(&device.node_name),
                    compute: show::permille(slice.compute_permille.into()),
                    busy: busy.map_or("not read".into(), |busy| format!("{} busy", show::permille(busy))),
                    busy_bar: show::bar(busy.unwrap_or(0), slice.compute_permille.into()),
                    vram: used.map_or_else(
                        || show::mib(slice.vram_mib),
                        |used| {
                            format!(
                                "{} of {}",
                                show::mib(used.used_vram_mib),
                                show::mib(slice.vram_mib)
                            )
                        },
                    ),
                    vram_bar: show::bar(used.map_or(0, |used| used.used_vram_mib), slice.vram_mib),
                });
            }
        }
    }
    slices
}

fn usage(job: &JobView) -> Vec<(&'static str, String)> {
    let Some(usage) = &job.usage else {
        return Vec::new();
    };
    let mut rows = vec![
        ("Devices worked for it", show::span(usage.busy_ms)),
        ("Waited for others' turns", show::span(usage.waited_ms)),
        ("Held back by its own cap", show::span(usage.throttled_ms)),
        ("Most memory at once", show::mib(usage.peak_vram_mib)),
        ("Commands to devices", show::count(usage.launches)),
        ("Allocations refused", show::count(usage.refusals)),
        ("Calls denied", show::count(usage.denials)),
    ];
    if usage.energy_mj > 0 {
        rows.push((
            "Energy",
            format!("{}\u{a0}Wh", show::milli(usage.energy_mj / 3600)),
        ));
    }
    rows
}

fn service(job: &JobView) -> Vec<(&'static str, String)> {
    let Some(service) = &job.service else {
        return Vec::new();
    };
    let ms = |ms: Option<f64>| ms.map_or("–".into(), |ms| format!("{ms:.1}\u{a0}ms"));
    vec![
        ("Endpoint", inert(&service.endpoint)),
        (
            "Replicas",
            format!("{} ready of {} wanted", service.ready, service.wanted),
        ),
        (
            "In flight",
            format!("{}, and {} wait", service.in_flight, service.waiting),
        ),
        ("Requests", show::count(service.requests)),
        (
            "Failed, lost, turned away",
            format!(
                "{}, {}, {}",
                show::count(service.failed),
                show::count(service.lost),
                show::count(service.turned_away)
            ),
        ),
        (
            "Waited, median and 99 %",
            format!("{}, {}", ms(service.waited_p50_ms), ms(service.waited_p99_ms)),
        ),
        (
            "Took, median and 99 %",
            format!("{}, {}", ms(service.took_p50_ms), ms(service.took_p99_ms)),
        ),
    ]
}

/// How its demand came about: term, size, formula.
fn terms(job: &JobView) -> Vec<(String, String, Html)> {
    let terms = job
        .derivation
        .iter()
        .flat_map(|derivation| &derivation.estimate.terms);
    terms
        .map(|term| {
            (
                term.name.as_str().to_owned(),
                show::mib(term.bytes >> 20),
                show::name(&term.words),
            )
        })
        .collect()
}

fn conduct(conduct: &tenure_domain::audit::conduct::Conduct) -> Vec<(&'static str, String)> {
    vec![
        ("Ran", show::span(conduct.ran_ms)),
        (
            "Devices given and opened",
            format!("{} and {}", conduct.devices, conduct.devices_opened),
        ),
        ("Most device memory", show::mib(conduct.peak_bytes >> 20)),
        ("Commands", show::count(conduct.launches)),
        (
            "To and from devices",
            format!(
                "{} and {}",
                show::mib(conduct.bytes_in >> 20),
                show::mib(conduct.bytes_out >> 20)
            ),
        ),
        (
            "Allocations refused, calls denied",
            format!(
                "{} and {}",
                show::count(conduct.refusals),
                show::count(conduct.denials)
            ),
        ),
    ]
}

async fn act(posted: &Posted, id: &str, what: &str) -> Page {
    let id = piece(id);
    posted
        .session
        .desk
        .act(Method::POST, &format!("/v1/jobs/{id}/{what}"))
        .await?;
    Ok(go(&format!("/console/jobs/{id}")))
}

pub(in crate::console) async fn stop(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    act(&posted, &id, "stop").await
}

pub(in crate::console) async fn pause(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    act(&posted, &id, "pause").await
}

pub(in crate::console) async fn resume(
    State(_): State<Arc<Console>>,
    Path(id): Path<String>,
    posted: Posted,
) -> Page {
    act(&posted, &id, "resume").await
}
