//! The one door to every engine.
//!
//! Written for engines whose answers come late, twice or never, and whose nodes hold jobs we did not start.
//! So orders are wishes by allocation id that may be said again at any time, and what came of them is only
//! learnt from what is seen. `Ok` never means that something runs.

use async_trait::async_trait;
use tenure_api::channel::reading::DeviceReading;
use tenure_api::channel::stream::Target;
use tenure_api::channel::{AllocationReport, DeviceSlice, GpuQuestion, LogChunk, LogStream, Order, Took};
use tenure_domain::id::{AllocationId, GpuId, NodeId, VolumeId};
use tenure_domain::market::check::GpuReport;
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::workload::job::StopReason;
use tokio::sync::mpsc;

use crate::Stream;

/// Why an order was not brought to its node. None of these says that it had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The node cannot be reached now, or went away while the order was under way: say it again later.
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    /// The engine has too much under way: say it again later.
    #[error("node {0} has too much under way")]
    Busy(NodeId),
    /// The engine will never take this.
    #[error("refused: {why}")]
    Refused { why: String },
}

impl EngineError {
    /// Whether saying it again may help.
    pub fn is_passing(&self) -> bool {
        !matches!(self, EngineError::Refused { .. })
    }
}

/// What an engine observed. At least once, in order for one node, in any order between nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// The node opened a conversation. What it holds follows as a whole report; orders are taken after it.
    Joined {
        node: NodeId,
        boot_id: String,
        agent_version: String,
    },
    Inventory {
        node: NodeId,
        inventory: Inventory,
    },
    /// With `whole`, everything the node knows of: what is missing there never ran or is forgotten. An
    /// allocation nobody intends may be among them; releasing or stopping it is the server's choice.
    Report {
        node: NodeId,
        whole: bool,
        allocations: Vec<AllocationReport>,
    },
    /// What the start of an allocation took, step by step, by its node.
    Started {
        node: NodeId,
        allocation: AllocationId,
        steps: Vec<Took>,
    },
    /// Nothing of a volume is on the node any more.
    VolumeErased {
        node: NodeId,
        volume: VolumeId,
    },
    /// A device was scrubbed between tenants, or could not be. Nobody has checked the signature yet.
    Scrubbed {
        node: NodeId,
        receipt: Box<Receipt>,
    },
    /// What a GPU is, by its node, as was asked.
    Checked {
        node: NodeId,
        gpu: GpuId,
        number: u64,
        report: Box<GpuReport>,
    },
    /// The node's lease was renewed: it may run what it has for another term.
    Heartbeat {
        node: NodeId,
    },
    /// The conversation ended. The node runs on until its lease does.
    Gone {
        node: NodeId,
    },
}

impl Seen {
    pub fn node(&self) -> NodeId {
        match self {
            Seen::Joined { node, .. }
            | Seen::Inventory { node, .. }
            | Seen::Report { node, .. }
            | Seen::Started { node, .. }
            | Seen::VolumeErased { node, .. }
            | Seen::Scrubbed { node, .. }
            | Seen::Checked { node, .. }
            | Seen::Heartbeat { node }
            | Seen::Gone { node } => *node,
        }
    }
}

/// What a node measured of some of its devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub node: NodeId,
    pub devices: Vec<DeviceReading>,
}

/// Where allocations run.
#[async_trait]
pub trait Engine: Send + Sync {
    /// A word for logs and metrics.
    fn name(&self) -> &'static str;

    /// How many nodes can be spoken with now.
    fn connected(&self) -> usize {
        0
    }

    /// Brings an order to its node. Idempotent by allocation id: however often it is said, the allocation
    /// runs at most once. `Ok` means brought there, not running.
    async fn start(&self, node: NodeId, order: Order) -> Result<(), EngineError>;

    /// Asks for an end: a signal, `grace_s` of patience, then force. Idempotent. Before a start it means
    /// that the start must not happen any more.
    async fn stop(
        &self,
        node: NodeId,
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    ) -> Result<(), EngineError>;

    /// The end is journalled: the node may forget the allocation, but never runs it again. Idempotent.
    async fn release(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError>;

    /// Changes the size of a running allocation's slices, as was decided. Idempotent.
    async fn resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError>;

    /// The same, before it is decided: refused, and nothing changed, where more is in use than would be left.
    async fn try_resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError>;

    /// A running allocation is to give its devices back for a while. Idempotent; its reports say what came of it.
    async fn pause(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError>;

    /// A paused allocation of this tenant has devices again. Idempotent.
    async fn resume(
        &self,
        node: NodeId,
        allocation: AllocationId,
        tenant: String,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError>;

    /// A volume that is on the node has this size from now on. Idempotent.
    async fn grow_volume(&self, node: NodeId, volume: VolumeId, size_mib: u64) -> Result<(), EngineError>;

    /// A volume is nobody's any more: its files are to go, and `VolumeErased` says when they have. Idempotent.
    async fn erase_volume(&self, node: NodeId, volume: VolumeId) -> Result<(), EngineError>;

    /// The node's receipts up to this number are journalled; it need not say them again. Idempotent.
    async fn receipts_taken(&self, node: NodeId, number: u64) -> Result<(), EngineError>;

    /// One of the node's GPUs is to show what it is: `Checked` says. Idempotent by the question's number. An engine that
    /// cannot ask leaves the GPU unchecked, so it is not let.
    async fn check_gpu(&self, _node: NodeId, _question: GpuQuestion) -> Result<(), EngineError> {
        Err(EngineError::Refused {
            why: format!("the {} engine cannot measure devices", self.name()),
        })
    }

    /// Reads at most `max` bytes of a log, waiting up to `wait_ms` for the first of them.
    async fn read_log(
        &self,
        node: NodeId,
        allocation: AllocationId,
        stream: LogStream,
        offset: u64,
        max: u32,
        wait_ms: u32,
    ) -> Result<LogChunk, EngineError>;

    /// Opens a stream to a running allocation. `Ok` means asked for: the stream itself says whether it is
    /// open, or why not. It ends with the allocation, with the node's connection, or when it is dropped.
    async fn open(
        &self,
        _node: NodeId,
        _allocation: AllocationId,
        _target: Target,
    ) -> Result<Stream, EngineError> {
        Err(EngineError::Refused {
            why: format!("the {} engine has no way into a running job", self.name()),
        })
    }

    /// What is seen from now on. Every subscriber gets everything; one that stops reading holds the
    /// engine back rather than losing anything, so drop the receiver when done.
    fn subscribe(&self) -> mpsc::Receiver<Seen>;

    /// What nodes measure from now on. Apart from what is seen, since it comes often and matters little: a
    /// subscriber that is slow misses some of it. An engine without readings gives a stream that has ended.
    fn subscribe_readings(&self) -> mpsc::Receiver<Measured> {
        mpsc::channel(1).1
    }
}
