//! Wishes to end an allocation or to have it pause, as files in its directory: they wait there for a thin parent that
//! is not ready yet, and outlive the agent that wrote them.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_domain::workload::job::StopReason;

use crate::kernel;
use crate::record::{Record, write_whole};

/// What a thin parent is woken by.
pub const WAKE: i32 = libc::SIGUSR1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    pub reason: StopReason,
    pub grace_s: u32,
    /// A line for the job's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl StopRequest {
    pub fn read(dir: &Path) -> Option<StopRequest> {
        serde_json::from_slice(&std::fs::read(dir.join("stop.json")).ok()?).ok()
    }

    /// Leaves the request and wakes the thin parent.
    pub fn leave(&self, dir: &Path) -> io::Result<()> {
        write_whole(dir, "stop.json", &serde_json::to_vec(self)?)?;
        wake(dir);
        Ok(())
    }
}

/// Has the thin parent look at what was left for it. One that has not claimed the run yet looks when it has.
fn wake(dir: &Path) {
    if let Ok(Some(record)) = Record::read(dir)
        && let Some(parent) = record.parent()
    {
        kernel::signal(&parent, WAKE);
    }
}

/// A wish to have an allocation's time stand still while it has no devices: a file that is there as long.
pub mod pause {
    use super::*;

    const NAME: &str = "paused";

    pub fn is_wanted(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }

    pub fn leave(dir: &Path, paused: bool) -> io::Result<()> {
        match paused {
            true => write_whole(dir, NAME, b"")?,
            false => match std::fs::remove_file(dir.join(NAME)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
        wake(dir);
        Ok(())
    }
}
