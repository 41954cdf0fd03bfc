//! A hub and one agent process on a directory of their own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_api::channel::{AllocationReport, LogStream, Order, RunState};
use tenure_api::secret_text::SecretText;
use tenure_api::token::JoinTicket;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::tenancy::policy::Network;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::conformance::{MemoryRegistry, Watcher};
use tenure_engine::local::{Authority, Hub, HubConfig};
use tenure_engine::{Engine, EngineError};

use crate::turn::{self, Turn};

pub const AGENT: &str = env!("CARGO_BIN_EXE_tenure-agent");

// Unique over all benches, so that a log line names one of them.
static NEXT: AtomicU64 = AtomicU64::new(0);

pub fn fresh() -> AllocationId {
    let base = u64::from(std::process::id()) << 32;
    AllocationId(base + NEXT.fetch_add(1, Ordering::Relaxed))
}

pub struct Bench {
    pub hub: Option<Hub>,
    pub registry: Arc<MemoryRegistry>,
    pub authority: Arc<Authority>,
    pub root: tempfile::TempDir,
    pub node: NodeId,
    pub agent: Option<Child>,
    config: HubConfig,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// Whose the agent is; none: the test's own user's.
    user: Option<u32>,
    _turn: Turn,
}

impl Bench {
    pub async fn new() -> Bench {
        Bench::with(Duration::from_secs(60), &[]).await
    }

    pub async fn with(term: Duration, arguments: &[&str]) -> Bench {
        Bench::on(term, arguments, &[]).await
    }

    /// An agent that has joined and said everything, with these variables in its environment.
    pub async fn on(term: Duration, arguments: &[&str], variables: &[(&str, String)]) -> Bench {
        Bench::of(None, term, arguments, variables).await
    }

    /// The same, with an agent of this user's.
    pub async fn of(
        user: Option<u32>,
        term: Duration,
        arguments: &[&str],
        variables: &[(&str, String)],
    ) -> Bench {
        let turn = turn::beside().await;
        let registry = Arc::new(MemoryRegistry::default());
        let authority = Arc::new(Authority::create().unwrap());
        let mut config = HubConfig {
            term,
            ..HubConfig::default()
        };
        let hub = Hub::bind(config.clone(), authority.clone(), registry.clone())
            .await
            .unwrap();
        config.listen = hub.address();
        let root = tempfile::Builder::new()
            .prefix("agent-")
            // Not below /tmp or /var/tmp, which every job has of its own.
            .tempdir_in("/srv")
            .unwrap();
        open_to_all(root.path(), 0o755);
        std::os::unix::fs::chown(root.path(), user, user).unwrap();
        std::fs::create_dir(root.path().join("marks")).unwrap();
        open_to_all(&root.path().join("marks"), 0o777);
        let ticket = JoinTicket {
            token: SecretText::new(registry.issue(1)),
            authority: authority.fingerprint(),
        };
        std::fs::write(root.path().join("token"), ticket.write().reveal()).unwrap();
        let mut watcher = Watcher::of(&hub);
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut bench = Bench {
            hub: Some(hub),
            registry,
            authority,
            root,
            node: NodeId(1),
            agent: None,
            config,
            arguments,
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            user,
            _turn: turn,
        };
        bench.start_agent();
        watcher.whole(bench.node).await;
        bench.settled().await;
        bench
    }

    pub fn hub(&self) -> &Hub {
        self.hub.as_ref().unwrap()
    }

    pub fn watch(&self) -> Watcher {
        Watcher::of(self.hub())
    }

    pub fn state_dir(&self) -> PathBuf {
        self.root.path().join("state")
    }

    pub fn start_agent(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.root.path().join("agent.log"))
            .unwrap();
        let mut agent = Command::new(AGENT);
        if let Some(user) = self.user {
            agent.uid(user).gid(user).env("HOME", self.root.path());
        }
        let child = agent
            .args([
                "run",
                "--name",
                "bench",
                "--server",
                &self.config.listen.to_string(),
                "--state-dir",
            ])
            .arg(self.state_dir())
            .arg("--join-token-file")
            .arg(self.root.path().join("token"))
            .arg("--host-dir")
            .arg(format!("{}:rw", self.root.path().join("marks").display()))
            // Where tests have their registries.
            .args(["--private-registry", "127.0.0.1"])
            .args(&self.arguments)
            .envs(self.variables.iter().cloned())
            .env("TENURE_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(child);
    }

    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("an agent").id()
    }

    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub async fn restart_hub(&mut self) {
        self.hub = None;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match Hub::bind(self.config.clone(), self.authority.clone(), self.registry.clone()).await {
                Ok(hub) => break self.hub = Some(hub),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until orders are taken.
    pub async fn settled(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.hub().is_connected(self.node) {
            assert!(Instant::now() < deadline, "the agent did not come back");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A shell line as a job.
    pub fn order(&self, allocation: AllocationId, script: &str) -> Order {
        Order {
            allocation,
            job: JobId(7),
            name: "job".into(),
            tenant: "acme".into(),
            attempt: 1,
            command: ["sh", "-c", script].map(String::from).into(),
            env: vec![(
                "MARKS".into(),
                self.root.path().join("marks").display().to_string(),
            )],
            secrets: vec![],
            workdir: None,
            image: None,
            volumes: vec![],
            devices: vec![],
            cpu_milli: 2000,
            memory_mib: 256,
            isolation: Isolation::Guarded,
            network: Network::default(),
            run_time_s: 120,
            grace_s: 2,
            stdin: false,
            tty: false,
        }
    }

    /// Says it until it is taken, as a reconcile loop does.
    pub async fn start(&self, order: Order) {
        for _ in 0..400 {
            match self.hub().start(self.node, order.clone()).await {
                Ok(()) => return,
                Err(error) => assert!(matches!(error, EngineError::NotConnected(_)), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the order was never taken");
    }

    /// Runs a job to its end.
    pub async fn run(&self, order: Order) -> AllocationReport {
        let mut watcher = self.watch();
        let id = order.allocation;
        self.start(order).await;
        watcher.report(id, has_ended).await
    }

    pub async fn log(&self, id: AllocationId, stream: LogStream) -> String {
        let mut all = Vec::new();
        loop {
            let chunk = self
                .hub()
                .read_log(self.node, id, stream, all.len() as u64, 65536, 2000)
                .await
                .unwrap();
            all.extend(chunk.bytes);
            if chunk.end {
                return String::from_utf8_lossy(&all).into_owned();
            }
        }
    }

    pub fn marks(&self, id: AllocationId) -> usize {
        std::fs::read_to_string(self.root.path().join("marks").join(id.to_string()))
            .map_or(0, |text| text.lines().count())
    }

    pub fn agent_log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("agent.log")).unwrap_or_default()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- agent log ---\n{}", self.agent_log());
        }
        self.kill_agent();
        // Without a lease, what still runs ends by itself; the test does not wait for that.
        let _ = std::fs::remove_file(self.state_dir().join("lease"));
        for pid in processes_under(&self.state_dir()) {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        // Whatever hundreds of agents leave on a host makes the next ones slow.
        let left = Command::new(AGENT)
            .args(["leave", "--state-dir"])
            .arg(self.state_dir())
            .output();
        if !std::thread::panicking() {
            let left = left.unwrap();
            assert!(left.status.success(), "{left:?}");
        }
    }
}

/// Appends a line that says it ran.
pub const MARK: &str = "echo x >> $MARKS/$TENURE_ALLOCATION";

pub fn has_ended(state: &RunState) -> bool {
    matches!(state, RunState::Exited { .. } | RunState::NotStarted { .. })
}

pub fn is_running(state: &RunState) -> bool {
    *state == RunState::Running
}

pub fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Thin parents at work in directories below `root`.
pub fn processes_under(root: &Path) -> Vec<i32> {
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let ids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let works = std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&root));
        line.starts_with(b"tenure-agent\0exec") && works
    })
    .collect()
}

/// Whether any process has this text in its arguments.
pub fn any_process_with(text: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
        })
}

pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
