//! The overview: figures, what needs somebody, the newest jobs, GPUs by class and budgets, for the reader's level.

use std::collections::BTreeMap;

use askama::Template;
use tenure_api::v1::job::{JobPhase, JobView};
use tenure_api::v1::limit::{BudgetView, BudgetsView};
use tenure_api::v1::page::Page as List;
use tenure_domain::workload::job::Phase;

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

struct Bar {
    name: Html,
    bar: Html,
    figure: String,
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
    let phases = tally(shared, &session.caller).map_err(problem)?;
    let seen = survey(shared, &session.caller).map_err(problem)?;
    let live: List<JobView> = session.desk.get("/v1/jobs?limit=100").await?;
    let currency = session.currency();
    let budgets = budgets(&session).await;
    let running = live.items.iter().filter(|job| job.phase != JobPhase::Queued);
    let spending: i64 = running
        .filter_map(|job| job.allocation.as_ref())
        .map(|allocation| allocation.hourly_micros)
        .sum();
    let home = Home {
        plus: show::icon("plus"),
        fleet: seen.fleet,
        tiles: tiles(&phases, &seen, &show::money(spending, &currency)),
        jobs: live
            .items
            .iter()
            .take(NEWEST)
            .map(|job| row(job, &currency))
            .collect(),
        notes: notes(&session, &seen, &live.items, &budgets).await,
        classes: classes(&seen),
        budgets: budgets
            .iter()
            .flat_map(|view| {
                view.budgets
                    .iter()
                    .map(|budget| budget_bar(budget, &view.currency))
            })
            .collect(),
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
    let over = budgets.iter().flat_map(|view| &view.budgets).filter(|budget| {
        share(budget).is_some_and(|(used, of)| used.saturating_mul(10) >= of.saturating_mul(9))
    });
    for budget in over {
        notes.push(Note {
            level: "warn",
            href: "/console".into(),
            text: format!("The {} is nearly used up", name_of(budget)),
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

/// Budgets above the reader, the nearest first, as far as they may be seen.
async fn budgets(session: &Session) -> Vec<BudgetsView> {
    let mut views = Vec::new();
    for scope in session.above() {
        let asked = session
            .desk
            .get::<BudgetsView>(&format!("/v1/scopes/{scope}/budgets"))
            .await;
        views.extend(asked.ok());
    }
    views
}

/// What is gone of a budget and how much there is, in its own unit.
fn share(view: &BudgetView) -> Option<(u64, u64)> {
    let budget = &view.budget;
    let spent = |spent: i64| u64::try_from(spent).unwrap_or(0);
    if let Some(of) = budget.money_micros {
        return Some((spent(view.spent_micros.saturating_add(view.held_micros)), of));
    }
    if let Some(of) = budget.gpu_seconds {
        return Some((view.spent_gpu_seconds + view.held_gpu_seconds, of));
    }
    budget.frames.map(|of| (view.spent_frames + view.held_frames, of))
}

fn name_of(view: &BudgetView) -> String {
    let budget = &view.budget;
    let what = match (budget.money_micros, budget.gpu_seconds) {
        (Some(_), _) => "budget",
        (None, Some(_)) => "GPU time",
        (None, None) => "frames",
    };
    let of = budget.class.as_deref().or(budget.sku.as_deref());
    let period = format!("{:?}", budget.period).to_lowercase();
    match of {
        Some(of) => format!("{period}'s {what} for {}", super::html::inert(of)),
        None => format!("{period}'s {what}"),
    }
}

fn budget_bar(view: &BudgetView, currency: &str) -> Bar {
    let (used, of) = share(view).unwrap_or((0, 0));
    let budget = &view.budget;
    let figure = match (budget.money_micros, budget.gpu_seconds) {
        (Some(_), _) => format!(
            "{} of {}",
            show::money(used as i64, ""),
            show::money(of as i64, currency)
        ),
        (None, Some(_)) => format!("{} of {}", show::gpu_time(used * 1000), show::gpu_time(of * 1000)),
        (None, None) => format!("{} of {}", show::count(used), show::count(of)),
    };
    Bar {
        name: show::name(&name_of(view)),
        bar: show::bar(used, of),
        figure,
    }
}
