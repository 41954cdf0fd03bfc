//! Bill rows out of history: oldest first, a page ahead of whoever reads them, each as its payer sees it.

use std::ops::Range;

use tenure_api::v1::bill::{BillRowView, IntervalView};
use tenure_domain::Time;
use tenure_domain::ledger::bill::{BillRow, Eye, Interval};
use tenure_domain::money::Micros;
use tenure_journal::{JournalError, JournalReader};
use tokio::sync::mpsc;

/// Rows of history fetched at once.
const PAGE: u32 = 2000;
/// Pages that wait to be taken: the database reads while the last page is being worked on.
const AHEAD: usize = 2;

#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error("reading bill rows")]
    Journal(#[from] JournalError),
    #[error("a bill row cannot be read")]
    Row(#[from] serde_json::Error),
}

/// Which rows, and in whose eyes.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The path of ids at or below which they are; empty for all.
    pub path: String,
    pub span: Range<Time>,
    pub eye: Eye,
}

/// A row with the path of its owner, and what it comes to for its payer.
#[derive(Debug, Clone)]
pub struct Found {
    pub id: String,
    pub path: String,
    pub row: BillRow,
    pub amount: Micros,
}

/// Rows as they come.
pub struct Rows {
    pages: mpsc::Receiver<Result<Vec<Found>, RowsError>>,
}

/// Where a page ended.
type Seen = (i64, String);

impl Rows {
    /// Begins to read, after a row already seen. Reading goes on while the last page is worked on.
    pub fn read(journal: &JournalReader, wanted: Wanted, after: Option<Seen>) -> Rows {
        let (send, pages) = mpsc::channel(AHEAD);
        let journal = journal.clone();
        tokio::spawn(async move {
            let mut after = after;
            loop {
                let (found, more) = match page(&journal, &wanted, after.as_ref()).await {
                    Ok((found, more)) => (Ok(found), more),
                    Err(error) => (Err(error), None),
                };
                after = more;
                // Who read them may have had enough.
                if send.send(found).await.is_err() || after.is_none() {
                    return;
                }
            }
        });
        Rows { pages }
    }

    /// The next rows, those of others left out; none at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Found>>, RowsError> {
        self.pages.recv().await.transpose()
    }
}

/// A page of rows, and where it ended if there may be more.
async fn page(
    journal: &JournalReader,
    wanted: &Wanted,
    after: Option<&Seen>,
) -> Result<(Vec<Found>, Option<Seen>), RowsError> {
    let after = after.map(|(at, id)| (*at, id.as_str()));
    let span = wanted.span.start.0..wanted.span.end.0;
    let kept = journal
        .history_between("bill", Some(&wanted.path), span, after, PAGE)
        .await?;
    let full = kept.len() == PAGE as usize;
    let last = kept.last().filter(|_| full);
    let more = last.map(|row| (row.at_ms, row.id.clone()));
    let mut found = Vec::with_capacity(kept.len());
    for kept in kept {
        let row: BillRow = serde_json::from_str(&kept.body)?;
        if let Some(amount) = row.seen(wanted.eye) {
            found.push(Found {
                id: kept.id,
                path: kept.scope,
                row,
                amount,
            });
        }
    }
    Ok((found, more))
}

/// A row as its payer sees it.
pub fn view(row: &BillRow, amount: Micros) -> BillRowView {
    BillRowView {
        event: row.event,
        at: row.at.into(),
        what: row.what,
        owner: row.owner.to_string(),
        name: row.name.clone(),
        interval: row.interval.as_ref().map(interval),
        booking: row.booking.map(|booking| booking.to_string()),
        amount_micros: amount.0,
    }
}

fn interval(of: &Interval) -> IntervalView {
    let used = of.used.as_ref();
    IntervalView {
        allocation: of.allocation.to_string(),
        job: of.job.to_string(),
        from_ms: of.from_ms,
        to_ms: of.to_ms,
        class: of.class.as_deref().map(Into::into),
        sku: of.sku.as_deref().map(Into::into),
        kind: of.kind,
        isolation: of.isolation,
        slices: of.slices,
        gpu_milli: of.gpu_milli,
        vram_mib: of.vram_mib,
        gpu_ms: of.gpu_ms,
        busy_ms: used.map(|used| used.busy_ms),
        peak_vram_mib: used.map(|used| used.peak_vram_mib),
        energy_mj: used.map(|used| used.energy_mj).filter(|energy| *energy > 0),
        frames: of.frames,
    }
}
