//! The limits beside us: PostgreSQL and SQLite keeping accounts in double entry, each with statements that post a whole
//! batch at once, at its best batch size and number of clients. Every transaction is durable.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Executor};

use crate::packing::seeded::Seeded;

/// Accounts of each client: nobody waits for another's row.
const ACCOUNTS: usize = 1000;

/// Postings a second at the best of what was tried.
#[derive(Debug, Default)]
pub struct Best {
    pub rate: f64,
    pub batch: usize,
    pub clients: usize,
    /// Processor time of this process for each posting, in microseconds, where it was measured.
    pub busy_us: Option<f64>,
    pub took: Vec<Duration>,
}

impl Best {
    fn offer(&mut self, other: Best) {
        if other.rate > self.rate {
            *self = other;
        }
    }
}

/// From and to different accounts of the client, so much each.
fn postings(random: &mut Seeded, client: usize, batch: usize) -> [Vec<i64>; 3] {
    let mut columns = [const { Vec::new() }; 3];
    for _ in 0..batch {
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let of = |account: usize| (client * ACCOUNTS + account) as i64;
        columns[0].push(of(from));
        columns[1].push(of(to));
        columns[2].push(1 + random.below(1000) as i64);
    }
    columns
}

pub async fn sqlite(path: &Path, seconds: f64) -> anyhow::Result<Best> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    connection
        .execute(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
             CREATE TABLE posting (id INTEGER PRIMARY KEY, debit INTEGER NOT NULL, credit INTEGER NOT NULL,
                 amount INTEGER NOT NULL);
             WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 999)
                 INSERT INTO account SELECT n, 0 FROM n",
        )
        .await?;
    let (mut best, mut random) = (Best::default(), Seeded::new(1));
    for batch in [100, 1000, 10_000] {
        let begun = Instant::now();
        let (mut rows, mut took) = (0, Vec::new());
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            let [from, to, amount] = postings(&mut random, 0, batch);
            let all: Vec<[i64; 3]> = (0..batch).map(|n| [from[n], to[n], amount[n]]).collect();
            let all = serde_json::to_string(&all)?;
            let one = Instant::now();
            let mut transaction = connection.begin().await?;
            for sql in [
                "INSERT INTO posting (debit, credit, amount) \
                 SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1)",
                "UPDATE account SET balance = balance - more.sum FROM \
                 (SELECT value ->> 0 AS id, sum(value ->> 2) AS sum FROM json_each($1) GROUP BY 1) AS more \
                 WHERE account.id = more.id",
                "UPDATE account SET balance = balance + more.sum FROM \
                 (SELECT value ->> 1 AS id, sum(value ->> 2) AS sum FROM json_each($1) GROUP BY 1) AS more \
                 WHERE account.id = more.id",
            ] {
                sqlx::query(sql).bind(&all).execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            took.push(one.elapsed());
            rows += batch;
        }
        took.sort_unstable();
        best.offer(Best {
            rate: rows as f64 / begun.elapsed().as_secs_f64(),
            batch,
            clients: 1,
            busy_us: None,
            took,
        });
    }
    let sum: i64 = sqlx::query_scalar("SELECT sum(balance) FROM account")
        .fetch_one(&mut connection)
        .await?;
    anyhow::ensure!(sum == 0, "SQLite's accounts sum to zero");
    Ok(best)
}

pub async fn postgres(url: &str, seconds: f64) -> anyhow::Result<Best> {
    const CLIENTS: usize = 8;
    let mut connection = PgConnection::connect(url).await?;
    for sql in [
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL) WITH (fillfactor = 50)",
        "CREATE TABLE posting (id BIGSERIAL PRIMARY KEY, debit BIGINT NOT NULL, credit BIGINT NOT NULL, \
         amount BIGINT NOT NULL)",
        "INSERT INTO account SELECT n, 0 FROM generate_series(0, 7999) AS n",
    ] {
        connection.execute(sql).await?;
    }
    let mut best = Best::default();
    for clients in [2, 4, CLIENTS] {
        let pool = PgPoolOptions::new()
            .max_connections(clients as u32)
            .connect(url)
            .await?;
        for batch in [100, 1000, 8000] {
            let begun = Instant::now();
            let until = begun + Duration::from_secs_f64(seconds);
            let tasks = (0..clients).map(|client| tokio::spawn(poster(pool.clone(), client, batch, until)));
            let mut took = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                took.extend(task.await??);
            }
            let rate = (took.len() * batch) as f64 / begun.elapsed().as_secs_f64();
            took.sort_unstable();
            best.offer(Best {
                rate,
                batch,
                clients,
                busy_us: None,
                took,
            });
        }
        pool.close().await;
    }
    let sum: i64 = sqlx::query_scalar("SELECT sum(balance)::BIGINT FROM account")
        .fetch_one(&mut connection)
        .await?;
    anyhow::ensure!(sum == 0, "PostgreSQL's accounts sum to zero");
    Ok(best)
}

async fn poster(
    pool: sqlx::PgPool,
    client: usize,
    batch: usize,
    until: Instant,
) -> Result<Vec<Duration>, sqlx::Error> {
    let sql = "WITH new AS (INSERT INTO posting (debit, credit, amount) \
                 SELECT * FROM unnest($1::BIGINT[], $2::BIGINT[], $3::BIGINT[]) RETURNING debit, credit, amount), \
               more AS (SELECT id, sum(amount)::BIGINT AS sum FROM \
                 (SELECT debit AS id, -amount AS amount FROM new UNION ALL SELECT credit, amount FROM new) AS sides \
                 GROUP BY id) \
               UPDATE account SET balance = balance + more.sum FROM more WHERE account.id = more.id";
    let (mut random, mut took) = (Seeded::new(client as u64), Vec::new());
    while Instant::now() < until {
        let [from, to, amount] = postings(&mut random, client, batch);
        let one = Instant::now();
        sqlx::query(sql)
            .bind(&from)
            .bind(&to)
            .bind(&amount)
            .execute(&pool)
            .await?;
        took.push(one.elapsed());
    }
    Ok(took)
}
