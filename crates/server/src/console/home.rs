//! The overview: figures, what needs somebody, the newest jobs, GPUs by class and budgets, for the reader's level.

use std::collections::BTreeMap;

use askama::Template;
use tenure_api::v1::job::{JobPhase, JobView};
use tenure_api::v1::limit::BudgetsView;
use tenure_api::v1::page::Page as List;
use tenure_domain::workload::job::Phase;

use super::budget::{self, Bar};
use super::fault::{Fault, Page, page};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;
use crate::routes::gpu::survey::{Health, Survey, survey};
use crate::routes::job::list::tally;

/// Jobs shown, and asked for why they wait.
const NEWEST: usize = 12;
const WAITING: usize = 5;

struct Tile {
    href: &'static str,
    label: &'static str,
    figure: String,
    sub: String,
}

struct Row {
    id: String,
    name: Html,
    owner: Html,
    phase: Html,
    submitted: Html,
    cost: String,
}

struct Note {
    level: &'static str,
    href: String,
    text: String,
}

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    frame: Frame,
    plus: Html,
    fleet: bool,
    tiles: Vec<Tile>,
    jobs: Vec<Row>,
    notes: Vec<Note>,
    classes: Vec<Bar>,
    budgets: Vec<Bar>,
}

pub(super) async fn home(session: Session) -> Page {
    let frame = Frame::of(&session, "home").await?;
    let shared = &session.console.shared;
    let problem = |fail: crate::http::fail::Fail| Fault::Problem(fail.problem);
    let tally = tally(shared, &session.caller).map_err(problem)?;
    let seen = survey(shared, &session.caller).map_err(problem)?;
    let live: List<JobView> = session.desk.get("/v1/jobs?limit=100").await?;
    let currency = session.currency();
    let budgets = budget::of(&session, &session.above()).await;
    let home = Home {
        plus: show::icon("plus"),
        fleet: seen.fleet,
        tiles: tiles(&tally.phases, &seen, &show::money(tally.hourly_micros, &currency)),
        jobs: live
            .items
            .iter()
            .take(NEWEST)
            .map(|job| row(job, &currency))
            .collect(),
        notes: notes(&session, &seen, &live.items, &budgets).await,
        classes: classes(&seen),
        budgets: budget::bars(&budgets),
        frame,
    };
    page(&home)
}

fn tiles(phases: &BTreeMap<Phase, u64>, seen: &Survey, hourly: &str) -> Vec<Tile> {
    let of = |phases_of: &[Phase]| -> u64 { phases_of.iter().filter_map(|phase| phases.get(phase)).sum() };
    let all: u64 = phases.values().sum();
    let waiting = of(&[Phase::Queued]);
    let paused = of(&[Phase::Pausing, Phase::Paused, Phase::Resuming]);
    let running = all - waiting - paused;
    let held = seen.gpus.iter().filter(|gpu| !gpu.7.is_empty()).count();
    let milli: u64 = seen
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.7)
        .map(|piece| u64::from(piece.1))
        .sum();
    let busy: Vec<i32> = seen
        .gpus
        .iter()
        .map(|gpu| gpu.5)
        .filter(|busy| *busy >= 0)
        .collect();
    let mean = busy
        .iter()
        .map(|&busy| busy as u64)
        .sum::<u64>()
        .checked_div(busy.len() as u64);
    vec![
        Tile {
            href: "/console/jobs",
            label: "Running",
            figure: show::count(running),
            sub: format!("{} an hour at present", hourly),
        },
        Tile {
            href: "/console/jobs?show=waiting",
            label: "Waiting",
            figure: show::count(waiting),
            sub: match paused {
                0 => "none paused".into(),
                paused => format!("{} paused", show::count(paused)),
            },
        },
        Tile {
            href: "/console/fleet",
            label: if seen.fleet {
                "GPUs in use"
            } else {
                "GPUs of yours"
            },
            figure: match seen.fleet {
                true => format!(
                    "{} of {}",
                    show::count(held as u64),
                    show::count(seen.gpus.len() as u64)
                ),
                false => show::count(held as u64),
            },
            sub: format!("{} GPUs of slices", show::milli(milli)),
        },
        Tile {
            href: "/console/fleet",
            label: "Measured use",
            figure: mean.map_or("–".into(), show::permille),
            sub: match mean {
                Some(_) => format!("mean over {}", show::things(busy.len() as u64, "GPU")),
                None => "no device was read".into(),
            },
        },
    ]
}

fn row(job: &JobView, currency: &str) -> Row {
    Row {
        id: job.id.to_string(),
        name: show::name(&job.spec.name),
        owner: show::name(&job.owner_path),
        phase: show::pill(job.phase.as_str()),
        submitted: show::time(&job.submitted),
        cost: show::money(job.charged_micros, currency),
    }
}

async fn notes(session: &Session, seen: &Survey, live: &[JobView], budgets: &[BudgetsView]) -> Vec<Note> {
    let mut notes = Vec::new();
    let count = |health: Health| seen.gpus.iter().filter(|gpu| gpu.4 == health).count() as u64;
    let troubles = [
        (Health::Quarantined, "bad", "in quarantine"),
        (Health::Away, "bad", "on nodes that are away"),
        (Health::Absent, "warn", "gone from their nodes"),
        (Health::Cordoned, "warn", "on cordoned nodes"),
    ];
    for (health, level, words) in troubles {
        let gpus = count(health);
        if gpus > 0 {
            let gpus = if gpus == 1 {
                "1 GPU is".into()
            } else {
                format!("{} GPUs are", show::count(gpus))
            };
            notes.push(Note {
                level,
                href: "/console/fleet".into(),
                text: format!("{gpus} {words}"),
            });
        }
    }
    let all = budgets.iter().flat_map(|view| &view.budgets);
    for budget in all.filter(|budget| budget::is_nearly_gone(budget)) {
        notes.push(Note {
            level: "warn",
            href: "/console/money".into(),
            text: format!("The {} is nearly used up", budget::name_of(budget)),
        });
    }
    for job in live
        .iter()
        .filter(|job| job.phase == JobPhase::Queued)
        .take(WAITING)
    {
        let asked = session.desk.get::<JobView>(&format!("/v1/jobs/{}", job.id)).await;
        if let Some(waiting) = asked.ok().and_then(|job| job.waiting) {
            notes.push(Note {
                level: "info",
                href: format!("/console/jobs/{}", job.id),
                text: format!(
                    "{} waits: {}",
                    super::html::inert(&job.spec.name),
                    super::html::inert(&waiting.sentence)
                ),
            });
        }
    }
    notes
}

fn classes(seen: &Survey) -> Vec<Bar> {
    let mut by_class: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for gpu in &seen.gpus {
        let (used, all) = by_class.entry(&seen.classes[gpu.2]).or_default();
        *used += gpu.7.iter().map(|piece| u64::from(piece.1)).sum::<u64>();
        *all += 1000;
    }
    let bars = by_class.into_iter().map(|(class, (used, all))| Bar {
        name: show::name(class),
        bar: show::bar(used, all),
        figure: format!("{} of {}", show::milli(used), show::count(all / 1000)),
    });
    bars.collect()
}
