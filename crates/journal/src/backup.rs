//! Backup: a consistent copy into one SQLite file, from either database, while a writer goes on.
//!
//! The chain is verified as it is copied, so a backup that succeeded is a sound one. Secrets and marks
//! are left out. The copying itself also serves `restore`, which goes the other way.

use std::path::Path;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::chain::{BatchRow, Chain, Head};
use crate::error::JournalError;
use crate::reader::JournalReader;
use crate::schema;
use crate::store::{Conn, Dialect, Row, Val, args};

enum Kind {
    Int,
    Text,
    MaybeText,
    Blob,
}

/// How a table is copied: in key order, a page at a time, up to a cut.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Kind)],
    /// How many of the columns, from the left, are the key.
    key: usize,
    /// An event number that grows with the row.
    seq: &'static str,
    page: u32,
}

use Kind::{Blob, Int, MaybeText, Text};

const BATCH: Table = Table {
    name: "batch",
    columns: &[
        ("first_seq", Int),
        ("last_seq", Int),
        ("at_ms", Int),
        ("hash", Blob),
        ("frontier", Blob),
        ("hashes", Blob),
        ("body", Blob),
    ],
    key: 1,
    seq: "last_seq",
    page: 64,
};

const OTHERS: [Table; 6] = [
    Table {
        name: "subtree",
        columns: &[("level", Int), ("place", Int), ("hash", Blob)],
        key: 2,
        seq: "(place + 1) << CAST(level AS INTEGER)",
        page: 1_000,
    },
    Table {
        name: "head",
        columns: &[
            ("seq", Int),
            ("key_id", Text),
            ("at_ms", Int),
            ("hash", Blob),
            ("root", Blob),
            ("signature", Blob),
        ],
        key: 2,
        seq: "seq",
        page: 1_000,
    },
    Table {
        name: "snapshot",
        columns: &[
            ("format", Int),
            ("seq", Int),
            ("hash", Blob),
            ("sum", Blob),
            ("size", Int),
        ],
        key: 2,
        seq: "seq",
        page: 100,
    },
    Table {
        name: "snapshot_part",
        columns: &[("format", Int), ("seq", Int), ("part", Int), ("bytes", Blob)],
        key: 3,
        seq: "seq",
        page: 8,
    },
    Table {
        name: "history",
        columns: &[
            ("kind", Text),
            ("id", Text),
            ("at_ms", Int),
            ("seq", Int),
            ("scope_1", MaybeText),
            ("scope_2", MaybeText),
            ("scope_3", MaybeText),
            ("scope", Text),
            ("sum", Blob),
            ("body", Text),
        ],
        key: 2,
        seq: "seq",
        page: 512,
    },
    Table {
        name: "idempotency",
        columns: &[
            ("principal", Text),
            ("key", Text),
            ("digest", Blob),
            ("status", Int),
            ("at_ms", Int),
            ("seq", Int),
            ("sum", Blob),
            ("reply", Text),
        ],
        key: 2,
        seq: "seq",
        page: 512,
    },
];

impl JournalReader {
    /// Writes a backup to a new file and returns the head it ends at.
    pub async fn backup(&self, to: &Path) -> Result<Head, JournalError> {
        let not_writable = |source| JournalError::NotWritable {
            path: to.to_owned(),
            source: Some(source),
        };
        if to.exists() {
            return Err(JournalError::NotEmpty {
                place: to.display().to_string(),
            });
        }
        let mut from = self.source().lone_reader().await?;
        begin_reading(&mut from).await?;
        let partial = to.with_added_extension("partial");
        let head = fill(&mut from, &partial, None).await;
        if head.is_ok() {
            std::fs::rename(&partial, to).map_err(not_writable)?;
            sync_parent(to).map_err(not_writable)?;
        } else {
            let _ = std::fs::remove_file(&partial);
        }
        from.close().await;
        head
    }
}

/// Sees one state of the journal, whatever is written meanwhile.
pub(crate) async fn begin_reading(conn: &mut Conn) -> Result<(), JournalError> {
    let begin = match conn.dialect() {
        Dialect::Sqlite => "BEGIN",
        Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    conn.run(begin, args![])
        .await
        .map_err(|error| JournalError::storage("beginning to read", error))
        .map(drop)
}

/// Makes a new SQLite file with a journal's tables and copies into it up to event `cut`.
pub(crate) async fn fill(from: &mut Conn, file: &Path, cut: Option<u64>) -> Result<Head, JournalError> {
    let failed = |error| JournalError::storage("writing the copy", error);
    let _ = std::fs::remove_file(file);
    let connect = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Delete)
        .synchronous(SqliteSynchronous::Full)
        .disable_statement_logging();
    let mut to = Conn::Sqlite(connect.connect().await.map_err(failed)?);
    schema::begin(&mut to, None).await?;
    let head = copy(from, &mut to, cut).await?;
    to.script("COMMIT").await.map_err(failed)?;
    to.close().await;
    Ok(head)
}

/// Copies everything but secrets, inside the transactions the caller began.
pub(crate) async fn copy(from: &mut Conn, to: &mut Conn, cut: Option<u64>) -> Result<Head, JournalError> {
    let platform = schema::check(from).await?;
    schema::tables(to, &platform).await?;
    let mut chain = Chain::default();
    let cut = cut.unwrap_or(i64::MAX as u64);
    copy_table(&BATCH, from, to, cut, |row| {
        chain
            .accept(&BatchRow::read(row)?, |_, _| {}, |_| Ok(()))
            .map_err(|bad| JournalError::corrupt(format!("event {} {}", bad.seq, bad.what)))
    })
    .await?;
    for table in &OTHERS {
        copy_table(table, from, to, cut, |_| Ok(())).await?;
    }
    copy_epoch(from, to).await?;
    Ok(chain.head())
}

async fn copy_table(
    table: &Table,
    from: &mut Conn,
    to: &mut Conn,
    cut: u64,
    mut check: impl FnMut(&Row) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let failed = |error| JournalError::storage("copying a table", error);
    let names = |count: usize| {
        let names: Vec<&str> = table.columns[..count].iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    let (columns, key) = (names(table.columns.len()), names(table.key));
    let places: Vec<String> = (1..=table.key).map(|n| format!("${n}")).collect();
    let rest = places.join(", ");
    let insert = format!("INSERT INTO {} ({columns})", table.name);
    let mut last: Option<Vec<Val>> = None;
    loop {
        let first_free = if last.is_some() { table.key + 1 } else { 1 };
        let beyond = if last.is_some() {
            format!("({key}) > ({rest}) AND")
        } else {
            String::new()
        };
        let sql = format!(
            "SELECT {columns} FROM {} WHERE {beyond} {} <= ${first_free} ORDER BY {key} LIMIT {}",
            table.name, table.seq, table.page
        );
        let mut values = last.take().unwrap_or_default();
        values.push(cut.into());
        let rows = from.rows(&sql, values).await.map_err(failed)?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = Some(read(end, &table.columns[..table.key])?);
        let mut copied = Vec::with_capacity(rows.len());
        for row in &rows {
            check(row)?;
            copied.push(read(row, table.columns)?);
        }
        let whole_page = rows.len() == table.page as usize;
        drop(rows);
        to.insert_many(&insert, "", copied).await.map_err(failed)?;
        if !whole_page {
            return Ok(());
        }
    }
}

fn read(row: &Row, columns: &[(&str, Kind)]) -> Result<Vec<Val>, JournalError> {
    let value = |(at, (_, kind)): (usize, &(&str, Kind))| {
        Ok(match kind {
            Int => Val::Int(row.int(at)?),
            Text => Val::Text(row.text(at)?),
            MaybeText => Val::MaybeText(row.maybe_text(at)?),
            Blob => Val::Blob(row.blob(at)?),
        })
    };
    columns.iter().enumerate().map(value).collect()
}

/// The epoch goes along, so that it only ever grows; the lease does not.
async fn copy_epoch(from: &mut Conn, to: &mut Conn) -> Result<(), JournalError> {
    let failed = |error| JournalError::storage("copying the epoch", error);
    let sql = "SELECT epoch, holder, term_ms FROM leader WHERE id = 1";
    let Some(row) = from.row(sql, args![]).await.map_err(failed)? else {
        return Ok(());
    };
    let sql = "INSERT INTO leader (id, epoch, holder, renewed_ms, term_ms) VALUES (1, $1, $2, 0, $3)";
    to.run(sql, args![row.int(0)?, row.text(1)?, row.int(2)?])
        .await
        .map_err(failed)?;
    Ok(())
}

pub(crate) fn sync_parent(file: &Path) -> std::io::Result<()> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::File::open(parent)?.sync_all()
}
