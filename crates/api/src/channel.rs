//! The channel between an agent and the server: one mutually authenticated TLS connection that the agent
//! opens, carrying frames of a 4-byte big-endian length and JSON.
//!
//! Each side numbers its frames from 1; a frame out of order, of another version or too long ends the
//! connection. Orders and reports are by allocation id and idempotent, so a new connection only has to say
//! everything again. Streams (`stream`) are the exception: they end with their connection.

mod base64_bytes;
pub mod frame;
pub mod reading;
pub mod stream;

use serde::{Deserialize, Serialize};
use tenure_domain::audit::conduct::SignedConduct;
use tenure_domain::id::{AllocationId, GpuId, JobId, NodeId, VolumeId};
use tenure_domain::market::check::GpuReport;
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::schedule::hardware::PartChoice;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::policy::Network;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::{Isolation, TRACE_PARENT};
use tenure_domain::workload::trace::TraceParent;
use tenure_domain::workload::usage::Usage;

use crate::secret_text::SecretText;
use reading::DeviceReading;

/// The protocol spoken here. A peer of another version is refused with a message that says both.
pub const VERSION: u32 = 7;
/// No frame is longer.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;
/// The most of a log that travels in one frame.
pub const MAX_LOG_CHUNK: usize = 64 * 1024;
/// The most allocations a report carries; more are sent in several.
pub const MAX_REPORTS: usize = 1000;
/// The longest frame taken from a peer that has shown no certificate.
pub const MAX_JOIN_FRAME: usize = 64 * 1024;
/// The name every server certificate carries: an agent trusts the authority it joined, not an address.
pub const SERVER_NAME: &str = "server.tenure.internal";

/// What a frame carries around each message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame<T> {
    pub version: u32,
    pub number: u64,
    pub message: T,
}

/// From the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromAgent {
    /// Without a certificate: asks for one. The only message taken from a stranger.
    Join {
        token: SecretText,
        name: String,
        csr_pem: String,
    },
    /// With a certificate: opens the conversation.
    Hello {
        agent_version: String,
        boot_id: String,
        uptime_ms: u64,
    },
    /// Asks for a new certificate on a new key; the old key stays good until the agent has used the new one.
    Rotate {
        csr_pem: String,
    },
    Inventory {
        inventory: Inventory,
    },
    /// All allocations the node knows of (`whole`), or only those that changed. A whole report too long for
    /// one frame goes in several, all but the last marked `more`.
    Report {
        whole: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
        allocations: Vec<AllocationReport>,
    },
    /// What the start of an allocation that belongs to a trace took, step by step; said once, before it is reported to run,
    /// and lost with the connection.
    Started {
        allocation: AllocationId,
        steps: Vec<Took>,
    },
    /// Asks for the lease to be renewed. `sent_ms` is echoed, so that the term counts from sending.
    Heartbeat {
        sent_ms: u64,
    },
    Log {
        request: u64,
        chunk: Result<LogChunk, String>,
    },
    /// Whether the slices of a `Resize` that asked have their new size.
    Resized {
        request: u64,
        done: Result<(), String>,
    },
    /// Nothing of the volume is here any more.
    VolumeErased {
        volume: VolumeId,
    },
    /// A device was scrubbed between tenants, or could not be. Said until the server took note of it.
    Scrubbed {
        receipt: Box<Receipt>,
    },
    /// What was measured of a GPU that was asked what it is. Lost with the connection, it is asked for again.
    Checked {
        gpu: GpuId,
        number: u64,
        report: Box<GpuReport>,
    },
    /// What was measured of these devices just now. Left out when the connection is slow.
    Readings {
        devices: Vec<DeviceReading>,
    },
    Stream {
        stream: u64,
        says: stream::Up,
    },
}

/// From the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromServer {
    Joined {
        node: NodeId,
        certificate_pem: String,
        authority_pem: String,
    },
    Welcome {
        node: NodeId,
        term_ms: u64,
    },
    Rotated {
        certificate_pem: String,
    },
    /// The node may run what it was given for `term_ms` from when it sent the heartbeat.
    Lease {
        sent_ms: u64,
        term_ms: u64,
    },
    Start {
        order: Box<Order>,
    },
    Stop {
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    },
    /// The end was taken note of; the node may forget the allocation (its log is kept for a while).
    Release {
        allocation: AllocationId,
    },
    /// Changes the size of a running allocation's slices. One with a number asks: it is refused, and changes nothing,
    /// where more is in use than would be left. One without says what was decided.
    Resize {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<u64>,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    },
    /// A running allocation gives its devices back for a while; its processes stay. Told of by its report, or why not.
    Pause {
        allocation: AllocationId,
    },
    /// A paused one has them again.
    Resume {
        allocation: AllocationId,
        /// Whose it is: what others left on the devices is scrubbed first.
        tenant: String,
        devices: Vec<DeviceSlice>,
    },
    /// The volume is to have this size now, also while jobs use it. Said of one that is not here, it means nothing.
    GrowVolume {
        volume: VolumeId,
        size_mib: u64,
    },
    /// The volume is nobody's any more: its files are to go. Answered by `VolumeErased`, as often as it is said.
    EraseVolume {
        volume: VolumeId,
    },
    /// One of the node's GPUs is to show what it is. Answered by `Checked`, as often as it is said.
    CheckGpu {
        question: Box<GpuQuestion>,
    },
    /// The node's receipts up to this number need not be said again.
    ReceiptsTaken {
        number: u64,
    },
    /// Asks for a piece of a log; `wait_ms` waits for more at the end.
    ReadLog {
        request: u64,
        allocation: AllocationId,
        stream: LogStream,
        offset: u64,
        max: u32,
        wait_ms: u32,
    },
    Stream {
        stream: u64,
        says: stream::Down,
    },
    /// The server ends the conversation and says why.
    Bye {
        code: String,
        detail: String,
    },
}

/// Everything a node needs to run one allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub allocation: AllocationId,
    pub job: JobId,
    /// The job's name, for people.
    pub name: String,
    /// Whose it is; jobs of one tenant share a user id on the node, of two never.
    pub tenant: String,
    pub attempt: u32,
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub secrets: Vec<(String, SecretText)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The files the job sees instead of the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<ImageOrder>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeOrder>,
    pub devices: Vec<DeviceSlice>,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub isolation: Isolation,
    #[serde(default)]
    pub network: Network,
    pub run_time_s: u64,
    pub grace_s: u32,
    /// The job reads what people send it, rather than nothing.
    #[serde(default)]
    pub stdin: bool,
    /// It reads and writes a terminal.
    #[serde(default)]
    pub tty: bool,
}

impl Order {
    /// Whether its job belongs to a trace of which is told.
    pub fn is_traced(&self) -> bool {
        let parent = self.env.iter().rev().find(|(name, _)| name == TRACE_PARENT);
        let parent = parent.and_then(|(_, value)| value.parse::<TraceParent>().ok());
        parent.is_some_and(|parent| parent.is_sampled())
    }
}

/// What a GPU is asked, and what it is said to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuQuestion {
    pub gpu: GpuId,
    pub number: u64,
    pub uuid: String,
    pub memory_mib: u64,
}

/// A container image to fetch, if the node has it not, and to run the job in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageOrder {
    /// As `domain::workload::image` reads it.
    pub name: String,
    /// `user:password` for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretText>,
}

/// A volume the job sees at `/volumes/NAME`, made if the node has it not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeOrder {
    pub id: VolumeId,
    pub name: String,
    pub size_mib: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A part of one device, by the vendor's own identity of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSlice {
    pub uuid: String,
    pub vram_mib: u64,
    pub compute_permille: u16,
    /// Never more than its share, even while the rest of the device is idle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
    /// The part of the device it is, to be made there; none for a share or the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartChoice>,
}

/// What a node says of one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationReport {
    pub allocation: AllocationId,
    /// Run time so far by the node's monotonic clock.
    pub ran_ms: u64,
    pub state: RunState,
    /// It was to be paused or resumed and could not be: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Use of its devices so far, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How long ago it said that its work is safe, while it runs; absent where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_ago_ms: Option<u64>,
    /// What it did at its devices' boundary, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conduct: Option<Box<SignedConduct>>,
}

/// How far an allocation is on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunState {
    Starting,
    Running,
    /// Without its devices, until it has them again.
    Paused,
    /// `by` says who ended it where it was not the job itself.
    Exited {
        exit_code: Option<i32>,
        signal: Option<i32>,
        by: Option<StopReason>,
    },
    NotStarted {
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// What a node goes through from an order to the job's first instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartStep {
    /// Its image was fetched, or found.
    Image,
    /// What others left on its devices was scrubbed.
    Scrub,
    /// Its slices came onto their devices: parts made, limits set, volumes opened.
    Devices,
    /// Its worker was started.
    Worker,
    /// Its walls were built.
    Sandbox,
    /// From its walls to its first instruction.
    Exec,
}

/// How long a step took, and how long ago it ended: no clock but the node's own is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Took {
    pub step: StartStep,
    pub ended_ago_us: u64,
    pub took_us: u64,
}

/// No start has more steps.
pub const MAX_STEPS: usize = 16;

/// A piece of a log. The bytes are whatever the job wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogChunk {
    pub offset: u64,
    #[serde(with = "base64_bytes")]
    pub bytes: Vec<u8>,
    /// The job has ended and this is the last of it.
    pub end: bool,
}

/// Why a frame was not taken.
#[derive(Debug, thiserror::Error)]
pub enum BadFrame {
    #[error("a frame of {0} bytes is longer than allowed")]
    TooLong(usize),
    #[error("a frame is not valid: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the peer speaks version {0}, here it is {VERSION}")]
    Version(u32),
    #[error("frame {got} came where {expected} was due")]
    OutOfOrder { expected: u64, got: u64 },
}

/// Numbers outgoing frames.
#[derive(Debug, Default)]
pub struct Writer {
    sent: u64,
}

impl Writer {
    /// The bytes of the next frame, length first.
    pub fn frame<T: Serialize>(&mut self, message: &T) -> Result<Vec<u8>, BadFrame> {
        let number = self.sent + 1;
        let mut bytes = vec![0; 4];
        serde_json::to_writer(
            &mut bytes,
            &Frame {
                version: VERSION,
                number,
                message,
            },
        )?;
        let length = bytes.len() - 4;
        if length > MAX_FRAME {
            return Err(BadFrame::TooLong(length));
        }
        bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
        // A frame refused above takes no number, so the next one is still in order.
        self.sent = number;
        Ok(bytes)
    }
}

/// Checks incoming frames.
#[derive(Debug)]
pub struct Reader {
    taken: u64,
    limit: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Reader::limited(MAX_FRAME)
    }
}

impl Reader {
    /// Takes only frames up to `limit` bytes.
    pub fn limited(limit: usize) -> Self {
        Reader {
            taken: 0,
            limit: limit.min(MAX_FRAME),
        }
    }

    /// Takes the announced length, before anything of it is read.
    pub fn length(&self, header: [u8; 4]) -> Result<usize, BadFrame> {
        let length = u32::from_be_bytes(header) as usize;
        if length > self.limit {
            Err(BadFrame::TooLong(length))
        } else {
            Ok(length)
        }
    }

    /// Takes the body of a frame.
    pub fn take<T: for<'de> Deserialize<'de>>(&mut self, body: &[u8]) -> Result<T, BadFrame> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        // The version is read first: a peer of another version may say things unknown here.
        let head: Head = serde_json::from_slice(body)?;
        if head.version != VERSION {
            return Err(BadFrame::Version(head.version));
        }
        let frame: Frame<T> = serde_json::from_slice(body)?;
        let expected = self.taken + 1;
        if frame.number != expected {
            return Err(BadFrame::OutOfOrder {
                expected,
                got: frame.number,
            });
        }
        self.taken = expected;
        Ok(frame.message)
    }
}
