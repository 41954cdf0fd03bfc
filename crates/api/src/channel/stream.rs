//! Streams over the agent channel: the bytes of one person at one job, both ways.
//!
//! The server opens a stream and numbers it; either side ends it. Bytes are sent only on credit: each side
//! starts with `WINDOW` and is given back what the other has passed on, so a slow reader holds up its own
//! stream and nothing else. Deliberately absent: who may open one (the server asks `domain`).

use serde::{Deserialize, Serialize};
use tenure_domain::id::AllocationId;

use super::LogStream;

/// How much may be under way in each direction of a stream.
pub const WINDOW: u32 = 256 * 1024;
/// The most bytes of a stream in one frame, so that other frames come in between.
pub const MAX_CHUNK: usize = 32 * 1024;
/// What a frame costs besides its bytes: many small ones fill a window too.
const FRAME_COST: u32 = 64;
/// Streams of one allocation, and of all allocations of a node.
pub const MAX_PER_ALLOCATION: usize = 64;
pub const MAX_PER_NODE: usize = 256;
/// The longest command that is run inside a job, in bytes.
pub const MAX_COMMAND_BYTES: usize = 16 * 1024;

/// What sending a chunk takes from the window, and passing it on gives back.
pub fn cost(bytes: &[u8]) -> u32 {
    FRAME_COST + u32::try_from(bytes.len()).unwrap_or(u32::MAX - FRAME_COST)
}

/// What a stream leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// What the job writes, and its own input where it has one.
    Attach { from_start: bool },
    /// A new process inside the job's walls.
    Exec {
        command: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<Terminal>,
    },
    /// A connection to what listens on the job's own 127.0.0.1.
    Port { port: u16 },
}

/// The terminal a program is to find itself on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    pub size: Size,
    /// What the user's terminal is called, for `TERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Terminal {
    /// A name that can be nothing but a terminal's.
    pub fn is_name(name: &str) -> bool {
        (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-+._".contains(&byte))
    }
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// To the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Down {
    Open {
        allocation: AllocationId,
        target: Target,
    },
    Data {
        #[serde(with = "super::base64_bytes")]
        bytes: Vec<u8>,
    },
    /// No more input will come.
    End,
    Resize {
        size: Size,
    },
    /// This much was passed on.
    Window {
        credit: u32,
    },
    /// Nobody is there any more.
    Close,
}

/// From the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Up {
    /// It is open: whether there is a terminal at its end, and whether input goes anywhere.
    Opened {
        terminal: bool,
        input: bool,
    },
    Data {
        from: LogStream,
        #[serde(with = "super::base64_bytes")]
        bytes: Vec<u8>,
    },
    Window {
        credit: u32,
    },
    /// The last of it: how the process ended, and why the stream did where that was not the reason.
    Closed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}
