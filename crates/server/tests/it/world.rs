//! A platform for one test: a journal of its own, the controller, and the routes on a port the system chose.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenure_api::channel::stream::{Down, Exit, Target, Up, WINDOW, cost};
use tenure_api::channel::{DeviceSlice, LogChunk, LogStream, Order};
use tenure_api::token;
use tenure_domain::id::{AllocationId, GpuId, NodeId, VolumeId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Event, Wish};
use tenure_engine::stream::stream;
use tenure_engine::{Engine, EngineError, Seen, Stream};
use tenure_journal::{Batch, Entry, EventText, HistoryRow, Journal, Location, LogStore, Options, SigningKey};
use tenure_server::controller::{Controller, WriterOptions, now, recover};
use tenure_server::http::{App, HttpOptions, serve};
use tenure_server::keyring::{Keyring, random};
use tenure_server::reading::Readings;
use tenure_server::trace::{Exporter, TraceOptions, Traces};
use tenure_server::view::View;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// An engine that runs nothing, has one line in every log, and whose streams say back what is said to them; at
/// the end of input they end with 7.
pub struct NoEngine;

#[async_trait]
impl Engine for NoEngine {
    fn name(&self) -> &'static str {
        "none"
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
        let text = b"a line\n";
        let from = usize::try_from(offset).unwrap().min(text.len());
        Ok(LogChunk {
            offset,
            bytes: text[from..].to_vec(),
            end: true,
        })
    }
    async fn open(&self, _: NodeId, _: AllocationId, _: Target) -> Result<Stream, EngineError> {
        let (down, mut said) = mpsc::channel(64);
        let (stream, far) = stream(1, down);
        let opened = Up::Opened {
            terminal: false,
            input: true,
        };
        far.take(opened).unwrap();
        tokio::spawn(async move {
            // Like a node: within the window it was given, and taking no more while it waits for room.
            let mut room = WINDOW;
            let mut waiting = VecDeque::new();
            while let Some((_, down)) = said.recv().await {
                match down {
                    Down::Window { credit } => room += credit,
                    Down::Close => return,
                    Down::Open { .. } => {}
                    Down::Data { .. } | Down::End | Down::Resize { .. } => waiting.push_back(down),
                }
                while let Some((up, credit)) = echo(&mut waiting, &mut room) {
                    if credit > 0 {
                        far.take(Up::Window { credit }).unwrap();
                    }
                    far.take(up).unwrap();
                }
            }
        });
        Ok(stream)
    }
    fn subscribe(&self) -> mpsc::Receiver<Seen> {
        mpsc::channel(1).1
    }
}

/// What can be said back now, a terminal's sizes among it, and what was passed on by that.
fn echo(waiting: &mut VecDeque<Down>, room: &mut u32) -> Option<(Up, u32)> {
    let (from, bytes, credit) = match waiting.front()? {
        Down::Data { bytes } => (LogStream::Stdout, bytes.clone(), cost(bytes)),
        Down::Resize { size } => {
            let said = format!("{}x{} ", size.rows, size.cols);
            (LogStream::Stderr, said.into_bytes(), 0)
        }
        _ => {
            waiting.pop_front();
            let exit = Some(Exit {
                code: Some(7),
                signal: None,
            });
            return Some((Up::Closed { exit, why: None }, 0));
        }
    };
    *room = room.checked_sub(cost(&bytes))?;
    waiting.pop_front();
    Some((Up::Data { from, bytes }, credit))
}

pub struct World {
    pub url: String,
    pub dir: tempfile::TempDir,
    pub controller: Controller,
    pub readings: Arc<Readings>,
    pub logs: LogStore,
    /// The platform owner's token.
    pub owner: String,
    master: [u8; 32],
    pub http: reqwest::Client,
    pub stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    /// Tells of jobs in traces, where that was asked for.
    telling: Option<(TraceOptions, CancellationToken, tokio::task::JoinHandle<()>)>,
    writer: tokio::task::JoinHandle<Result<Journal, tenure_journal::JournalError>>,
}

/// An answer read whole.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub fn code(&self) -> String {
        if self.status.is_success() {
            return String::new();
        }
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn field(&self) -> String {
        self.json()["errors"][0]["pointer"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn id(&self) -> String {
        assert!(
            self.status.is_success(),
            "{}",
            String::from_utf8_lossy(&self.bytes)
        );
        self.json()["id"].as_str().expect("an id").to_owned()
    }
}

pub fn generous() -> HttpOptions {
    HttpOptions {
        rate_per_tenant: 1_000_000,
        burst_per_tenant: 1_000_000,
        ..HttpOptions::default()
    }
}

impl World {
    pub async fn new() -> World {
        World::with(generous()).await
    }

    pub async fn with(options: HttpOptions) -> World {
        World::on(options, Arc::new(NoEngine)).await
    }

    pub async fn on(options: HttpOptions, engine: Arc<dyn Engine>) -> World {
        World::begun(options, engine, std::iter::empty(), None).await
    }

    /// One that tells of its jobs in traces.
    pub async fn traced(traces: TraceOptions, engine: Arc<dyn Engine>) -> World {
        World::begun(generous(), engine, std::iter::empty(), Some(traces)).await
    }

    /// A platform that is new, with a past: what is in its history already.
    pub async fn after(past: impl Iterator<Item = HistoryRow>) -> World {
        World::begun(generous(), Arc::new(NoEngine), past, None).await
    }

    async fn begun(
        options: HttpOptions,
        engine: Arc<dyn Engine>,
        past: impl Iterator<Item = HistoryRow>,
        traces: Option<TraceOptions>,
    ) -> World {
        let bytes: [u8; 32] = random();
        let owner = token::write(token::Kind::Key, &bytes).reveal().to_owned();
        let dir = tempfile::tempdir().unwrap();
        let world = World::open(dir, random(), owner, options, engine, past, traces).await;
        let key = Digest(Sha256::digest(bytes).into());
        let found = Wish::Found {
            platform: "test".into(),
            owner: "root".into(),
            key,
            prices: Prices::default(),
        };
        world.controller.system(found).await.unwrap();
        world
    }

    /// Ends it and begins again on what is in its directory.
    pub async fn again(self, options: HttpOptions) -> World {
        self.again_on(options, Arc::new(NoEngine)).await
    }

    pub async fn again_on(self, options: HttpOptions, engine: Arc<dyn Engine>) -> World {
        let (master, owner) = (self.master, self.owner.clone());
        let traces = self.telling.as_ref().map(|(traces, ..)| traces.clone());
        let dir = self.end().await;
        World::open(dir, master, owner, options, engine, std::iter::empty(), traces).await
    }

    /// The same with these events more in its journal, and then with many that concern nobody.
    pub async fn aged(self, events: &[Event], many: usize) -> World {
        let (master, owner) = (self.master, self.owner.clone());
        let dir = self.end().await;
        let location = Location::Sqlite(dir.path().to_owned());
        let mut journal = Journal::open_leader(&location, "test", Options::default())
            .await
            .unwrap();
        let nothing = Event::AccessRefused { counts: Vec::new() };
        let all = events.iter().chain(std::iter::repeat_n(&nothing, many));
        let entries: Vec<Entry> = all
            .map(|event| Entry {
                at_ms: now().0,
                by: "system".into(),
                request: None,
                event: EventText::encode(event).unwrap(),
            })
            .collect();
        for entries in entries.chunks(2_000) {
            let batch = Batch {
                entries: entries.to_vec(),
                ..Batch::default()
            };
            journal.append(batch).await.unwrap();
        }
        journal.close().await.unwrap();
        let past = std::iter::empty();
        World::open(dir, master, owner, generous(), Arc::new(NoEngine), past, None).await
    }

    async fn open(
        dir: tempfile::TempDir,
        master: [u8; 32],
        owner: String,
        options: HttpOptions,
        engine: Arc<dyn Engine>,
        past: impl Iterator<Item = HistoryRow>,
        traces: Option<TraceOptions>,
    ) -> World {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let location = Location::Sqlite(dir.path().to_owned());
        let mut journal = Journal::open_leader(&location, "test", Options::default())
            .await
            .unwrap();
        let mut past = past.peekable();
        while past.peek().is_some() {
            let batch = Batch {
                history: past.by_ref().take(5_000).collect(),
                ..Batch::default()
            };
            journal.append(batch).await.unwrap();
        }
        let recovered = recover(&journal).await.unwrap();
        let view = Arc::new(View::new(recovered.state, recovered.seq));
        let platform = journal.platform().to_owned();
        let told = traces
            .clone()
            .map(|traces| Traces::new(traces, &platform, "host"));
        let controller =
            Controller::following(view, tenure_journal::JournalReader::clone(&journal)).traced(told);
        let exporter = Exporter::begin(&controller).await.unwrap();
        let handle = journal.handle();
        let writer = controller.lead(journal, WriterOptions::default());
        let telling = traces.zip(exporter).map(|(traces, exporter)| {
            let all_told = CancellationToken::new();
            let task = tokio::spawn(exporter.run(handle, all_told.clone()));
            (traces, all_told, task)
        });

        let readings = Arc::new(Readings::default());
        let logs = LogStore::open(&location).await.unwrap();
        let app = App {
            controller: controller.clone(),
            keyring: Arc::new(Keyring::new(&master)),
            engine,
            logs: logs.clone(),
            readings: readings.clone(),
            signing_key: Arc::new(SigningKey::generate().0),
            authority: Digest([7; 32]),
            options,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let tasks = vec![tokio::spawn(serve(listener, None, app, stop.clone()))];
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap();
        World {
            url,
            dir,
            controller,
            readings,
            logs,
            owner,
            master,
            http,
            stop,
            tasks,
            telling,
            writer,
        }
    }

    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::new(Keyring::new(&self.master))
    }

    /// Has it tell nothing more in traces, as a crash has it: what it has not sent is gone.
    pub fn break_telling(&mut self) {
        if let Some((_, _, task)) = &self.telling {
            task.abort();
        }
    }

    /// Stops serving, then writing; the journal is closed.
    pub async fn end(self) -> tempfile::TempDir {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        self.controller.close();
        let journal = self.writer.await.unwrap().unwrap();
        if let Some((_, all_told, task)) = self.telling {
            all_told.cancel();
            // Broken off, it ends so.
            let _ = task.await;
        }
        journal.close().await.unwrap();
        self.dir
    }

    pub fn request(&self, method: Method, path: &str, token: Option<&str>) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn send(&self, request: RequestBuilder) -> Reply {
        self.try_send(request).await.expect("an answer")
    }

    pub async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Reply> {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Reply {
            status,
            headers,
            bytes: response.bytes().await?.to_vec(),
        })
    }

    pub async fn get(&self, token: &str, path: &str) -> Reply {
        self.send(self.request(Method::GET, path, Some(token))).await
    }

    pub async fn post(&self, token: &str, path: &str, body: Value) -> Reply {
        self.send(self.request(Method::POST, path, Some(token)).json(&body))
            .await
    }

    pub async fn put(&self, token: &str, path: &str, body: Value) -> Reply {
        self.send(self.request(Method::PUT, path, Some(token)).json(&body))
            .await
    }

    pub async fn delete(&self, token: &str, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path, Some(token))).await
    }

    pub fn head(&self) -> u64 {
        self.controller.view().seq()
    }

    pub async fn tenant(&self, name: &str) -> String {
        self.post(&self.owner, "/v1/tenants", json!({ "name": name }))
            .await
            .id()
    }

    pub async fn subscriber(&self, tenant: &str, name: &str) -> String {
        self.post(
            &self.owner,
            "/v1/subscribers",
            json!({ "tenant": tenant, "name": name }),
        )
        .await
        .id()
    }

    /// A user and a token of theirs.
    pub async fn user(&self, parent: &str, name: &str, role: Option<&str>) -> (String, String) {
        let mut body = json!({ "parent": parent, "name": name });
        if let Some(role) = role {
            body["role"] = role.into();
        }
        let id = self.post(&self.owner, "/v1/users", body).await.id();
        let token = self.key(&id, json!({ "label": "test" })).await;
        (id, token)
    }

    pub async fn key(&self, user: &str, body: Value) -> String {
        let reply = self
            .post(&self.owner, &format!("/v1/users/{user}/keys"), body)
            .await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["token"].as_str().unwrap().to_owned()
    }

    pub async fn job(&self, owner: &str, name: &str) -> String {
        self.post(
            &self.owner,
            "/v1/jobs",
            json!({ "owner": owner, "spec": spec(name) }),
        )
        .await
        .id()
    }

    /// A node with one GPU of this name, and the GPU.
    pub async fn gpu(&self, name: &str) -> GpuId {
        let node = self.node(name, 0).await;
        let gpu = GpuFacts {
            uuid: name.into(),
            vendor: "maker".into(),
            model: "model".into(),
            class: "H100".into(),
            vram_mib: 8192,
            isolation: [(Isolation::Guarded, "by the guard".to_owned())].into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 64_000,
            memory_mib: 64 * 1024,
            gpus: vec![gpu],
            volume_mib: 1 << 20,
            images: Vec::new(),
        };
        let report = Wish::ReportInventory { node, inventory };
        self.controller
            .submit(Actor::System, report, None, None)
            .await
            .unwrap();
        let state = self.controller.view().read();
        state.fleet.node(node).unwrap().gpus[0].id
    }

    /// A node with room for some jobs.
    pub async fn node(&self, name: &str, cpu_milli: u32) -> NodeId {
        let (token, key) = (Digest(random()), Digest(random()));
        let expires = now().plus_ms(60_000);
        self.controller
            .system(Wish::CreateJoinToken {
                digest: token,
                expires,
                tenant: None,
            })
            .await
            .unwrap();
        let joined = self
            .controller
            .system(Wish::JoinNode {
                token,
                name: name.into(),
                key,
            })
            .await
            .unwrap();
        let node = joined.events.iter().find_map(|event| match **event {
            Event::NodeJoined { node, .. } => Some(node),
            _ => None,
        });
        let node = node.unwrap();
        if cpu_milli > 0 {
            let inventory = Inventory {
                cpu_milli,
                memory_mib: 64 * 1024,
                gpus: Vec::new(),
                volume_mib: 1 << 20,
                images: Vec::new(),
            };
            self.controller
                .submit(
                    Actor::System,
                    Wish::ReportInventory { node, inventory },
                    None,
                    None,
                )
                .await
                .unwrap();
        }
        node
    }
}

pub fn spec(name: &str) -> Value {
    json!({ "name": name, "command": ["true"] })
}
