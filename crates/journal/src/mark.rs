//! Marks: how far something outside has come with the journal, such as what a receiver was told. Small, changed often,
//! and no facts: outside the chain and absent from backups. Only the leader writes them, behind the fence.

use crate::error::JournalError;
use crate::leader::JournalHandle;
use crate::reader::JournalReader;
use crate::store::args;

impl JournalHandle {
    /// Keeps marks in place of those of the same ids, and forgets others, together.
    pub async fn keep_marks(&self, keep: &[(String, String)], forget: &[String]) -> Result<(), JournalError> {
        let mut tx = self.begin().await?;
        for (id, body) in keep {
            let sql = "INSERT INTO mark (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = $2";
            tx.run("keeping a mark", sql, args![id.as_str(), body.as_str()])
                .await?;
        }
        for id in forget {
            tx.run(
                "forgetting a mark",
                "DELETE FROM mark WHERE id = $1",
                args![id.as_str()],
            )
            .await?;
        }
        tx.commit().await
    }
}

impl JournalReader {
    pub async fn marks(&self) -> Result<Vec<(String, String)>, JournalError> {
        let rows = self
            .conn()
            .await?
            .rows("SELECT id, body FROM mark ORDER BY id", args![])
            .await
            .map_err(|error| JournalError::storage("reading marks", error))?;
        rows.iter().map(|row| Ok((row.text(0)?, row.text(1)?))).collect()
    }

    pub async fn mark(&self, id: &str) -> Result<Option<String>, JournalError> {
        let row = self
            .conn()
            .await?
            .row("SELECT body FROM mark WHERE id = $1", args![id])
            .await
            .map_err(|error| JournalError::storage("reading a mark", error))?;
        row.map(|row| row.text(0)).transpose()
    }
}
