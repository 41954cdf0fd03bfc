//! The hub: listens for agents, keeps one live connection per node, and is the local `Engine`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tenure_api::channel::stream::Target;
use tenure_api::channel::{
    DeviceSlice, FromServer, GpuQuestion, LogChunk, LogStream, MAX_FRAME, MAX_LOG_CHUNK, Order,
};
use tenure_domain::id::{AllocationId, NodeId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use super::authority::{Authority, AuthorityError};
use super::conversation;
use super::link::{Bye, Link};
use super::registry::Registry;
use crate::{Engine, EngineError, Measured, Seen, Stream};

const SEEN_QUEUED: usize = 4096;
const READINGS_QUEUED: usize = 1024;

/// How the hub listens.
#[derive(Debug, Clone)]
pub struct HubConfig {
    pub listen: SocketAddr,
    /// Names of this server for its certificate, besides the one agents look for.
    pub names: Vec<String>,
    /// How long a node may run what it has after its last heartbeat.
    pub term: Duration,
    /// A stranger has this long to prove itself or join.
    pub handshake: Duration,
    pub max_connections: usize,
    /// Connections that have not yet proven themselves.
    pub max_strangers: usize,
}

impl Default for HubConfig {
    fn default() -> Self {
        HubConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: Vec::new(),
            term: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            max_connections: 20_000,
            max_strangers: 512,
        }
    }
}

/// Why the hub does not listen.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("listen for agents on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("make the hub's certificate")]
    Authority(#[from] AuthorityError),
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("set up TLS: {0}")]
    Verifier(String),
}

/// The local engine. Dropping it ends all its connections.
pub struct Hub {
    inner: Arc<Inner>,
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

pub(super) struct Inner {
    pub config: HubConfig,
    pub authority: Arc<Authority>,
    pub registry: Arc<dyn Registry>,
    pub connections: Arc<Semaphore>,
    links: Mutex<HashMap<NodeId, Arc<Link>>>,
    /// The boot and uptime each node last spoke of.
    boots: Mutex<HashMap<NodeId, (String, u64)>>,
    subscribers: Mutex<Vec<mpsc::Sender<Seen>>>,
    measured: Mutex<Vec<mpsc::Sender<Measured>>>,
}

impl Hub {
    /// Listens from now on. Subscribe right after: what is seen before is seen by nobody, though each node's
    /// next connection says everything again.
    pub async fn bind(
        config: HubConfig,
        authority: Arc<Authority>,
        registry: Arc<dyn Registry>,
    ) -> Result<Hub, HubError> {
        let acceptor = TlsAcceptor::from(Arc::new(tls(&config, &authority)?));
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|e| HubError::Listen(config.listen, e))?;
        let address = listener
            .local_addr()
            .map_err(|e| HubError::Listen(config.listen, e))?;
        let strangers = Arc::new(Semaphore::new(config.max_strangers));
        let inner = Arc::new(Inner {
            connections: Arc::new(Semaphore::new(config.max_connections)),
            config,
            authority,
            registry,
            links: Mutex::default(),
            boots: Mutex::default(),
            subscribers: Mutex::default(),
            measured: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(inner.clone(), listener, acceptor, strangers));
        Ok(Hub {
            inner,
            address,
            accepting,
        })
    }

    /// Where agents find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn term(&self) -> Duration {
        self.inner.config.term
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        self.inner.link(node).is_ok()
    }

    /// Ends a node's connection, for a key revoked or a node removed. It may come back if its key is still good.
    pub fn disconnect(&self, node: NodeId, detail: &str) {
        if let Some(link) = self.inner.links().get(&node) {
            link.cut(Bye::new("disconnected", detail));
        }
    }

    /// Stops listening and ends all connections.
    pub fn close(&self) {
        self.accepting.abort();
        for link in self.inner.links().values() {
            link.cut(Bye::new("closing", "the server is closing"));
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn links(&self) -> MutexGuard<'_, HashMap<NodeId, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, node: NodeId) -> Result<Arc<Link>, EngineError> {
        let link = self.links().get(&node).cloned();
        link.filter(|link| link.is_ready())
            .ok_or(EngineError::NotConnected(node))
    }

    /// Makes the link the node's only one. An older one of the same boot gives way, after its last words;
    /// one of another boot does not: two machines with one key are a clone.
    pub(super) async fn take_over(&self, node: NodeId, link: &Arc<Link>) -> Result<(), Bye> {
        loop {
            let older = match self.links().entry(node) {
                Entry::Vacant(place) => {
                    place.insert(link.clone());
                    return Ok(());
                }
                Entry::Occupied(place) => place.get().clone(),
            };
            if older.boot_id != link.boot_id {
                tracing::warn!(%node, first = older.boot_id, second = link.boot_id, "two machines speak with one node's key: a clone?");
                return Err(Bye::new(
                    "clone",
                    "another machine with this node's key is connected; if this is a clone, remove its key and join again",
                ));
            }
            older.cut(Bye::new("replaced", "the node opened a newer connection"));
            older.when_ended().await;
        }
    }

    /// A boot's uptime only grows.
    pub(super) fn check_boot(&self, node: NodeId, boot_id: &str, uptime_ms: u64) -> Result<(), Bye> {
        let mut boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, before)) = boots.get(&node)
            && known == boot_id
            && uptime_ms < *before
        {
            return Err(Bye::new(
                "uptime_backwards",
                format!("uptime went from {before} to {uptime_ms} ms within one boot"),
            ));
        }
        boots.insert(node, (boot_id.to_owned(), uptime_ms));
        Ok(())
    }

    pub(super) fn let_go(&self, node: NodeId, link: &Arc<Link>) {
        let mut links = self.links();
        if links.get(&node).is_some_and(|held| Arc::ptr_eq(held, link)) {
            links.remove(&node);
        }
    }

    /// Passes a reading on to whoever has room for it.
    pub(super) fn pass_on(&self, measured: &Measured) {
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|subscriber| {
                !matches!(
                    subscriber.try_send(measured.clone()),
                    Err(mpsc::error::TrySendError::Closed(_))
                )
            });
    }

    pub(super) async fn emit(&self, seen: Seen) {
        let subscribers = self
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut closed = false;
        for subscriber in &subscribers {
            closed |= subscriber.send(seen.clone()).await.is_err();
        }
        if closed {
            self.subscribers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|subscriber| !subscriber.is_closed());
        }
    }
}

/// Agents show a certificate of the authority; who shows none may only join.
fn tls(config: &HubConfig, authority: &Authority) -> Result<rustls::ServerConfig, HubError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| HubError::Verifier(e.to_string()))?;
    let certificate = authority.issue_server(&config.names)?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificate.chain, certificate.key)?;
    // Every connection proves its key anew: a resumed one could outlive the question whose key it is.
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

async fn accept(inner: Arc<Inner>, listener: TcpListener, acceptor: TlsAcceptor, strangers: Arc<Semaphore>) {
    loop {
        let Ok(stranger) = strangers.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(conversation::meet(
                    inner.clone(),
                    acceptor.clone(),
                    stream,
                    from,
                    stranger,
                ));
            }
            Err(error) => {
                // Out of file descriptors, mostly: what is open may close.
                tracing::warn!(%error, "could not accept an agent");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[async_trait]
impl Engine for Hub {
    fn name(&self) -> &'static str {
        "local"
    }

    fn connected(&self) -> usize {
        self.inner.links().values().filter(|link| link.is_ready()).count()
    }

    async fn start(&self, node: NodeId, order: Order) -> Result<(), EngineError> {
        // Room for the frame around it; said here, because the connection could only drop it.
        let length = serde_json::to_vec(&order)
            .map_err(|e| EngineError::Refused { why: e.to_string() })?
            .len();
        if length + 1024 > MAX_FRAME {
            return Err(EngineError::Refused {
                why: format!("an order of {length} bytes is longer than {MAX_FRAME}"),
            });
        }
        self.inner
            .link(node)?
            .order(FromServer::Start {
                order: Box::new(order),
            })
            .await
    }

    async fn stop(
        &self,
        node: NodeId,
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    ) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::Stop {
                allocation,
                reason,
                grace_s,
            })
            .await
    }

    async fn release(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::Release { allocation })
            .await
    }

    async fn resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::Resize {
                request: None,
                allocation,
                devices,
            })
            .await
    }

    async fn try_resize(
        &self,
        node: NodeId,
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        let link = self.inner.link(node)?;
        link.try_resize(|request| FromServer::Resize {
            request: Some(request),
            allocation,
            devices,
        })
        .await
    }

    async fn pause(&self, node: NodeId, allocation: AllocationId) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::Pause { allocation })
            .await
    }

    async fn resume(
        &self,
        node: NodeId,
        allocation: AllocationId,
        tenant: String,
        devices: Vec<DeviceSlice>,
    ) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::Resume {
                allocation,
                tenant,
                devices,
            })
            .await
    }

    async fn grow_volume(&self, node: NodeId, volume: VolumeId, size_mib: u64) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::GrowVolume { volume, size_mib })
            .await
    }

    async fn erase_volume(&self, node: NodeId, volume: VolumeId) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::EraseVolume { volume })
            .await
    }

    async fn receipts_taken(&self, node: NodeId, number: u64) -> Result<(), EngineError> {
        self.inner
            .link(node)?
            .order(FromServer::ReceiptsTaken { number })
            .await
    }

    async fn check_gpu(&self, node: NodeId, question: GpuQuestion) -> Result<(), EngineError> {
        let question = Box::new(question);
        self.inner
            .link(node)?
            .order(FromServer::CheckGpu { question })
            .await
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
        let max = max.min(MAX_LOG_CHUNK as u32);
        let wait_ms = wait_ms.min(30_000);
        let link = self.inner.link(node)?;
        link.read_log(max, wait_ms, |request| FromServer::ReadLog {
            request,
            allocation,
            stream,
            offset,
            max,
            wait_ms,
        })
        .await
    }

    async fn open(
        &self,
        node: NodeId,
        allocation: AllocationId,
        target: Target,
    ) -> Result<Stream, EngineError> {
        self.inner.link(node)?.open(allocation, target).await
    }

    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        let (sender, receiver) = mpsc::channel(SEEN_QUEUED);
        self.inner
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        receiver
    }

    fn subscribe_readings(&self) -> mpsc::Receiver<Measured> {
        let (sender, receiver) = mpsc::channel(READINGS_QUEUED);
        self.inner
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        receiver
    }
}
