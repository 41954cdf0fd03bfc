//! Counting up: lines, the total, and the roots over the rows, in one passage however many there are.

use std::collections::BTreeMap;

use tenure_api::v1::bill::BillRowView;
use tenure_domain::Time;
use tenure_domain::ledger::invoice::{Count, Draft, InvoiceLine, LineKey, Part};
use tenure_domain::money::Micros;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::{Hash, JournalReader, Tree};

use super::row::{Rows, RowsError, Wanted, view};

/// What was counted so far.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    count: Count,
    /// Over all rows, in their order.
    all: Tree,
    /// Over the rows of each line.
    of_lines: BTreeMap<LineKey, Tree>,
}

impl Counted {
    /// Takes in a row as its payer sees it, and tells its hash.
    pub fn add(&mut self, row: &BillRowView) -> Hash {
        let interval = row.interval.as_ref();
        let part = Part {
            what: row.what,
            class: interval.and_then(|interval| interval.class.as_deref()),
            sku: interval.and_then(|interval| interval.sku.as_deref()),
            kind: interval.map(|interval| interval.kind),
            ran_ms: interval.map_or(0, |interval| interval.to_ms.saturating_sub(interval.from_ms)),
            gpu_ms: interval.map_or(0, |interval| interval.gpu_ms),
            busy_ms: interval.and_then(|interval| interval.busy_ms).unwrap_or(0),
            frames: interval.map_or(0, |interval| interval.frames),
            amount: Micros(row.amount_micros),
        };
        let hash = hash(row);
        self.count.take(&part);
        self.all.push(hash);
        self.of_lines.entry(part.key()).or_default().push(hash);
        hash
    }

    pub fn rows(&self) -> u64 {
        self.count.rows
    }

    pub fn total(&self) -> Micros {
        self.count.total()
    }

    pub fn root(&self) -> Digest {
        Digest(self.all.root().0)
    }

    pub fn lines(&self) -> Vec<InvoiceLine> {
        let mut lines = self.count.clone().lines();
        for line in &mut lines {
            line.root = self.of_lines.get(&line.key).map(|tree| Digest(tree.root().0));
        }
        lines
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
    let mut rows = Rows::read(journal, wanted, None);
    let mut counted = Counted::default();
    while let Some(page) = rows.next().await? {
        for found in page {
            counted.add(&view(&found.row, found.amount));
        }
    }
    Ok(counted)
}
