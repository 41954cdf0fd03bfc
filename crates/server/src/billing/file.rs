//! Invoices written out, as a stream: JSON with every row and every proof, CSV, FOCUS 1.2.
//!
//! Absent: the printable page (`page.rs`), and checking a file (`verify.rs`).

use std::fmt::Write as _;

use axum::body::Bytes;
use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::{EventHashes, FileHead};
use tenure_domain::ledger::focus::{self, Frame, quoted};
use tenure_domain::ledger::invoice::Invoice;
use tenure_domain::money::Micros;
use tenure_journal::JournalReader;
use tokio::sync::mpsc;

use super::count::{Counted, Tally};
use super::row::{Found, Rows, RowsError, Wanted, view};

/// What the JSON form calls itself.
pub const FORMAT: &str = "tenure-invoice-1";

/// Pieces that wait for the network.
const AHEAD: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error("proving its events")]
    Journal(#[from] tenure_journal::JournalError),
    #[error("what history holds is not what invoice {0} was issued over")]
    NotAsIssued(String),
    #[error("nobody reads on")]
    Gone,
}

/// Pieces of a file; an error cuts it short.
pub type Pieces = mpsc::Receiver<Result<Bytes, FileError>>;

struct Out {
    send: mpsc::Sender<Result<Bytes, FileError>>,
    text: String,
}

impl Out {
    async fn flush(&mut self) -> Result<(), FileError> {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        self.send.send(Ok(text.into())).await.map_err(|_| FileError::Gone)
    }
}

/// Writes a file on a task of its own; what went wrong is its last piece.
fn written<F, W>(write: W) -> Pieces
where
    W: FnOnce(Out) -> F,
    F: Future<Output = Result<(), FileError>> + Send + 'static,
{
    let (send, pieces) = mpsc::channel(AHEAD);
    let out = Out {
        send: send.clone(),
        text: String::new(),
    };
    let work = write(out);
    tokio::spawn(async move {
        match work.await {
            Ok(()) | Err(FileError::Gone) => {}
            Err(error) => {
                tracing::error!(%error, "an invoice was not written out");
                // Who reads may have gone away.
                let _ = send.send(Err(error)).await;
            }
        }
    });
    pieces
}

/// A page of rows as the file has them, a line each.
struct Written {
    tally: Tally,
    events: Vec<u64>,
    text: String,
}

impl Written {
    fn of(page: &[Found]) -> Written {
        let (mut tally, mut text) = (Tally::default(), String::new());
        for (number, found) in page.iter().enumerate() {
            let (hash, row) = tally.add(&view(&found.row, found.amount));
            text.push_str(if number == 0 { "\n" } else { ",\n" });
            let _ = write!(text, "{{\"hash\":\"{hash}\",\"row\":{row}}}");
        }
        let mut events: Vec<u64> = page.iter().map(|found| found.row.event).collect();
        events.dedup();
        Written { tally, events, text }
    }
}

/// The invoice with all that is needed to check it without a server.
pub fn json(journal: &JournalReader, wanted: Wanted, head: FileHead) -> Pieces {
    let journal = journal.clone();
    written(move |mut out| async move {
        let begin = serde_json::json!({ "format": FORMAT }).to_string();
        out.text.push_str(begin.trim_end_matches('}'));
        out.text.push_str(",\n\"invoice\":");
        out.text.push_str(&text(&head.invoice));
        out.text.push_str(",\n\"proof\":");
        out.text.push_str(&text(&head.proof));
        out.text.push_str(",\n\"rows\":[");
        let (mut counted, mut numbers) = (Counted::default(), Vec::new());
        let mut pages = Rows::made(&journal, wanted, None, |page| Written::of(&page));
        while let Some(page) = pages.next().await? {
            if counted.rows() > 0 && !page.events.is_empty() {
                out.text.push(',');
            }
            counted.take(&page.tally);
            numbers.extend(page.events);
            out.text.push_str(&page.text);
            out.flush().await?;
        }
        as_issued(&head.invoice, &counted)?;
        numbers.sort_unstable();
        numbers.dedup();
        let proven = journal.prove_many(&numbers, head.proof.head.seq).await?;
        let spelled = |hashes: Vec<tenure_journal::Hash>| hashes.iter().map(ToString::to_string).collect();
        let events = EventHashes {
            hashes: spelled(proven.hashes),
            path: spelled(proven.path),
        };
        out.text.push_str("\n],\n\"events\":");
        out.text.push_str(&text(&events));
        out.text.push_str("}\n");
        out.flush().await
    })
}

fn text(noun: &impl serde::Serialize) -> String {
    serde_json::to_string(noun).expect("nouns of the API encode")
}

fn as_issued(invoice: &Invoice, counted: &Counted) -> Result<(), FileError> {
    let same = counted.root() == invoice.draft.root && counted.total() == invoice.draft.total;
    same.then_some(())
        .ok_or_else(|| FileError::NotAsIssued(invoice.id.to_string()))
}

/// Rows as lines of CSV, under one that names the columns.
fn lines(
    journal: &JournalReader,
    wanted: Wanted,
    invoice: Invoice,
    header: String,
    line: impl Fn(&Found, &BillRowView, &mut String) + Clone + Send + 'static,
) -> Pieces {
    let journal = journal.clone();
    let page = move |page: Vec<Found>| {
        let (mut tally, mut text) = (Tally::default(), String::new());
        for found in &page {
            let row = view(&found.row, found.amount);
            tally.add(&row);
            line(found, &row, &mut text);
        }
        (tally, text)
    };
    written(move |mut out| async move {
        out.text = header;
        let mut counted = Counted::default();
        let mut pages = Rows::made(&journal, wanted, None, page);
        while let Some((tally, text)) = pages.next().await? {
            counted.take(&tally);
            out.text.push_str(&text);
            out.flush().await?;
        }
        as_issued(&invoice, &counted)?;
        out.flush().await
    })
}

pub fn focus(journal: &JournalReader, wanted: Wanted, invoice: Invoice, frame: Frame) -> Pieces {
    lines(journal, wanted, invoice, focus::header(), move |found, _, out| {
        focus::line(&frame, &found.row, found.amount, out);
    })
}

type Column = (&'static str, fn(&BillRowView) -> String);

/// What a row says in CSV. An empty field is no value.
const COLUMNS: &[Column] = &[
    ("event", |row| row.event.to_string()),
    ("at", |row| row.at.to_string()),
    ("what", |row| row.what.as_str().into()),
    ("owner", |row| row.owner.clone()),
    ("name", |row| row.name.clone()),
    ("booking", |row| row.booking.clone().unwrap_or_default()),
    ("job", |row| of(row, |of| of.job.clone())),
    ("allocation", |row| of(row, |of| of.allocation.clone())),
    ("from_ms", |row| of(row, |of| of.from_ms.to_string())),
    ("to_ms", |row| of(row, |of| of.to_ms.to_string())),
    ("class", |row| of(row, |of| of.class.clone().unwrap_or_default())),
    ("sku", |row| of(row, |of| of.sku.clone().unwrap_or_default())),
    ("kind", |row| of(row, |of| of.kind.as_str().into())),
    ("isolation", |row| of(row, |of| of.isolation.as_str().into())),
    ("gpu_milli", |row| of(row, |of| of.gpu_milli.to_string())),
    ("vram_mib", |row| of(row, |of| of.vram_mib.to_string())),
    ("gpu_ms", |row| of(row, |of| of.gpu_ms.to_string())),
    ("busy_ms", |row| of(row, |of| or_empty(of.busy_ms))),
    ("peak_vram_mib", |row| of(row, |of| or_empty(of.peak_vram_mib))),
    ("energy_mj", |row| of(row, |of| or_empty(of.energy_mj))),
    ("frames", |row| of(row, |of| of.frames.to_string())),
];

fn of(row: &BillRowView, read: impl FnOnce(&tenure_api::v1::bill::IntervalView) -> String) -> String {
    row.interval.as_ref().map_or_else(String::new, read)
}

fn or_empty(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

pub fn csv(journal: &JournalReader, wanted: Wanted, invoice: Invoice) -> Pieces {
    let currency = invoice.currency.to_string();
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let header = format!("{},amount,currency\n", names.join(","));
    lines(journal, wanted, invoice, header, move |_, row, out| {
        for (_, value) in COLUMNS {
            quoted(&value(row), out);
            out.push(',');
        }
        let _ = writeln!(out, "{},{currency}", Micros(row.amount_micros));
    })
}
