//! How SQLite is opened: write-ahead log, every commit synced, one writer, readers apart.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::error::JournalError;
use crate::location::Options;
use crate::store::{Conn, args};

pub(crate) const FILE: &str = "journal.db";

/// Before this version a log that restarts while a checkpoint runs can corrupt the database.
const VERSION_MIN: (u32, u32, u32) = (3, 51, 3);
const VERSION_MIN_TEXT: &str = "3.51.3";

/// Of new files; others keep what they have. A batch's row is hundreds of kilobytes and rows of history come by the thousand:
/// a quarter of the pages to write, at nearly the same cost for a lone commit.
const PAGE_BYTES: u32 = 16 << 10;

/// Kept in memory of the pages of tables that grow at many places: a batch's own row, which is large, must not push them out.
const CACHE_KIB: u32 = 64 << 10;

/// Files up to this size have every page checked on opening; beyond it, only on request.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

fn any(file: &Path, options: &Options) -> SqliteConnectOptions {
    let connect = SqliteConnectOptions::new()
        .filename(file)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(10))
        .disable_statement_logging();
    match &options.vfs {
        Some(vfs) => connect.vfs(vfs.clone()),
        None => connect,
    }
}

pub(crate) fn writer(file: &Path, options: &Options) -> SqliteConnectOptions {
    // NORMAL would lose acknowledged commits on a power cut; it exists so that a test can see that.
    let synchronous = if options.synchronous_normal {
        SqliteSynchronous::Normal
    } else {
        SqliteSynchronous::Full
    };
    any(file, options)
        .create_if_missing(true)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .pragma("wal_autocheckpoint", options.checkpoint_pages.to_string())
        .pragma("journal_size_limit", (256 << 20).to_string())
        .pragma("secure_delete", "ON")
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("temp_store", "MEMORY")
}

pub(crate) fn reader(file: &Path, options: &Options) -> SqliteConnectOptions {
    any(file, options).read_only(true)
}

pub(crate) fn pool(connect: SqliteConnectOptions, options: &Options) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(options.readers_max.max(1))
        .test_before_acquire(false)
        .connect_lazy_with(connect)
}

pub(crate) async fn check_version(conn: &mut Conn) -> Result<(), JournalError> {
    let row = conn
        .row("SELECT sqlite_version()", args![])
        .await
        .map_err(|error| JournalError::storage("asking SQLite for its version", error))?;
    let found = row
        .ok_or_else(|| JournalError::corrupt("SQLite has no version"))?
        .text(0)?;
    if is_too_old(&found) {
        Err(JournalError::SqliteTooOld {
            found,
            wanted: VERSION_MIN_TEXT,
        })
    } else {
        Ok(())
    }
}

fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) < VERSION_MIN
}

pub(crate) async fn check_pages(conn: &mut Conn, always: bool) -> Result<(), JournalError> {
    let failed = |error| JournalError::storage("checking the database file", error);
    let size = conn
        .row(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
            args![],
        )
        .await
        .map_err(failed)?;
    let size = size.map_or(Ok(0), |row| row.count(0))?;
    if !always && size > CHECKED_BYTES_MAX {
        return Ok(());
    }
    let found = conn.row("PRAGMA quick_check(1)", args![]).await.map_err(failed)?;
    match found.map(|row| row.text(0)).transpose()?.as_deref() {
        Some("ok") => Ok(()),
        other => Err(JournalError::corrupt(
            other.unwrap_or("the page check gave no answer"),
        )),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_before_the_fix_are_too_old() {
        for old in ["3.51.2", "3.9.9", "2.99.99", "", "garbage"] {
            assert!(super::is_too_old(old), "{old}");
        }
        for good in ["3.51.3", "3.51.10", "3.52.0", "4.0.0"] {
            assert!(!super::is_too_old(good), "{good}");
        }
    }
}
