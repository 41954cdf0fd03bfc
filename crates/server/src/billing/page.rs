//! The printable page of an invoice: its lines, what it stands on, and its first rows. No scripts, nothing fetched.

use std::fmt::Write as _;

use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::{InvoiceState, InvoiceView};
use tenure_api::v1::journal::HeadView;
use tenure_domain::ledger::invoice::InvoiceLine;
use tenure_domain::money::Micros;
use tenure_domain::time::HOUR_MS;

/// Rows that are printed; a file of all of them is for machines.
pub const ROWS: usize = 500;

const STYLE: &str = "body{font:11pt/1.4 sans-serif;color:#111;max-width:60em;margin:2em auto;padding:0 1em}\
h1{font-size:1.6em}table{border-collapse:collapse;width:100%;margin:1em 0}th,td{text-align:left;padding:.25em .6em;\
border-bottom:1px solid #ccc;vertical-align:top}.n{text-align:right;font-variant-numeric:tabular-nums}\
.total td{font-weight:bold;border-top:2px solid #111}.small{font-size:8pt;color:#444;overflow-wrap:anywhere}\
.rows{font-size:8pt}@media print{body{margin:0;max-width:none}thead{display:table-header-group}tr{break-inside:avoid}}";

/// Text as a page shows it.
fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

fn hours(ms: u64) -> String {
    format!("{}.{:04}", ms / HOUR_MS, ms % HOUR_MS * 10_000 / HOUR_MS)
}

/// What a line is for, in words.
pub fn said(line: &InvoiceLine) -> String {
    let key = &line.key;
    let mut words = vec![key.what.as_str().to_owned()];
    words.extend(key.kind.map(|kind| kind.as_str().replace('_', " ")));
    words.extend(key.class.as_deref().map(|class| format!("on {class}")));
    words.extend(key.sku.as_deref().map(|sku| format!("as {sku}")));
    words.join(" ")
}

fn line(out: &mut String, line: &InvoiceLine) {
    let _ = writeln!(
        out,
        "<tr><td>{}</td><td class=n>{}</td><td class=n>{}</td><td class=n>{}</td><td class=n>{}</td></tr>",
        safe(&said(line)),
        line.rows,
        hours(line.gpu_ms),
        line.frames,
        Micros(line.amount_micros)
    );
}

fn row(out: &mut String, row: &BillRowView) {
    let interval = row.interval.as_ref();
    let ran = interval.map_or_else(String::new, |of| {
        format!("{} to {} ms of {}", of.from_ms, of.to_ms, safe(&of.allocation))
    });
    let _ = writeln!(
        out,
        "<tr><td class=n>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{ran}</td><td class=n>{}</td></tr>",
        row.event,
        row.at,
        row.what.as_str(),
        safe(&row.name),
        Micros(row.amount_micros)
    );
}

/// The page. `rows` are the first of the invoice's.
pub fn html(invoice: &InvoiceView, seller: &str, head: &HeadView, rows: &[BillRowView]) -> String {
    let id = invoice.id.as_deref().unwrap_or("draft");
    let currency = safe(&invoice.currency);
    let state = match invoice.state {
        InvoiceState::Draft => "Draft".to_owned(),
        InvoiceState::Issued => "To be paid".to_owned(),
        InvoiceState::Paid => invoice
            .paid
            .map_or_else(String::new, |at| format!("Paid on {at}")),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>Invoice {id}</title><style>{STYLE}</style></head><body>\n\
         <h1>Invoice {id}</h1>\n<table><tbody>\n<tr><th>From</th><td>{}</td></tr>\n<tr><th>To</th><td>{} <span class=small>{}</span></td></tr>\n\
         <tr><th>For</th><td>{} to {} (UTC)</td></tr>\n<tr><th>Issued</th><td>{}</td></tr>\n<tr><th>State</th><td>{state}</td></tr>\n</tbody></table>\n",
        safe(seller),
        safe(&invoice.path),
        safe(&invoice.scope),
        invoice.since,
        invoice.until,
        invoice.issued.map_or_else(String::new, |at| at.to_string()),
    );
    let _ = writeln!(
        out,
        "<table><thead><tr><th>What</th><th class=n>Intervals</th><th class=n>GPU hours</th><th class=n>Frames</th><th class=n>{currency}</th></tr></thead><tbody>"
    );
    invoice.lines.iter().for_each(|of| line(&mut out, of));
    let _ = writeln!(
        out,
        "<tr class=total><td>Total</td><td class=n>{}</td><td></td><td></td><td class=n>{}</td></tr>\n</tbody></table>",
        invoice.rows,
        Micros(invoice.total_micros)
    );
    if invoice.refunded_micros != 0 {
        let _ = writeln!(
            out,
            "<p>Given back of it since: {} {currency}</p>",
            Micros(invoice.refunded_micros)
        );
    }
    let _ = writeln!(
        out,
        "<p class=small>The root over its {} rows is {}. It is part of the platform's journal, whose head over {} events with the root {} \
         was signed with the key {}. The file of this invoice carries every row and the proof: <code>tenure invoice export {id} --to FILE</code>, \
         then <code>tenure invoice verify FILE</code>, which needs no server.</p>",
        invoice.rows,
        safe(&invoice.root),
        head.seq,
        safe(&head.root),
        safe(&head.key_id)
    );
    if !rows.is_empty() {
        let _ = writeln!(
            out,
            "<h2>Rows</h2>\n<table class=rows><thead><tr><th class=n>Event</th><th>At</th><th>What</th><th>Name</th><th>Run time</th><th class=n>{currency}</th></tr></thead><tbody>"
        );
        rows.iter().for_each(|of| row(&mut out, of));
        out.push_str("</tbody></table>\n");
    }
    let left = invoice.rows.saturating_sub(rows.len() as u64);
    if left > 0 {
        let _ = writeln!(out, "<p class=small>{left} more rows are in the file.</p>");
    }
    out.push_str("</body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(safe("<b>&\"'\u{1b}"), "&lt;b&gt;&amp;&quot;&#39; ");
        assert_eq!(hours(5_400_000), "1.5000");
    }
}
