//! Container images: the files a job sees instead of the host's.
//!
//! `registry` asks for them, `archive` reads them from a file, `layer` and `unpack` turn each layer into a
//! directory of its own, `store` keeps those by digest and says which are used, `collect` removes what is not.
//! Deliberately absent: mounting (the wall's), building, pushing, running as the image's user (jobs run under
//! their tenant's user id, whatever the image says).

pub mod archive;
mod collect;
pub mod command;
mod index;
mod layer;
mod manifest;
mod public;
mod registry;
mod session;
pub mod store;
mod tar;
pub mod tool;
mod unpack;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tenure_domain::workload::image::{BadImageName, ImageDigest};

pub use manifest::Config;

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// Above this, what was not used for longest is removed.
    pub kept_bytes: u64,
    /// The most one image may have, unpacked.
    pub image_bytes_max: u64,
    /// The most files and directories of one layer.
    pub entries_max: u64,
    /// Hosts, as `host` or `host:port`, that may be asked at addresses which are not public: registries of the
    /// operator's own, and where these lead to. Those on this very machine are spoken with without TLS.
    pub private_registries: Vec<String>,
    /// Such that are spoken with without TLS wherever they are.
    pub insecure_registries: Vec<String>,
    /// How long a registry may say nothing.
    pub stall: Duration,
    /// How often a passing error is met before it is believed.
    pub tries: u32,
    pub pause: Duration,
    /// How long fetching one image may take in all.
    pub patience: Duration,
}

impl Default for ImageConfig {
    fn default() -> Self {
        ImageConfig {
            kept_bytes: 50 << 30,
            image_bytes_max: 64 << 30,
            entries_max: 2_000_000,
            private_registries: Vec::new(),
            insecure_registries: Vec::new(),
            stall: Duration::from_secs(30),
            tries: 4,
            pause: Duration::from_millis(500),
            patience: Duration::from_secs(3600),
        }
    }
}

/// An image that is here, unpacked.
#[derive(Debug, Clone)]
pub struct Image {
    /// What it is known by: the digest of its manifest, or of its configuration where it came without one.
    pub digest: ImageDigest,
    /// A directory for each layer, top first, as overlayfs takes them.
    pub layers: Vec<PathBuf>,
    pub config: Config,
    pub bytes: u64,
}

/// Why an image is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{0}")]
    Name(#[from] BadImageName),
    #[error("registry {registry} cannot be reached: {why}")]
    Unreachable { registry: String, why: String },
    #[error("registry {registry} answered {status} when asked for {what}")]
    Answered {
        registry: String,
        status: u16,
        what: String,
        retry_after: Option<Duration>,
    },
    #[error("registry {registry} does not let {what} be read{}", if *.with_credentials { " with the credentials given" } else { " without credentials" })]
    Denied {
        registry: String,
        what: String,
        with_credentials: bool,
    },
    #[error("registry {registry} has no {what}")]
    NotFound { registry: String, what: String },
    #[error("{what} is not what its digest says, or was cut short")]
    Damaged { what: String },
    /// What it is cannot or must not be used.
    #[error("{0}")]
    Refused(String),
    #[error("{what} is larger than the {limit} {unit} allowed")]
    TooLarge {
        what: &'static str,
        limit: u64,
        unit: &'static str,
    },
    #[error("no longer wanted")]
    Cancelled,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl ImageError {
    /// Whether the same may go well a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            ImageError::Unreachable { .. } | ImageError::Damaged { .. } => true,
            ImageError::Answered { status, .. } => *status == 429 || *status == 408 || *status >= 500,
            _ => false,
        }
    }

    /// Whether the fault is this node's, so that another may do better.
    pub fn is_node_fault(&self) -> bool {
        matches!(self, ImageError::Io { .. })
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ImageError {
        move |source| ImageError::from_read(what, source)
    }

    /// An error that came through a reader: ours as it was, a malformed stream as damage, else the node's.
    fn from_read(what: impl Into<String>, source: io::Error) -> ImageError {
        let what = what.into();
        match source.downcast::<ImageError>() {
            Ok(own) => own,
            Err(source) => match source.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                    ImageError::Refused(format!("{what}: {source}"))
                }
                _ => ImageError::Io { what, source },
            },
        }
    }

    /// As an error that passes through readers unharmed.
    fn through(self) -> io::Error {
        io::Error::other(self)
    }
}
