//! A server with an empty platform and no engine, for tools that test the API from outside. Prints its address
//! and the owner's token; runs until it is killed. With a number behind the directory it has a fleet of so many GPUs, in
//! nodes of eight, most of them held by jobs that never run, whose readings change every second.

#[path = "bare_server/fleet.rs"]
mod fleet;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tenure_api::channel::{DeviceSlice, LogChunk, LogStream, Order};
use tenure_api::token;
use tenure_domain::Wish;
use tenure_domain::id::{AllocationId, NodeId, VolumeId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, EngineError, Seen};
use tenure_journal::{Journal, JournalReader, Location, LogStore, Options, SigningKey};
use tenure_server::controller::{Controller, WriterOptions, recover};
use tenure_server::http::{App, HttpOptions, serve};
use tenure_server::keyring::{Keyring, random};
use tenure_server::reading::Readings;
use tenure_server::view::View;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

struct NoEngine;

#[async_trait]
impl Engine for NoEngine {
    fn name(&self) -> &'static str {
        "none"
    }
    async fn start(&self, node: NodeId, _: Order) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn stop(&self, node: NodeId, _: AllocationId, _: StopReason, _: u32) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn release(&self, node: NodeId, _: AllocationId) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn resize(&self, node: NodeId, _: AllocationId, _: Vec<DeviceSlice>) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn try_resize(
        &self,
        node: NodeId,
        _: AllocationId,
        _: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
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
    async fn grow_volume(&self, node: NodeId, _: VolumeId, _: u64) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn erase_volume(&self, node: NodeId, _: VolumeId) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
    }
    async fn receipts_taken(&self, node: NodeId, _: u64) -> Result<(), EngineError> {
        Err(EngineError::NotConnected(node))
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
    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        mpsc::channel(1).1
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let data = PathBuf::from(
        std::env::args()
            .nth(1)
            .ok_or_else(|| anyhow::anyhow!("give an empty directory for the data"))?,
    );
    let location = Location::Sqlite(data);
    let journal = Journal::open_leader(&location, "bare", Options::default()).await?;
    let recovered = recover(&journal).await?;
    let view = Arc::new(View::new(recovered.state, recovered.seq));
    let controller = Controller::following(view, JournalReader::clone(&journal));
    let _writer = controller.lead(journal, WriterOptions::default());
    let bytes: [u8; 32] = random();
    let found = Wish::Found {
        platform: "bare".into(),
        owner: "owner".into(),
        key: Digest(Sha256::digest(bytes).into()),
        prices: Prices::default(),
    };
    controller
        .system(found)
        .await
        .map_err(|why| anyhow::anyhow!("{why:?}"))?;
    let readings: Arc<Readings> = Arc::default();
    if let Some(gpus) = std::env::args().nth(2) {
        fleet::make(&controller, gpus.parse()?).await?;
        tokio::spawn(fleet::read(controller.clone(), readings.clone()));
    }
    let app = App {
        controller,
        keyring: Arc::new(Keyring::new(&random())),
        engine: Arc::new(NoEngine),
        logs: LogStore::open(&location).await?,
        readings,
        signing_key: Arc::new(SigningKey::generate().0),
        authority: Digest([0; 32]),
        options: HttpOptions {
            rate_per_tenant: 1_000_000,
            burst_per_tenant: 1_000_000,
            ..HttpOptions::default()
        },
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    println!("{}", token::write(token::Kind::Key, &bytes).reveal());
    serve(listener, None, app, CancellationToken::new()).await;
    Ok(())
}
