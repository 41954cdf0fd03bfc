//! Bill rows out of history: oldest first, some pages ahead of whoever reads them, each row as its payer sees it.
//!
//! The database is read by one task, and what it gives is unpacked, and worked on further where the reader wants that, on
//! threads apart, some pages at once; pages come out in their order.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use tenure_api::v1::bill::{BillRowView, IntervalView};
use tenure_domain::Time;
use tenure_domain::ledger::bill::{BillRow, Eye, Interval};
use tenure_domain::ledger::sheaf::{self, Unreadable};
use tenure_domain::money::Micros;
use tenure_journal::{HistoryRow, JournalError, JournalReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Rows of history fetched first. How many the next time follows from how long these were: one may hold a single bill row or
/// all of a node's.
const FIRST: u32 = 100;
const MOST: u32 = 2000;
/// A page is about this long.
const PAGE_BYTES: usize = 512 << 10;
/// Pages that are worked on, or wait to be taken.
const AHEAD: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error("reading bill rows")]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Row(#[from] Unreadable),
    #[error("bill rows are read while the server stops")]
    Stopping,
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
    pub place: Place,
    pub path: Arc<str>,
    pub row: BillRow,
    pub amount: Micros,
}

/// Where in history a row lies: the moment and id of what it lies in, and the how-manyth it is there, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    at_ms: i64,
    id: Arc<str>,
    nth: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.at_ms, self.nth, self.id)
    }
}

/// Text that names no place.
#[derive(Debug, PartialEq, Eq)]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;
    fn from_str(text: &str) -> Result<Place, NoPlace> {
        let mut parts = text.splitn(3, ' ');
        let mut part = || parts.next().ok_or(NoPlace);
        Ok(Place {
            at_ms: part()?.parse().map_err(|_| NoPlace)?,
            nth: part()?.parse().map_err(|_| NoPlace)?,
            id: part()?.into(),
        })
    }
}

/// Rows as they come, a page at a time, or what was made of each page.
pub struct Rows<T = Vec<Found>> {
    pages: mpsc::Receiver<Result<JoinHandle<Result<T, Unreadable>>, JournalError>>,
}

impl Rows {
    /// Begins to read, after a row already seen.
    pub fn read(journal: &JournalReader, wanted: Wanted, after: Option<Place>) -> Rows {
        Rows::made(journal, wanted, after, |page| page)
    }
}

impl<T: Send + 'static> Rows<T> {
    /// Begins to read; something is made of each page, several pages at a time. Rows of others are left out.
    pub fn made(
        journal: &JournalReader,
        wanted: Wanted,
        after: Option<Place>,
        make: impl Fn(Vec<Found>) -> T + Clone + Send + 'static,
    ) -> Rows<T> {
        let (send, pages) = mpsc::channel(AHEAD);
        let journal = journal.clone();
        tokio::spawn(async move {
            let mut pages = Pages {
                journal,
                wanted,
                after,
                begun: false,
                limit: FIRST,
            };
            loop {
                let page = match pages.next().await {
                    Ok(Some(page)) => page,
                    Ok(None) => return,
                    Err(error) => {
                        // Who reads them may have had enough.
                        let _ = send.send(Err(error)).await;
                        return;
                    }
                };
                let (eye, make) = (pages.wanted.eye, make.clone());
                // A place first: so many pages are worked on at once, and no more.
                let Ok(place) = send.reserve().await else { return };
                let work = move || page.unpacked(eye).map(make);
                place.send(Ok(tokio::task::spawn_blocking(work)));
            }
        });
        Rows { pages }
    }

    /// What comes next; none at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<T>, RowsError> {
        let Some(page) = self.pages.recv().await.transpose()? else {
            return Ok(None);
        };
        match page.await {
            Ok(made) => Ok(Some(made?)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(RowsError::Stopping),
        }
    }
}

/// Where reading is.
struct Pages {
    journal: JournalReader,
    wanted: Wanted,
    after: Option<Place>,
    begun: bool,
    limit: u32,
}

/// Rows of history, not unpacked; of the first so many bill rows were seen before.
struct Page {
    kept: Vec<HistoryRow>,
    seen: usize,
}

impl Pages {
    async fn next(&mut self) -> Result<Option<Page>, JournalError> {
        if !std::mem::replace(&mut self.begun, true)
            && let Some(Place { id, nth, .. }) = &self.after
        {
            // What is left of where the rows already seen end.
            let kept = self.journal.history_get("bill", id).await?;
            return Ok(Some(Page {
                kept: kept.into_iter().collect(),
                seen: nth.saturating_add(1),
            }));
        }
        if self.limit == 0 {
            return Ok(None);
        }
        let span = self.wanted.span.start.0..self.wanted.span.end.0;
        let after = self.after.as_ref().map(|place| (place.at_ms, &*place.id));
        let kept = self
            .journal
            .history_between("bill", Some(&self.wanted.path), span, after, self.limit)
            .await?;
        let full = kept.len() == self.limit as usize;
        self.after = kept.last().map(|last| Place {
            at_ms: last.at_ms,
            id: last.id.as_str().into(),
            nth: 0,
        });
        let bytes: usize = kept.iter().map(|kept| kept.body.len()).sum();
        let fits = PAGE_BYTES * kept.len() / bytes.max(1);
        self.limit = match full {
            true => u32::try_from(fits).unwrap_or(MOST).clamp(1, MOST),
            false => 0,
        };
        Ok(Some(Page { kept, seen: 0 }))
    }
}

impl Page {
    fn unpacked(self, eye: Eye) -> Result<Vec<Found>, Unreadable> {
        let mut found = Vec::with_capacity(self.kept.len());
        for kept in self.kept {
            let (id, path): (Arc<str>, Arc<str>) = (kept.id.into(), kept.scope.into());
            for (nth, row) in sheaf::read(&kept.body)?.into_iter().enumerate().skip(self.seen) {
                let Some(amount) = row.seen(eye) else { continue };
                found.push(Found {
                    place: Place {
                        at_ms: kept.at_ms,
                        id: id.clone(),
                        nth,
                    },
                    path: path.clone(),
                    row,
                    amount,
                });
            }
        }
        Ok(found)
    }
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
