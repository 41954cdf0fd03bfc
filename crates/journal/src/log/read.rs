//! Finding kept logs: first what is there, in its order and without its bytes, then the bytes of what may fit.

use super::LogStore;
use crate::error::JournalError;
use crate::store::{Row, Val, args};

/// A stream that is or was collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSource {
    pub id: u64,
    pub allocation: String,
    pub stream: String,
    pub job: String,
    pub tenant: String,
    pub scope: String,
    pub about: String,
    /// How far it was read.
    pub next: u64,
    pub begun_ms: i64,
    /// More may come of it.
    pub is_open: bool,
    /// From where on nothing is kept, since its job had all that is kept of one.
    pub full_at: Option<u64>,
}

/// Whose logs are looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// Everybody's.
    All,
    /// A path of one to three steps, and all below it.
    Scope(String),
    /// A job, with its tasks.
    Job(String),
}

/// What is looked for: stretches between two others, in this order.
#[derive(Clone, Debug)]
pub struct Find {
    pub within: Within,
    /// Only those with one of these levels.
    pub levels: u32,
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// Numbers above this one.
    pub above: u64,
    /// Numbers below this one.
    pub below: u64,
    pub newest_first: bool,
    pub limit: u32,
}

/// One stretch, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    pub id: u64,
    pub bytes: u64,
}

/// One stretch and what it is of.
#[derive(Clone, Debug)]
pub struct LogStretch {
    pub id: u64,
    pub at_ms: i64,
    /// Where in its source it begins; none for a note of the store's own.
    pub first: Option<u64>,
    pub bytes: u64,
    pub data: Vec<u8>,
    pub source: LogSource,
}

pub(super) const SOURCE: &str = "s.id, s.allocation, s.stream, s.job, s.tenant, s.scope, s.about, s.next, s.begun_ms, s.is_open, s.full_at";

pub(super) fn source(row: &Row, from: usize) -> Result<LogSource, JournalError> {
    Ok(LogSource {
        id: row.count(from)?,
        allocation: row.text(from + 1)?,
        stream: row.text(from + 2)?,
        job: row.text(from + 3)?,
        tenant: row.text(from + 4)?,
        scope: row.text(from + 5)?,
        about: row.text(from + 6)?,
        next: row.count(from + 7)?,
        begun_ms: row.int(from + 8)?,
        is_open: row.int(from + 9)? == 1,
        full_at: u64::try_from(row.int(from + 10)?).ok(),
    })
}

impl LogStore {
    /// The streams of which more may come, after one of them.
    pub async fn open_sources(&self, after: u64, limit: u32) -> Result<Vec<LogSource>, JournalError> {
        let sql = format!(
            "SELECT {SOURCE} FROM log_source s WHERE s.is_open = 1 AND s.id > $1 ORDER BY s.id LIMIT $2"
        );
        let rows = self.rows(&sql, args![after, limit]).await?;
        rows.iter().map(|row| source(row, 0)).collect()
    }

    pub async fn source(&self, allocation: &str, stream: &str) -> Result<Option<LogSource>, JournalError> {
        let sql = format!("SELECT {SOURCE} FROM log_source s WHERE s.allocation = $1 AND s.stream = $2");
        let rows = self.rows(&sql, args![allocation, stream]).await?;
        rows.first().map(|row| source(row, 0)).transpose()
    }

    /// The kept stretch of a source with the byte at `offset`, or the next after it.
    pub async fn stretch_at(&self, of: &LogSource, offset: u64) -> Result<Option<LogStretch>, JournalError> {
        let sql = format!(
            "SELECT k.id, k.at_ms, k.first, k.bytes, k.data, {SOURCE} FROM log_stretch k \
             JOIN log_source s ON s.id = k.source WHERE k.source = $1 AND k.first >= \
             coalesce((SELECT max(first) FROM log_stretch WHERE source = $1 AND first <= $2 AND first >= 0), 0) \
             AND k.first + k.bytes > $2 ORDER BY k.first LIMIT 1"
        );
        let rows = self.rows(&sql, args![of.id, offset]).await?;
        rows.first().map(stretch).transpose()
    }

    /// The number of the newest stretch; 0 where there is none.
    pub async fn newest(&self) -> Result<u64, JournalError> {
        let rows = self
            .rows("SELECT coalesce(max(id), 0) FROM log_stretch", args![])
            .await?;
        rows.first().map_or(Ok(0), |row| row.count(0))
    }

    /// Stretches in order, without their bytes.
    pub async fn heads(&self, find: &Find) -> Result<Vec<LogHead>, JournalError> {
        let (mut sql, mut values) = (
            String::from("SELECT id, bytes FROM log_stretch WHERE"),
            Vec::new(),
        );
        let mut and = |text: &str, value: Val| {
            values.push(value);
            if values.len() > 1 {
                sql.push_str(" AND");
            }
            sql.push_str(&text.replace('?', &format!("${}", values.len())));
        };
        match &find.within {
            Within::All => {}
            Within::Scope(path) => {
                let depth = path.split('/').count().clamp(1, 3);
                and(&format!(" scope_{depth} = ?"), path.as_str().into());
            }
            Within::Job(job) => and(" (job = ? OR parent = ?)", job.as_str().into()),
        }
        and(" id > ?", find.above.into());
        and(" id < ?", find.below.min(i64::MAX as u64).into());
        and(" (levels & ?) <> 0", find.levels.into());
        if let Some(since) = find.since_ms {
            and(" at_ms >= ?", since.into());
        }
        if let Some(until) = find.until_ms {
            and(" at_ms < ?", until.into());
        }
        values.push(find.limit.into());
        let order = if find.newest_first { "DESC" } else { "ASC" };
        sql.push_str(&format!(" ORDER BY id {order} LIMIT ${}", values.len()));
        let rows = self.rows(&sql, values).await?;
        let head = |row: &Row| {
            Ok(LogHead {
                id: row.count(0)?,
                bytes: row.count(1)?,
            })
        };
        rows.iter().map(head).collect()
    }

    /// Stretches by their numbers, in no order. One that was erased meanwhile is missing.
    pub async fn stretches(&self, ids: &[u64]) -> Result<Vec<LogStretch>, JournalError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let list: Vec<String> = ids.iter().map(u64::to_string).collect();
        let sql = format!(
            "SELECT k.id, k.at_ms, k.first, k.bytes, k.data, {SOURCE} FROM log_stretch k \
             JOIN log_source s ON s.id = k.source WHERE k.id IN ({})",
            list.join(", ")
        );
        let rows = self.rows(&sql, args![]).await?;
        rows.iter().map(stretch).collect()
    }

    /// The numbers between which all stretches of a span of time are.
    pub async fn bounds(
        &self,
        since_ms: Option<i64>,
        until_ms: Option<i64>,
    ) -> Result<(u64, u64), JournalError> {
        let mut above = 0;
        if let Some(since) = since_ms {
            // In the order of time, so the first found is the oldest: numbers and moments rise together but for clocks set back,
            // and what those cost is that more is looked at.
            let sql = "SELECT min(id) FROM (SELECT id FROM log_stretch WHERE at_ms >= $1 ORDER BY at_ms, id LIMIT 1) f";
            let rows = self.rows(sql, args![since]).await?;
            above = match rows.first().map(|row| row.maybe_int(0)).transpose()?.flatten() {
                Some(id) => u64::try_from(id).unwrap_or(0).saturating_sub(SLACK),
                None => i64::MAX as u64,
            };
        }
        let mut below = i64::MAX as u64;
        if let Some(until) = until_ms {
            let sql = "SELECT max(id) FROM (SELECT id FROM log_stretch WHERE at_ms < $1 ORDER BY at_ms DESC, id DESC LIMIT 1) f";
            let rows = self.rows(sql, args![until]).await?;
            below = match rows.first().map(|row| row.maybe_int(0)).transpose()?.flatten() {
                Some(id) => u64::try_from(id).unwrap_or(0).saturating_add(1 + SLACK),
                None => 0,
            };
        }
        Ok((above, below))
    }
}

/// How far numbers and moments may be out of step, where a clock was set back.
const SLACK: u64 = 10_000;

fn stretch(row: &Row) -> Result<LogStretch, JournalError> {
    Ok(LogStretch {
        id: row.count(0)?,
        at_ms: row.int(1)?,
        first: u64::try_from(row.int(2)?).ok(),
        bytes: row.count(3)?,
        data: row.blob(4)?,
        source: source(row, 5)?,
    })
}
