//! Money: what a scope spent, over time, by level, class and kind, and by job; how much of it lay idle; what the month will
//! come to, its budgets and its invoices, which `invoice` opens down to their intervals.

pub(super) mod invoice;

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tenure_api::v1::analysis::{AnalysisView, ForecastView, NamedGroup};
use tenure_api::v1::cost::{CostLine, CostView};
use tenure_api::v1::invoice::InvoiceView;
use tenure_api::v1::page::Page as List;
use tenure_domain::ledger::analysis::{By, Group};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::{Level, ScopeId};
use tenure_domain::time::HOUR_MS;

use super::budget::{self, Bar};
use super::desk::piece;
use super::fault::{Page, page};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;

const DAY_MS: u64 = 24 * HOUR_MS;
const LINES: usize = 50;
const GROUPS: usize = 40;
const INVOICES: u32 = 12;
/// Jobs told of for what they left idle.
const WASTES: usize = 10;
/// Labels money can be put together by at a glance.
const LABELS: usize = 8;

/// What money is put together by, as the API and as people say it.
const BY: &[(&str, &str)] = &[
    ("tenant", "tenant"),
    ("subscriber", "subscriber"),
    ("user", "user"),
    ("class", "GPU class"),
    ("kind", "kind"),
    ("workload", "workload"),
    ("sku", "SKU"),
    ("isolation", "isolation"),
    ("name", "job name"),
];

#[derive(Deserialize)]
pub(super) struct Asked {
    scope: Option<String>,
    days: Option<String>,
    by: Option<String>,
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

/// What one class, kind, … came to.
struct Sum {
    name: Html,
    value: String,
    cost: String,
    gpu: String,
    idle: String,
}

/// What one day came to: what devices worked for, and what they stood idle for.
struct Day {
    day: String,
    worked: String,
    idle: String,
    /// Hour by hour: as a share of the dearest hour, and in money.
    hours: Vec<(u64, String)>,
}

struct Invoice {
    id: String,
    of: Html,
    since: Html,
    until: Html,
    state: Html,
    total: String,
}

#[derive(Template)]
#[template(path = "money.html")]
struct Money {
    frame: Frame,
    path: Html,
    scope: String,
    scopes: Vec<(String, String)>,
    days: &'static str,
    by: String,
    by_words: String,
    bys: Vec<(String, String)>,
    currency: String,
    figures: Vec<(&'static str, String, String)>,
    course: Vec<Day>,
    hourly: bool,
    groups: Vec<Sum>,
    more_groups: usize,
    budgets: Vec<Bar>,
    basis: Option<String>,
    lines: Vec<Line>,
    more: usize,
    wastes: Vec<Waste>,
    invoices: Vec<Invoice>,
    billed: bool,
}

pub(super) async fn money(session: Session, Query(asked): Query<Asked>) -> Page {
    let frame = Frame::of(&session, "money").await?;
    let (days, span_ms) = match asked.days.as_deref() {
        Some("7") => ("7", Some(7 * DAY_MS)),
        Some("30") => ("30", Some(30 * DAY_MS)),
        Some("90") => ("90", Some(90 * DAY_MS)),
        _ => ("month", None),
    };
    let mut query = String::new();
    if let Some(scope) = asked.scope.as_deref().filter(|scope| !scope.is_empty()) {
        query.push_str(&format!("scope={}&", piece(scope)));
    }
    if let Some(span_ms) = span_ms {
        let since = tenure_domain::Time(crate::controller::now().0 - span_ms as i64);
        query.push_str(&format!("since={}&", piece(&since.rfc3339())));
    }
    let costs: CostView = session.desk.get(&format!("/v1/costs?{query}")).await?;
    let scope = costs.scope;
    // Three months have more hours than are told one by one.
    let hourly = days != "90";
    let step = if hourly { "hour" } else { "day" };
    let of = format!("/v1/analysis?{query}by=");
    let times: AnalysisView = session.desk.get(&format!("{of}{step}")).await?;
    let bys = apart(scope.level(), &times.labels, asked.by.as_deref());
    let (by, by_words) = bys
        .iter()
        .find(|(by, _)| asked.by.as_ref() == Some(by))
        .unwrap_or(&bys[0])
        .clone();
    let groups: AnalysisView = session.desk.get(&format!("{of}{}", piece(&by))).await?;
    let jobs: AnalysisView = session.desk.get(&format!("{of}job")).await?;
    let forecast: Option<ForecastView> = session
        .desk
        .get(&format!("/v1/forecast?scope={scope}"))
        .await
        .ok();
    let budgets = budget::of(&session, &[scope]).await;
    let invoices = session
        .desk
        .get::<List<InvoiceView>>(&format!("/v1/invoices?scope={scope}&limit={INVOICES}"))
        .await;
    page(&Money {
        path: show::name(if costs.path.is_empty() {
            &frame.platform
        } else {
            &costs.path
        }),
        scope: scope.to_string(),
        scopes: scopes(&session),
        days,
        figures: figures(&costs, &times, forecast.as_ref()),
        course: course(&times, hourly),
        hourly,
        groups: groups
            .groups
            .iter()
            .take(GROUPS)
            .map(|group| named(group, &by, &costs.currency))
            .collect(),
        more_groups: groups.groups.len().saturating_sub(GROUPS),
        by,
        by_words,
        bys,
        budgets: budget::bars(&budgets),
        basis: forecast.map(|forecast| super::html::inert(&forecast.basis)),
        more: costs.lines.len().saturating_sub(LINES),
        lines: costs
            .lines
            .iter()
            .take(LINES)
            .map(|cost| line(cost, &costs.currency))
            .collect(),
        wastes: wastes(&jobs),
        invoices: invoices
            .map(|found| found.items.iter().map(invoice_row).collect())
            .unwrap_or_default(),
        billed: !matches!(scope, ScopeId::Platform),
        currency: costs.currency,
        frame,
    })
}

/// What the money of a level can be put together by: what is below it, what it was for, and what its jobs' labels say.
fn apart(level: Level, labels: &[String], asked: Option<&str>) -> Vec<(String, String)> {
    let above = match level {
        Level::Platform => 0,
        Level::Tenant => 1,
        Level::Subscriber => 2,
        Level::User => 3,
    };
    let known = BY[above..]
        .iter()
        .map(|(by, words)| (by.to_string(), words.to_string()));
    // One that was asked for stands there whatever there is of it in this time.
    let label = asked.filter(|by| by.parse::<By>().is_ok());
    let label = label.and_then(|by| by.strip_prefix("label:"));
    let labels = labels.iter().map(String::as_str).take(LABELS);
    let labels = labels.filter(|key| Some(*key) != label).chain(label);
    known
        .chain(labels.map(|key| {
            (
                format!("label:{key}"),
                format!("label {}", super::html::inert(key)),
            )
        }))
        .collect()
}

fn figures(
    costs: &CostView,
    times: &AnalysisView,
    forecast: Option<&ForecastView>,
) -> Vec<(&'static str, String, String)> {
    let money = |micros: i64| show::money(micros, &costs.currency);
    let total = &times.total;
    let waste = match total.busy_ms + total.idle_ms {
        0 => ("–".to_owned(), "no device was measured".to_owned()),
        all => (
            money(total.waste_micros),
            format!(
                "devices stood idle {} of their time",
                show::permille(total.idle_ms.saturating_mul(1000) / all)
            ),
        ),
    };
    let mut figures = vec![(
        "Spent",
        money(total.cost_micros),
        format!(
            "{}, {}",
            show::things(costs.lines.len() as u64, "job") + if costs.truncated { " and more" } else { "" },
            show::gpu_time(total.gpu_ms)
        ),
    )];
    if let Some(of) = forecast.map(|forecast| &forecast.forecast) {
        let so_far = format!("{} of it so far", money(of.so_far_micros));
        figures.push(("This month will come to", money(of.month_micros), so_far));
    }
    figures.push((
        "Held for what runs",
        money(costs.held_micros),
        "comes back where it is not used".into(),
    ));
    figures.push(("Paid for and idle", waste.0, waste.1));
    figures
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

/// Day by day from the first on which something was spent, with those on which nothing was.
fn course(times: &AnalysisView, hourly: bool) -> Vec<Day> {
    let mut days: BTreeMap<i64, (i64, i64, [i64; 24])> = BTreeMap::new();
    for group in times.groups.iter().map(|group| &group.group) {
        let Ok(at) = group.group.parse::<jiff::Timestamp>() else {
            continue;
        };
        let hours = at.as_second().div_euclid(3600);
        let (worked, idle, by_hour) = days.entry(hours.div_euclid(24)).or_insert((0, 0, [0; 24]));
        *worked += group.cost_micros - group.waste_micros;
        *idle += group.waste_micros;
        by_hour[hours.rem_euclid(24) as usize] += group.cost_micros;
    }
    let (Some((&first, _)), Some((&last, _))) = (days.first_key_value(), days.last_key_value()) else {
        return Vec::new();
    };
    let most = days.values().flat_map(|(_, _, hours)| hours).max().copied();
    let most = most.unwrap_or(0).max(1);
    let day = |at: i64| {
        let (worked, idle, hours) = days.get(&at).copied().unwrap_or((0, 0, [0; 24]));
        let shade = |micros: i64| (i128::from(micros.max(0)) * 1000 / i128::from(most)) as u64;
        let hours = hours
            .iter()
            .map(|&micros| (shade(micros), show::money(micros, "")));
        Day {
            day: jiff::Timestamp::from_second(at * 86_400).map_or_else(
                |_| String::new(),
                |at| {
                    at.to_zoned(jiff::tz::TimeZone::UTC)
                        .strftime("%-d %b")
                        .to_string()
                },
            ),
            worked: decimal(worked),
            idle: decimal(idle),
            hours: if hourly { hours.collect() } else { Vec::new() },
        }
    };
    (first..=last).map(day).collect()
}

fn named(group: &NamedGroup, by: &str, currency: &str) -> Sum {
    let of = &group.group;
    let name = match (&group.path, of.group.as_str(), by) {
        (Some(path), ..) => show::name(path),
        (None, "", "class") => Html::made("no GPU".into()),
        (None, "", "sku") => Html::made("no SKU".into()),
        (None, "", "subscriber") => Html::made("under no subscriber".into()),
        (None, "", _) => Html::made("none".into()),
        (None, text, "kind") => show::name(&show::words(text)),
        (None, text, _) => show::name(text),
    };
    Sum {
        name,
        value: decimal(of.cost_micros),
        cost: show::money(of.cost_micros, currency),
        gpu: show::gpu_time(of.gpu_ms),
        idle: match of.busy_ms + of.idle_ms {
            0 => "–".into(),
            _ => show::money(of.waste_micros, currency),
        },
    }
}

fn invoice_row(view: &InvoiceView) -> Invoice {
    Invoice {
        id: view.id.clone().unwrap_or_default(),
        of: show::name(&view.path),
        since: show::time(&view.since),
        until: show::time(&view.until),
        state: show::pill(view.state.as_str()),
        total: show::money(view.total_micros, &view.currency),
    }
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

/// Jobs that paid for the most device time they had nothing to do in, as far as it was measured: of the dearest, as the API tells
/// them.
fn wastes(jobs: &AnalysisView) -> Vec<Waste> {
    let told = jobs.groups.iter().map(|group| &group.group);
    let mut told: Vec<_> = told
        .filter(|job| job.busy_ms + job.idle_ms > 0 && !job.group.is_empty())
        .collect();
    told.sort_by_key(|job| std::cmp::Reverse(job.waste_micros));
    let waste = |job: &Group| {
        let permille = job.idle_ms.saturating_mul(1000) / (job.busy_ms + job.idle_ms);
        Waste {
            job: job.group.clone(),
            name: show::name(job.name.as_deref().unwrap_or(&job.group)),
            idle: format!("{} idle", show::permille(permille)),
            bar: show::bar(permille, 1000),
            cost: show::money(job.waste_micros, &jobs.currency),
        }
    };
    told.into_iter().take(WASTES).map(waste).collect()
}
