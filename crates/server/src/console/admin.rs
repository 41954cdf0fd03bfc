//! Admin: the tree of tenants, subscribers and users with what each may have and has, and the price book. One place in the
//! tree is in `scope`, what is changed there in `change`.

pub(super) mod change;
mod policy;
pub(super) mod scope;
mod tester;

use askama::Template;
use serde_json::json;
use tenure_api::v1::limit::QuotaView;
use tenure_api::v1::scope::ScopeView;
use tenure_domain::ledger::price::Prices;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::Level;

use super::fault::{Page, page};
use super::frame::Frame;
use super::html::{Html, inert};
use super::session::Session;
use super::show;

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
