//! How PostgreSQL is reached: a schema of our own, commits that wait for the log.

use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::error::JournalError;
use crate::location::Options;
use crate::store::{Conn, args};

pub(crate) fn connect_options(url: &str, schema: &str) -> Result<PgConnectOptions, JournalError> {
    let sound = schema.len() <= 48
        && schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && schema
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    if !sound {
        return Err(JournalError::BadSchemaName {
            name: schema.to_owned(),
        });
    }
    let connect = PgConnectOptions::from_str(url)
        .map_err(|error| JournalError::storage("reading the PostgreSQL URL", error))?;
    Ok(connect
        .application_name("tenure")
        .options([("search_path", schema)])
        .disable_statement_logging())
}

pub(crate) fn pool(connect: PgConnectOptions, options: &Options) -> PgPool {
    PgPoolOptions::new()
        .max_connections(options.readers_max.max(1))
        .connect_lazy_with(connect)
}

/// A server may be configured not to wait for its log; a journal must.
pub(crate) async fn make_durable(conn: &mut Conn) -> Result<(), sqlx::Error> {
    conn.run(
        "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'",
        args![],
    )
    .await?;
    // No transaction of ours is long; one left open by a hung process must not hold its row lock.
    conn.run(
        "SELECT set_config('idle_in_transaction_session_timeout', '30s', false)",
        args![],
    )
    .await?;
    let fsync = conn.row("SELECT current_setting('fsync')", args![]).await?;
    if fsync.is_some_and(|row| row.text(0).is_ok_and(|value| value == "off")) {
        tracing::warn!("PostgreSQL runs with fsync=off: a power cut will lose acknowledged events");
    }
    Ok(())
}

/// The channel on which a commit is told to followers.
pub(crate) fn channel(schema: &str) -> String {
    format!("tenure_{schema}")
}
