//! Outcomes of requests that carried an Idempotency-Key, written in the same batch as their effect.

use crate::error::JournalError;
use crate::hash::row_sum;
use crate::leader::{JournalHandle, Tx};
use crate::reader::JournalReader;
use crate::store::{Row, Val, args};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub principal: String,
    pub key: String,
    /// SHA-256 of the request, so that another request under the same key can be told apart.
    pub digest: [u8; 32],
    pub status: u16,
    pub reply: String,
    pub at_ms: i64,
}

pub(crate) const INSERT: &str =
    "INSERT INTO idempotency (principal, key, digest, status, at_ms, seq, sum, reply)";

/// The rows as they are written with the batch that ends at `seq`.
pub(crate) fn rows(seq: u64, keys: Vec<KeyRow>) -> Vec<Vec<Val>> {
    let rows = keys.into_iter().map(|row| {
        let (sum, status) = (row.sum().to_vec(), u32::from(row.status));
        args![
            row.principal,
            row.key,
            row.digest.to_vec(),
            status,
            row.at_ms,
            seq,
            sum,
            row.reply
        ]
    });
    rows.collect()
}

pub(crate) async fn insert(tx: &mut Tx<'_>, rows: Vec<Vec<Val>>) -> Result<(), JournalError> {
    match tx.conn().insert_many(INSERT, "", rows).await {
        Ok(()) => Ok(()),
        Err(sqlx::Error::Database(db)) if db.is_unique_violation() => Err(JournalError::KeyTaken),
        Err(error) => Err(JournalError::storage("recording idempotency keys", error)),
    }
}

impl JournalReader {
    pub async fn find_key(&self, principal: &str, key: &str) -> Result<Option<KeyRow>, JournalError> {
        let sql = format!("SELECT {COLUMNS} FROM idempotency WHERE principal = $1 AND key = $2");
        let row = self
            .conn()
            .await?
            .row(&sql, args![principal, key])
            .await
            .map_err(|error| JournalError::storage("looking up an idempotency key", error))?;
        row.as_ref().map(read).transpose()
    }
}

pub(crate) const COLUMNS: &str = "principal, key, digest, status, reply, at_ms, sum";

pub(crate) fn read(row: &Row) -> Result<KeyRow, JournalError> {
    let found = KeyRow {
        principal: row.text(0)?,
        key: row.text(1)?,
        digest: row.hash(2)?.0,
        status: u16::try_from(row.int(3)?)
            .map_err(|_| JournalError::corrupt("a stored status is not a status"))?,
        reply: row.text(4)?,
        at_ms: row.int(5)?,
    };
    if row.blob(6)? != found.sum() {
        return Err(JournalError::corrupt(format!(
            "idempotency key {} was altered",
            found.key
        )));
    }
    Ok(found)
}

impl KeyRow {
    fn sum(&self) -> [u8; 8] {
        let KeyRow {
            principal,
            key,
            digest,
            status,
            reply,
            at_ms,
        } = self;
        row_sum(&[
            principal.as_bytes(),
            key.as_bytes(),
            digest,
            &status.to_be_bytes(),
            reply.as_bytes(),
            &at_ms.to_be_bytes(),
        ])
    }
}

impl JournalHandle {
    /// Forgets keys recorded before `before_ms`; returns how many.
    pub async fn forget_keys(&self, before_ms: i64) -> Result<u64, JournalError> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM idempotency WHERE at_ms < $1";
        let count = tx
            .run("forgetting idempotency keys", sql, args![before_ms])
            .await?;
        tx.commit().await?;
        Ok(count)
    }
}
