//! Money: what a scope spent, over time, by who is below it and by job; how much of it was idle; and its budgets.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::Query;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use tenure_api::v1::cost::{CostLine, CostView};
use tenure_api::v1::job::JobView;
use tenure_api::v1::page::Page as List;
use tenure_domain::tenancy::role::Action;
use tenure_domain::time::HOUR_MS;

use super::desk::piece;
use super::fault::{Page, page};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;

/// Groups told apart in a drawing; the rest is one.
const GROUPS: usize = 8;
const DAY_MS: u64 = 24 * HOUR_MS;
const LINES: usize = 50;
/// Jobs looked at for what they left idle.
const LOOKED_AT: u32 = 500;
/// Device time below which nobody cares whether it was idle.
const WORTH_MS: u64 = 60_000;

#[derive(Deserialize)]
pub(super) struct Asked {
    scope: Option<String>,
    days: Option<String>,
}

struct Line {
    job: String,
    name: Html,
    owner: Html,
    ended: Html,
    ran: String,
    gpu: String,
    cost: String,
}

struct Waste {
    job: String,
    name: Html,
    idle: String,
    bar: Html,
    cost: String,
}

#[derive(Template)]
#[template(path = "money.html")]
struct Money {
    frame: Frame,
    path: Html,
    scope: String,
    scopes: Vec<(String, String)>,
    days: &'static str,
    figures: Vec<(&'static str, String, String)>,
    groups: Vec<Html>,
    by_day: Vec<(String, Vec<String>)>,
    by_group: Vec<(Html, String, String)>,
    lines: Vec<Line>,
    more: usize,
    wastes: Vec<Waste>,
}

pub(super) async fn money(session: Session, Query(asked): Query<Asked>) -> Page {
    let frame = Frame::of(&session, "money").await?;
    let (days, span_ms) = match asked.days.as_deref() {
        Some("7") => ("7", Some(7 * DAY_MS)),
        Some("30") => ("30", Some(30 * DAY_MS)),
        Some("90") => ("90", Some(90 * DAY_MS)),
        _ => ("month", None),
    };
    let mut path = String::from("/v1/costs?");
    if let Some(scope) = asked.scope.as_deref().filter(|scope| !scope.is_empty()) {
        path.push_str(&format!("scope={}&", piece(scope)));
    }
    if let Some(span_ms) = span_ms {
        let since = tenure_domain::Time(crate::controller::now().0 - span_ms as i64);
        path.push_str(&format!("since={}", piece(&since.rfc3339())));
    }
    let view: CostView = session.desk.get(&path).await?;
    let (groups, by_day, by_group) = spread(&view);
    let money = |micros: i64| show::money(micros, &view.currency);
    page(&Money {
        path: show::name(if view.path.is_empty() {
            &frame.platform
        } else {
            &view.path
        }),
        scope: view.scope.to_string(),
        scopes: scopes(&session),
        days,
        figures: vec![
            (
                "Spent",
                money(view.charged_micros),
                format!(
                    "{} jobs{}",
                    show::count(view.lines.len() as u64),
                    if view.truncated { " and more" } else { "" }
                ),
            ),
            (
                "Held for what runs",
                money(view.held_micros),
                "comes back where it is not used".into(),
            ),
            ("GPU time", show::gpu_time(view.gpu_seconds * 1000), mean(&view)),
        ],
        groups: groups.iter().map(|group| show::name(group)).collect(),
        by_day,
        by_group: by_group
            .iter()
            .map(|(group, micros)| (show::name(group), decimal(*micros), money(*micros)))
            .collect(),
        more: view.lines.len().saturating_sub(LINES),
        lines: view
            .lines
            .iter()
            .take(LINES)
            .map(|cost| line(cost, &view.currency))
            .collect(),
        wastes: wastes(&session, &view).await,
        frame,
    })
}

fn mean(view: &CostView) -> String {
    let hours = view.gpu_seconds as i64;
    let each = view.charged_micros.saturating_mul(3600).checked_div(hours);
    each.map_or("no GPU was used".into(), |each| {
        format!("{} an hour on average", show::money(each, &view.currency))
    })
}

/// An amount for a drawing.
fn decimal(micros: i64) -> String {
    format!("{:.6}", micros as f64 / 1e6)
}

fn scopes(session: &Session) -> Vec<(String, String)> {
    let places = session.places(Action::CostRead).into_iter();
    places
        .map(|scope| (scope.to_string(), super::html::inert(&session.title(scope))))
        .collect()
}

type Spread = (Vec<String>, Vec<(String, Vec<String>)>, Vec<(String, i64)>);

/// Costs by day and by who is right below the scope, the largest first.
fn spread(view: &CostView) -> Spread {
    let group = |line: &CostLine| {
        let below = line
            .owner_path
            .strip_prefix(&view.path)
            .unwrap_or(&line.owner_path);
        let first = below
            .trim_start_matches('/')
            .split('/')
            .next()
            .unwrap_or_default();
        if first.is_empty() {
            line.owner_path.clone()
        } else {
            first.to_owned()
        }
    };
    let mut totals: BTreeMap<String, i64> = BTreeMap::new();
    let mut days: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for line in &view.lines {
        let who = group(line);
        *totals.entry(who.clone()).or_default() += line.charged_micros;
        *days.entry(day(line, view)).or_default().entry(who).or_default() += line.charged_micros;
    }
    let mut order: Vec<(String, i64)> = totals.into_iter().filter(|(_, micros)| *micros != 0).collect();
    order.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
    let mut groups: Vec<String> = order.iter().take(GROUPS).map(|(who, _)| who.clone()).collect();
    let others = order.len() > GROUPS;
    let rows = days.into_iter().map(|(day, costs)| {
        let mut row: Vec<String> = groups
            .iter()
            .map(|who| decimal(costs.get(who).copied().unwrap_or(0)))
            .collect();
        if others {
            let rest = costs
                .iter()
                .filter(|(who, _)| !groups.contains(who))
                .map(|(_, micros)| micros)
                .sum();
            row.push(decimal(rest));
        }
        (day, row)
    });
    let rows = rows.collect();
    if others {
        groups.push("others".into());
    }
    (groups, rows, order)
}

/// The day a job ended; that of the span's end where it runs.
fn day(line: &CostLine, view: &CostView) -> String {
    let at = line.ended.unwrap_or(view.until).0.0;
    Timestamp::from_millisecond(at).map_or_else(
        |_| String::new(),
        |at| at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string(),
    )
}

fn line(cost: &CostLine, currency: &str) -> Line {
    Line {
        job: cost.job.to_string(),
        name: show::name(&cost.name),
        owner: show::name(&cost.owner_path),
        ended: cost
            .ended
            .as_ref()
            .map_or_else(|| show::pill("running"), show::time),
        ran: show::span(cost.ran_ms),
        gpu: show::gpu_time(cost.gpu_ms),
        cost: show::money(cost.charged_micros, currency),
    }
}

/// Jobs that paid for the most device time in which their devices did nothing, as far as it was measured.
async fn wastes(session: &Session, view: &CostView) -> Vec<Waste> {
    let path = format!("/v1/jobs?show=all&limit={LOOKED_AT}&scope={}", view.scope);
    let jobs: List<JobView> = match session.desk.get(&path).await {
        Ok(jobs) => jobs,
        Err(_) => return Vec::new(),
    };
    let mut wastes: Vec<(i64, Waste)> = Vec::new();
    for job in jobs.items {
        let Some(usage) = job.usage.filter(|_| job.gpu_ms >= WORTH_MS) else {
            continue;
        };
        let idle_ms = job.gpu_ms.saturating_sub(usage.busy_ms);
        let permille = idle_ms * 1000 / job.gpu_ms;
        let lost = (i128::from(job.charged_micros) * i128::from(permille) / 1000) as i64;
        wastes.push((
            lost,
            Waste {
                job: job.id.to_string(),
                name: show::name(&job.spec.name),
                idle: format!("{} idle", show::permille(permille)),
                bar: show::bar(permille, 1000),
                cost: show::money(lost, &view.currency),
            },
        ));
    }
    wastes.sort_by_key(|(lost, _)| std::cmp::Reverse(*lost));
    wastes.into_iter().take(10).map(|(_, waste)| waste).collect()
}
