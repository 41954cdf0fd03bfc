//! The fence: who may lead, and the check that every transaction of a leader begins with.
//!
//! Taking the lead raises an epoch. Every transaction renews the lease of *its* epoch first, so one that
//! was overtaken touches no row and is refused; PostgreSQL's row lock puts renewal and takeover in an
//! order. On SQLite an flock keeps a second server out already; the epoch stays as a second wall.
//!
//! A leader's session on PostgreSQL bears its epoch as a name. When its process dies the session goes too, so
//! another need not wait out the term; only a leader that is cut off but connected is waited for.

use tokio::sync::MutexGuard;

use crate::error::JournalError;
use crate::leader::JournalHandle;
use crate::store::{Conn, Dialect, Row, Val, args};

/// Raises the epoch if no living leader holds it, by the database's clock.
pub(super) async fn take_lead(conn: &mut Conn, holder: &str, term_ms: i64) -> Result<i64, JournalError> {
    let failed = |error| JournalError::storage("taking the lead", error);
    // SQLite's leader is whoever has the flock, so its lease is never waited for.
    let expired = match conn.dialect() {
        Dialect::Sqlite => "",
        Dialect::Postgres => SILENT_OR_GONE,
    };
    let sql = conn.dialect().sql(&format!(
        "INSERT INTO leader (id, epoch, holder, renewed_ms, term_ms) VALUES (1, 1, $1, {{now}}, $2) \
         ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, holder = $1, renewed_ms = {{now}}, \
         term_ms = $2 {expired} RETURNING epoch"
    ));
    if let Some(row) = conn.row(&sql, args![holder, term_ms]).await.map_err(failed)? {
        let epoch = row.int(0)?;
        name_session(conn, epoch).await.map_err(failed)?;
        return Ok(epoch);
    }
    let row = conn
        .row("SELECT holder FROM leader WHERE id = 1", args![])
        .await
        .map_err(failed)?;
    Err(JournalError::Held {
        holder: row.map_or(Ok(String::new()), |row| row.text(0))?,
    })
}

/// Silent for a term, or for a moment and without a session: nobody there writes any more.
const SILENT_OR_GONE: &str = "WHERE leader.renewed_ms + leader.term_ms < {now} \
     OR (leader.renewed_ms + 1000 < {now} AND NOT EXISTS (SELECT 1 FROM pg_stat_activity \
     WHERE application_name = 'tenure leader ' || current_schema() || ' ' || leader.epoch))";

/// Lets others see that the leader of this epoch is connected.
async fn name_session(conn: &mut Conn, epoch: i64) -> Result<(), sqlx::Error> {
    if conn.dialect() == Dialect::Postgres {
        let name = format!(
            "SELECT set_config('application_name', 'tenure leader ' || current_schema() || ' {epoch}', false)"
        );
        conn.row(&name, args![]).await?;
    }
    Ok(())
}

impl JournalHandle {
    /// Begins a transaction as the leader; refused when another has taken over.
    pub(crate) async fn begin(&self) -> Result<Tx<'_>, JournalError> {
        let failed = |error| JournalError::storage("beginning a transaction", error);
        let mut slot = self.desk.conn.lock().await;
        let begun = match slot.take() {
            Some(mut conn) => match self.pass_fence(&mut conn).await {
                Ok(renewed) => Some((conn, renewed)),
                // Most likely the connection died while idle. Nothing was written, so a fresh one is as good.
                Err(_) if self.dialect() == Dialect::Postgres => None,
                Err(error) => return Err(failed(error)),
            },
            None => None,
        };
        let (mut conn, renewed) = match begun {
            Some(begun) => begun,
            None => {
                let mut conn = self.source().writer().await?;
                name_session(&mut conn, self.desk.epoch).await.map_err(failed)?;
                let renewed = self.pass_fence(&mut conn).await.map_err(failed)?;
                (conn, renewed)
            }
        };
        if renewed == 0 {
            conn.run("ROLLBACK", args![]).await.map_err(failed)?;
            *slot = Some(conn);
            return Err(JournalError::Fenced);
        }
        Ok(Tx { slot, conn })
    }

    /// Begins a transaction and renews the lease of this epoch in it; no row means it is past.
    async fn pass_fence(&self, conn: &mut Conn) -> Result<u64, sqlx::Error> {
        let epoch = self.desk.epoch;
        match conn.dialect() {
            Dialect::Sqlite => {
                conn.run("BEGIN IMMEDIATE", args![]).await?;
                let fence = Dialect::Sqlite.sql(FENCE);
                conn.run(&fence, args![epoch]).await
            }
            Dialect::Postgres => {
                let fence = Dialect::Postgres.sql(FENCE).replace("$1", &epoch.to_string());
                conn.script(&format!("BEGIN; {fence}")).await
            }
        }
    }
}

const FENCE: &str = "UPDATE leader SET renewed_ms = {now} WHERE id = 1 AND epoch = $1";

/// A transaction behind the fence. Dropping it drops the connection, which undoes it.
pub(crate) struct Tx<'a> {
    slot: MutexGuard<'a, Option<Conn>>,
    conn: Conn,
}

impl Tx<'_> {
    pub fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }

    pub async fn run(&mut self, doing: &'static str, sql: &str, args: Vec<Val>) -> Result<u64, JournalError> {
        self.conn
            .run(sql, args)
            .await
            .map_err(|error| JournalError::storage(doing, error))
    }

    pub async fn row(
        &mut self,
        doing: &'static str,
        sql: &str,
        args: Vec<Val>,
    ) -> Result<Option<Row>, JournalError> {
        self.conn
            .row(sql, args)
            .await
            .map_err(|error| JournalError::storage(doing, error))
    }

    pub async fn commit(mut self) -> Result<(), JournalError> {
        let outcome = match self.conn.dialect() {
            Dialect::Sqlite => self.conn.run("COMMIT", args![]).await,
            // Unprepared: one message goes out, so a line lost on the way is lost around the commit itself.
            Dialect::Postgres => self.conn.script("COMMIT").await,
        };
        outcome.map_err(JournalError::commit)?;
        self.give_back();
        Ok(())
    }

    /// Returns the connection of a transaction that has ended.
    pub fn give_back(mut self) {
        *self.slot = Some(self.conn);
    }
}
