//! What is written down of one allocation: `state.jsonl` in its directory, one state a line, the last of which counts.
//!
//! INVARIANT: the file is made once, by a link that fails when it exists: whoever makes it owns the run, and
//! nobody else ever runs it. Later states are added to it, and a state that was told to anybody is synced. Added and
//! not put in its place: a file system is slow to give new files where many were just removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::audit::conduct::Conduct;
use tenure_domain::id::{AllocationId, JobId};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::usage::Usage;

use crate::{clock, kernel};

/// The thin parent of a run, or whoever ended it without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub allocation: AllocationId,
    pub boot_id: String,
    /// The thin parent and when it was started, in clock ticks since boot: together unique in one boot.
    pub pid: i32,
    pub start_ticks: u64,
    /// Where its processes are, for whoever must end them.
    pub cgroups: Vec<PathBuf>,
    pub phase: Phase,
    /// What it used of its devices; written once, by the agent, when it has ended and had some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it was started for; none in records of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// What it did at its devices' boundary; written once, as its use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conduct: Option<Box<Conduct>>,
}

/// Whose run it is, and how many devices it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub job: JobId,
    pub devices: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Starting,
    Running {
        since_ms: u64,
    },
    Paused {
        ran_ms: u64,
    },
    Exited {
        exit_code: Option<i32>,
        signal: Option<i32>,
        by: Option<StopReason>,
        ran_ms: u64,
    },
    NotStarted {
        why: String,
    },
    /// Taken by an agent that found the directory without a run; nothing may run here.
    Void,
}

impl Phase {
    pub fn has_ended(&self) -> bool {
        !matches!(
            self,
            Phase::Starting | Phase::Running { .. } | Phase::Paused { .. }
        )
    }

    /// Of one that the kernel killed for its memory: it is told from one that killed itself.
    pub fn over_limit_if(self, memory_killed: bool) -> Self {
        match self {
            Phase::Exited {
                exit_code: None,
                signal: Some(libc::SIGKILL),
                by: None,
                ran_ms,
            } if memory_killed => Phase::Exited {
                exit_code: None,
                signal: Some(libc::SIGKILL),
                by: Some(StopReason::OverLimit),
                ran_ms,
            },
            other => other,
        }
    }

    /// Ended by no doing of the job.
    pub fn evicted(ran_ms: u64) -> Self {
        Phase::Exited {
            exit_code: None,
            signal: None,
            by: Some(StopReason::Evicted),
            ran_ms,
        }
    }
}

impl Record {
    /// A record without a process: of something that never ran here.
    pub fn without_process(allocation: AllocationId, phase: Phase) -> Self {
        Record {
            allocation,
            boot_id: clock::boot_id(),
            pid: 0,
            start_ticks: 0,
            cgroups: Vec::new(),
            phase,
            usage: None,
            subject: None,
            conduct: None,
        }
    }

    /// What the server is told; none for what never became a run.
    pub fn report(&self) -> Option<AllocationReport> {
        let (ran_ms, state) = match &self.phase {
            Phase::Starting => (0, RunState::Starting),
            Phase::Running { since_ms } => {
                (clock::monotonic_ms().saturating_sub(*since_ms), RunState::Running)
            }
            Phase::Paused { ran_ms } => (*ran_ms, RunState::Paused),
            Phase::Exited {
                exit_code,
                signal,
                by,
                ran_ms,
            } => (
                *ran_ms,
                RunState::Exited {
                    exit_code: *exit_code,
                    signal: *signal,
                    by: *by,
                },
            ),
            Phase::NotStarted { why } => (0, RunState::NotStarted { why: why.clone() }),
            Phase::Void => return None,
        };
        Some(AllocationReport {
            allocation: self.allocation,
            ran_ms,
            state,
            usage: self.usage,
            saved_ago_ms: None,
            kept: None,
            // Signed as it is sent, with the key of the day.
            conduct: None,
        })
    }

    /// None where no record is; `InvalidData` where a power cut left nothing whole of one.
    pub fn read(dir: &Path) -> io::Result<Option<Record>> {
        let text = match fs::read(dir.join(NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let lines = text.split(|&byte| byte == b'\n').rev();
        let whole = lines.filter(|line| !line.is_empty());
        let mut error = serde_json::Error::io(io::ErrorKind::UnexpectedEof.into());
        for line in whole {
            match serde_json::from_slice(line) {
                Ok(record) => return Ok(Some(record)),
                // Half of the last one, where the power was cut: the one before it was told.
                Err(broken) => error = broken,
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Makes the record where none is. False when there is one.
    pub fn claim(&self, dir: &Path) -> io::Result<bool> {
        let draft = dir.join(format!("claim.{}", std::process::id()));
        fs::write(&draft, self.line()?)?;
        let linked = fs::hard_link(&draft, dir.join(NAME));
        fs::remove_file(&draft)?;
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts a state after those before it, and returns when a power cut could not undo it.
    pub fn replace(&self, dir: &Path) -> io::Result<()> {
        self.follow(dir)?;
        // Its name, too.
        File::open(dir)?.sync_all()
    }

    /// As `replace`, after a state that was: its name is safe already.
    pub fn follow(&self, dir: &Path) -> io::Result<()> {
        let mut file = File::options().append(true).open(dir.join(NAME))?;
        // First the end of a line that a power cut may have left open.
        let mut line = vec![b'\n'];
        line.extend(self.line()?);
        file.write_all(&line)?;
        file.sync_all()
    }

    fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// In the allocation's directory.
pub const NAME: &str = "state.jsonl";

/// Writes a file whole or not at all, and returns when a power cut could not undo it.
pub fn write_synced(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_mode(dir, name, bytes, 0o600, true)
}

/// Writes a file whole or not at all.
pub fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_mode(dir, name, bytes, 0o600, false)
}

fn write_mode(dir: &Path, name: &str, bytes: &[u8], mode: u32, sync: bool) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let draft = dir.join(format!("{name}.{}.new", std::process::id()));
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&draft)?;
    file.write_all(bytes)?;
    if sync {
        file.sync_all()?;
    }
    fs::rename(&draft, dir.join(name))?;
    if sync {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

impl Record {
    /// A handle on the thin parent, if it is alive. The handle first, then the look at whose it is: a number
    /// given anew in between is seen.
    pub fn parent(&self) -> Option<OwnedFd> {
        let pidfd = kernel::pidfd(self.pid).ok().filter(|_| self.pid > 0)?;
        (start_ticks(self.pid) == Some(self.start_ticks)).then_some(pidfd)
    }
}

/// When a process was started, in clock ticks since boot; none when there is no such process or it has ended.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so what follows is counted from its last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        None
    } else {
        fields.nth(18)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_state_counts() {
        let dir = tempfile::tempdir().unwrap();
        let record = |phase| Record::without_process(AllocationId(7), phase);
        assert_eq!(Record::read(dir.path()).unwrap(), None);
        let first = record(Phase::Starting);
        assert!(first.claim(dir.path()).unwrap());
        assert!(!record(Phase::Void).claim(dir.path()).unwrap(), "claimed once");
        assert_eq!(Record::read(dir.path()).unwrap(), Some(first.clone()));
        let running = record(Phase::Running { since_ms: 5 });
        running.replace(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(running.clone()));
        // The power is cut in the middle of the next.
        let path = dir.path().join(NAME);
        let mut text = fs::read(&path).unwrap();
        text.extend(b"{\"allocation\":\"alc");
        fs::write(&path, &text).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(running));
        let ended = record(Phase::evicted(3));
        ended.replace(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(ended));
        fs::write(&path, "{\"allo").unwrap();
        let broken = Record::read(dir.path()).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::InvalidData);
    }
}
