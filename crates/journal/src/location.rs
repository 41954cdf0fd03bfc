//! Where a journal is kept, how it is opened, and the connections to it.
//!
//! `Source` is the resolved form of a `Location`: it hands out the writer's own connection and pooled
//! read connections. Called by `leader`, `reader` and `backup`.

use std::path::PathBuf;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use crate::error::JournalError;
use crate::store::{Conn, Dialect, postgres, sqlite};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A data directory; the journal is the file `journal.db` in it.
    Sqlite(PathBuf),
    /// A connection URL and the schema that holds the tables.
    Postgres(String, String),
}

impl Location {
    /// The place, without credentials.
    pub(crate) fn name(&self) -> String {
        match self {
            Location::Sqlite(dir) => dir.display().to_string(),
            Location::Postgres(_, schema) => format!("PostgreSQL schema {schema}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// How long a leader may be silent on PostgreSQL before another may take over.
    pub term_ms: i64,
    /// Connections kept for readers.
    pub readers_max: u32,
    /// Check every page of a SQLite file on opening, however large it is.
    pub check_pages: bool,
    #[doc(hidden)]
    pub vfs: Option<String>,
    #[doc(hidden)]
    pub synchronous_normal: bool,
    #[doc(hidden)]
    pub checkpoint_pages: u32,
    #[doc(hidden)]
    pub checkpoints_beside: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            term_ms: 10_000,
            readers_max: 4,
            check_pages: false,
            vfs: None,
            synchronous_normal: false,
            checkpoint_pages: 4_000,
            checkpoints_beside: true,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Source {
    Sqlite {
        writer: Box<SqliteConnectOptions>,
        readers: SqlitePool,
    },
    Postgres {
        writer: Box<PgConnectOptions>,
        readers: PgPool,
        schema: String,
    },
}

impl Source {
    /// Resolves a location; nothing is connected or created yet.
    pub fn new(location: &Location, options: &Options) -> Result<Source, JournalError> {
        match location {
            Location::Sqlite(dir) => {
                let file = dir.join(sqlite::FILE);
                let readers = sqlite::pool(sqlite::reader(&file, options), options);
                Ok(Source::Sqlite {
                    writer: Box::new(sqlite::writer(&file, options)),
                    readers,
                })
            }
            Location::Postgres(url, schema) => {
                let writer = postgres::connect_options(url, schema)?;
                let readers = postgres::pool(writer.clone(), options);
                Ok(Source::Postgres {
                    writer: Box::new(writer),
                    readers,
                    schema: schema.clone(),
                })
            }
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self {
            Source::Sqlite { .. } => Dialect::Sqlite,
            Source::Postgres { .. } => Dialect::Postgres,
        }
    }

    pub async fn writer(&self) -> Result<Conn, JournalError> {
        let failed = |error| JournalError::storage("connecting", error);
        match self {
            Source::Sqlite { writer, .. } => Ok(Conn::Sqlite(writer.connect().await.map_err(failed)?)),
            Source::Postgres { writer, .. } => {
                let conn = writer.connect().await.map_err(failed)?;
                let mut conn = Conn::Postgres(conn);
                postgres::make_durable(&mut conn).await.map_err(failed)?;
                Ok(conn)
            }
        }
    }

    pub async fn reader(&self) -> Result<Conn, JournalError> {
        let failed = |error| JournalError::storage("connecting", error);
        Ok(match self {
            Source::Sqlite { readers, .. } => Conn::PooledSqlite(readers.acquire().await.map_err(failed)?),
            Source::Postgres { readers, .. } => {
                Conn::PooledPostgres(readers.acquire().await.map_err(failed)?)
            }
        })
    }

    /// A read connection of its own, for a long transaction; dropping it ends that.
    pub async fn lone_reader(&self) -> Result<Conn, JournalError> {
        let failed = |error| JournalError::storage("connecting", error);
        Ok(match self {
            Source::Sqlite { readers, .. } => {
                Conn::Sqlite(readers.connect_options().connect().await.map_err(failed)?)
            }
            Source::Postgres { writer, .. } => Conn::Postgres(writer.connect().await.map_err(failed)?),
        })
    }

    pub async fn close(&self) {
        match self {
            Source::Sqlite { readers, .. } => readers.close().await,
            Source::Postgres { readers, .. } => readers.close().await,
        }
    }
}
