//! The agent's directory: what is where in it, and that only one agent uses it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use tenure_domain::id::AllocationId;

/// An agent's directory, held by this process.
pub struct StateDir {
    root: PathBuf,
    _lock: File,
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("another agent uses {0}")]
    Held(PathBuf),
    #[error("prepare the agent's directory {0}")]
    Io(PathBuf, #[source] io::Error),
}

impl StateDir {
    pub fn open(root: &Path) -> Result<StateDir, StateDirError> {
        let failed = |error| StateDirError::Io(root.to_owned(), error);
        make_dir(root).map_err(failed)?;
        let root = fs::canonicalize(root).map_err(failed)?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(root.join("lock"))
            .map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StateDirError::Held(root.clone()))?;
        for below in ["allocations", "released"] {
            make_dir(&root.join(below)).map_err(failed)?;
        }
        Ok(StateDir { root, _lock: lock })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn allocations(&self) -> PathBuf {
        self.root.join("allocations")
    }

    pub fn allocation(&self, id: AllocationId) -> PathBuf {
        self.root.join("allocations").join(id.to_string())
    }

    pub fn released(&self) -> PathBuf {
        self.root.join("released")
    }

    pub fn released_allocation(&self, id: AllocationId) -> PathBuf {
        self.root.join("released").join(id.to_string())
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
