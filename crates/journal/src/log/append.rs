//! Taking in what was collected: the bytes and how far their source was read, in one transaction.

use super::read::{SOURCE, source};
use super::{LogSource, LogStore, LogTx, STRETCH_OVERHEAD};
use crate::error::JournalError;
use crate::history::prefix;
use crate::store::{Val, args};

/// A stream of one allocation that is to be collected.
#[derive(Clone, Debug)]
pub struct NewSource {
    pub allocation: String,
    pub stream: String,
    pub job: String,
    /// Whose size it counts against; empty for the platform's own.
    pub tenant: String,
    /// Where it belongs, for example `ten_x/sub_y/usr_z`.
    pub scope: String,
    /// JSON text.
    pub about: String,
    pub begun_ms: i64,
}

/// Bytes of a source, from where it was read to before.
#[derive(Clone, Debug)]
pub struct NewStretch {
    pub source: u64,
    pub tenant: String,
    pub scope: String,
    pub job: String,
    /// The job its job is a task of.
    pub parent: Option<String>,
    pub at_ms: i64,
    /// Which levels occur, as bits.
    pub levels: u32,
    /// Where the source had been read to.
    pub first: u64,
    /// How many bytes it is, uncompressed.
    pub bytes: u64,
    pub data: Vec<u8>,
    /// The source has no more.
    pub is_last: bool,
    /// So many bytes are kept of its job.
    pub job_bytes_max: u64,
    /// Kept instead of what would pass that: its level and its data.
    pub full: (u32, Vec<u8>),
}

/// What became of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    Kept,
    /// Its source had been read further already, or is gone; nothing was changed.
    Behind,
    /// Its job has what is kept of one: nothing more of it is wanted.
    Full,
}

impl LogStore {
    /// Notes streams to be collected, and gives those that were not known. One that was stays as it is.
    pub async fn add_sources(&self, sources: Vec<NewSource>) -> Result<Vec<LogSource>, JournalError> {
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let count = sources.len() as u64;
        let first = tx.take_numbers("source", count).await?;
        let rows = sources.into_iter().zip(first..).map(|(source, id)| {
            args![
                id,
                source.allocation,
                source.stream,
                source.job,
                source.tenant,
                source.scope,
                source.about,
                0_u64,
                source.begun_ms,
                1_u64,
                -1_i64,
            ]
        });
        tx.conn
            .insert_many(
                "INSERT INTO log_source (id, allocation, stream, job, tenant, scope, about, next, begun_ms, is_open, full_at)",
                " ON CONFLICT (allocation, stream) DO NOTHING",
                rows.collect(),
            )
            .await
            .map_err(|error| JournalError::storage("noting logs to be collected", error))?;
        let sql = format!("SELECT {SOURCE} FROM log_source s WHERE s.id >= $1 AND s.id < $2 ORDER BY s.id");
        let rows = tx.rows(&sql, args![first, first + count]).await?;
        tx.commit().await?;
        rows.iter().map(|row| source(row, 0)).collect()
    }

    /// Nothing more comes of these.
    pub async fn close_sources(&self, sources: &[u64]) -> Result<(), JournalError> {
        if sources.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        for source in sources {
            tx.run("UPDATE log_source SET is_open = 0 WHERE id = $1", args![*source])
                .await?;
        }
        tx.commit().await
    }

    /// Keeps stretches, each where its source had been read to just there, and says what became of each.
    ///
    /// INVARIANT: the bytes and the place they end at are committed together, so whatever was passed over was kept or
    /// refused, and nothing is kept twice, whoever else collects.
    pub async fn append(&self, stretches: Vec<NewStretch>) -> Result<Vec<Appended>, JournalError> {
        if stretches.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let mut id = tx.take_numbers("stretch", stretches.len() as u64).await?;
        let mut done = Vec::with_capacity(stretches.len());
        for stretch in stretches {
            done.push(keep(&mut tx, id, stretch).await?);
            id += 1;
        }
        tx.commit().await?;
        Ok(done)
    }

    /// The last value of a counter of the collector's own.
    pub async fn mark(&self, name: &str) -> Result<Option<u64>, JournalError> {
        let sql = "SELECT value FROM log_counter WHERE name = $1";
        let rows = self.rows(sql, args![name]).await?;
        rows.first().map(|row| row.count(0)).transpose()
    }

    pub async fn set_mark(&self, name: &str, value: u64) -> Result<(), JournalError> {
        let sql = "INSERT INTO log_counter (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let mut tx = self.begin().await?;
        tx.run(sql, args![name, value]).await?;
        tx.commit().await
    }
}

async fn keep(tx: &mut LogTx<'_>, id: u64, stretch: NewStretch) -> Result<Appended, JournalError> {
    let open = u64::from(!stretch.is_last);
    let moved = tx
        .run(
            "UPDATE log_source SET next = $1, is_open = $2 WHERE id = $3 AND next = $4 AND is_open = 1",
            args![stretch.first + stretch.bytes, open, stretch.source, stretch.first],
        )
        .await?;
    if moved == 0 {
        return Ok(Appended::Behind);
    }
    if stretch.bytes == 0 {
        return Ok(Appended::Kept);
    }
    let sql = "INSERT INTO log_job (job, tenant, bytes, at_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (job) DO UPDATE SET \
               bytes = log_job.bytes + excluded.bytes, at_ms = excluded.at_ms RETURNING bytes";
    let counted = args![
        stretch.job.as_str(),
        stretch.tenant.as_str(),
        stretch.bytes,
        stretch.at_ms
    ];
    let rows = tx.rows(sql, counted).await?;
    let of_job = rows.first().map_or(Ok(0), |row| row.count(0))?;
    if of_job <= stretch.job_bytes_max {
        let (levels, first) = (stretch.levels, Val::from(stretch.first));
        let bytes = stretch.bytes;
        return insert(tx, id, &stretch, levels, (first, bytes), stretch.data.clone())
            .await
            .map(|()| Appended::Kept);
    }
    // What is not kept does not count: another stream of the job may still fit.
    tx.run(
        "UPDATE log_job SET bytes = bytes - $1 WHERE job = $2",
        args![stretch.bytes, stretch.job.as_str()],
    )
    .await?;
    tx.run(
        "UPDATE log_source SET is_open = 0, full_at = $1 WHERE id = $2",
        args![stretch.first, stretch.source],
    )
    .await?;
    let (levels, note) = stretch.full.clone();
    insert(tx, id, &stretch, levels, (Val::from(-1_i64), 0), note).await?;
    Ok(Appended::Full)
}

async fn insert(
    tx: &mut LogTx<'_>,
    id: u64,
    stretch: &NewStretch,
    levels: u32,
    (first, bytes): (Val, u64),
    data: Vec<u8>,
) -> Result<(), JournalError> {
    let size = data.len() as u64 + STRETCH_OVERHEAD;
    let step = |depth| prefix(&stretch.scope, depth).map(str::to_owned);
    let sql = "INSERT INTO log_stretch (id, source, at_ms, levels, tenant, scope_1, scope_2, scope_3, job, parent, first, \
               bytes, size, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    tx.run(
        sql,
        args![
            id,
            stretch.source,
            stretch.at_ms,
            levels,
            stretch.tenant.as_str(),
            step(1),
            step(2),
            step(3),
            stretch.job.as_str(),
            stretch.parent.clone(),
            first,
            bytes,
            size,
            data,
        ],
    )
    .await?;
    let sql = "INSERT INTO log_use (tenant, size, erased, erased_ms) VALUES ($1, $2, 0, 0) \
               ON CONFLICT (tenant) DO UPDATE SET size = log_use.size + excluded.size";
    tx.run(sql, args![stretch.tenant.as_str(), size]).await.map(drop)
}
