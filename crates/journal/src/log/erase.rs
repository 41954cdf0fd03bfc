//! Erasing: what is too old, what is too much, and what was a closed tenant's. A step at a time, so that no transaction is
//! long.

use super::{LogStore, LogTx};
use crate::error::JournalError;
use crate::store::{Val, args};

/// What one step erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    pub stretches: u64,
    /// What they took.
    pub size: u64,
}

impl LogStore {
    /// What each tenant's logs take.
    pub async fn sizes(&self) -> Result<Vec<(String, u64)>, JournalError> {
        let rows = self
            .rows("SELECT tenant, size FROM log_use ORDER BY tenant", args![])
            .await?;
        rows.iter().map(|row| Ok((row.text(0)?, row.count(1)?))).collect()
    }

    /// How many bytes of a tenant's were erased so far, and when the last of them had come.
    pub async fn erased(&self, tenant: &str) -> Result<Option<(u64, i64)>, JournalError> {
        let sql = "SELECT erased, erased_ms FROM log_use WHERE tenant = $1 AND erased > 0";
        let rows = self.rows(sql, args![tenant]).await?;
        rows.first()
            .map(|row| Ok((row.count(0)?, row.int(1)?)))
            .transpose()
    }

    /// Erases a tenant's oldest stretches: those from before a moment, or the first that take so much together.
    pub async fn erase_oldest(
        &self,
        tenant: &str,
        before_ms: i64,
        size: u64,
        limit: u32,
    ) -> Result<Erased, JournalError> {
        let mut tx = self.begin().await?;
        let sql = "SELECT id, size, bytes, at_ms FROM log_stretch WHERE tenant = $1 ORDER BY id LIMIT $2";
        let rows = tx.rows(sql, args![tenant, limit]).await?;
        let (mut ids, mut gone, mut bytes, mut last_ms) = (Vec::new(), Erased::default(), 0, 0);
        for row in &rows {
            let at_ms = row.int(3)?;
            if at_ms >= before_ms && gone.size >= size {
                break;
            }
            ids.push(row.int(0)?.to_string());
            gone.stretches += 1;
            gone.size += row.count(1)?;
            bytes += row.count(2)?;
            last_ms = last_ms.max(at_ms);
        }
        if ids.is_empty() {
            tx.commit().await?;
            return Ok(gone);
        }
        tx.run(
            &format!("DELETE FROM log_stretch WHERE id IN ({})", ids.join(", ")),
            args![],
        )
        .await?;
        let sql = "UPDATE log_use SET size = size - $1, erased = erased + $2, \
                   erased_ms = CASE WHEN erased_ms > $3 THEN erased_ms ELSE $3 END WHERE tenant = $4";
        tx.run(sql, args![gone.size, bytes, last_ms, tenant]).await?;
        tx.commit().await?;
        Ok(gone)
    }

    /// Erases what there is of a tenant that is no more, and says whether that was all.
    pub async fn erase_tenant(&self, tenant: &str, limit: u32) -> Result<bool, JournalError> {
        let mut tx = self.begin().await?;
        let sql = "DELETE FROM log_stretch WHERE id IN (SELECT id FROM log_stretch WHERE tenant = $1 ORDER BY id LIMIT $2)";
        let gone = tx.run(sql, args![tenant, limit]).await?;
        let all = gone < u64::from(limit);
        if all {
            for table in ["log_source", "log_job", "log_use"] {
                tx.run(&format!("DELETE FROM {table} WHERE tenant = $1"), args![tenant])
                    .await?;
            }
        }
        tx.commit().await?;
        Ok(all)
    }

    /// Forgets what is left of jobs and sources of which nothing is kept any more, and nothing more comes.
    pub async fn forget(&self, before_ms: i64) -> Result<u64, JournalError> {
        let mut tx = self.begin().await?;
        let sources = forget_from(
            &mut tx,
            "DELETE FROM log_source WHERE id IN (SELECT s.id FROM log_source s WHERE s.is_open = 0 AND s.begun_ms < $1 \
             AND NOT EXISTS (SELECT 1 FROM log_stretch k WHERE k.source = s.id) ORDER BY s.id LIMIT 1000)",
            before_ms,
        )
        .await?;
        let jobs = forget_from(
            &mut tx,
            "DELETE FROM log_job WHERE job IN (SELECT j.job FROM log_job j WHERE j.at_ms < $1 \
             AND NOT EXISTS (SELECT 1 FROM log_stretch k WHERE k.job = j.job) LIMIT 1000)",
            before_ms,
        )
        .await?;
        tx.commit().await?;
        Ok(sources + jobs)
    }
}

async fn forget_from(tx: &mut LogTx<'_>, sql: &str, before_ms: i64) -> Result<u64, JournalError> {
    tx.run(sql, vec![Val::from(before_ms)]).await
}
