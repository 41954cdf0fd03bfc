//! Snapshots: the state at one event, so that opening need not replay from the start.
//!
//! The bytes are the caller's; `format` is its encoding. They are stored in parts, each in a short
//! transaction, so that appends go on in between; the row that makes a snapshot count comes last. The
//! newest two of a format are kept. One that fails its checks is passed over for the one before.

use sha2::{Digest, Sha256};

use crate::error::JournalError;
use crate::hash::Hash;
use crate::leader::JournalHandle;
use crate::reader::JournalReader;
use crate::store::{Dialect, Row, args};

const PART_BYTES: usize = 1 << 20;
const KEPT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub seq: u64,
    /// The hash of event `seq`.
    pub hash: Hash,
    pub bytes: Vec<u8>,
}

impl JournalHandle {
    /// Keeps the state as of event `seq`, which must be committed.
    pub async fn write_snapshot(&self, seq: u64, format: u32, bytes: &[u8]) -> Result<(), JournalError> {
        let _turn = self.snapshot_turn().await;
        let missing = JournalError::NoSuchEvent {
            seq,
            size: self.head().seq,
        };
        let hash = self.event_hash(seq).await?.ok_or(missing)?;
        let doing = "writing a snapshot";
        self.drop_parts().await?;
        let mut sum = Sha256::new();
        for (part, chunk) in (0u64..).zip(bytes.chunks(PART_BYTES)) {
            sum.update(chunk);
            let mut tx = self.begin().await?;
            let sql = "INSERT INTO snapshot_part (format, seq, part, bytes) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (format, seq, part) DO UPDATE SET bytes = $4";
            tx.run(doing, sql, args![format, seq, part, chunk.to_vec()])
                .await?;
            tx.commit().await?;
        }
        let mut tx = self.begin().await?;
        let sql = "INSERT INTO snapshot (format, seq, hash, sum, size) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (format, seq) DO UPDATE SET hash = $3, sum = $4, size = $5";
        let sum = Hash(sum.finalize().into());
        tx.run(doing, sql, args![format, seq, hash, sum, bytes.len() as u64])
            .await?;
        let sql = "DELETE FROM snapshot WHERE format = $1 AND seq NOT IN \
                   (SELECT seq FROM snapshot WHERE format = $1 ORDER BY seq DESC LIMIT $2)";
        tx.run(doing, sql, args![format, KEPT]).await?;
        tx.commit().await?;
        self.drop_parts().await
    }

    /// Removes parts that no snapshot row claims, one at a time.
    async fn drop_parts(&self) -> Result<(), JournalError> {
        let doing = "removing an old snapshot";
        let sqlite = self.dialect() == Dialect::Sqlite;
        loop {
            let mut tx = self.begin().await?;
            if sqlite {
                // A snapshot holds no secrets; zeroing its pages would write it all once more.
                tx.row(doing, "PRAGMA secure_delete = OFF", args![]).await?;
            }
            let sql = "DELETE FROM snapshot_part WHERE (format, seq, part) IN \
                       (SELECT p.format, p.seq, p.part FROM snapshot_part p LEFT JOIN snapshot s \
                        ON s.format = p.format AND s.seq = p.seq WHERE s.seq IS NULL LIMIT 1)";
            let count = tx.run(doing, sql, args![]).await?;
            if sqlite {
                tx.row(doing, "PRAGMA secure_delete = ON", args![]).await?;
            }
            tx.commit().await?;
            if count == 0 {
                return Ok(());
            }
        }
    }
}

impl JournalReader {
    /// The newest sound snapshot of a format.
    pub async fn latest_snapshot(&self, format: u32) -> Result<Option<Snapshot>, JournalError> {
        let sql = "SELECT seq, hash, sum, size FROM snapshot WHERE format = $1 ORDER BY seq DESC";
        let rows = self
            .conn()
            .await?
            .rows(sql, args![format])
            .await
            .map_err(|error| JournalError::storage("looking for snapshots", error))?;
        for row in &rows {
            match self.load(format, row).await {
                Ok(Ok(snapshot)) => return Ok(Some(snapshot)),
                Ok(Err(why)) => tracing::warn!(format, why, "a snapshot is damaged and is passed over"),
                Err(JournalError::Corrupt { what }) => {
                    tracing::warn!(format, why = what, "a snapshot is damaged and is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn load(&self, format: u32, row: &Row) -> Result<Result<Snapshot, &'static str>, JournalError> {
        let (seq, hash, sum, size) = (row.count(0)?, row.hash(1)?, row.hash(2)?, row.count(3)?);
        if self.event_hash(seq).await? != Some(hash) {
            return Ok(Err("it belongs to another chain"));
        }
        let failed = |error| JournalError::storage("reading a snapshot", error);
        let mut conn = self.conn().await?;
        let mut bytes = Vec::new();
        for part in 0.. {
            let sql = "SELECT bytes FROM snapshot_part WHERE format = $1 AND seq = $2 AND part = $3";
            let part: u64 = part;
            match conn.row(sql, args![format, seq, part]).await.map_err(failed)? {
                Some(row) => bytes.extend(row.blob(0)?),
                None => break,
            }
            if bytes.len() as u64 >= size {
                break;
            }
        }
        if bytes.len() as u64 != size || Hash::of(&bytes) != sum {
            return Ok(Err("its bytes do not match its sum"));
        }
        Ok(Ok(Snapshot { seq, hash, bytes }))
    }
}
