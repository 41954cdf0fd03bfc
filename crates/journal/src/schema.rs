//! The tables, their version, and what must hold before a journal is opened.

use ring::rand::{SecureRandom, SystemRandom};

use crate::error::JournalError;
use crate::store::{Conn, Dialect, args};

/// The layout of tables and lines this program writes and the newest it can read.
pub const FORMAT: u32 = 1;

/// In `batch` and `history` the wide columns come last, so that SQLite finds the narrow ones without
/// walking overflow pages.
const TABLES: &str = "
CREATE TABLE meta (name {text} PRIMARY KEY, value {text} NOT NULL);
CREATE TABLE leader (
    id {int} PRIMARY KEY, epoch {int} NOT NULL, holder {text} NOT NULL,
    renewed_ms {int} NOT NULL, term_ms {int} NOT NULL);
CREATE TABLE batch (
    first_seq {int} PRIMARY KEY, last_seq {int} NOT NULL, at_ms {int} NOT NULL,
    hash {blob} NOT NULL, frontier {blob} NOT NULL, hashes {blob} NOT NULL, body {blob} NOT NULL);
CREATE TABLE subtree (level {int} NOT NULL, place {int} NOT NULL, hash {blob} NOT NULL,
    PRIMARY KEY (level, place));
CREATE TABLE head (
    seq {int} NOT NULL, key_id {text} NOT NULL, at_ms {int} NOT NULL, hash {blob} NOT NULL,
    root {blob} NOT NULL, signature {blob} NOT NULL, PRIMARY KEY (seq, key_id));
CREATE TABLE snapshot (
    format {int} NOT NULL, seq {int} NOT NULL, hash {blob} NOT NULL, sum {blob} NOT NULL,
    size {int} NOT NULL, PRIMARY KEY (format, seq));
CREATE TABLE snapshot_part (
    format {int} NOT NULL, seq {int} NOT NULL, part {int} NOT NULL, bytes {blob} NOT NULL,
    PRIMARY KEY (format, seq, part));
CREATE TABLE history (
    kind {text} NOT NULL, id {text} NOT NULL, at_ms {int} NOT NULL, seq {int} NOT NULL,
    scope_1 {text}, scope_2 {text}, scope_3 {text}, scope {text} NOT NULL, sum {blob} NOT NULL,
    body {text} NOT NULL, PRIMARY KEY (kind, id));
CREATE INDEX history_all ON history (kind, at_ms, id);
CREATE INDEX history_1 ON history (kind, scope_1, at_ms, id) WHERE scope_1 IS NOT NULL;
CREATE INDEX history_2 ON history (kind, scope_2, at_ms, id) WHERE scope_2 IS NOT NULL;
CREATE INDEX history_3 ON history (kind, scope_3, at_ms, id) WHERE scope_3 IS NOT NULL;
CREATE TABLE idempotency (
    principal {text} NOT NULL, key {text} NOT NULL, digest {blob} NOT NULL, status {int} NOT NULL,
    at_ms {int} NOT NULL, seq {int} NOT NULL, sum {blob} NOT NULL, reply {text} NOT NULL,
    PRIMARY KEY (principal, key));
CREATE INDEX idempotency_at ON idempotency (at_ms);
CREATE TABLE secret (id {text} PRIMARY KEY, scope {text} NOT NULL, bytes {blob} NOT NULL);
CREATE INDEX secret_scope ON secret (scope);
";

/// Journals from before marks have no such table, and get it from whoever leads next.
const MARKS: &str = "CREATE TABLE mark (id {text} PRIMARY KEY, body {text} NOT NULL)";

pub(crate) async fn exists(conn: &mut Conn) -> Result<bool, JournalError> {
    has(conn, "meta").await
}

/// Adds what came after the first layout; only whoever leads may.
pub(crate) async fn complete(conn: &mut Conn) -> Result<(), JournalError> {
    if !has(conn, "mark").await? {
        let sql = conn.dialect().sql(MARKS);
        conn.script(&sql)
            .await
            .map_err(|error| JournalError::storage("creating tables", error))?;
    }
    Ok(())
}

async fn has(conn: &mut Conn, table: &str) -> Result<bool, JournalError> {
    let sql = match conn.dialect() {
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1",
        Dialect::Postgres => {
            "SELECT count(*) FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = $1"
        }
    };
    let row = conn
        .row(sql, args![table])
        .await
        .map_err(|error| JournalError::storage("looking for tables", error))?;
    Ok(row.is_some_and(|row| row.int(0).is_ok_and(|count| count > 0)))
}

/// Creates the tables where there are none; all of them or none.
pub(crate) async fn create(
    conn: &mut Conn,
    schema: Option<&str>,
    platform: &str,
) -> Result<(), JournalError> {
    begin(conn, schema).await?;
    if !exists(conn).await? {
        tables(conn, platform).await?;
    }
    conn.script("COMMIT")
        .await
        .map_err(|error| JournalError::storage("creating tables", error))
        .map(drop)
}

/// Begins a transaction in which tables may be created.
pub(crate) async fn begin(conn: &mut Conn, schema: Option<&str>) -> Result<(), JournalError> {
    let begin = match (conn.dialect(), schema) {
        (Dialect::Sqlite, _) => "BEGIN IMMEDIATE".to_owned(),
        // Two servers may start at once; the second waits here and then finds the tables. The name was
        // checked when the connection options were made.
        (Dialect::Postgres, schema) => {
            let schema = schema.unwrap_or("public");
            format!(
                "BEGIN; SELECT pg_advisory_xact_lock(hashtext('tenure_{schema}')); \
                 CREATE SCHEMA IF NOT EXISTS {schema}"
            )
        }
    };
    conn.script(&begin)
        .await
        .map_err(|error| JournalError::storage("creating tables", error))
        .map(drop)
}

pub(crate) async fn tables(conn: &mut Conn, platform: &str) -> Result<(), JournalError> {
    let failed = |error| JournalError::storage("creating tables", error);
    let sql = conn.dialect().sql(TABLES);
    conn.script(&sql).await.map_err(failed)?;
    for (name, value) in [("format", FORMAT.to_string()), ("platform", platform.to_owned())] {
        conn.run(
            "INSERT INTO meta (name, value) VALUES ($1, $2)",
            args![name, value],
        )
        .await
        .map_err(failed)?;
    }
    Ok(())
}

/// Refuses what this program cannot read, and returns the platform's id.
pub(crate) async fn check(conn: &mut Conn) -> Result<String, JournalError> {
    let format = meta(conn, "format").await?;
    let found = format
        .parse()
        .map_err(|_| JournalError::corrupt("the format version is not a number"))?;
    if found > FORMAT {
        return Err(JournalError::Newer {
            found,
            supported: FORMAT,
        });
    }
    meta(conn, "platform").await
}

async fn meta(conn: &mut Conn, name: &str) -> Result<String, JournalError> {
    let row = conn
        .row("SELECT value FROM meta WHERE name = $1", args![name])
        .await
        .map_err(|error| JournalError::storage("reading the format version", error))?;
    row.ok_or_else(|| JournalError::corrupt(format!("the journal does not say its {name}")))?
        .text(0)
}

/// A name for a new platform; heads are signed under it, so two platforms' heads cannot be mixed up.
pub(crate) fn new_platform() -> String {
    let mut bytes = [0u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system gives random numbers");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("plt_{hex}")
}
