//! Counting up: lines, the total, and the roots over the rows, in one passage however many there are.
//!
//! What a row comes to and its hash need nothing of the rows beside it, and are made a page at a time on threads apart
//! (`Tally`); in the trees each row has its place, so pages are put together in their order (`Counted`).

use std::collections::BTreeMap;

use tenure_api::v1::bill::BillRowView;
use tenure_domain::Time;
use tenure_domain::ledger::invoice::{Draft, InvoiceLine, LineKey, Part};
use tenure_domain::money::Micros;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::{Hash, JournalReader, Tree};

use super::row::{Found, Rows, RowsError, Wanted, view};

/// Lines, each with its place among them.
#[derive(Debug, Clone, Default)]
struct Lines {
    each: Vec<InvoiceLine>,
    places: BTreeMap<LineKey, usize>,
    /// Of the last row: the next is most often of the same.
    last: usize,
}

impl Lines {
    fn place(&mut self, part: &Part<'_>) -> usize {
        let last = self.each.get(self.last);
        if !last.is_some_and(|line| part.is_of(&line.key)) {
            self.last = self.place_of(part.key());
        }
        self.last
    }

    fn place_of(&mut self, key: LineKey) -> usize {
        let next = self.each.len();
        *self.places.entry(key).or_insert_with_key(|key| {
            self.each.push(InvoiceLine::of(key.clone()));
            next
        })
    }
}

/// Rows that were looked at together: what they come to, and their hashes in their order.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    lines: Lines,
    /// Of each row, its line's place and its hash.
    rows: Vec<(usize, Hash)>,
    text: Vec<u8>,
}

impl Tally {
    pub fn of(page: &[Found]) -> Tally {
        let mut tally = Tally {
            rows: Vec::with_capacity(page.len()),
            ..Tally::default()
        };
        for found in page {
            tally.add(&view(&found.row, found.amount));
        }
        tally
    }

    /// Takes in a row as its payer sees it, and tells its hash and its text, over which the hash is.
    pub fn add(&mut self, row: &BillRowView) -> (Hash, &str) {
        self.text.clear();
        serde_json::to_writer(&mut self.text, row).expect("rows encode");
        let hash = Hash::of(&self.text);
        let part = part(row);
        let place = self.lines.place(&part);
        self.lines.each[place].add(&part);
        self.rows.push((place, hash));
        (hash, std::str::from_utf8(&self.text).expect("JSON is UTF-8"))
    }
}

fn part(row: &BillRowView) -> Part<'_> {
    let interval = row.interval.as_ref();
    Part {
        what: row.what,
        class: interval.and_then(|interval| interval.class.as_deref()),
        sku: interval.and_then(|interval| interval.sku.as_deref()),
        kind: interval.map(|interval| interval.kind),
        ran_ms: interval.map_or(0, |interval| interval.to_ms.saturating_sub(interval.from_ms)),
        gpu_ms: interval.map_or(0, |interval| interval.gpu_ms),
        busy_ms: interval.and_then(|interval| interval.busy_ms).unwrap_or(0),
        frames: interval.map_or(0, |interval| interval.frames),
        amount: Micros(row.amount_micros),
    }
}

/// What was counted so far.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    lines: Lines,
    /// Over the rows of each line.
    of_lines: Vec<Tree>,
    /// Over all rows, in their order.
    all: Tree,
    rows: u64,
    /// In 128 bits, so that no sum overflows on its way.
    total: i128,
}

impl Counted {
    /// Takes in a row as its payer sees it, and tells its hash.
    pub fn add(&mut self, row: &BillRowView) -> Hash {
        let (hash, part) = (hash(row), part(row));
        let place = self.lines.place(&part);
        self.lines.each[place].add(&part);
        self.total += i128::from(part.amount.0);
        self.push(place, hash);
        hash
    }

    /// Takes in rows that come after those so far.
    pub fn take(&mut self, tally: &Tally) {
        let places: Vec<usize> = tally.lines.each.iter().map(|line| self.merge(line)).collect();
        for (place, hash) in &tally.rows {
            self.push(places[*place], *hash);
        }
    }

    fn merge(&mut self, line: &InvoiceLine) -> usize {
        let place = self.lines.place_of(line.key.clone());
        self.lines.each[place].merge(line);
        self.total += i128::from(line.amount_micros);
        place
    }

    fn push(&mut self, place: usize, hash: Hash) {
        if self.of_lines.len() <= place {
            self.of_lines.resize(place + 1, Tree::default());
        }
        self.all.push(hash);
        self.of_lines[place].push(hash);
        self.rows += 1;
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn total(&self) -> Micros {
        let clamped = self.total.clamp(i64::MIN.into(), i64::MAX.into());
        Micros(clamped as i64)
    }

    pub fn root(&self) -> Digest {
        Digest(self.all.root().0)
    }

    /// In the order of their keys.
    pub fn lines(&self) -> Vec<InvoiceLine> {
        let line = |&place: &usize| InvoiceLine {
            root: Some(Digest(self.of_lines[place].root().0)),
            ..self.lines.each[place].clone()
        };
        self.lines.places.values().map(line).collect()
    }

    pub fn draft(&self, scope: ScopeId, from: Time, until: Time) -> Draft {
        Draft {
            scope,
            from,
            until,
            total: self.total(),
            rows: self.rows(),
            root: self.root(),
            lines: self.lines(),
        }
    }
}

/// A row's hash: over its fields as they are written, in their order.
pub fn hash(row: &BillRowView) -> Hash {
    let text = serde_json::to_vec(row).expect("rows encode");
    Hash::of(&text)
}

/// Reads rows and counts them.
pub async fn count_up(journal: &JournalReader, wanted: Wanted) -> Result<Counted, RowsError> {
    let mut pages = Rows::made(journal, wanted, None, |page| Tally::of(&page));
    let mut counted = Counted::default();
    while let Some(tally) = pages.next().await? {
        counted.take(&tally);
    }
    Ok(counted)
}
