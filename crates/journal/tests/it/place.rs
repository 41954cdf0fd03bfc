//! Where a test keeps its journal, and small makers of what goes into it.

use std::path::PathBuf;

use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;
use tenure_journal::testing::PostgresServer;
use tenure_journal::{Batch, Entry, Journal, Location, Options};

pub struct Place {
    pub location: Location,
    pub dir: TempDir,
}

impl Place {
    pub fn sqlite() -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place {
            location: Location::Sqlite(dir.path().join("data")),
            dir,
        }
    }

    pub fn postgres() -> Place {
        Place {
            location: PostgresServer::shared().new_location(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.location, Location::Sqlite(_))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Another, empty place of the same kind.
    pub fn other(&self, name: &str) -> Location {
        match &self.location {
            Location::Sqlite(_) => Location::Sqlite(self.file(name)),
            Location::Postgres(..) => PostgresServer::shared().new_location(),
        }
    }

    pub async fn open(&self) -> Journal {
        Journal::open_leader(&self.location, "test", Options::default())
            .await
            .unwrap()
    }

    /// Does to the tables what no code of ours would.
    pub async fn meddle(&self) -> Meddler {
        Meddler::at(&self.location).await
    }
}

pub enum Meddler {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Meddler {
    pub async fn at(location: &Location) -> Meddler {
        match location {
            Location::Sqlite(dir) => {
                let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.join("journal.db"));
                Meddler::Sqlite(connect.connect().await.unwrap())
            }
            Location::Postgres(url, schema) => {
                let connect: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
                let connect = connect.options([("search_path", schema)]);
                Meddler::Postgres(connect.connect().await.unwrap())
            }
        }
    }

    /// Runs a statement with blobs for its arguments.
    pub async fn run(&mut self, sql: &str, blobs: &[&[u8]]) {
        match self {
            Meddler::Sqlite(conn) => {
                let mut query = sqlx::query(AssertSqlSafe(sql));
                for blob in blobs {
                    query = query.bind(blob.to_vec());
                }
                query.execute(conn).await.unwrap();
            }
            Meddler::Postgres(conn) => {
                let mut query = sqlx::query(AssertSqlSafe(sql));
                for blob in blobs {
                    query = query.bind(blob.to_vec());
                }
                query.execute(conn).await.unwrap();
            }
        }
    }
}

/// Makes a test for each database out of one async function that takes a `Place`.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { $crate::place::block_on(super::$name($crate::place::Place::sqlite())) })*
        }
        mod postgres {
            $(#[test] fn $name() { $crate::place::block_on(super::$name($crate::place::Place::postgres())) })*
        }
    };
}
pub(crate) use both;

pub fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// A seeded source of chance (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

pub fn entry(n: u64) -> Entry {
    Entry {
        at_ms: 1_700_000_000_000 + n as i64,
        by: format!("usr_{}", n % 7).into(),
        request: n.is_multiple_of(3).then(|| format!("req-{n}").into()),
        event: format!(
            r#"{{"kind":"test","n":{n},"text":"é\"{}"}}"#,
            "x".repeat(n as usize % 40)
        )
        .into(),
    }
}

pub fn batch(ns: impl IntoIterator<Item = u64>) -> Batch {
    Batch {
        entries: ns.into_iter().map(entry).collect(),
        ..Batch::default()
    }
}

/// Appends `count` events in batches of uneven size.
pub async fn fill(journal: &mut Journal, count: u64, chance: &mut Chance) {
    let mut left = count;
    while left > 0 {
        let size = (1 + chance.below(12) as u64).min(left);
        let first = journal.head().seq + 1;
        journal.append(batch(first..first + size)).await.unwrap();
        left -= size;
    }
}
