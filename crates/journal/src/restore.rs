//! Restore: a backup, up to a point, into a place that holds no journal yet.
//!
//! The cut falls between batches, so a restored journal is a state the platform was once in. Events
//! after the cut are gone from it; heads signed over them will say so when it is verified.

use std::path::Path;

use sqlx::ConnectOptions;

use crate::backup::{begin_reading, copy, fill, sync_parent};
use crate::chain::Head;
use crate::error::JournalError;
use crate::location::{Location, Options, Source};
use crate::lock::{self, LockFile};
use crate::schema;
use crate::store::{Conn, args, sqlite};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    End,
    /// The last batch that ends at or before this event.
    Seq(u64),
    /// The last batch before the first that is younger than this.
    Time(i64),
}

pub async fn restore(from: &Path, to: &Location, until: Until) -> Result<Head, JournalError> {
    if !from.is_file() {
        return Err(JournalError::Missing {
            place: from.display().to_string(),
        });
    }
    let options = Options::default();
    let failed = |error| JournalError::storage("opening the backup", error);
    let mut backup = Conn::Sqlite(sqlite::reader(from, &options).connect().await.map_err(failed)?);
    if !schema::exists(&mut backup).await? {
        return Err(JournalError::Missing {
            place: from.display().to_string(),
        });
    }
    begin_reading(&mut backup).await?;
    let cut = cut(&mut backup, until).await?;
    let head = match to {
        Location::Sqlite(dir) => into_directory(&mut backup, dir, cut).await,
        Location::Postgres(_, name) => into_schema(&mut backup, to, name, cut, &options).await,
    };
    backup.close().await;
    head
}

async fn cut(backup: &mut Conn, until: Until) -> Result<u64, JournalError> {
    let end = number(
        backup,
        "SELECT coalesce(max(last_seq), 0) FROM batch WHERE $1 = $1",
        0,
    )
    .await?;
    match until {
        Until::End => Ok(end),
        Until::Seq(seq) if seq > end => Err(JournalError::BeyondEnd { found: end }),
        Until::Seq(seq) => {
            let sql = "SELECT coalesce(max(last_seq), 0) FROM batch WHERE last_seq <= $1";
            number(backup, sql, seq as i64).await
        }
        Until::Time(ms) => {
            let sql = "SELECT coalesce(min(first_seq), 0) FROM batch WHERE at_ms > $1";
            let later = number(backup, sql, ms).await?;
            Ok(if later == 0 { end } else { later - 1 })
        }
    }
}

async fn number(conn: &mut Conn, sql: &str, value: i64) -> Result<u64, JournalError> {
    let row = conn
        .row(sql, args![value])
        .await
        .map_err(|error| JournalError::storage("finding the point to restore to", error))?;
    row.map_or(Ok(0), |row| row.count(0))
}

async fn into_directory(backup: &mut Conn, dir: &Path, cut: u64) -> Result<Head, JournalError> {
    lock::prepare(dir)?;
    let _lock = LockFile::take(dir, "restore")?;
    let file = dir.join(sqlite::FILE);
    if file.exists() {
        return Err(JournalError::NotEmpty {
            place: dir.display().to_string(),
        });
    }
    // Under another name until it is whole: a restore that was cut short leaves no journal behind.
    let partial = file.with_added_extension("partial");
    let head = fill(backup, &partial, Some(cut)).await?;
    let not_writable = |source| JournalError::NotWritable {
        path: dir.to_owned(),
        source: Some(source),
    };
    std::fs::rename(&partial, &file).map_err(not_writable)?;
    sync_parent(&file).map_err(not_writable)?;
    Ok(head)
}

async fn into_schema(
    backup: &mut Conn,
    to: &Location,
    name: &str,
    cut: u64,
    options: &Options,
) -> Result<Head, JournalError> {
    let mut conn = Source::new(to, options)?.writer().await?;
    schema::begin(&mut conn, Some(name)).await?;
    if schema::exists(&mut conn).await? {
        return Err(JournalError::NotEmpty { place: to.name() });
    }
    let head = copy(backup, &mut conn, Some(cut)).await?;
    conn.script("COMMIT").await.map_err(JournalError::commit)?;
    conn.close().await;
    Ok(head)
}
