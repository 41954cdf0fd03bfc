//! What jobs wrote, kept after their nodes forgot it: stretches of logs, compressed by who calls, found by where they
//! belong and when they came.
//!
//! Not part of the journal: nothing here is chained or proven, and all of it is erased in time. With SQLite it is a file of
//! its own, so that logs never wait for a commit of the journal nor hold one up; with PostgreSQL tables beside the others,
//! which every server reads and the leader writes. Absent: lines, levels and what a source is about (opaque here), when to
//! collect and how much to keep. Called by `server/log`.

mod append;
mod erase;
mod read;

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

use crate::error::JournalError;
use crate::location::{Location, Options, Source};
use crate::schema;
use crate::store::{Conn, Dialect, Row, Val, args, sqlite};

pub use append::{Appended, NewSource, NewStretch};
pub use erase::Erased;
pub use read::{Find, LogHead, LogSource, LogStretch, Within};

const FILE: &str = "logs.db";

/// What a stretch takes beside its data: its row and its places in the indexes.
pub const STRETCH_OVERHEAD: u64 = 512;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS log_counter (name {text} PRIMARY KEY, value {int} NOT NULL);
CREATE TABLE IF NOT EXISTS log_source (
    id {int} PRIMARY KEY, allocation {text} NOT NULL, stream {text} NOT NULL, job {text} NOT NULL,
    tenant {text} NOT NULL, scope {text} NOT NULL, about {text} NOT NULL, next {int} NOT NULL,
    begun_ms {int} NOT NULL, is_open {int} NOT NULL, full_at {int} NOT NULL, UNIQUE (allocation, stream));
CREATE INDEX IF NOT EXISTS log_source_open ON log_source (id) WHERE is_open = 1;
CREATE INDEX IF NOT EXISTS log_source_tenant ON log_source (tenant);
CREATE TABLE IF NOT EXISTS log_stretch (
    id {int} PRIMARY KEY, source {int} NOT NULL, at_ms {int} NOT NULL, levels {int} NOT NULL, tenant {text} NOT NULL,
    scope_1 {text}, scope_2 {text}, scope_3 {text}, job {text} NOT NULL, parent {text}, first {int} NOT NULL,
    bytes {int} NOT NULL, size {int} NOT NULL, data {blob} NOT NULL);
CREATE INDEX IF NOT EXISTS log_stretch_tenant ON log_stretch (tenant, id);
CREATE INDEX IF NOT EXISTS log_stretch_1 ON log_stretch (scope_1, id, levels, at_ms) WHERE scope_1 IS NOT NULL;
CREATE INDEX IF NOT EXISTS log_stretch_2 ON log_stretch (scope_2, id, levels, at_ms) WHERE scope_2 IS NOT NULL;
CREATE INDEX IF NOT EXISTS log_stretch_3 ON log_stretch (scope_3, id, levels, at_ms) WHERE scope_3 IS NOT NULL;
CREATE INDEX IF NOT EXISTS log_stretch_job ON log_stretch (job, id, levels, at_ms);
CREATE INDEX IF NOT EXISTS log_stretch_parent ON log_stretch (parent, id, levels, at_ms) WHERE parent IS NOT NULL;
CREATE INDEX IF NOT EXISTS log_stretch_source ON log_stretch (source, first);
CREATE INDEX IF NOT EXISTS log_stretch_at ON log_stretch (at_ms, id);
CREATE TABLE IF NOT EXISTS log_use (tenant {text} PRIMARY KEY, size {int} NOT NULL, erased {int} NOT NULL,
    erased_ms {int} NOT NULL);
CREATE TABLE IF NOT EXISTS log_job (job {text} PRIMARY KEY, tenant {text} NOT NULL, bytes {int} NOT NULL,
    at_ms {int} NOT NULL);
";

/// Kept logs. Cheap to clone.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    /// The one connection that writes.
    desk: Mutex<Option<Conn>>,
}

impl LogStore {
    /// Opens the logs beside a journal, and makes their tables where there are none.
    pub async fn open(location: &Location) -> Result<LogStore, JournalError> {
        let options = Options::default();
        let (source, schema) = match location {
            Location::Sqlite(dir) => {
                let file = dir.join(FILE);
                let source = Source::Sqlite {
                    writer: Box::new(sqlite::writer(&file, &options)),
                    readers: sqlite::pool(sqlite::reader(&file, &options), &options),
                };
                (source, None)
            }
            Location::Postgres(_, schema) => (Source::new(location, &options)?, Some(schema.as_str())),
        };
        let mut conn = source.writer().await?;
        schema::begin(&mut conn, schema).await?;
        let tables = conn.dialect().sql(TABLES);
        let failed = |error| JournalError::storage("creating tables for logs", error);
        conn.script(&tables).await.map_err(failed)?;
        conn.script("COMMIT").await.map_err(failed)?;
        Ok(LogStore {
            shared: Arc::new(Shared {
                source,
                desk: Mutex::new(Some(conn)),
            }),
        })
    }

    async fn begin(&self) -> Result<LogTx<'_>, JournalError> {
        let failed = |error| JournalError::storage("beginning a transaction of logs", error);
        let mut slot = self.shared.desk.lock().await;
        let begin = match self.shared.source.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
        };
        if let Some(mut conn) = slot.take() {
            match conn.script(begin).await {
                Ok(_) => return Ok(LogTx { slot, conn }),
                // It died while idle; a fresh one is as good.
                Err(error) if conn.dialect() == Dialect::Sqlite => return Err(failed(error)),
                Err(_) => {}
            }
        }
        let mut conn = self.shared.source.writer().await?;
        conn.script(begin).await.map_err(failed)?;
        Ok(LogTx { slot, conn })
    }

    async fn rows(&self, sql: &str, args: Vec<Val>) -> Result<Vec<Row>, JournalError> {
        let mut conn = self.shared.source.reader().await?;
        conn.rows(sql, args)
            .await
            .map_err(|error| JournalError::storage("reading logs", error))
    }

    /// Closes the connections; other clones stop working.
    pub async fn close(&self) {
        self.shared.source.close().await;
        if let Some(conn) = self.shared.desk.lock().await.take() {
            conn.close().await;
        }
    }
}

/// A change under way. Dropping it drops the connection, which undoes it.
struct LogTx<'a> {
    slot: MutexGuard<'a, Option<Conn>>,
    conn: Conn,
}

impl LogTx<'_> {
    async fn run(&mut self, sql: &str, args: Vec<Val>) -> Result<u64, JournalError> {
        self.conn
            .run(sql, args)
            .await
            .map_err(|error| JournalError::storage("writing logs", error))
    }

    async fn rows(&mut self, sql: &str, args: Vec<Val>) -> Result<Vec<Row>, JournalError> {
        self.conn
            .rows(sql, args)
            .await
            .map_err(|error| JournalError::storage("writing logs", error))
    }

    /// Takes `count` numbers, and gives the first. Whoever writes waits here for who wrote before, so numbers become
    /// visible in their order: who has seen one has seen all below it.
    async fn take_numbers(&mut self, name: &str, count: u64) -> Result<u64, JournalError> {
        let sql = "INSERT INTO log_counter (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = log_counter.value + excluded.value RETURNING value";
        let rows = self.rows(sql, args![name, count]).await?;
        let last = rows
            .first()
            .ok_or_else(|| JournalError::corrupt("a counter has no value"))?
            .count(0)?;
        Ok(last - count + 1)
    }

    async fn commit(mut self) -> Result<(), JournalError> {
        self.conn.script("COMMIT").await.map_err(JournalError::commit)?;
        *self.slot = Some(self.conn);
        Ok(())
    }
}
