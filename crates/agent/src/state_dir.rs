//! The agent's directory: what is where in it, and that only one agent uses it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use tenure_domain::id::AllocationId;

const PATIENCE: Duration = Duration::from_secs(2);

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
        take(&lock).map_err(|_| StateDirError::Held(root.clone()))?;
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

/// An agent that was killed may have been about to start a program, which has the lock until it is that program.
fn take(lock: &File) -> rustix::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
