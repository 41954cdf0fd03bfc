//! Sheaves: the bill rows of one owner that came of one event, as they lie together in one row of history.
//!
//! A node's report meters all that runs there in one event, and much of it is of few owners. What their rows have in common
//! stands once: event, moment, owner and node; and once for each sort what is the same in many intervals of one kind of
//! work. Intervals themselves are arrays, in the order of `Row`'s fields. Rows that are no use of anything, and all of
//! before there were sheaves, lie alone, as `BillRow` is written. Absent: which rows there are (`bill.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bill::{About, BillRow, Interval, What};
use crate::id::{AllocationId, JobId, NodeId};
use crate::kind::Kind;
use crate::money::Micros;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::spec::Isolation;
use crate::workload::usage::{Packed, Usage};

/// How it is written; whoever reads a later one does not know what it says.
const VERSION: u32 = 1;
/// What a sheaf begins with, and no row that lies alone.
const MARK: &str = "{\"sheaf\":";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheaf<'a> {
    sheaf: u32,
    event: u64,
    at: Time,
    owner: ScopeId,
    node: NodeId,
    sorts: Vec<Sort>,
    #[serde(borrow)]
    rows: Vec<Row<'a>>,
}

/// What many intervals have in common.
#[derive(PartialEq, Serialize, Deserialize)]
struct Sort(
    /// Class.
    Option<Arc<str>>,
    /// SKU.
    Option<Arc<str>>,
    Kind,
    Isolation,
    /// Slices.
    u32,
    /// Compute share and device memory of all of them.
    u64,
    u64,
    /// What is the same in all intervals of its job on that node.
    Option<Arc<About>>,
);

#[derive(Serialize, Deserialize)]
struct Row<'a>(
    /// Its sort, counted from 0.
    usize,
    AllocationId,
    JobId,
    /// The job's name.
    #[serde(borrow)]
    Cow<'a, str>,
    /// From and to, in milliseconds of its run time.
    u64,
    u64,
    /// GPU time.
    u64,
    /// What the tenant pays, what the subscriber pays it, the platform's part of that.
    i64,
    Option<i64>,
    i64,
    /// Frames.
    u64,
    Option<Packed>,
);

/// Why a row of history is not read as bill rows.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("a bill row cannot be read")]
    Text(#[from] serde_json::Error),
    #[error("a sheaf of bill rows is written in version {0}, and {VERSION} is known")]
    Version(u32),
    #[error("a bill row is of sort {0}, which its sheaf does not have")]
    Sort(usize),
}

/// Rows of one event and owner as one text: intervals as a sheaf, anything else alone, of which there is one.
pub fn write(rows: &[BillRow]) -> String {
    let sheaf = sheaf(rows);
    let text = match (&sheaf, rows) {
        (Some(sheaf), _) => serde_json::to_string(sheaf),
        (None, [alone]) => serde_json::to_string(alone),
        (None, _) => panic!("INVARIANT: rows that lie together are intervals of one event, owner and node"),
    };
    text.expect("nouns of the domain encode")
}

/// Nothing where they have not in common what a sheaf says once.
fn sheaf(rows: &[BillRow]) -> Option<Sheaf<'_>> {
    let first = rows.first()?;
    let node = first.interval.as_ref()?.node;
    let mut sorts: Vec<Sort> = Vec::with_capacity(1);
    let mut last = 0;
    let mut each = Vec::with_capacity(rows.len());
    for row in rows {
        let of = row.interval.as_ref()?;
        let alike = (row.event, row.at, row.owner, of.node) == (first.event, first.at, first.owner, node);
        if !alike || row.what != What::Usage || row.booking.is_some() || row.corrects_until.is_some() {
            return None;
        }
        let is = |sort: &Sort| {
            sort.0.as_deref() == of.class.as_deref()
                && sort.1.as_deref() == of.sku.as_deref()
                && (sort.2, sort.3, sort.4) == (of.kind, of.isolation, of.slices)
                && (sort.5, sort.6) == (of.gpu_milli, of.vram_mib)
                && sort.7 == of.about
        };
        if !sorts.get(last).is_some_and(is) {
            last = sorts.iter().position(is).unwrap_or(sorts.len());
        }
        if last == sorts.len() {
            sorts.push(Sort(
                of.class.clone(),
                of.sku.clone(),
                of.kind,
                of.isolation,
                of.slices,
                of.gpu_milli,
                of.vram_mib,
                of.about.clone(),
            ));
        }
        each.push(Row(
            last,
            of.allocation,
            of.job,
            Cow::Borrowed(&row.name),
            of.from_ms,
            of.to_ms,
            of.gpu_ms,
            row.money.0,
            row.resold.map(|resold| resold.0),
            row.fee.0,
            of.frames,
            of.used.as_ref().map(Usage::packed),
        ));
    }
    Some(Sheaf {
        sheaf: VERSION,
        event: first.event,
        at: first.at,
        owner: first.owner,
        node,
        sorts,
        rows: each,
    })
}

/// The rows that a text of history holds, in their order.
pub fn read(text: &str) -> Result<Vec<BillRow>, Unreadable> {
    if !text.starts_with(MARK) {
        return Ok(vec![serde_json::from_str(text)?]);
    }
    let Sheaf {
        sheaf,
        event,
        at,
        owner,
        node,
        sorts,
        rows,
    } = serde_json::from_str(text)?;
    if sheaf != VERSION {
        return Err(Unreadable::Version(sheaf));
    }
    let row = |row: Row<'_>| -> Result<BillRow, Unreadable> {
        let Row(sort, allocation, job, name, from_ms, to_ms, gpu_ms, money, resold, fee, frames, used) = row;
        let of = sorts.get(sort).ok_or(Unreadable::Sort(sort))?;
        Ok(BillRow {
            event,
            at,
            what: What::Usage,
            owner,
            name: name.into_owned(),
            interval: Some(Interval {
                allocation,
                job,
                node,
                from_ms,
                to_ms,
                class: of.0.clone(),
                sku: of.1.clone(),
                kind: of.2,
                isolation: of.3,
                slices: of.4,
                gpu_milli: of.5,
                vram_mib: of.6,
                gpu_ms,
                used: used.map(Usage::unpacked),
                frames,
                about: of.7.clone(),
            }),
            booking: None,
            money: Micros(money),
            resold: resold.map(Micros),
            fee: Micros(fee),
            corrects_until: None,
        })
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::UserId;

    fn row(number: u64) -> BillRow {
        BillRow {
            event: 17,
            at: Time(1_800_000_000_000),
            what: What::Usage,
            owner: ScopeId::User(UserId(5)),
            name: format!("job \"{number}\"\n"),
            interval: Some(Interval {
                allocation: AllocationId(number),
                job: JobId(number + 1),
                node: NodeId(9),
                from_ms: number * 10,
                to_ms: number * 10 + 10,
                class: Some(if number.is_multiple_of(2) { "H100" } else { "A100" }.into()),
                sku: (number == 3).then(|| "small".into()),
                kind: Kind::Training,
                isolation: Isolation::Fenced,
                slices: 2,
                gpu_milli: 500,
                vram_mib: 4000,
                gpu_ms: 5,
                used: (number > 1).then_some(Usage {
                    busy_ms: 1,
                    throttled_ms: 2,
                    waited_ms: 3,
                    launches: 4,
                    refusals: 5,
                    denials: 6,
                    peak_vram_mib: 7,
                    energy_mj: 8,
                }),
                frames: number,
                about: number.is_multiple_of(2).then(|| {
                    Arc::new(About {
                        region: Some("eu-north".into()),
                        ..About::default()
                    })
                }),
            }),
            booking: None,
            money: Micros(-7),
            resold: (number > 2).then_some(Micros(9)),
            fee: Micros(number as i64),
            corrects_until: None,
        }
    }

    fn alone() -> BillRow {
        BillRow {
            what: What::Credit,
            interval: None,
            ..row(1)
        }
    }

    #[test]
    fn rows_come_back_as_they_were_in_their_order() {
        for count in [1, 2, 5, 80] {
            let rows: Vec<BillRow> = (0..count).map(row).collect();
            let text = write(&rows);
            assert!(text.starts_with(MARK), "{text}");
            assert_eq!(read(&text).unwrap(), rows);
            let sorts = text.matches("\"fenced\"").count();
            assert!(sorts <= 3, "each sort stands once: {text}");
        }
        let credit = alone();
        assert_eq!(read(&write(std::slice::from_ref(&credit))).unwrap(), [credit]);
    }

    #[test]
    fn a_row_of_before_there_were_sheaves_is_read() {
        let text = serde_json::to_string(&row(3)).unwrap();
        assert_eq!(read(&text).unwrap(), [row(3)]);
    }

    #[test]
    fn what_is_no_sheaf_is_told() {
        let text = write(&[row(1), row(2)]);
        let later = text.replace("{\"sheaf\":1,", "{\"sheaf\":2,");
        assert!(matches!(read(&later), Err(Unreadable::Version(2))));
        let unknown = text.replace("[1,\"alc_", "[2,\"alc_");
        assert!(matches!(read(&unknown), Err(Unreadable::Sort(2))));
        assert!(matches!(read(&text[..text.len() - 1]), Err(Unreadable::Text(_))));
    }

    #[test]
    fn rows_of_different_events_do_not_lie_together() {
        let other = BillRow { event: 18, ..row(2) };
        assert!(sheaf(&[row(1), other]).is_none());
        assert!(sheaf(&[row(1), alone()]).is_none());
    }
}
