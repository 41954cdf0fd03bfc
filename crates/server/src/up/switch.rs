//! The engine as routes see it: none while this server follows, the real one once it leads.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use tenure_api::channel::stream::Target;
use tenure_api::channel::{DeviceSlice, GpuQuestion, LogChunk, LogStream, Order};
use tenure_domain::id::{AllocationId, NodeId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, EngineError, Seen, Stream};
use tokio::sync::mpsc;

#[derive(Default)]
pub struct Switch(RwLock<Option<Arc<dyn Engine>>>);

impl Switch {
    pub fn set(&self, engine: Arc<dyn Engine>) {
        *self.0.write().expect("short and without panics") = Some(engine);
    }

    fn engine(&self, node: NodeId) -> Result<Arc<dyn Engine>, EngineError> {
        self.0
            .read()
            .expect("short and without panics")
            .clone()
            .ok_or(EngineError::NotConnected(node))
    }
}

#[async_trait]
impl Engine for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn connected(&self) -> usize {
        let engine = self.0.read().expect("short and without panics").clone();
        engine.map_or(0, |engine| engine.connected())
    }

    async fn start(&self, node: NodeId, order: Order) -> Result<(), EngineError> {
        self.engine(node)?.start(node, order).await
    }

    async fn stop(
        &self,
        node: NodeId,
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    ) -> Result<(), EngineError> {
        self.engine(node)?.stop(node, allocation, reason, grace_s).await
    }

    async fn release(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError> {
        self.engine(node)?.release(node, allocation).await
    }

    async fn resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        self.engine(node)?.resize(node, allocation, devices).await
    }

    async fn try_resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        self.engine(node)?.try_resize(node, allocation, devices).await
    }

    async fn pause(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError> {
        self.engine(node)?.pause(node, allocation).await
    }

    async fn resume(
        &self,
        node: NodeId,
        allocation: AllocationId,
        tenant: String,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        self.engine(node)?.resume(node, allocation, tenant, devices).await
    }

    async fn grow_volume(&self, node: NodeId, volume: VolumeId, size_mib: u64) -> Result<(), EngineError> {
        self.engine(node)?.grow_volume(node, volume, size_mib).await
    }

    async fn erase_volume(&self, node: NodeId, volume: VolumeId) -> Result<(), EngineError> {
        self.engine(node)?.erase_volume(node, volume).await
    }

    async fn check_gpu(&self, node: NodeId, question: GpuQuestion) -> Result<(), EngineError> {
        self.engine(node)?.check_gpu(node, question).await
    }

    async fn receipts_taken(&self, node: NodeId, number: u64) -> Result<(), EngineError> {
        self.engine(node)?.receipts_taken(node, number).await
    }

    async fn read_log(
        &self,
        node: NodeId,
        allocation: AllocationId,
        stream: LogStream,
        offset: u64,
        max: u32,
        wait_ms: u32,
    ) -> Result<LogChunk, EngineError> {
        self.engine(node)?
            .read_log(node, allocation, stream, offset, max, wait_ms)
            .await
    }

    async fn open(
        &self,
        node: NodeId,
        allocation: AllocationId,
        target: Target,
    ) -> Result<Stream, EngineError> {
        self.engine(node)?.open(node, allocation, target).await
    }

    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        match self.0.read().expect("short and without panics").as_ref() {
            Some(engine) => engine.subscribe(),
            None => mpsc::channel(1).1,
        }
    }
}
