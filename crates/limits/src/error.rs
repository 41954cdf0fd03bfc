//! What can go wrong, and what is refused: an error says the page is of no use, a refusal says the slice is full.

use std::fmt;
use std::io;

/// Why an operation on the page did not happen.
#[derive(Debug)]
pub enum Error {
    /// The file could not be opened, mapped, sized or locked.
    Io(&'static str, io::Error),
    /// The file is not a limits page, or is shorter than it says.
    NotAPage(&'static str),
    /// The page was made by a newer Tenure.
    Newer { found: u32 },
    /// No slice of this id stands on the device.
    NoSlice(u64),
    /// A slice of this id stands already.
    Exists(u64),
    /// The table of slices, or of processes, is full.
    Full(&'static str),
    /// The slice was ended or removed.
    Ended,
    /// Processes of the slice still live.
    InUse { live: u32 },
    /// The lock was not obtained in time; its holder lives but does not run.
    Busy,
    /// The handle was made before a fork, by the parent.
    Forked,
    /// More was given back than was charged.
    Overdrawn,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(what, source) => write!(f, "{what}: {source}"),
            Error::NotAPage(why) => write!(f, "not a limits page: {why}"),
            Error::Newer { found } => write!(
                f,
                "the limits page has version {found}, this program knows {}",
                crate::VERSION
            ),
            Error::NoSlice(id) => write!(f, "no slice {id} on this device"),
            Error::Exists(id) => write!(f, "slice {id} stands on this device already"),
            Error::Full(what) => write!(f, "no free place for another {what}"),
            Error::Ended => write!(f, "the slice was ended"),
            Error::InUse { live } => write!(f, "{live} processes of the slice still live"),
            Error::Busy => write!(f, "the slice's ledger is held by a process that does not run"),
            Error::Forked => write!(f, "the handle belongs to the parent of this process"),
            Error::Overdrawn => write!(f, "more was given back than was charged"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(_, source) => Some(source),
            _ => None,
        }
    }
}

impl Error {
    pub(crate) fn last_os(what: &'static str) -> Error {
        Error::Io(what, io::Error::last_os_error())
    }
}

/// Why a charge was refused.
#[derive(Debug)]
pub enum Refused {
    /// The slice has not that much left.
    OverLimit { limit: u64, used: u64, asked: u64 },
    /// The ledger could not be consulted, so nothing is given.
    Unable(Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OverLimit { limit, used, asked } => {
                write!(f, "{asked} bytes asked, {used} of {limit} in use")
            }
            Refused::Unable(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refused {}
