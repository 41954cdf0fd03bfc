//! How invoices look, and their rows.

use clap::Args as ClapArgs;
use tenure_api::client::Client;
use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::{InvoiceRowsQuery, InvoiceState, InvoiceView};
use tenure_domain::ledger::invoice::InvoiceLine;

use crate::context::Context;
use crate::moment::length;
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::units;

/// Rows that are shown of a line; a file has all.
const ROWS: u32 = 1000;

#[derive(Debug, ClapArgs)]
pub struct Args {
    invoice: String,
    /// Open this line, counted from 1, down to its intervals
    #[arg(long, value_name = "NUMBER")]
    line: Option<usize>,
}

impl Args {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let view = client.invoice(&self.invoice).await?;
        let Some(number) = self.line else {
            return invoice(context, &view);
        };
        let line = number.checked_sub(1).and_then(|at| view.lines.get(at));
        let line = line.ok_or_else(|| {
            Failure::usage(format!(
                "the invoice has lines 1 to {}, not {number}",
                view.lines.len()
            ))
        })?;
        let query = InvoiceRowsQuery {
            what: Some(line.key.what),
            class: Some(line.key.class.as_deref().unwrap_or_default().to_owned()),
            sku: Some(line.key.sku.as_deref().unwrap_or_default().to_owned()),
            kind: line.key.kind,
            limit: Some(ROWS),
            cursor: None,
        };
        let page = client.invoice_rows(&self.invoice, &query).await?;
        if page.next.is_some() {
            context.out.note(format!(
                "the first {ROWS} of {} rows; `tenure invoice export` writes all",
                line.rows
            ));
        }
        rows(context, &page.items, &view.currency)
    }
}

fn state(view: &InvoiceView) -> crate::table::Text {
    let paint = match view.state {
        InvoiceState::Draft => Paint::Dim,
        InvoiceState::Issued => Paint::Busy,
        InvoiceState::Paid => Paint::Good,
    };
    text(view.state.as_str()).paint(paint)
}

fn what(line: &InvoiceLine) -> String {
    let key = &line.key;
    let mut words = vec![key.what.as_str().to_owned()];
    words.extend(key.kind.map(|kind| kind.as_str().to_owned()));
    words.extend(key.sku.as_deref().map(str::to_owned));
    words.join(" ")
}

pub fn invoice(context: &Context, view: &InvoiceView) -> Result<(), Failure> {
    let out = &context.out;
    let name = view.id.as_deref().unwrap_or("draft");
    match out.form {
        Form::Json | Form::Yaml => return out.value(view),
        Form::Name => return out.line(name),
        Form::Table | Form::Wide => {}
    }
    let money = |micros| units::show_money(micros, &view.currency);
    if !view.lines.is_empty() {
        let mut table = Table::new(&[
            "LINE", "WHAT", "CLASS", "ROWS", "RAN", "GPU TIME", "FRAMES", "COST",
        ]);
        for (number, line) in view.lines.iter().enumerate() {
            table.row(vec![
                figure(number + 1),
                text(what(line)),
                text(line.key.class.as_deref().unwrap_or_default()),
                figure(units::grouped(line.rows)),
                figure(length(line.ran_ms)),
                figure(units::show_gpu_ms(line.gpu_ms)),
                figure(if line.frames > 0 {
                    units::grouped(line.frames)
                } else {
                    String::new()
                }),
                figure(money(line.amount_micros)),
            ]);
        }
        out.text(&table.render(out))?;
        out.line("")?;
    }
    let mut fields = Table::fields();
    fields
        .field("invoice", name)
        .field("state", state(view))
        .field("for", view.path.as_str())
        .field("from", view.seller.as_str())
        .field("total", text(money(view.total_micros)).paint(Paint::Bold));
    if view.refunded_micros != 0 {
        fields.field("given back", money(view.refunded_micros));
    }
    fields
        .field("since", view.since.to_string())
        .field("until", view.until.to_string())
        .field_if("issued", view.issued.map(|at| at.to_string()))
        .field_if("paid", view.paid.map(|at| at.to_string()))
        .field("rows", units::grouped(view.rows))
        .field("root", view.root.as_str());
    out.text(&fields.render(out))
}

pub fn list(context: &Context, invoices: &[InvoiceView]) -> Result<(), Failure> {
    context.out.list(
        invoices,
        |view| view.id.clone().unwrap_or_default(),
        "no invoices",
        |invoices| {
            let mut table = Table::new(&["INVOICE", "FOR", "SINCE", "UNTIL", "STATE", "TOTAL", "GIVEN BACK"]);
            for view in invoices {
                let money = |micros| units::show_money(micros, &view.currency);
                table.row(vec![
                    text(view.id.as_deref().unwrap_or_default()),
                    text(&view.path),
                    text(view.since.to_string()),
                    text(view.until.to_string()),
                    state(view),
                    figure(money(view.total_micros)),
                    figure(match view.refunded_micros {
                        0 => String::new(),
                        back => money(back),
                    }),
                ]);
            }
            table
        },
    )
}

fn rows(context: &Context, rows: &[BillRowView], currency: &str) -> Result<(), Failure> {
    context.out.list(
        rows,
        |row| row.event.to_string(),
        "no rows",
        |rows| {
            let mut table = Table::new(&["EVENT", "AT", "NAME", "ALLOCATION", "FROM", "TO", "BUSY", "COST"]);
            for row in rows {
                let interval = row.interval.as_ref();
                let busy = interval.and_then(|of| of.busy_ms);
                table.row(vec![
                    figure(row.event),
                    text(row.at.to_string()),
                    text(&row.name),
                    text(interval.map_or("", |of| &of.allocation)),
                    figure(interval.map_or_else(String::new, |of| length(of.from_ms))),
                    figure(interval.map_or_else(String::new, |of| length(of.to_ms))),
                    figure(busy.map_or_else(String::new, length)),
                    figure(units::show_money(row.amount_micros, currency)),
                ]);
            }
            table
        },
    )
}
