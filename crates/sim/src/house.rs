//! The real programs: a server and an agent as processes of their own, on private ports, ended with the test.

mod asked;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_api::client::Client;
use tenure_api::secret_text::SecretText;
use tenure_api::v1::node::{CreateJoinToken, NodeQuery};

pub use asked::{OWNER, said};

/// Where cargo puts the programs of this build.
pub fn program(name: &str) -> PathBuf {
    let mut dir = std::env::current_exe().unwrap();
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    let program = dir.join(name);
    assert!(
        program.exists(),
        "{} is not built; `make test` builds the programs first",
        program.display()
    );
    program
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// One platform with its data, whether its programs run or not.
pub struct House {
    pub dir: tempfile::TempDir,
    pub port: u16,
    pub agent_port: u16,
    pub database: Option<String>,
    /// Lets `tenure up` start an agent beside itself.
    pub with_agent: bool,
    /// Directories of this machine that an agent shows to its jobs.
    pub host_dirs: Vec<PathBuf>,
    /// What an agent is told of this machine by its environment.
    pub agent_env: Vec<(String, String)>,
    /// What a server is told by its environment.
    pub server_env: Vec<(String, String)>,
    server: Option<Child>,
    agent: Option<Child>,
}

impl House {
    pub fn new(database: Option<String>) -> House {
        let dir = tempfile::Builder::new()
            .prefix("tenure-house-")
            .tempdir()
            .unwrap();
        House {
            dir,
            port: free_port(),
            agent_port: free_port(),
            database,
            with_agent: false,
            host_dirs: Vec::new(),
            agent_env: Vec::new(),
            server_env: Vec::new(),
            server: None,
            agent: None,
        }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the server and waits until it leads.
    pub async fn start_server(&mut self) {
        self.spawn_server();
        self.until("leader").await;
    }

    /// Starts a server beside one that leads.
    pub async fn start_follower(&mut self) {
        self.spawn_server();
        self.until("follower").await;
    }

    fn spawn_server(&mut self) {
        let mut command = Command::new(program("tenure"));
        command.args([
            "up",
            "--quiet",
            "--demo",
            "--rate",
            "1000000",
            "--lease-term",
            "60s",
        ]);
        if !self.with_agent {
            command.arg("--no-agent");
        }
        command.args([
            "--listen",
            &format!("127.0.0.1:{}", self.port),
            "--agent-listen",
            &format!("127.0.0.1:{}", self.agent_port),
        ]);
        command.arg("--data-dir").arg(self.data());
        if let Some(url) = &self.database {
            command.args(["--database", url]);
        }
        command.envs(self.server_env.iter().map(|(name, value)| (name, value)));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("server.log"))
            .unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().unwrap());
    }

    async fn until(&mut self, role: &str) {
        let begun = Instant::now();
        let client = Client::new(&self.url(), None, None).unwrap();
        // After a crash on PostgreSQL it follows for a moment, until the dead leader's session is gone.
        while !client.health().await.is_ok_and(|health| health.role == role)
            || !self.data().join("demo.json").exists()
        {
            let ended = self.server.as_mut().and_then(|server| server.try_wait().unwrap());
            assert!(
                ended.is_none() && begun.elapsed() < Duration::from_secs(60),
                "the server is not up ({ended:?}):\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// SIGKILL: nothing is said, nothing is flushed.
    pub fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Ctrl-C. What the server ended with.
    pub fn interrupt_server(&mut self) -> Option<i32> {
        let mut server = self.server.take()?;
        let _ = Command::new("kill")
            .arg("-INT")
            .arg(server.id().to_string())
            .status();
        server.wait().unwrap().code()
    }

    pub fn owner(&self) -> Client {
        let token = std::fs::read_to_string(self.data().join("owner.token")).unwrap();
        self.client(token.trim())
    }

    pub fn client(&self, token: &str) -> Client {
        Client::new(&self.url(), Some(SecretText::new(token)), None).unwrap()
    }

    /// The token of a user of the demo platform.
    pub fn demo_token(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.data().join("demo.json")).unwrap();
        let demo: serde_json::Value = serde_json::from_str(&text).unwrap();
        let user = demo["users"]
            .as_array()
            .unwrap()
            .iter()
            .find(|user| user["path"] == path)
            .unwrap();
        user["token"].as_str().unwrap().to_owned()
    }

    /// Starts an agent that outlives the server, and waits until its node is up.
    pub async fn start_agent(&mut self) {
        let ticket = self
            .owner()
            .create_join_token(&CreateJoinToken {
                valid_s: 600,
                tenant: None,
            })
            .await
            .unwrap();
        self.start_agent_with(&ticket.token, &[]).await;
    }

    /// The same with this token, and these variables in its environment.
    pub async fn start_agent_with(&mut self, token: &str, variables: &[(&str, PathBuf)]) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("agent.log"))
            .unwrap();
        let agent = Command::new(program("tenure-agent"))
            .args([
                "run",
                "--server",
                &format!("127.0.0.1:{}", self.agent_port),
                "--state-dir",
            ])
            .arg(self.agent_dir())
            .args(
                self.host_dirs
                    .iter()
                    .flat_map(|dir| ["--host-dir".as_ref(), dir.as_os_str()]),
            )
            .envs(self.agent_env.iter().map(|(name, value)| (name, value)))
            .env("TENURE_JOIN_TOKEN", token)
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(agent);
        let begun = Instant::now();
        while self
            .owner()
            .nodes(&NodeQuery::default())
            .await
            .unwrap()
            .items
            .iter()
            .all(|node| node.cpu_milli == 0)
        {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "the node did not come up"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The node is gone, as by a power cut.
    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub fn agent_dir(&self) -> PathBuf {
        self.dir.path().join("agent")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // So that an agent of its own ends with it.
        self.interrupt_server();
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        for state in ["agent", "data/agent"].map(|dir| self.dir.path().join(dir)) {
            if state.is_dir() {
                let _ = Command::new(program("tenure-agent"))
                    .args(["leave", "--state-dir"])
                    .arg(state)
                    .stderr(Stdio::null())
                    .status();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- server log\n{}", tail(&self.dir.path().join("server.log")));
            eprintln!("--- agent log\n{}", tail(&self.dir.path().join("agent.log")));
        }
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
