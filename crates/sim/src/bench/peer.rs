//! The limits beside us: the same databases doing one durable insert each, at their best.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Executor};

/// Rows a second, one at a time and at the best batch size or client count.
pub struct Limit {
    pub single: f64,
    pub best: f64,
    pub batch: usize,
}

const BODY: &str = "about as long as one of our events when it is written down as JSON: who, when, what, and the hash before it;\
 three of them make a submission that is admitted and placed, with its hold and its allocation on a node of the fleet";

pub async fn sqlite_insert(path: &Path, seconds: f64) -> anyhow::Result<Limit> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    connection
        .execute("CREATE TABLE peer (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        .await?;
    let mut limit = Limit {
        single: 0.0,
        best: 0.0,
        batch: 1,
    };
    for batch in [1, 100, 500, 1000] {
        let begun = Instant::now();
        let mut rows = 0;
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            let mut transaction = connection.begin().await?;
            for _ in 0..batch {
                sqlx::query("INSERT INTO peer (body) VALUES ($1)")
                    .bind(BODY)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
            rows += batch;
        }
        let rate = rows as f64 / begun.elapsed().as_secs_f64();
        if batch == 1 {
            limit.single = rate;
        }
        if rate > limit.best {
            (limit.best, limit.batch) = (rate, batch);
        }
    }
    Ok(limit)
}

pub async fn postgres_insert(url: &str, seconds: f64) -> anyhow::Result<Limit> {
    let mut connection = PgConnection::connect(url).await?;
    connection
        .execute("CREATE TABLE IF NOT EXISTS peer (id BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)")
        .await?;
    let mut limit = Limit {
        single: 0.0,
        best: 0.0,
        batch: 1,
    };
    for clients in [1usize, 4, 16, 32] {
        let pool = PgPoolOptions::new()
            .max_connections(clients as u32)
            .connect(url)
            .await?;
        let begun = Instant::now();
        let until = begun + Duration::from_secs_f64(seconds);
        let tasks: Vec<_> = (0..clients)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    let mut rows = 0u64;
                    while Instant::now() < until {
                        sqlx::query("INSERT INTO peer (body) VALUES ($1)")
                            .bind(BODY)
                            .execute(&pool)
                            .await?;
                        rows += 1;
                    }
                    Ok::<u64, sqlx::Error>(rows)
                })
            })
            .collect();
        let mut rows = 0;
        for task in tasks {
            rows += task.await??;
        }
        let rate = rows as f64 / begun.elapsed().as_secs_f64();
        if clients == 1 {
            limit.single = rate;
        }
        if rate > limit.best {
            (limit.best, limit.batch) = (rate, clients);
        }
        pool.close().await;
    }
    Ok(limit)
}
