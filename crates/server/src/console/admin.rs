//! Admin: the tree of tenants, subscribers and users with what each may have and has; a scope's quota, policy, people and
//! keys; the price book; and what a policy would say to a job that nobody has submitted.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use serde::Deserialize;
use serde_json::json;
use tenure_api::v1::access::{GrantView, KeyView, NewKey};
use tenure_api::v1::job::Plan;
use tenure_api::v1::limit::{PolicyView, QuotaView};
use tenure_api::v1::page::Page as List;
use tenure_api::v1::scope::ScopeView;
use tenure_domain::ledger::price::Prices;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::Level;

use super::Console;
use super::desk::piece;
use super::fault::{Fault, Page, go, page};
use super::form::Posted;
use super::frame::Frame;
use super::html::{Html, inert};
use super::session::Session;
use super::show;

const CHILDREN: u32 = 200;
/// Meters drawn as bars in the tree; a scope's own page has all.
const DRAWN: &[&str] = &["gpu_milli", "jobs", "cpu_milli", "memory_mib"];

struct Row {
    id: String,
    name: Html,
    level: &'static str,
    state: Html,
    depth: usize,
    bars: Vec<(String, Html, String)>,
}

struct Meter {
    key: String,
    name: String,
    used: String,
    limit: String,
    bar: Html,
}

struct Key {
    id: String,
    label: Html,
    created: Html,
    expires: Html,
    allow: String,
}

#[derive(Template)]
#[template(path = "admin.html")]
struct Admin {
    frame: Frame,
    rows: Vec<Row>,
    prices: Vec<(Html, String, String)>,
    cpu: String,
    memory: String,
}

pub(super) async fn admin(session: Session) -> Page {
    let frame = Frame::of(&session, "admin").await?;
    let mut rows = Vec::new();
    let places = session.places(Action::ScopeRead);
    let top = places.first().copied();
    for scope in places {
        let Ok(view) = session
            .desk
            .get::<ScopeView>(&format!("/v1/scopes/{scope}"))
            .await
        else {
            continue;
        };
        let quota = session
            .desk
            .get::<QuotaView>(&format!("/v1/scopes/{scope}/quota"))
            .await
            .ok();
        let depth = depth(view.level) - top.map_or(0, |top| depth(top.level()));
        rows.push(row(&view, quota.as_ref(), depth));
    }
    let prices: Option<Prices> = session.desk.get("/v1/prices").await.ok();
    let currency = session.currency();
    let money = |micros: i64| show::money(micros, &currency);
    page(&Admin {
        frame,
        rows,
        prices: prices
            .iter()
            .flat_map(|prices| {
                let named = prices
                    .classes
                    .iter()
                    .map(|(class, price)| (show::name(class), price));
                let all = named.chain([(show::name("any other"), &prices.other)]);
                all.map(|(class, price)| {
                    (
                        class,
                        money(price.gpu_hour_micros),
                        money(price.vram_gib_hour_micros),
                    )
                })
                .collect::<Vec<_>>()
            })
            .collect(),
        cpu: prices
            .as_ref()
            .map_or(String::new(), |prices| money(prices.cpu_hour_micros)),
        memory: prices
            .as_ref()
            .map_or(String::new(), |prices| money(prices.memory_gib_hour_micros)),
    })
}

fn depth(level: Level) -> usize {
    match level {
        Level::Platform => 0,
        Level::Tenant => 1,
        Level::Subscriber => 2,
        Level::User => 3,
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Platform => "platform",
        Level::Tenant => "tenant",
        Level::Subscriber => "subscriber",
        Level::User => "user",
    }
}

fn row(view: &ScopeView, quota: Option<&QuotaView>, depth: usize) -> Row {
    let meters = quota.map(meters).unwrap_or_default();
    let drawn = meters
        .into_iter()
        .filter(|meter| DRAWN.contains(&meter.key.as_str()) && meter.limit != "no limit");
    Row {
        id: view.id.to_string(),
        name: show::name(&view.name),
        level: level(view.level),
        state: if view.suspended {
            show::pill("suspended")
        } else {
            Html::default()
        },
        depth,
        bars: drawn
            .map(|meter| {
                (
                    meter.name,
                    meter.bar,
                    format!("{} of {}", meter.used, meter.limit),
                )
            })
            .collect(),
    }
}

fn meters(quota: &QuotaView) -> Vec<Meter> {
    let limits: serde_json::Value = json!(quota.limits);
    let used: serde_json::Value = json!(quota.used);
    let of = |map: &serde_json::Value, name: &str| map.get(name).and_then(serde_json::Value::as_u64);
    let mut names: Vec<String> = [&limits, &used]
        .iter()
        .filter_map(|map| map.as_object())
        .flat_map(|map| map.keys().cloned())
        .collect();
    names.sort();
    names.dedup();
    let meter = |name: String| {
        let (limit, used) = (of(&limits, &name), of(&used, &name).unwrap_or(0));
        Meter {
            used: amount(&name, used),
            limit: limit.map_or("no limit".into(), |limit| amount(&name, limit)),
            bar: limit.map_or_else(Html::default, |limit| show::bar(used, limit)),
            name: meter_name(&name),
            key: name,
        }
    };
    names.into_iter().map(meter).collect()
}

/// A meter as people call it, with what it is of.
fn meter_name(meter: &str) -> String {
    let (kind, of) = meter.split_once('@').unwrap_or((meter, ""));
    let kind = match kind {
        "gpu_milli" => "GPUs",
        "cpu_milli" => "CPU",
        "vram_mib" => "GPU memory",
        "memory_mib" => "memory",
        "volume_mib" => "volumes",
        "booked_milli" => "GPUs booked",
        other => other,
    };
    match of.split_once(':') {
        Some((_, name)) => format!("{} of {}", show::words(&inert(kind)), inert(name)),
        None => show::words(&inert(kind)),
    }
}

fn amount(meter: &str, amount: u64) -> String {
    let kind = meter.split('@').next().unwrap_or(meter);
    match kind {
        _ if kind.ends_with("_milli") => show::milli(amount),
        _ if kind.ends_with("_mib") => show::mib(amount),
        _ => show::count(amount),
    }
}

#[derive(Template)]
#[template(path = "scope.html")]
struct Place {
    frame: Frame,
    id: String,
    name: Html,
    level: &'static str,
    is_user: bool,
    suspended: bool,
    facts: Vec<(&'static str, Html)>,
    meters: Vec<Meter>,
    policy: Vec<(String, String)>,
    children: Vec<(String, Html, &'static str)>,
    grants: Vec<(Html, &'static str)>,
    keys: Vec<Key>,
    made: Option<String>,
    may_manage: bool,
    may_key: bool,
    tests: bool,
    what_if: Option<(bool, String)>,
    asked: WhatIf,
}

/// A job nobody submitted, as the tester's form says it.
#[derive(Deserialize, Default)]
pub(super) struct WhatIf {
    kind: Option<String>,
    gpus: Option<String>,
    class: Option<String>,
    hours: Option<String>,
    priority: Option<String>,
}

impl WhatIf {
    fn is(&self, of: &Option<String>, value: &str) -> bool {
        of.as_deref() == Some(value)
    }

    fn text<'a>(&self, of: &'a Option<String>) -> &'a str {
        of.as_deref().unwrap_or_default()
    }
}

pub(super) async fn scope(session: Session, Path(id): Path<String>, Query(asked): Query<WhatIf>) -> Page {
    show_scope(&session, &id, asked, None).await
}

async fn show_scope(session: &Session, id: &str, asked: WhatIf, made: Option<String>) -> Page {
    let frame = Frame::of(session, "admin").await?;
    let path = format!("/v1/scopes/{}", piece(id));
    let view: ScopeView = session.desk.get(&path).await?;
    let quota = session.desk.get::<QuotaView>(&format!("{path}/quota")).await.ok();
    let policy = session
        .desk
        .get::<PolicyView>(&format!("{path}/policy"))
        .await
        .ok();
    let children = session
        .desk
        .get::<List<ScopeView>>(&format!("{path}/children?limit={CHILDREN}"))
        .await;
    let grants = session
        .desk
        .get::<List<GrantView>>(&format!("{path}/roles?limit={CHILDREN}"))
        .await;
    let is_user = view.level == Level::User;
    let keys = match is_user {
        true => session
            .desk
            .get::<List<KeyView>>(&format!("/v1/users/{}/keys", view.id))
            .await
            .map(|keys| keys.items),
        false => Ok(Vec::new()),
    };
    let what_if = match &asked.kind {
        Some(_) if is_user => Some(what_if(session, &view, &asked).await),
        _ => None,
    };
    page(&Place {
        id: view.id.to_string(),
        name: show::name(&view.name),
        level: level(view.level),
        is_user,
        suspended: view.suspended,
        facts: facts(&view),
        meters: quota.as_ref().map(meters).unwrap_or_default(),
        policy: policy
            .map(|policy| rules(&json!(policy.policy)))
            .unwrap_or_default(),
        children: children
            .map(|children| {
                children
                    .items
                    .iter()
                    .map(|child| (child.id.to_string(), show::name(&child.name), level(child.level)))
                    .collect()
            })
            .unwrap_or_default(),
        grants: grants
            .map(|grants| {
                grants
                    .items
                    .iter()
                    .map(|grant| (show::name(&grant.user_path), grant.role.as_str()))
                    .collect()
            })
            .unwrap_or_default(),
        may_key: is_user && keys.is_ok(),
        keys: keys.unwrap_or_default().iter().map(key).collect(),
        made,
        may_manage: session.may(Action::ScopeManage, view.id) && view.level != Level::Platform,
        tests: is_user && session.may(Action::JobSubmit, view.id),
        what_if,
        asked,
        frame,
    })
}

fn facts(view: &ScopeView) -> Vec<(&'static str, Html)> {
    let mut facts = vec![
        ("Path", show::name(&view.path)),
        ("Id", show::name(&view.id.to_string())),
        ("Made", show::time(&view.created)),
    ];
    if let Some(identity) = &view.identity {
        facts.push((
            "Login",
            show::name(&format!("{} at {}", identity.subject, identity.issuer)),
        ));
    }
    facts
}

/// What a policy says, rule by rule.
fn rules(policy: &serde_json::Value) -> Vec<(String, String)> {
    let rules = policy
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null());
    let said = |value: &serde_json::Value| match value {
        serde_json::Value::Array(all) => all
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(", "),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    rules
        .map(|(name, value)| (show::words(name), inert(&said(value))))
        .collect()
}

fn key(key: &KeyView) -> Key {
    let allow = key.allow.as_ref().map(|allow| {
        allow
            .iter()
            .map(|action| show::words(action.as_str()))
            .collect::<Vec<_>>()
            .join(", ")
    });
    Key {
        id: key.id.to_string(),
        label: show::name(&key.label),
        created: show::time(&key.created),
        expires: key
            .expires
            .as_ref()
            .map_or_else(|| Html::made("never".into()), show::time),
        allow: allow.unwrap_or_else(|| "everything its user may".into()),
    }
}

/// Whether the job would be taken, and if not, by what.
async fn what_if(session: &Session, view: &ScopeView, asked: &WhatIf) -> (bool, String) {
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.trim().parse::<u64>().ok());
    let mut spec = json!({
        "name": "what-if",
        "kind": asked.kind,
        "command": ["true"],
        "priority": asked.priority.as_deref().unwrap_or("normal"),
        "run_time_s": number(&asked.hours).unwrap_or(1).saturating_mul(3600),
        "demand": { "gpus": number(&asked.gpus).unwrap_or(0) },
    });
    if let Some(class) = asked
        .class
        .as_deref()
        .map(str::trim)
        .filter(|class| !class.is_empty())
    {
        spec["demand"]["class"] = json!(class);
    }
    let owner = view.id.to_string();
    let plan = session
        .desk
        .post::<_, Plan>("/v1/jobs/plan", &json!({ "owner": owner, "spec": spec }))
        .await;
    match plan {
        Ok(plan) => match plan.waiting {
            Some(waiting) => (
                true,
                format!("It would be taken, and wait: {}", inert(&waiting.sentence)),
            ),
            None => (
                true,
                format!(
                    "It would be taken and start, at {} an hour",
                    show::money(plan.hourly_micros, &plan.currency)
                ),
            ),
        },
        Err(problem) => (
            false,
            format!(
                "It would be refused: {} ({})",
                inert(&problem.detail),
                problem.code
            ),
        ),
    }
}

/// Suspends a scope, or lets it go on.
pub(super) async fn act(
    State(_): State<Arc<Console>>,
    Path((id, what)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    if !matches!(what.as_str(), "suspend" | "resume") {
        return Err(Fault::not_found());
    }
    let id = piece(&id);
    posted
        .session
        .desk
        .act(Method::POST, &format!("/v1/scopes/{id}/{what}"))
        .await?;
    Ok(go(&format!("/console/admin/{id}")))
}

/// Makes a key for a user; its token is in this page and nowhere else.
pub(super) async fn make_key(State(_): State<Arc<Console>>, Path(id): Path<String>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let path = format!("/v1/users/{}/keys", piece(&id));
    let days: Option<u64> = fields.number("days")?;
    let mut body = json!({ "label": fields.text("label") });
    if let Some(days) = days {
        let expires = crate::controller::now().plus_ms(days.saturating_mul(86_400_000));
        body["expires"] = json!(expires.rfc3339());
    }
    let made: NewKey = session.desk.post(&path, &body).await?;
    show_scope(&session, &id, WhatIf::default(), Some(made.token)).await
}

pub(super) async fn revoke_key(
    State(_): State<Arc<Console>>,
    Path((id, key)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    posted
        .session
        .desk
        .act(Method::DELETE, &format!("/v1/keys/{}", piece(&key)))
        .await?;
    Ok(go(&format!("/console/admin/{}", piece(&id))))
}
