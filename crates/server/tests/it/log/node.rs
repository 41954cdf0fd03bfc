//! A played node: it has whatever it was told its jobs wrote, and may be away or have forgotten it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use async_trait::async_trait;
use tenure_api::channel::{DeviceSlice, LogChunk, LogStream, Order};
use tenure_domain::id::{AllocationId, NodeId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, EngineError, Seen};
use tokio::sync::mpsc;

#[derive(Default)]
struct Had {
    written: BTreeMap<(AllocationId, bool), Vec<u8>>,
    ended: BTreeSet<AllocationId>,
    forgot: BTreeSet<AllocationId>,
    away: bool,
    asked: u64,
    at_once: usize,
    most_at_once: usize,
}

#[derive(Default)]
pub struct Played(Mutex<Had>);

impl Played {
    pub fn write(&self, allocation: AllocationId, stream: LogStream, bytes: &[u8]) {
        let key = (allocation, stream == LogStream::Stderr);
        let mut had = self.0.lock().unwrap();
        had.written.entry(key).or_default().extend_from_slice(bytes);
    }

    /// It wrote its last.
    pub fn end(&self, allocation: AllocationId) {
        self.0.lock().unwrap().ended.insert(allocation);
    }

    pub fn forget(&self, allocation: AllocationId) {
        self.0.lock().unwrap().forgot.insert(allocation);
    }

    pub fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    /// How often it was asked for a log.
    pub fn asked(&self) -> u64 {
        self.0.lock().unwrap().asked
    }

    pub fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().most_at_once
    }
}

#[async_trait]
impl Engine for Played {
    fn name(&self) -> &'static str {
        "played"
    }
    async fn start(&self, _: NodeId, _: Order) -> Result<(), EngineError> {
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
        allocation: AllocationId,
        stream: LogStream,
        offset: u64,
        max: u32,
        _: u32,
    ) -> Result<LogChunk, EngineError> {
        {
            let mut had = self.0.lock().unwrap();
            had.asked += 1;
            had.at_once += 1;
            had.most_at_once = had.most_at_once.max(had.at_once);
        }
        tokio::task::yield_now().await;
        let mut had = self.0.lock().unwrap();
        had.at_once -= 1;
        if had.away {
            return Err(EngineError::NotConnected(node));
        }
        if had.forgot.contains(&allocation) {
            return Err(EngineError::Refused {
                why: "the log is not kept any more".into(),
            });
        }
        let none = Vec::new();
        let all = had
            .written
            .get(&(allocation, stream == LogStream::Stderr))
            .unwrap_or(&none);
        let from = usize::try_from(offset).unwrap().min(all.len());
        let to = (from + max as usize).min(all.len());
        Ok(LogChunk {
            offset: from as u64,
            bytes: all[from..to].to_vec(),
            end: had.ended.contains(&allocation) && to == all.len(),
        })
    }
    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        mpsc::channel(1).1
    }
}
