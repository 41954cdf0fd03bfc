//! History: what has left live state (finished jobs, old intervals, closed incidents), for reading only.
//!
//! A row belongs to a scope, the slash path of ids from tenant down. The first three steps of the path
//! are columns of their own with an index each, so that a page of any tenant's, subscriber's or user's
//! rows is read from an index in order, however many rows there are.

use crate::error::JournalError;
use crate::hash::row_sum;
use crate::leader::Tx;
use crate::reader::JournalReader;
use crate::store::{Row, Val, args};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    pub kind: String,
    pub id: String,
    /// For example `ten_x/sub_y/usr_z`; empty for the platform's own.
    pub scope: String,
    pub at_ms: i64,
    /// JSON text.
    pub body: String,
}

const INSERT: &str =
    "INSERT INTO history (kind, id, at_ms, seq, scope_1, scope_2, scope_3, scope, sum, body)";

/// Writing an id again replaces its row.
const REPLACE: &str = " ON CONFLICT (kind, id) DO UPDATE SET at_ms = excluded.at_ms, seq = excluded.seq, \
     scope_1 = excluded.scope_1, scope_2 = excluded.scope_2, scope_3 = excluded.scope_3, \
     scope = excluded.scope, sum = excluded.sum, body = excluded.body";

/// The rows as they are written with the batch that ends at `seq`.
pub(crate) fn rows(seq: u64, rows: Vec<HistoryRow>) -> Vec<Vec<Val>> {
    let rows = without_repeats(rows);
    rows.into_iter().map(|row| values(row, seq)).collect()
}

pub(crate) async fn insert(tx: &mut Tx<'_>, rows: Vec<Vec<Val>>) -> Result<(), JournalError> {
    tx.conn()
        .insert_many(INSERT, REPLACE, rows)
        .await
        .map_err(|error| JournalError::storage("writing history", error))
}

/// PostgreSQL refuses to replace a row twice in one statement; the last one counts.
fn without_repeats(rows: Vec<HistoryRow>) -> Vec<HistoryRow> {
    let mut last = std::collections::HashMap::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        last.insert((&*row.kind, &*row.id), at);
    }
    if last.len() == rows.len() {
        return rows;
    }
    let keep: std::collections::HashSet<usize> = last.into_values().collect();
    rows.into_iter()
        .enumerate()
        .filter(|(at, _)| keep.contains(at))
        .map(|(_, row)| row)
        .collect()
}

fn values(row: HistoryRow, seq: u64) -> Vec<Val> {
    let sum = row.sum().to_vec();
    let step = |depth| prefix(&row.scope, depth).map(str::to_owned);
    args![
        row.kind,
        row.id,
        row.at_ms,
        seq,
        step(1),
        step(2),
        step(3),
        row.scope,
        sum,
        row.body,
    ]
}

/// The first `depth` steps of a path, if it has that many.
pub(crate) fn prefix(scope: &str, depth: usize) -> Option<&str> {
    if scope.is_empty() {
        return None;
    }
    match scope.match_indices('/').nth(depth - 1) {
        Some((end, _)) => Some(&scope[..end]),
        None => (scope.split('/').count() == depth).then_some(scope),
    }
}

impl JournalReader {
    /// Rows of a kind at or below a scope, newest first, from just before a row already seen.
    pub async fn history(
        &self,
        kind: &str,
        scope_prefix: Option<&str>,
        before: Option<(i64, &str)>,
        limit: u32,
    ) -> Result<Vec<HistoryRow>, JournalError> {
        let (mut sql, mut values) = of_kind(kind, scope_prefix);
        if let Some((at_ms, id)) = before {
            let n = values.len();
            sql.push_str(&format!(" AND (at_ms, id) < (${}, ${})", n + 1, n + 2));
            values.extend(args![at_ms, id]);
        }
        values.push(limit.into());
        sql.push_str(&format!(" ORDER BY at_ms DESC, id DESC LIMIT ${}", values.len()));
        self.history_rows(&sql, values).await
    }

    /// Rows of a kind at or below a scope within a span of time, oldest first, from just after a row already seen.
    pub async fn history_between(
        &self,
        kind: &str,
        scope_prefix: Option<&str>,
        span: std::ops::Range<i64>,
        after: Option<(i64, &str)>,
        limit: u32,
    ) -> Result<Vec<HistoryRow>, JournalError> {
        let (mut sql, mut values) = of_kind(kind, scope_prefix);
        // Ids are never empty, so this stands before every row of the span's first moment.
        let (at_ms, id) = after.unwrap_or((span.start, ""));
        let n = values.len();
        sql.push_str(&format!(
            " AND (at_ms, id) > (${}, ${}) AND at_ms < ${} ORDER BY at_ms, id LIMIT ${}",
            n + 1,
            n + 2,
            n + 3,
            n + 4
        ));
        values.extend(args![at_ms, id, span.end, limit]);
        self.history_rows(&sql, values).await
    }

    async fn history_rows(&self, sql: &str, values: Vec<Val>) -> Result<Vec<HistoryRow>, JournalError> {
        let rows = self
            .conn()
            .await?
            .rows(sql, values)
            .await
            .map_err(|error| JournalError::storage("reading history", error))?;
        rows.iter().map(read).collect()
    }

    pub async fn history_get(&self, kind: &str, id: &str) -> Result<Option<HistoryRow>, JournalError> {
        let sql = format!("SELECT {COLUMNS} FROM history WHERE kind = $1 AND id = $2");
        let row = self
            .conn()
            .await?
            .row(&sql, args![kind, id])
            .await
            .map_err(|error| JournalError::storage("reading history", error))?;
        row.as_ref().map(read).transpose()
    }
}

/// Rows of a kind, at or below a scope.
fn of_kind(kind: &str, scope_prefix: Option<&str>) -> (String, Vec<Val>) {
    let mut sql = format!("SELECT {COLUMNS} FROM history WHERE kind = $1");
    let mut values = args![kind];
    if let Some(scope) = scope_prefix.filter(|scope| !scope.is_empty()) {
        let depth = scope.split('/').count().min(3);
        values.push(prefix(scope, depth).unwrap_or(scope).into());
        sql.push_str(&format!(" AND scope_{depth} = ${}", values.len()));
        if prefix(scope, depth) != Some(scope) {
            // Deeper than the columns go; `0` is the character after `/`.
            let n = values.len();
            sql.push_str(&format!(
                " AND (scope = ${} OR (scope >= ${} AND scope < ${}))",
                n + 1,
                n + 2,
                n + 3
            ));
            values.extend(args![scope, format!("{scope}/"), format!("{scope}0")]);
        }
    }
    (sql, values)
}

pub(crate) const COLUMNS: &str = "kind, id, scope, at_ms, body, sum";

pub(crate) fn read(row: &Row) -> Result<HistoryRow, JournalError> {
    let found = HistoryRow {
        kind: row.text(0)?,
        id: row.text(1)?,
        scope: row.text(2)?,
        at_ms: row.int(3)?,
        body: row.text(4)?,
    };
    if row.blob(5)? != found.sum() {
        return Err(JournalError::corrupt(format!(
            "history row {} {} was altered",
            found.kind, found.id
        )));
    }
    Ok(found)
}

impl HistoryRow {
    fn sum(&self) -> [u8; 8] {
        let HistoryRow {
            kind,
            id,
            scope,
            at_ms,
            body,
        } = self;
        let at_ms = at_ms.to_be_bytes();
        row_sum(&[
            kind.as_bytes(),
            id.as_bytes(),
            scope.as_bytes(),
            &at_ms,
            body.as_bytes(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn prefixes_are_whole_steps() {
        assert_eq!(prefix("a/b/c/d", 1), Some("a"));
        assert_eq!(prefix("a/b/c/d", 3), Some("a/b/c"));
        assert_eq!(prefix("a/b", 2), Some("a/b"));
        assert_eq!(prefix("a/b", 3), None);
        assert_eq!(prefix("", 1), None);
    }
}
