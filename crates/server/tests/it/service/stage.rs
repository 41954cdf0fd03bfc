//! A node without jobs: what is placed on it runs at once, and each replica is a small HTTP server of the test's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use tenure_api::channel::stream::{Down, Target, Up, cost};
use tenure_api::channel::{DeviceSlice, LogChunk, LogStream, Order};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId, VolumeId};
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::{Actor, Wish};
use tenure_engine::stream::{Far, stream};
use tenure_engine::{Engine, EngineError, Seen, Stream};
use tenure_server::controller::Controller;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Makes the router of the replica with this number.
pub type Make = Box<dyn Fn(u32) -> Router + Send + Sync>;

struct Replica {
    address: SocketAddr,
    serving: tokio::task::AbortHandle,
    /// Ends its connections.
    over: CancellationToken,
}

/// The node: replicas that live on it.
#[derive(Default)]
pub struct Stage {
    at: Mutex<HashMap<AllocationId, Replica>>,
    pub made: AtomicU32,
    /// Connections opened to replicas so far.
    pub opened: AtomicU32,
    /// While set, what is placed does not come to run.
    pub held: AtomicBool,
    /// Allocations that are to end by themselves.
    pub doomed: Mutex<BTreeSet<AllocationId>>,
}

impl Stage {
    /// Plays the node until the test is over.
    pub async fn play(self: Arc<Self>, controller: Controller, make: Make) {
        let mut seen: BTreeMap<AllocationId, Phase> = BTreeMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let all: Vec<(JobId, AllocationId, NodeId, Phase)> = {
                let state = controller.view().read();
                let jobs = state.jobs.values();
                let placed = jobs.filter_map(|job| {
                    let allocation = job.allocation_of(0)?;
                    let node = state.fleet.allocation(allocation)?.node;
                    Some((job.id, allocation, node, job.phase))
                });
                placed.collect()
            };
            for (_, allocation, node, phase) in all {
                let doomed = self.doomed.lock().unwrap().remove(&allocation);
                let before = seen.insert(allocation, phase);
                let observation = match phase {
                    Phase::Placed if !self.held.load(Ordering::Relaxed) => {
                        self.start(allocation, &make).await;
                        Observation::Running
                    }
                    Phase::Stopping if before != Some(Phase::Stopping) => {
                        self.end(allocation);
                        exited(None, Some(StopReason::Cancelled))
                    }
                    Phase::Running if doomed => {
                        self.end(allocation);
                        exited(Some(1), None)
                    }
                    _ => continue,
                };
                let wish = Wish::Observe {
                    node,
                    allocation,
                    observation,
                };
                let by = Actor::Node(node);
                controller.submit(by, wish, None, None).await.unwrap();
            }
        }
    }

    async fn start(&self, allocation: AllocationId, make: &Make) {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = make(number);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let replica = Replica {
            address,
            serving: serving.abort_handle(),
            over: CancellationToken::new(),
        };
        self.at.lock().unwrap().insert(allocation, replica);
    }

    fn end(&self, allocation: AllocationId) {
        if let Some(replica) = self.at.lock().unwrap().remove(&allocation) {
            replica.serving.abort();
            replica.over.cancel();
        }
    }

    /// A replica that listens no more, though its node thinks that it runs.
    pub fn cut(&self, allocation: AllocationId) {
        self.end(allocation);
    }

    /// The allocations that live.
    pub fn living(&self) -> Vec<AllocationId> {
        self.at.lock().unwrap().keys().copied().collect()
    }
}

fn exited(exit_code: Option<i32>, by: Option<StopReason>) -> Observation {
    Observation::Exited {
        exit_code,
        signal: None,
        ran_ms: 1,
        by,
        usage: None,
    }
}

#[async_trait]
impl Engine for Stage {
    fn name(&self) -> &'static str {
        "stage"
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
        _: NodeId,
        _: AllocationId,
        _: LogStream,
        offset: u64,
        _: u32,
        _: u32,
    ) -> Result<LogChunk, EngineError> {
        Ok(LogChunk {
            offset,
            bytes: Vec::new(),
            end: true,
        })
    }
    async fn open(&self, _: NodeId, allocation: AllocationId, _: Target) -> Result<Stream, EngineError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let there = self
            .at
            .lock()
            .unwrap()
            .get(&allocation)
            .map(|replica| (replica.address, replica.over.clone()));
        let (down, said) = mpsc::channel(64);
        let (stream, far) = stream(1, down);
        let connected = match there {
            Some((address, over)) => TcpStream::connect(address).await.ok().zip(Some(over)),
            None => None,
        };
        let Some((socket, over)) = connected else {
            let why = Some("connection refused".to_owned());
            far.take(Up::Closed { exit: None, why }).unwrap();
            return Ok(stream);
        };
        far.take(Up::Opened {
            terminal: false,
            input: true,
        })
        .unwrap();
        tokio::spawn(carry(socket, said, far, over));
        Ok(stream)
    }
    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        mpsc::channel(1).1
    }
}

/// As an agent does it, but for the window towards the server, which these answers never fill.
async fn carry(socket: TcpStream, mut said: mpsc::Receiver<(u64, Down)>, far: Far, over: CancellationToken) {
    let (mut read, mut write) = socket.into_split();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            () = over.cancelled() => break,
            down = said.recv() => match down {
                Some((_, Down::Data { bytes })) => {
                    if write.write_all(&bytes).await.is_err() {
                        break;
                    }
                    let credit = cost(&bytes);
                    far.take(Up::Window { credit }).unwrap();
                }
                Some((_, Down::Close)) | None => return,
                Some(_) => {}
            },
            got = read.read(&mut buffer) => match got {
                Ok(got @ 1..) => {
                    let bytes = buffer[..got].to_vec();
                    far.take(Up::Data { from: LogStream::Stdout, bytes }).unwrap();
                }
                _ => break,
            },
        }
    }
    let _ = far.take(Up::Closed {
        exit: None,
        why: None,
    });
}
