//! An invoice, issued or as it would be now: its lines, and each line opened down to the metered intervals it stands on.

use askama::Template;
use axum::extract::{Path, Query};
use serde::Deserialize;
use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::InvoiceView;
use tenure_api::v1::page::Page as List;
use tenure_domain::ledger::invoice::InvoiceLine;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::super::desk::piece;
use super::super::fault::{Page, page};
use super::super::frame::Frame;
use super::super::html::{Html, escape, inert};
use super::super::session::Session;
use super::super::show;

const ROWS: u32 = 100;
/// What an invoice that is not issued is called in addresses.
const DRAFT: &str = "draft";

#[derive(Deserialize)]
pub(in crate::console) struct Asked {
    /// Of a draft: whose.
    scope: Option<String>,
    /// The line that is opened.
    what: Option<String>,
    class: Option<String>,
    sku: Option<String>,
    kind: Option<String>,
    cursor: Option<String>,
}

impl Asked {
    /// The filter of a line's rows, for an address; none where no line is opened.
    fn line(&self) -> Option<String> {
        let mut out = format!("what={}", piece(self.what.as_deref()?));
        for (name, value) in [("class", &self.class), ("sku", &self.sku), ("kind", &self.kind)] {
            if let Some(value) = value {
                out.push_str(&format!("&{name}={}", piece(value)));
            }
        }
        Some(out)
    }
}

struct Line {
    name: String,
    rows: String,
    ran: String,
    gpu: String,
    amount: String,
    href: String,
    open: bool,
}

struct Row {
    event: u64,
    at: Html,
    name: Html,
    owner: Html,
    span: String,
    held: String,
    busy: String,
    amount: String,
}

#[derive(Template)]
#[template(path = "invoice.html")]
struct One {
    frame: Frame,
    id: String,
    draft: bool,
    title: Html,
    state: Html,
    facts: Vec<(&'static str, Html)>,
    lines: Vec<Line>,
    total: String,
    opened: Option<String>,
    rows: Vec<Row>,
    next: Option<String>,
    proves: bool,
}

pub(in crate::console) async fn invoice(
    session: Session,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
) -> Page {
    let frame = Frame::of(&session, "money").await?;
    let draft = id == DRAFT;
    let view: InvoiceView = match draft {
        true => {
            let scope = asked.scope.as_deref().map(piece).unwrap_or_default();
            session
                .desk
                .get(&format!("/v1/invoice-draft?scope={scope}"))
                .await?
        }
        false => session.desk.get(&format!("/v1/invoices/{}", piece(&id))).await?,
    };
    // Where the page's own links go.
    let here = match draft {
        true => format!("/console/money/invoices/{DRAFT}?scope={}&", piece(&view.scope)),
        false => format!("/console/money/invoices/{}?", piece(&id)),
    };
    let line = asked.line();
    let found: Option<List<BillRowView>> = match &line {
        Some(line) => Some(session.desk.get(&rows_path(&view, line, &asked)).await?),
        None => None,
    };
    let opened = view
        .lines
        .iter()
        .find(|of| line.as_deref() == Some(&*filter(of)))
        .map(name);
    page(&One {
        title: show::name(&view.path),
        state: show::pill(view.state.as_str()),
        facts: facts(&view),
        total: show::money(view.total_micros, &view.currency),
        lines: view
            .lines
            .iter()
            .map(|of| Line {
                name: name(of),
                rows: show::count(of.rows),
                ran: show::span(of.ran_ms),
                gpu: show::gpu_time(of.gpu_ms),
                amount: show::money(of.amount_micros, &view.currency),
                href: format!("{here}{}", filter(of)),
                open: line.as_deref() == Some(&*filter(of)),
            })
            .collect(),
        opened: line.as_ref().map(|_| opened.unwrap_or_else(|| "Rows".into())),
        next: found
            .as_ref()
            .and_then(|found| found.next.as_deref())
            .zip(line.as_deref())
            .map(|(next, line)| format!("{here}{line}&cursor={}", piece(next))),
        rows: found
            .map(|found| {
                let rows = found.items.iter().map(|it| row(&session, it, &view.currency));
                rows.collect()
            })
            .unwrap_or_default(),
        proves: session.may(Action::JournalRead, ScopeId::Platform),
        id,
        draft,
        frame,
    })
}

/// Where the rows of one line are asked for.
fn rows_path(view: &InvoiceView, line: &str, asked: &Asked) -> String {
    let cursor = asked
        .cursor
        .as_deref()
        .map(|cursor| format!("&cursor={}", piece(cursor)));
    let rest = format!("{line}&limit={ROWS}{}", cursor.unwrap_or_default());
    match &view.id {
        Some(id) => format!("/v1/invoices/{id}/rows?{rest}"),
        None => format!(
            "/v1/bill-rows?scope={}&since={}&until={}&{rest}",
            piece(&view.scope),
            piece(&view.since.to_string()),
            piece(&view.until.to_string())
        ),
    }
}

/// The rows of a line, as an address says it.
fn filter(line: &InvoiceLine) -> String {
    let key = &line.key;
    let mut out = format!("what={}", key.what.as_str());
    if key.kind.is_some() {
        out.push_str(&format!("&class={}", piece(key.class.as_deref().unwrap_or(""))));
        out.push_str(&format!("&sku={}", piece(key.sku.as_deref().unwrap_or(""))));
    }
    if let Some(kind) = key.kind {
        out.push_str(&format!("&kind={}", kind.as_str()));
    }
    out
}

fn name(line: &InvoiceLine) -> String {
    let key = &line.key;
    let Some(kind) = key.kind else {
        return show::words(key.what.as_str());
    };
    let mut out = show::words(kind.as_str());
    match key.class.as_deref() {
        Some(class) => out.push_str(&format!(" on {}", inert(class))),
        None => out.push_str(" without a GPU"),
    }
    if let Some(sku) = key.sku.as_deref() {
        out.push_str(&format!(", {}", inert(sku)));
    }
    out
}

fn facts(view: &InvoiceView) -> Vec<(&'static str, Html)> {
    let mut facts = vec![
        ("Billed by", show::name(&view.seller)),
        ("From", show::time(&view.since)),
        ("Until", show::time(&view.until)),
        ("Stands on", Html::made(show::things(view.rows, "row"))),
    ];
    facts.extend(view.issued.as_ref().map(|at| ("Issued", show::time(at))));
    facts.extend(view.paid.as_ref().map(|at| ("Paid", show::time(at))));
    if view.refunded_micros != 0 {
        let back = show::money(view.refunded_micros, &view.currency);
        facts.push(("Given back", Html::made(escape(&back))));
    }
    facts.push(("Root", Html::made(format!("<code>{}</code>", escape(&view.root)))));
    facts
}

fn row(session: &Session, row: &BillRowView, currency: &str) -> Row {
    let interval = row.interval.as_ref();
    Row {
        event: row.event,
        at: show::time(&row.at),
        name: match interval {
            Some(of) => Html::made(format!(
                "<a href=\"/console/jobs/{}\">{}</a>",
                escape(&of.job),
                show::name(&row.name)
            )),
            None => show::name(&row.name),
        },
        owner: show::name(&session.named(&row.owner)),
        span: interval.map_or("–".into(), |of| {
            format!("{} to {}", show::span(of.from_ms), show::span(of.to_ms))
        }),
        held: interval.map_or("–".into(), |of| match of.gpu_milli {
            0 => "no GPU".into(),
            milli => format!("{} GPU, {}", show::milli(milli), show::mib(of.vram_mib)),
        }),
        busy: interval.map_or("–".into(), |of| of.busy_ms.map_or("–".into(), show::span)),
        amount: show::money(row.amount_micros, currency),
    }
}
