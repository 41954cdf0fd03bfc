//! One place in the tree: its quota, who is below it, its policy, roles, keys and price books; and what the policies would
//! say to a job that nobody has submitted.

use askama::Template;
use axum::extract::{Path, Query};
use tenure_api::problem::Problem;
use tenure_api::v1::access::{GrantView, KeyView};
use tenure_api::v1::limit::{PolicyView, QuotaView, RulesView};
use tenure_api::v1::page::Page as List;
use tenure_api::v1::price_book::PriceBookView;
use tenure_api::v1::scope::ScopeView;
use tenure_domain::ledger::book::Book;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::Level;

use super::super::desk::piece;
use super::super::fault::{Page, page};
use super::super::frame::Frame;
use super::super::html::{Html, inert, log};
use super::super::session::Session;
use super::super::show;
use super::tester::WhatIf;
use super::{Meter, level, meter_name, meters, policy, tester};

const CHILDREN: u32 = 200;

struct Key {
    id: String,
    label: Html,
    created: Html,
    expires: Html,
    allow: String,
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
    policy: Vec<(&'static str, String)>,
    /// Cedar policies of its own, as they were written.
    rules: String,
    children: Vec<(String, Html, &'static str)>,
    grants: Vec<(Html, &'static str)>,
    keys: Vec<Key>,
    made: Option<String>,
    problem: Option<Problem>,
    /// What may be made below it, as the form and as people call it.
    adds: Vec<(&'static str, &'static str)>,
    /// Meters whose limit may be set.
    quotas: Vec<(String, String)>,
    books: Vec<(Html, Html, Html, String)>,
    may_manage: bool,
    may_key: bool,
    /// For whom one may ask what if.
    users: Vec<(String, String)>,
    what_if: Option<(bool, Html)>,
    asked: WhatIf,
}

pub(in crate::console) async fn scope(
    session: Session,
    Path(id): Path<String>,
    Query(asked): Query<WhatIf>,
) -> Page {
    show_scope(&session, &id, asked, After::default()).await
}

/// What a form left to be said on the page that follows it.
#[derive(Default)]
pub(super) struct After {
    /// A new key's token, shown this once.
    pub made: Option<String>,
    pub problem: Option<Problem>,
}

pub(super) async fn show_scope(session: &Session, id: &str, asked: WhatIf, after: After) -> Page {
    let frame = Frame::of(session, "admin").await?;
    let path = format!("/v1/scopes/{}", piece(id));
    let view: ScopeView = session.desk.get(&path).await?;
    let quota = session.desk.get::<QuotaView>(&format!("{path}/quota")).await.ok();
    let narrows = session
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
    let users = tester::users(session, view.id);
    // Of a user's page the user is who it is about.
    let owner = asked
        .user
        .clone()
        .filter(|_| !is_user)
        .unwrap_or_else(|| view.id.to_string());
    let what_if = match &asked.kind {
        Some(_) if !users.is_empty() => Some(tester::answer(session, &owner, &asked).await),
        _ => None,
    };
    let rules = session.desk.get::<RulesView>(&format!("{path}/rules")).await;
    page(&Place {
        id: view.id.to_string(),
        name: show::name(&view.name),
        level: level(view.level),
        is_user,
        suspended: view.suspended,
        facts: facts(&view),
        meters: quota.as_ref().map(meters).unwrap_or_default(),
        policy: narrows
            .map(|view| policy::said(&view.policy, &session.currency(), |id| session.named(id)))
            .unwrap_or_default(),
        rules: rules.map(|view| log(&view.rules)).unwrap_or_default(),
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
        made: after.made,
        problem: after.problem,
        adds: adds(session, &view),
        quotas: match session.may(Action::QuotaSet, view.id) {
            true => meters_known(&session.classes()),
            false => Vec::new(),
        },
        books: books(session, &view, &path).await,
        may_manage: session.may(Action::ScopeManage, view.id) && view.level != Level::Platform,
        users,
        what_if,
        asked,
        frame,
    })
}

/// What the reader may make below a place.
fn adds(session: &Session, view: &ScopeView) -> Vec<(&'static str, &'static str)> {
    let mut adds = Vec::new();
    if session.may(Action::ScopeManage, view.id) {
        match view.level {
            Level::Platform => adds.push(("tenant", "tenant")),
            Level::Tenant => adds.push(("subscriber", "subscriber")),
            Level::Subscriber | Level::User => {}
        }
    }
    if view.level != Level::User && session.may(Action::UserManage, view.id) {
        adds.push(("person", "user, a person"));
        adds.push(("service", "user, a service account"));
    }
    adds
}

/// Meters a limit can be set for, with what people call them and count them in.
fn meters_known(classes: &[String]) -> Vec<(String, String)> {
    let plain = [
        "gpu_milli",
        "vram_mib",
        "jobs",
        "slices",
        "cpu_milli",
        "memory_mib",
        "volume_mib",
        "booked_milli",
    ];
    let of_class = classes.iter().map(|class| format!("gpu_milli@class:{class}"));
    let all = plain.into_iter().map(str::to_owned).chain(of_class);
    all.map(|meter| {
        let unit = if meter.ends_with("_mib") { ", GiB" } else { "" };
        let words = format!("{}{unit}", meter_name(&meter));
        (meter, words)
    })
    .collect()
}

/// Price books by which it sells: for whom, from when, whether they hold, and what they say.
async fn books(session: &Session, view: &ScopeView, path: &str) -> Vec<(Html, Html, Html, String)> {
    if !matches!(view.level, Level::Platform | Level::Tenant) {
        return Vec::new();
    }
    let path = format!("{path}/price-books?limit={CHILDREN}");
    let Ok(found) = session.desk.get::<List<PriceBookView>>(&path).await else {
        return Vec::new();
    };
    let currency = session.currency();
    let rows = found.items.iter().map(|it| {
        let buyer = it.buyer_path.as_deref();
        (
            buyer.map_or_else(|| Html::made("everybody below".into()), show::name),
            show::time(&it.from),
            show::pill(if it.current { "active" } else { "waiting" }),
            said(&it.book, &currency),
        )
    });
    rows.collect()
}

/// A price book in a sentence.
fn said(book: &Book, currency: &str) -> String {
    let times = |permille: u32| format!("×\u{202f}{}", show::milli(permille.into()));
    let mut said = Vec::new();
    if book.markup_permille != 1000 {
        said.push(format!("all {}", times(book.markup_permille)));
    }
    for (class, price) in book.classes.iter().take(4) {
        let hour = show::money(price.gpu_hour_micros, currency);
        said.push(format!("{} {hour} an hour", inert(class)));
    }
    if book.classes.len() > 4 {
        said.push(format!("{} classes more", book.classes.len() - 4));
    }
    if !book.skus.is_empty() {
        said.push(show::things(book.skus.len() as u64, "SKU") + " at a price of their own");
    }
    if !book.windows.is_empty() {
        said.push("by the time of day".into());
    }
    if !book.tiers.is_empty() {
        said.push("by volume".into());
    }
    for (what, permille) in [("booked", book.booking_permille), ("spot", book.spot_permille)] {
        if permille != 1000 {
            said.push(format!("{what} {}", times(permille)));
        }
    }
    if book.fee_permille != 0 {
        said.push(format!("fee {}", show::permille(book.fee_permille.into())));
    }
    if said.is_empty() {
        "as it pays itself".into()
    } else {
        said.join("; ")
    }
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
