//! A played node: it writes down its orders, and says what it is told to say.

use std::sync::Mutex;

use async_trait::async_trait;
use tenure_api::channel::stream::Target;
use tenure_api::channel::{DeviceSlice, LogChunk, LogStream, Order};
use tenure_domain::id::{AllocationId, NodeId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, EngineError, Seen, Stream};
use tokio::sync::mpsc;

#[derive(Default)]
pub struct Farm(Mutex<Vec<(NodeId, Order)>>);

impl Farm {
    /// The order for a job's attempt, once it came.
    pub fn order(&self, job: &str, attempt: u32) -> Option<(NodeId, Order)> {
        let orders = self.0.lock().unwrap();
        let mut of = orders.iter().filter(|(_, order)| order.job.to_string() == job);
        of.find(|(_, order)| order.attempt == attempt).cloned()
    }
}

#[async_trait]
impl Engine for Farm {
    fn name(&self) -> &'static str {
        "farm"
    }
    async fn start(&self, node: NodeId, order: Order) -> Result<(), EngineError> {
        self.0.lock().unwrap().push((node, order));
        Ok(())
    }
    async fn stop(&self, _: NodeId, _: AllocationId, _: StopReason, _: u32) -> Result<(), EngineError> {
        Ok(())
    }
    async fn release(&self, _: NodeId, _: AllocationId) -> Result<(), EngineError> {
        Ok(())
    }
    async fn resize(&self, _: NodeId, _: AllocationId, _: Vec<DeviceSlice>) -> Result<(), EngineError> {
        Ok(())
    }
    async fn try_resize(&self, _: NodeId, _: AllocationId, _: Vec<DeviceSlice>) -> Result<(), EngineError> {
        Ok(())
    }
    async fn pause(&self, _: NodeId, _: AllocationId) -> Result<(), EngineError> {
        Ok(())
    }
    async fn resume(
        &self,
        _: NodeId,
        _: AllocationId,
        _: String,
        _: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        Ok(())
    }
    async fn grow_volume(&self, _: NodeId, _: VolumeId, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
    async fn erase_volume(&self, _: NodeId, _: VolumeId) -> Result<(), EngineError> {
        Ok(())
    }
    async fn receipts_taken(&self, _: NodeId, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
    async fn read_log(
        &self,
        node: NodeId,
        _: AllocationId,
        _: LogStream,
        _: u64,
        _: u32,
        _: u32,
    ) -> Result<LogChunk, EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn open(&self, node: NodeId, _: AllocationId, _: Target) -> Result<Stream, EngineError> {
        Err(EngineError::NotConnected(node))
    }
    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        mpsc::channel(1).1
    }
}
