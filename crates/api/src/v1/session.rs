//! Sessions: WebSocket routes to a running job.
//!
//! A binary message is one byte that says which stream (`INPUT`, `STDOUT`, `STDERR`) and then its bytes; a text
//! message is JSON, `ClientSays` or `ServerSays`. The server speaks first, with `opened`, and last, with `closed`.
//! The command travels in a header, for addresses end up in logs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tenure_domain::id::SessionId;
use utoipa::IntoParams;

pub const INPUT: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;

/// The longest message either side sends.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// The header with the command: base64 of a JSON list of texts.
pub const COMMAND_HEADER: &str = "tenure-command";

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AttachQuery {
    /// Begins with everything the job wrote, rather than with what it writes from now on.
    pub from_start: Option<bool>,
    /// At which member of a job over several nodes; 0 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExecQuery {
    /// The process finds itself on a terminal.
    pub tty: Option<bool>,
    /// The terminal's size in characters, 24 × 80 unless said.
    pub rows: Option<u16>,
    pub cols: Option<u16>,
    /// What the terminal is called, for `TERM`.
    pub term: Option<String>,
    /// In which member of a job over several nodes; 0 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
}

/// Either a port, which opens a session; or a session, which opens one connection to its port.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PortQuery {
    pub port: Option<u16>,
    pub session: Option<String>,
    /// Of which member of a job over several nodes; 0 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientSays {
    Resize {
        rows: u16,
        cols: u16,
    },
    /// No more input will come.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSays {
    Opened {
        session: SessionId,
        /// There is a terminal at the other end.
        terminal: bool,
        /// Input goes somewhere.
        input: bool,
    },
    Closed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

pub fn write_command(command: &[String]) -> String {
    STANDARD.encode(serde_json::to_vec(command).unwrap_or_default())
}

/// The command of a header; none where it is not one.
pub fn read_command(header: &[u8]) -> Option<Vec<String>> {
    serde_json::from_slice(&STANDARD.decode(header).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_as_they_were_given() {
        let command = ["sh", "-c", "echo 'ä\n\"b\" '"].map(String::from);
        let header = write_command(&command);
        assert!(header.is_ascii() && !header.contains(' '));
        assert_eq!(read_command(header.as_bytes()).as_deref(), Some(&command[..]));
        for bad in ["", "x", "e30=", "WzFd"] {
            assert_eq!(read_command(bad.as_bytes()), None, "{bad}");
        }
    }
}
