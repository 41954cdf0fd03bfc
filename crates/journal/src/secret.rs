//! Secrets: bytes that events refer to and that can be erased. Outside the chain, absent from backups.
//!
//! The bytes arrive encrypted; keys are not known here.

use crate::error::JournalError;
use crate::leader::JournalHandle;
use crate::reader::JournalReader;
use crate::store::{Dialect, args};

impl JournalHandle {
    /// Keeps bytes under an id, in place of any that were there.
    pub async fn put_secret(&self, id: &str, scope: &str, bytes: Vec<u8>) -> Result<(), JournalError> {
        let mut tx = self.begin().await?;
        let sql = "INSERT INTO secret (id, scope, bytes) VALUES ($1, $2, $3) \
                   ON CONFLICT (id) DO UPDATE SET scope = $2, bytes = $3";
        tx.run("keeping a secret", sql, args![id, scope, bytes]).await?;
        tx.commit().await
    }

    /// Erases one secret; says whether there was one.
    pub async fn erase_secret(&self, id: &str) -> Result<bool, JournalError> {
        let mut tx = self.begin().await?;
        let count = tx
            .run("erasing a secret", "DELETE FROM secret WHERE id = $1", args![id])
            .await?;
        tx.commit().await?;
        self.scrub_log().await?;
        Ok(count > 0)
    }

    /// Erases every secret at or below a scope; returns how many.
    pub async fn erase_secrets(&self, scope: &str) -> Result<u64, JournalError> {
        let mut tx = self.begin().await?;
        // `0` is the character after `/`, so this is the scope and what lies under it.
        let sql = "DELETE FROM secret WHERE scope = $1 OR (scope >= $2 AND scope < $3)";
        let below = args![scope, format!("{scope}/"), format!("{scope}0")];
        let count = tx.run("erasing secrets", sql, below).await?;
        tx.commit().await?;
        self.scrub_log().await?;
        Ok(count)
    }

    /// SQLite's deletion zeroes the page, but the log still holds the page as it was. A reader in the
    /// middle of a query can put this off until the next checkpoint; it does not hold up the writer.
    async fn scrub_log(&self) -> Result<(), JournalError> {
        if self.dialect() != Dialect::Sqlite {
            return Ok(());
        }
        let doing = "clearing the log";
        let mut tx = self.begin().await?;
        tx.row(doing, "PRAGMA busy_timeout = 100", args![]).await?;
        // The checkpoint itself must run outside the transaction; the fence was only to own the turn.
        tx.run(doing, "ROLLBACK", args![]).await?;
        let done = tx.row(doing, "PRAGMA wal_checkpoint(TRUNCATE)", args![]).await?;
        if done.is_none_or(|row| row.int(0).is_ok_and(|busy| busy != 0)) {
            tracing::info!("the log still holds erased secrets until the next checkpoint");
        }
        tx.row(doing, "PRAGMA busy_timeout = 10000", args![]).await?;
        tx.give_back();
        Ok(())
    }
}

impl JournalReader {
    pub async fn get_secret(&self, id: &str) -> Result<Option<Vec<u8>>, JournalError> {
        let row = self
            .conn()
            .await?
            .row("SELECT bytes FROM secret WHERE id = $1", args![id])
            .await
            .map_err(|error| JournalError::storage("reading a secret", error))?;
        row.map(|row| row.blob(0)).transpose()
    }
}
