//! Sessions: somebody at a running job, by its output, a new process inside it, or one of its ports.
//!
//! A session is journalled before it is opened and again when it is over. Of a command only the program and
//! the number of its arguments are kept: people put passwords on command lines, the journal is for ever, and
//! even a digest of a short secret can be guessed. Deliberately absent: the bytes.

use serde::{Deserialize, Serialize};

use crate::id::{AllocationId, JobId, SessionId, UserId};
use crate::refusal::Refusal;
use crate::tenancy::role::Action;
use crate::time::Time;

/// Open sessions of one job, and of one user.
pub const MAX_PER_JOB: usize = 16;
pub const MAX_PER_USER: usize = 32;

const MAX_PROGRAM_CHARS: usize = 200;
const MAX_FROM_CHARS: usize = 64;
const MAX_WHY_CHARS: usize = 300;

/// What a session leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    Attach,
    Exec {
        program: String,
        arguments: u32,
        tty: bool,
    },
    Port {
        port: u16,
    },
}

impl SessionKind {
    /// A command as it is written down.
    pub fn exec(command: &[String], tty: bool) -> SessionKind {
        SessionKind::Exec {
            program: command
                .first()
                .map_or_else(String::new, |first| plain(first, MAX_PROGRAM_CHARS)),
            arguments: command.len().saturating_sub(1).try_into().unwrap_or(u32::MAX),
            tty,
        }
    }

    /// What one must be allowed to do for it.
    pub fn action(&self) -> Action {
        match self {
            SessionKind::Attach => Action::JobAttach,
            SessionKind::Exec { .. } => Action::JobExec,
            SessionKind::Port { .. } => Action::JobPort,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self {
            SessionKind::Exec { program, .. } if program.is_empty() => {
                Err(Refusal::invalid("/command", "there is no command"))
            }
            SessionKind::Exec { program, .. } if plain(program, MAX_PROGRAM_CHARS) != *program => Err(
                Refusal::invalid("/command", "the program's name is not plain text"),
            ),
            SessionKind::Port { port: 0 } => Err(Refusal::invalid("/port", "a port is 1 to 65535")),
            _ => Ok(()),
        }
    }
}

/// One session while it is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub job: JobId,
    pub allocation: AllocationId,
    /// Whose job it is.
    pub owner: UserId,
    /// Who is there.
    pub user: UserId,
    /// The address they came from.
    pub from: String,
    pub kind: SessionKind,
    pub since: Time,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Bytes towards the job, and from it.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Of a process: its exit code, or the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub why: String,
}

impl SessionEnd {
    /// As it is written down, whatever a node said.
    pub(crate) fn bounded(&self) -> SessionEnd {
        SessionEnd {
            why: plain(&self.why, MAX_WHY_CHARS),
            ..self.clone()
        }
    }
}

pub(crate) fn plain_address(from: &str) -> String {
    plain(from, MAX_FROM_CHARS)
}

fn plain(text: &str, chars: usize) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(chars)
        .collect()
}
