//! The exchange: the depth and price history of a class, what is offered, bids and leases of one's own, and buying, which
//! shows its price before it is done. What one's own capacity is offered at by itself stands beside it.

pub(super) mod sell;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use serde::Deserialize;
use serde_json::json;
use tenure_api::problem::Problem;
use tenure_api::v1::market::{
    AutoOfferView, BidView, BookView, LeaseView, LevelView, OfferView, PriceHourView, PurchaseView,
};
use tenure_api::v1::page::Page as List;
use tenure_domain::market::fill::{idle_milli, own_milli, used_milli};
use tenure_domain::schedule::fleet::Node;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::Console;
use super::desk::piece;
use super::fault::{Fault, Page, go, page};
use super::form::{Fields, Posted, wrong};
use super::frame::Frame;
use super::html::{Html, inert};
use super::session::Session;
use super::show;
use crate::keyring::random;

const SHOWN: u32 = 100;
const LEVELS: usize = 12;

#[derive(Deserialize)]
pub(super) struct Asked {
    class: Option<String>,
}

struct Level {
    price: String,
    gpus: String,
    bar: Html,
}

struct Offer {
    price: String,
    gpus: String,
    terms: String,
    isolation: &'static str,
    reliability: String,
    until: Html,
    id: String,
    mine: bool,
    /// What a purchase of all of it for as short as it may be would say.
    left: String,
    hours: String,
}

/// What the reader's tenant has of the class, and how much of it does nothing.
struct Mine {
    bar: Html,
    /// Whole hundredths of a GPU, for the form.
    idle: String,
    facts: Vec<(&'static str, String)>,
}

struct Lease {
    id: String,
    what: String,
    side: &'static str,
    other: Html,
    price: String,
    from: Html,
    until: Html,
    escrow: String,
    state: Html,
    may_recall: bool,
    may_return: bool,
}

struct Bid {
    id: String,
    what: String,
    price: String,
    kind: &'static str,
    until: Html,
    held: String,
}

struct Auto {
    seller: String,
    class: String,
    floor: String,
    idle: String,
    until: Html,
    forecast: Html,
}

#[derive(Template)]
#[template(path = "exchange.html")]
struct Exchange {
    frame: Frame,
    class: String,
    classes: Vec<String>,
    /// Each side: its name, what is said where nobody is there, and its levels.
    depth: [(&'static str, &'static str, Vec<Level>); 2],
    hours: Vec<(String, String, String, String)>,
    offers: Vec<Offer>,
    leases: Vec<Lease>,
    bids: Vec<Bid>,
    autos: Vec<Auto>,
    mine: Option<Mine>,
    /// The tenant's own nodes with the class, each let whole.
    nodes: Vec<(String, String, u64)>,
    tenant: String,
    trades: bool,
    currency: String,
    problem: Option<Problem>,
    fields: Fields,
}

impl Exchange {
    fn v(&self, name: &str) -> &str {
        self.fields.raw(name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.fields.text(name) == value
    }

    /// Whether there is anything that could be offered.
    fn lets(&self) -> bool {
        self.mine.is_some() || !self.nodes.is_empty()
    }
}

pub(super) async fn exchange(session: Session, Query(asked): Query<Asked>) -> Page {
    show_exchange(&session, asked.class.as_deref(), Fields::default(), None).await
}

async fn list<T: serde::de::DeserializeOwned>(session: &Session, path: &str) -> Vec<T> {
    let found = session.desk.get::<List<T>>(path).await;
    found.map(|found| found.items).unwrap_or_default()
}

async fn show_exchange(
    session: &Session,
    class: Option<&str>,
    mut fields: Fields,
    problem: Option<Problem>,
) -> Page {
    let frame = Frame::of(session, "exchange").await?;
    let books: List<BookView> = session.desk.get("/v1/market/book").await?;
    let mut classes: Vec<String> = session.classes();
    classes.extend(books.items.iter().map(|book| book.class.clone()));
    classes.sort();
    classes.dedup();
    let class = class
        .map(str::to_owned)
        .or_else(|| classes.first().cloned())
        .unwrap_or_default();
    let of = piece(&class);
    let book = books.items.iter().find(|book| book.class == class);
    // Both sides to one scale.
    let sides = book.iter().flat_map(|book| book.asks.iter().chain(&book.bids));
    let most = sides.map(|level| level.gpu_milli).max().unwrap_or(1);
    let currency = session.currency();
    let me = session.tenant();
    let autos: Vec<AutoOfferView> = list(session, &format!("/v1/market/auto-offers?limit={SHOWN}")).await;
    let hours: Vec<PriceHourView> = list(session, &format!("/v1/market/index?class={of}")).await;
    let offers: Vec<OfferView> = list(session, &format!("/v1/market/offers?class={of}&limit={SHOWN}")).await;
    let leases: Vec<LeaseView> = list(session, &format!("/v1/market/leases?limit={SHOWN}")).await;
    let bids: Vec<BidView> = list(session, &format!("/v1/market/bids?limit={SHOWN}")).await;
    let trades = me.is_some_and(|me| session.may(Action::MarketTrade, me));
    fields.forget("csrf");
    let (asks, wanted) = book.map_or_else(Default::default, |book| {
        (
            levels(&book.asks, most, &currency),
            levels(&book.bids, most, &currency),
        )
    });
    page(&Exchange {
        depth: [
            ("Offered", "Nothing is offered.", asks),
            ("Wanted", "Nobody waits.", wanted),
        ],
        hours: hours.iter().map(hour).collect(),
        offers: offers.iter().map(|it| offer(it, &currency)).collect(),
        leases: leases.iter().map(|it| lease(it, me, &currency, trades)).collect(),
        bids: bids.iter().map(|it| bid(it, &currency)).collect(),
        autos: autos.iter().map(|it| auto(it, &currency)).collect(),
        mine: me.and_then(|me| mine(session, me, &class)),
        nodes: me.map(|me| own_nodes(session, me, &class)).unwrap_or_default(),
        tenant: me.map(|me| me.to_string()).unwrap_or_default(),
        class,
        classes,
        trades,
        currency,
        problem,
        fields,
        frame,
    })
}

fn levels(levels: &[LevelView], most: u64, currency: &str) -> Vec<Level> {
    let level = |level: &LevelView| Level {
        price: show::money(level.price_micros, currency),
        gpus: show::milli(level.gpu_milli),
        bar: show::length(level.gpu_milli, most),
    };
    levels.iter().take(LEVELS).map(level).collect()
}

/// An hour of trades for a drawing: when, mean, lowest, highest.
fn hour(hour: &PriceHourView) -> (String, String, String, String) {
    let price = |micros: i64| format!("{:.6}", micros as f64 / 1e6);
    let at = hour.hour.to_string();
    (
        at.get(5..16).unwrap_or(&at).replace('T', " "),
        price(hour.mean_micros),
        price(hour.low_micros),
        price(hour.high_micros),
    )
}

fn offer(offer: &OfferView, currency: &str) -> Offer {
    Offer {
        price: show::money(offer.price_micros, currency),
        gpus: show::milli(offer.left_milli),
        terms: format!(
            "{} to {}, recalled {} ahead",
            show::span(offer.min_lease_s * 1000),
            show::span(offer.max_lease_s * 1000),
            show::span(offer.notice_s * 1000)
        ),
        isolation: offer.isolation.as_str(),
        reliability: show::permille(offer.reliability_permille.into()),
        until: offer
            .open_until
            .as_ref()
            .map_or_else(|| Html::made("until withdrawn".into()), show::time),
        id: offer.id.to_string(),
        mine: offer.seller.is_some(),
        left: show::milli(offer.left_milli),
        hours: show::milli((offer.min_lease_s * 1000).div_ceil(3600)),
    }
}

/// Own capacity of a class, in use, let, taken and idle; none where the tenant has none.
fn mine(session: &Session, me: ScopeId, class: &str) -> Option<Mine> {
    let ScopeId::Tenant(tenant) = me else { return None };
    let state = session.console.shared.app.controller.view().read();
    let own = own_milli(&state, tenant, class)?;
    let (used, idle) = (
        used_milli(&state, tenant, class),
        idle_milli(&state, tenant, class),
    );
    let sides = state.tree.get(me)?.leased.of(class);
    Some(Mine {
        bar: show::length(own.saturating_sub(idle), own),
        idle: show::milli(idle),
        facts: vec![
            ("Own", show::milli(own)),
            ("In use", show::milli(used)),
            ("Let to others", show::milli(sides.let_milli)),
            ("Leased from others", show::milli(sides.taken_milli)),
            ("Idle now", show::milli(idle)),
        ],
    })
}

/// Nodes that are a tenant's alone and have nothing but GPUs of a class: id, name, and how much of it, in thousandths.
fn own_nodes(session: &Session, me: ScopeId, class: &str) -> Vec<(String, String, u64)> {
    let state = session.console.shared.app.controller.view().read();
    let own = state.fleet.nodes().filter(|node| {
        node.labels.dedicated.map(ScopeId::Tenant) == Some(me)
            && !node.gpus.is_empty()
            && node.gpus.iter().all(|gpu| *gpu.facts.class == *class)
    });
    let row = |node: &Node| {
        (
            node.id.to_string(),
            inert(&node.name),
            node.gpus.len() as u64 * 1000,
        )
    };
    own.map(row).collect()
}

fn lease(lease: &LeaseView, me: Option<ScopeId>, currency: &str, trades: bool) -> Lease {
    let me = me.map(|me| me.to_string()).unwrap_or_default();
    let sold = lease.seller == me;
    Lease {
        id: lease.id.to_string(),
        what: format!("{} × {}", show::milli(lease.gpu_milli), inert(&lease.class)),
        side: if sold { "sold" } else { "bought" },
        other: show::name(if sold {
            &lease.buyer_path
        } else {
            &lease.seller_path
        }),
        price: show::money(lease.price_micros, currency),
        from: show::time(&lease.start),
        until: show::time(&lease.end),
        escrow: show::money(lease.escrow_micros, currency),
        state: show::pill(match (&lease.recalled, lease.vacating) {
            (_, true) => "vacating",
            (Some(_), false) => "recalled",
            (None, false) => "active",
        }),
        may_recall: trades && sold && lease.recalled.is_none(),
        may_return: trades && !sold && !lease.vacating,
    }
}

fn bid(bid: &BidView, currency: &str) -> Bid {
    Bid {
        id: bid.id.to_string(),
        what: format!(
            "{} of {} × {} for {}",
            show::milli(bid.left_milli),
            show::milli(bid.gpu_milli),
            inert(&bid.class),
            show::span(bid.duration_s * 1000)
        ),
        price: show::money(bid.price_micros, currency),
        kind: if bid.spot { "spot" } else { "limit" },
        until: bid.expires.as_ref().map_or_else(show::none, show::time),
        held: show::money(bid.held_micros, currency),
    }
}

fn auto(auto: &AutoOfferView, currency: &str) -> Auto {
    Auto {
        seller: auto.seller.clone(),
        class: inert(&auto.class),
        floor: show::money(auto.floor_micros, currency),
        idle: auto.idle_milli.map_or("–".into(), show::milli),
        until: auto.idle_until.as_ref().map_or_else(show::none, show::time),
        forecast: auto.forecast.as_deref().map_or_else(show::none, show::name),
    }
}

#[derive(Template)]
#[template(path = "buy.html")]
struct Confirm {
    frame: Frame,
    class: Html,
    class_raw: String,
    class_piece: String,
    gpus: String,
    hours: String,
    repeat: String,
    cost: String,
    bought: String,
    limit_micros: i64,
    fills: Vec<(String, String, String, Html, String)>,
}

/// A purchase: first what it would be, then, with the price that was seen as its limit, the purchase itself.
pub(super) async fn buy(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let class = fields.text("class").to_owned();
    match bought(&session, &fields).await {
        Ok(response) => Ok(response),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => show_exchange(&session, Some(&class), fields, Some(*problem)).await,
    }
}

async fn bought(session: &Session, fields: &Fields) -> Page {
    let (gpu_milli, duration_s) = (milli(fields, "gpus", 1000)?, milli(fields, "hours", 3600)?);
    let mut ask = json!({ "class": fields.text("class"), "gpu_milli": gpu_milli, "duration_s": duration_s, "dry_run": true });
    if let Some(limit) = fields.number::<i64>("limit_micros")? {
        ask["price_micros"] = json!(limit);
        ask["dry_run"] = json!(false);
        let repeat = format!("console-{}", fields.text("repeat"));
        let _: PurchaseView = session.desk.create("/v1/market/buy", &ask, &repeat).await?;
        return Ok(go(&format!(
            "/console/exchange?class={}",
            piece(fields.text("class"))
        )));
    }
    let seen: PurchaseView = session.desk.post("/v1/market/buy", &ask).await?;
    let bytes: [u8; 16] = random();
    let money = |micros: i64| show::money(micros, &seen.currency);
    page(&Confirm {
        frame: Frame::of(session, "exchange").await?,
        class: show::name(fields.text("class")),
        class_raw: fields.text("class").to_owned(),
        class_piece: piece(fields.text("class")),
        gpus: fields.text("gpus").to_owned(),
        hours: fields.text("hours").to_owned(),
        repeat: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        cost: money(seen.cost_micros),
        bought: show::milli(seen.gpu_milli),
        limit_micros: seen.fills.iter().map(|fill| fill.price_micros).max().unwrap_or(0),
        fills: seen
            .fills
            .iter()
            .map(|fill| {
                (
                    show::milli(fill.gpu_milli),
                    money(fill.price_micros),
                    money(fill.cost_micros),
                    show::time(&fill.end),
                    show::span(fill.notice_s * 1000),
                )
            })
            .collect(),
    })
}

/// An amount in thousandths of what people write, or in seconds of hours.
fn milli(fields: &Fields, name: &str, scale: u64) -> Result<u64, Fault> {
    let text = fields.text(name);
    let number: Option<f64> = text
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0 && *number < 1e9);
    let number = number.ok_or_else(|| wrong(name, "this is not a number such as 2 or 0.5"))?;
    Ok((number * scale as f64).round() as u64)
}

/// Waits for offers at a price.
pub(super) async fn bid_for(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let class = fields.text("class").to_owned();
    match placed(&session, &fields).await {
        Ok(()) => Ok(go(&format!("/console/exchange?class={}", piece(&class)))),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => show_exchange(&session, Some(&class), fields, Some(*problem)).await,
    }
}

async fn placed(session: &Session, fields: &Fields) -> Result<(), Fault> {
    let days: u64 = fields.number("wait")?.unwrap_or(1);
    let expires = crate::controller::now().plus_ms(days.saturating_mul(86_400_000));
    let ask = json!({
        "class": fields.text("class"),
        "gpu_milli": milli(fields, "gpus", 1000)?,
        "duration_s": milli(fields, "hours", 3600)?,
        "price_micros": milli(fields, "price", 1_000_000)?,
        "spot": fields.is_on("spot"),
        "expires": expires.rfc3339(),
    });
    let _: serde_json::Value = session.desk.post("/v1/market/bids", &ask).await?;
    Ok(())
}

/// Withdraws, cancels, recalls or gives back.
pub(super) async fn act(
    State(_): State<Arc<Console>>,
    Path((kind, id, what)): Path<(String, String, String)>,
    posted: Posted,
) -> Page {
    let id = piece(&id);
    let (method, path) = match (kind.as_str(), what.as_str()) {
        ("offers", "withdraw") => (Method::DELETE, format!("/v1/market/offers/{id}")),
        ("bids", "cancel") => (Method::DELETE, format!("/v1/market/bids/{id}")),
        ("leases", "recall" | "return") => (Method::POST, format!("/v1/market/leases/{id}/{what}")),
        _ => return Err(Fault::not_found()),
    };
    posted.session.desk.act(method, &path).await?;
    Ok(go("/console/exchange"))
}

/// Ends a standing order.
pub(super) async fn stop_auto(
    State(_): State<Arc<Console>>,
    Path((seller, class)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    let path = format!("/v1/market/auto-offers/{}/{}", piece(&seller), piece(&class));
    posted.session.desk.act(Method::DELETE, &path).await?;
    Ok(go("/console/exchange"))
}
