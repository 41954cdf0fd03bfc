//! Analysis of what was used, and the forecast of the month.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::analysis::{AnalysisQuery, AnalysisView, ForecastQuery, ForecastView, NamedGroup};
use tenure_domain::State as Platform;
use tenure_domain::ledger::analysis::{Analysis, Basis, By, Course, Forecast};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::{HOUR_MS, Period, Time};

use super::bill::{Filter, choose, eye, span};
use crate::auth::Caller;
use crate::billing::{Rows, Wanted};
use crate::controller::now;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::http::query::Query;
use crate::openapi::ReadProblems;

const MAX_GROUPS: usize = 1000;

/// Sums up what a scope used and what that cost: by level, class, kind, workload, label, name or time, with what lay idle in money.
#[utoipa::path(get, path = "/v1/analysis", tag = "cost", params(AnalysisQuery), responses((status = 200, body = AnalysisView), ReadProblems))]
pub(crate) async fn analysis(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<AnalysisQuery>,
) -> Answer<Json<AnalysisView>> {
    let span = span(query.since.as_deref(), query.until.as_deref(), now())?;
    let by = query.by.unwrap_or(By::Kind);
    let (scope, wanted) = place(&shared, &caller, query.scope.as_deref(), span.clone())?;
    let filter = Filter {
        what: None,
        class: query.class,
        sku: query.sku,
        kind: query.kind,
    };
    let mut analysis = Analysis::new(by.clone(), wanted.eye);
    let mut rows = Rows::read(shared.app.controller.reader(), wanted, None);
    while let Some(page) = rows.next().await? {
        for found in &page {
            let named = query.name.as_deref().is_none_or(|name| name == found.row.name);
            if named && filter.takes(&found.row) {
                analysis.add(&found.row, &found.path);
            }
        }
    }
    let total = analysis.total.clone();
    let labels = std::mem::take(&mut analysis.keys).into_iter().collect();
    let mut groups = analysis.groups();
    let truncated = groups.len() > MAX_GROUPS;
    groups.truncate(MAX_GROUPS);
    let state = shared.app.controller.view().read();
    let groups = groups.into_iter().map(|group| NamedGroup {
        path: title(&state, &by, &group.group),
        group,
    });
    Ok(Json(AnalysisView {
        scope,
        path: state.tree.title(scope),
        currency: state.prices.currency.to_string(),
        since: span.start.into(),
        until: span.end.into(),
        total,
        groups: groups.collect(),
        by,
        truncated,
        labels,
    }))
}

fn place(
    shared: &Shared,
    caller: &Caller,
    scope: Option<&str>,
    span: std::ops::Range<Time>,
) -> Answer<(ScopeId, Wanted)> {
    let state = shared.app.controller.view().read();
    let scope = choose(&state, caller, scope)?;
    let wanted = Wanted {
        path: state.tree.path(scope),
        span,
        eye: eye(&state, caller, scope),
    };
    Ok((scope, wanted))
}

/// What people call a group that is a scope.
fn title(state: &Platform, by: &By, group: &str) -> Option<String> {
    if !matches!(by, By::Tenant | By::Subscriber | By::User) {
        return None;
    }
    let scope: ScopeId = group.parse().ok()?;
    state.tree.get(scope).map(|_| state.tree.title(scope))
}

/// Says what the month will come to, and what that rests on.
#[utoipa::path(get, path = "/v1/forecast", tag = "cost", params(ForecastQuery), responses((status = 200, body = ForecastView), ReadProblems))]
pub(crate) async fn forecast(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<ForecastQuery>,
) -> Answer<Json<ForecastView>> {
    let at = now();
    let (scope, wanted) = place(&shared, &caller, query.scope.as_deref(), Course::since(at)..at)?;
    let mut rows = Rows::read(shared.app.controller.reader(), wanted, None);
    let mut course = Course::new(at);
    while let Some(page) = rows.next().await? {
        page.iter()
            .for_each(|found| course.add(found.row.at, found.amount));
    }
    let forecast = course.forecast();
    let state = shared.app.controller.view().read();
    Ok(Json(ForecastView {
        scope,
        path: state.tree.title(scope),
        currency: state.prices.currency.to_string(),
        until: Period::Month
            .start(Period::Month.start(at).plus_ms(32 * 24 * HOUR_MS))
            .into(),
        basis: said(&forecast),
        forecast,
    }))
}

fn said(forecast: &Forecast) -> String {
    let told = match forecast.basis {
        Basis::WeekBefore => {
            "each hour to come is taken to cost what the same hour of the last seven days did".into()
        }
        Basis::Mean => format!(
            "{} days or less are known: each hour to come is taken to cost their mean",
            forecast.by_days
        ),
        Basis::Nothing => "nothing was spent yet that could tell".to_owned(),
    };
    match forecast.off_permille {
        Some(off) => format!(
            "{told}; told so a week ago, the last seven days would have been {} {}.{} %",
            if off < 0 { "too low by" } else { "too high by" },
            off.abs() / 10,
            off.abs() % 10
        ),
        None => told,
    }
}
