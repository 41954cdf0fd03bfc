//! Why the journal said no. Every variant has a stable code; the server maps codes to replies and pages.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error(
        "the journal was written by a newer version (format {found}, this program reads up to {supported})"
    )]
    Newer { found: u32, supported: u32 },
    #[error("the journal is damaged: {what}")]
    Corrupt { what: String },
    #[error("the journal is held by another server ({holder})")]
    Held { holder: String },
    #[error("the linked SQLite {found} is too old, {wanted} or later is needed")]
    SqliteTooOld { found: String, wanted: &'static str },
    #[error("{path} is on a network file system, where file locks cannot be trusted")]
    NetworkFileSystem { path: PathBuf },
    #[error("{path} is not a directory")]
    NotDirectory { path: PathBuf },
    #[error("{path} cannot be written")]
    NotWritable {
        path: PathBuf,
        #[source]
        source: Option<std::io::Error>,
    },
    #[error("there is no journal at {place}")]
    Missing { place: String },
    #[error("{place} already holds a journal")]
    NotEmpty { place: String },
    #[error("{name:?} is not a usable schema name")]
    BadSchemaName { name: String },
    #[error("another server has taken over the journal")]
    Fenced,
    /// The commit may or may not have happened. The caller ends the process and recovers from the journal.
    #[error("the outcome of a commit is unknown")]
    Uncertain {
        #[source]
        source: Option<sqlx::Error>,
    },
    /// Nothing was written; the journal stays usable and readable.
    #[error("the disk is full")]
    Full,
    /// Nothing was written.
    #[error("entry {index} of the batch is not one line of JSON holding one object")]
    BadEvent { index: usize },
    /// Nothing was written: the batch before it was not, or somebody else appended.
    #[error("the batch was sealed for event {sealed_for}, and the journal goes on with event {next}")]
    OutOfTurn { sealed_for: u64, next: u64 },
    /// Nothing was written.
    #[error("an idempotency key of the batch is already recorded")]
    KeyTaken,
    #[error("event {seq} is not in the journal at size {size}")]
    NoSuchEvent { seq: u64, size: u64 },
    #[error("the point asked for lies beyond the end of the backup (event {found})")]
    BeyondEnd { found: u64 },
    /// Nothing was written, or only read.
    #[error("{doing} failed")]
    Storage {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

impl JournalError {
    pub fn code(&self) -> &'static str {
        match self {
            JournalError::Newer { .. } => "journal_newer",
            JournalError::Corrupt { .. } => "journal_corrupt",
            JournalError::Held { .. } => "journal_held",
            JournalError::SqliteTooOld { .. } => "journal_sqlite_too_old",
            JournalError::NetworkFileSystem { .. } => "journal_network_file_system",
            JournalError::NotDirectory { .. } => "journal_not_directory",
            JournalError::NotWritable { .. } => "journal_not_writable",
            JournalError::Missing { .. } => "journal_missing",
            JournalError::NotEmpty { .. } => "journal_not_empty",
            JournalError::BadSchemaName { .. } => "journal_bad_schema_name",
            JournalError::Fenced => "journal_fenced",
            JournalError::Uncertain { .. } => "journal_uncertain",
            JournalError::Full => "journal_disk_full",
            JournalError::BadEvent { .. } => "journal_bad_event",
            JournalError::OutOfTurn { .. } => "journal_out_of_turn",
            JournalError::KeyTaken => "journal_key_taken",
            JournalError::NoSuchEvent { .. } => "journal_no_such_event",
            JournalError::BeyondEnd { .. } => "journal_beyond_end",
            JournalError::Storage { .. } => "journal_storage",
        }
    }

    /// Every code, for the test that looks for a page about each.
    pub const CODES: [&'static str; 19] = [
        "journal_newer",
        "journal_corrupt",
        "journal_held",
        "journal_sqlite_too_old",
        "journal_network_file_system",
        "journal_not_directory",
        "journal_not_writable",
        "journal_missing",
        "journal_not_empty",
        "journal_bad_schema_name",
        "journal_fenced",
        "journal_uncertain",
        "journal_disk_full",
        "journal_bad_event",
        "journal_out_of_turn",
        "journal_key_taken",
        "journal_no_such_event",
        "journal_beyond_end",
        "journal_storage",
    ];

    pub(crate) fn corrupt(what: impl Into<String>) -> JournalError {
        JournalError::Corrupt { what: what.into() }
    }

    /// An error of a statement that is not a commit: the transaction around it did not happen.
    pub(crate) fn storage(doing: &'static str, source: sqlx::Error) -> JournalError {
        match &source {
            sqlx::Error::Database(db) => match db.code().as_deref() {
                // SQLITE_CORRUPT, SQLITE_NOTADB; PostgreSQL data_corrupted, index_corrupted
                Some("XX001" | "XX002") => JournalError::corrupt(db.message()),
                Some(code) if matches!(primary(code), Some(11 | 26)) => JournalError::corrupt(db.message()),
                Some("53100") => JournalError::Full,
                // SQLITE_FULL, and SQLITE_IOERR_SHMSIZE: no room for the index of the log.
                Some(code) if primary(code) == Some(13) || code == "4874" => JournalError::Full,
                _ => JournalError::Storage { doing, source },
            },
            _ => JournalError::Storage { doing, source },
        }
    }

    /// An error of COMMIT itself. Only answers that rule the commit out are anything but `Uncertain`.
    pub(crate) fn commit(source: sqlx::Error) -> JournalError {
        if let sqlx::Error::Database(db) = &source {
            match db.code().as_deref() {
                // PostgreSQL: constraint violations and serialization failures abort the transaction.
                Some(code) if code.len() == 5 && (code.starts_with("23") || code.starts_with("40")) => {
                    return JournalError::Storage {
                        doing: "committing",
                        source,
                    };
                }
                // SQLITE_FULL comes from writing the log, before the commit frame is whole; a failure to
                // make it durable is SQLITE_IOERR_FSYNC, which stays uncertain.
                Some(code) if primary(code) == Some(13) => return JournalError::Full,
                _ => {}
            }
        }
        JournalError::Uncertain { source: Some(source) }
    }
}

/// SQLite's primary result code out of an extended one; PostgreSQL's five-character states are not its.
fn primary(code: &str) -> Option<u32> {
    if code.len() >= 5 {
        return None;
    }
    code.parse::<u32>().ok().map(|code| code & 0xff)
}
