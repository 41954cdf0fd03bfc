//! One way to speak to both databases: owned values in, rows out, one SQL text.
//!
//! The two dialects differ in four words, spelled `{int}`, `{text}`, `{blob}` and `{now}` in our SQL. How to
//! connect is in `store/sqlite` and `store/postgres`; what is asked is in the modules above.

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Row as _, Sqlite, SqliteConnection};

use crate::error::JournalError;
use crate::hash::Hash;

pub(crate) mod postgres;
pub(crate) mod sqlite;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Fills in the words in which the dialects differ.
    pub fn sql(self, sql: &str) -> String {
        let [int, text, blob, now] = match self {
            Dialect::Sqlite => [
                "INTEGER",
                "TEXT",
                "BLOB",
                "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            ],
            // Paths and ids are compared byte by byte, as SQLite does.
            Dialect::Postgres => [
                "BIGINT",
                "TEXT COLLATE \"C\"",
                "BYTEA",
                "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
            ],
        };
        sql.replace("{int}", int)
            .replace("{text}", text)
            .replace("{blob}", blob)
            .replace("{now}", now)
    }
}

#[derive(Debug)]
pub(crate) enum Val {
    Int(i64),
    Text(String),
    MaybeText(Option<String>),
    Blob(Vec<u8>),
}

impl From<i64> for Val {
    fn from(value: i64) -> Val {
        Val::Int(value)
    }
}
impl From<u64> for Val {
    fn from(value: u64) -> Val {
        // Sequence numbers count events; 2^63 of them do not fit on any disk.
        Val::Int(i64::try_from(value).expect("counts stay below 2^63"))
    }
}
impl From<u32> for Val {
    fn from(value: u32) -> Val {
        Val::Int(value.into())
    }
}
impl From<&str> for Val {
    fn from(value: &str) -> Val {
        Val::Text(value.to_owned())
    }
}
impl From<String> for Val {
    fn from(value: String) -> Val {
        Val::Text(value)
    }
}
impl From<Option<String>> for Val {
    fn from(value: Option<String>) -> Val {
        Val::MaybeText(value)
    }
}
impl From<Vec<u8>> for Val {
    fn from(value: Vec<u8>) -> Val {
        Val::Blob(value)
    }
}
impl From<Hash> for Val {
    fn from(value: Hash) -> Val {
        Val::Blob(value.0.to_vec())
    }
}

/// Arguments of a statement.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::Val::from($value)),*] };
}
pub(crate) use args;

pub(crate) enum Conn {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    PooledSqlite(PoolConnection<Sqlite>),
    PooledPostgres(PoolConnection<Postgres>),
}

enum Ref<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

macro_rules! bound {
    ($sql:expr, $args:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for value in $args {
            query = match value {
                Val::Int(value) => query.bind(value),
                Val::Text(value) => query.bind(value),
                Val::MaybeText(value) => query.bind(value),
                Val::Blob(value) => query.bind(value),
            };
        }
        query
    }};
}

impl Conn {
    pub fn dialect(&self) -> Dialect {
        match self {
            Conn::Sqlite(_) | Conn::PooledSqlite(_) => Dialect::Sqlite,
            Conn::Postgres(_) | Conn::PooledPostgres(_) => Dialect::Postgres,
        }
    }

    fn inner(&mut self) -> Ref<'_> {
        match self {
            Conn::Sqlite(conn) => Ref::Sqlite(conn),
            Conn::Postgres(conn) => Ref::Postgres(conn),
            Conn::PooledSqlite(conn) => Ref::Sqlite(conn),
            Conn::PooledPostgres(conn) => Ref::Postgres(conn),
        }
    }

    /// Runs one statement and says how many rows it touched.
    pub async fn run(&mut self, sql: &str, args: Vec<Val>) -> Result<u64, sqlx::Error> {
        Ok(match self.inner() {
            Ref::Sqlite(conn) => bound!(sql, args).execute(conn).await?.rows_affected(),
            Ref::Postgres(conn) => bound!(sql, args).execute(conn).await?.rows_affected(),
        })
    }

    /// Runs statements that take no arguments, as one text in one round trip.
    pub async fn script(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        Ok(match self.inner() {
            Ref::Sqlite(conn) => sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(conn)
                .await?
                .rows_affected(),
            Ref::Postgres(conn) => sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(conn)
                .await?
                .rows_affected(),
        })
    }

    pub async fn rows(&mut self, sql: &str, args: Vec<Val>) -> Result<Vec<Row>, sqlx::Error> {
        Ok(match self.inner() {
            Ref::Sqlite(conn) => bound!(sql, args)
                .fetch_all(conn)
                .await?
                .into_iter()
                .map(Row::Sqlite)
                .collect(),
            Ref::Postgres(conn) => bound!(sql, args)
                .fetch_all(conn)
                .await?
                .into_iter()
                .map(Row::Postgres)
                .collect(),
        })
    }

    pub async fn row(&mut self, sql: &str, args: Vec<Val>) -> Result<Option<Row>, sqlx::Error> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Inserts many rows with few statements; `head` is `INSERT INTO t (a, b)`, `tail` what follows VALUES.
    pub async fn insert_many(
        &mut self,
        head: &str,
        tail: &str,
        rows: Vec<Vec<Val>>,
    ) -> Result<(), sqlx::Error> {
        let mut rows = rows.into_iter().peekable();
        while let Some(width) = rows.peek().map(Vec::len) {
            // A few fixed sizes, so that prepared statements are found again.
            let count = if rows.len() >= 64 {
                64
            } else if rows.len() >= 8 {
                8
            } else {
                1
            };
            let sql = insert_text(head, tail, count, width);
            self.run(&sql, rows.by_ref().take(count).flatten().collect())
                .await?;
        }
        Ok(())
    }

    pub async fn close(self) {
        let _ = match self {
            Conn::Sqlite(conn) => conn.close().await,
            Conn::Postgres(conn) => conn.close().await,
            Conn::PooledSqlite(conn) => conn.close().await,
            Conn::PooledPostgres(conn) => conn.close().await,
        };
    }
}

fn insert_text(head: &str, tail: &str, count: usize, width: usize) -> String {
    use std::fmt::Write;
    let mut sql = String::with_capacity(head.len() + tail.len() + 6 * count * width + 16);
    let _ = write!(sql, "{head} VALUES ");
    for n in 0..count * width {
        sql.push_str(match (n, n % width) {
            (0, _) => "(",
            (_, 0) => "), (",
            _ => ", ",
        });
        let _ = write!(sql, "${}", n + 1);
    }
    let _ = write!(sql, "){tail}");
    sql
}

pub(crate) enum Row {
    Sqlite(sqlx::sqlite::SqliteRow),
    Postgres(sqlx::postgres::PgRow),
}

macro_rules! column {
    ($row:expr, $at:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($at),
            Row::Postgres(row) => row.try_get($at),
        }
    };
}

/// A column that does not hold what its table says is damage, not a programming error.
fn unreadable(error: sqlx::Error) -> JournalError {
    JournalError::corrupt(format!("a stored value cannot be read: {error}"))
}

impl Row {
    pub fn int(&self, at: usize) -> Result<i64, JournalError> {
        column!(self, at).map_err(unreadable)
    }

    pub fn count(&self, at: usize) -> Result<u64, JournalError> {
        u64::try_from(self.int(at)?).map_err(|_| JournalError::corrupt("a stored count is negative"))
    }

    pub fn text(&self, at: usize) -> Result<String, JournalError> {
        column!(self, at).map_err(unreadable)
    }

    pub fn maybe_int(&self, at: usize) -> Result<Option<i64>, JournalError> {
        column!(self, at).map_err(unreadable)
    }

    pub fn maybe_text(&self, at: usize) -> Result<Option<String>, JournalError> {
        column!(self, at).map_err(unreadable)
    }

    pub fn blob(&self, at: usize) -> Result<Vec<u8>, JournalError> {
        column!(self, at).map_err(unreadable)
    }

    pub fn hash(&self, at: usize) -> Result<Hash, JournalError> {
        Hash::from_slice(&self.blob(at)?)
            .ok_or_else(|| JournalError::corrupt("a stored hash is not 32 bytes long"))
    }
}
