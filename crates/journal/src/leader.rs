//! Leading: opening a journal to write it.
//!
//! `Journal` appends and there is one of it; `JournalHandle` is what the leader's other tasks get. The
//! fence itself is in `leader/fence`, what goes into a batch in `append`.

use std::ops::Deref;
use std::sync::{Arc, Mutex as StdMutex};

use tokio::sync::{Mutex, MutexGuard};

use crate::chain::{BatchRow, Chain, Head};
use crate::error::JournalError;
use crate::location::{Location, Options, Source};
use crate::lock::{self, LockFile};
use crate::reader::JournalReader;
use crate::schema;
use crate::store::{Conn, Dialect, args, sqlite};

mod checkpoint;
mod fence;

use checkpoint::Checkpoints;
pub(crate) use fence::Tx;
use fence::take_lead;

/// The journal in the hands of its only writer.
pub struct Journal {
    handle: JournalHandle,
    pub(crate) chain: Chain,
    /// A commit was begun and its end not seen.
    pub(crate) uncertain: bool,
}

/// What the leader's other tasks may do: read, keep secrets and snapshots, sign heads, renew. Not append.
#[derive(Clone)]
pub struct JournalHandle {
    reader: JournalReader,
    desk: Arc<Desk>,
}

struct Desk {
    conn: Mutex<Option<Conn>>,
    epoch: i64,
    head: StdMutex<Head>,
    snapshot: Mutex<()>,
    checkpoints: Mutex<Option<Checkpoints>>,
    _lock: Option<LockFile>,
}

impl Deref for Journal {
    type Target = JournalHandle;

    fn deref(&self) -> &JournalHandle {
        &self.handle
    }
}

impl Deref for JournalHandle {
    type Target = JournalReader;

    fn deref(&self) -> &JournalReader {
        &self.reader
    }
}

impl Journal {
    /// Opens the journal, creating it where there is none, and takes the lead.
    pub async fn open_leader(
        location: &Location,
        holder: &str,
        options: Options,
    ) -> Result<Journal, JournalError> {
        let lock = match location {
            Location::Sqlite(dir) => {
                lock::prepare(dir)?;
                Some(LockFile::take(dir, holder)?)
            }
            Location::Postgres(..) => None,
        };
        let source = Source::new(location, &options)?;
        let mut conn = source
            .writer()
            .await
            .map_err(|error| not_writable(location, error))?;
        let platform = prepare(&mut conn, location, &options).await?;
        let epoch = take_lead(&mut conn, holder, options.term_ms).await?;
        schema::complete(&mut conn).await?;
        // Read after the epoch was raised: nothing an earlier leader began can still be added.
        let chain = load_chain(&mut conn).await?;
        let reader = JournalReader::new(source, platform);
        reader.saw(chain.seq);
        let checkpoints = match reader.source().dialect() {
            Dialect::Sqlite if options.checkpoints_beside => {
                Some(Checkpoints::start(reader.source(), reader.clone()).await?)
            }
            _ => None,
        };
        let desk = Desk {
            conn: Mutex::new(Some(conn)),
            epoch,
            head: StdMutex::new(chain.head()),
            snapshot: Mutex::new(()),
            checkpoints: Mutex::new(checkpoints),
            _lock: lock,
        };
        let handle = JournalHandle {
            reader,
            desk: Arc::new(desk),
        };
        Ok(Journal {
            handle,
            chain,
            uncertain: false,
        })
    }

    pub async fn open_reader(location: &Location) -> Result<JournalReader, JournalError> {
        JournalReader::open(location).await
    }

    /// A handle for other tasks of the leader.
    pub fn handle(&self) -> JournalHandle {
        self.handle.clone()
    }

    pub(crate) fn advance(&mut self, chain: Chain) {
        *self
            .handle
            .desk
            .head
            .lock()
            .expect("no panic while holding the head") = chain.head();
        self.handle.reader.saw(chain.seq);
        self.chain = chain;
    }

    /// Gives the lead back, so that another server need not wait out the term.
    pub async fn close(self) -> Result<(), JournalError> {
        if self.dialect() == Dialect::Postgres {
            let mut tx = self.begin().await?;
            tx.run(
                "giving up the lead",
                "UPDATE leader SET renewed_ms = 0 WHERE id = 1",
                args![],
            )
            .await?;
            tx.commit().await?;
        }
        // The writer goes last: it moves SQLite's log into the file, which a reader may not.
        self.reader.close().await;
        if let Some(checkpoints) = self.desk.checkpoints.lock().await.take() {
            checkpoints.stop().await;
        }
        if let Some(conn) = self.desk.conn.lock().await.take() {
            conn.close().await;
        }
        Ok(())
    }
}

impl JournalHandle {
    /// The end of the journal as last committed here.
    pub fn head(&self) -> Head {
        *self.desk.head.lock().expect("no panic while holding the head")
    }

    /// Counts takeovers; larger than that of any leader before.
    pub fn epoch(&self) -> i64 {
        self.desk.epoch
    }

    /// Renews the lease. A timer calls this well within the term; appending renews too.
    pub async fn renew(&self) -> Result<(), JournalError> {
        match self.dialect() {
            Dialect::Sqlite => Ok(()),
            Dialect::Postgres => self.begin().await?.commit().await,
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.source().dialect()
    }

    pub(crate) async fn snapshot_turn(&self) -> MutexGuard<'_, ()> {
        self.desk.snapshot.lock().await
    }
}

async fn prepare(conn: &mut Conn, location: &Location, options: &Options) -> Result<String, JournalError> {
    if conn.dialect() == Dialect::Sqlite {
        sqlite::check_version(conn).await?;
    }
    if !schema::exists(conn).await? {
        let schema = match location {
            Location::Sqlite(_) => None,
            Location::Postgres(_, schema) => Some(schema.as_str()),
        };
        schema::create(conn, schema, &schema::new_platform())
            .await
            .map_err(|error| not_writable(location, error))?;
    }
    let platform = schema::check(conn).await?;
    if conn.dialect() == Dialect::Sqlite {
        sqlite::check_pages(conn, options.check_pages).await?;
    }
    Ok(platform)
}

/// The state at the end of the journal, after checking the last batch against the one before.
async fn load_chain(conn: &mut Conn) -> Result<Chain, JournalError> {
    let sql = format!(
        "SELECT {} FROM batch ORDER BY first_seq DESC LIMIT 2",
        BatchRow::COLUMNS
    );
    let rows = conn
        .rows(&sql, args![])
        .await
        .map_err(|error| JournalError::storage("reading the head", error))?;
    let rows = rows.iter().map(BatchRow::read).collect::<Result<Vec<_>, _>>()?;
    let Some(last) = rows.first() else {
        return Ok(Chain::default());
    };
    let mut chain = match rows.get(1) {
        Some(before) => Chain::after(before).ok_or_else(|| {
            JournalError::corrupt(format!("the tree at event {} is not whole", before.last_seq))
        })?,
        None => Chain::default(),
    };
    chain
        .accept(last, |_, _| {}, |_| Ok(()))
        .map_err(|bad| JournalError::corrupt(format!("event {} {}", bad.seq, bad.what)))?;
    Ok(chain)
}

/// A file or directory that cannot be written shows as an SQL error; say it as what it is.
fn not_writable(location: &Location, error: JournalError) -> JournalError {
    let Location::Sqlite(path) = location else {
        return error;
    };
    match &error {
        JournalError::Storage {
            source: sqlx::Error::Database(db),
            ..
        } => match db.code().as_deref() {
            // SQLITE_PERM, SQLITE_READONLY and SQLITE_CANTOPEN, with their extended codes
            Some(code)
                if code
                    .parse()
                    .is_ok_and(|code: u32| matches!(code & 0xff, 3 | 8 | 14)) =>
            {
                JournalError::NotWritable {
                    path: path.clone(),
                    source: None,
                }
            }
            _ => error,
        },
        _ => error,
    }
}
