//! Durable submissions through HTTP: a real server process, and a client that writes raw requests on many
//! connections, so that the client costs as little as it can of the two cores they share.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::figure::{figure, percentile};
use super::journal::Scale;

const BODY: &str = r#"{"spec":{"name":"bench","command":["true"],"demand":{"cpu_milli":1,"memory_mib":1}}}"#;

/// A `tenure up` process of our own, ended on drop.
pub struct Server {
    child: Child,
    pub address: String,
    pub token: String,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("tenure");
    ensure!(program.exists(), "{} is not built", program.display());
    Ok(program)
}

impl Server {
    pub async fn start() -> anyhow::Result<Server> {
        let dir = tempfile::tempdir()?;
        let data = dir.path().join("data");
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(program()?)
            .args([
                "up",
                "--quiet",
                "--demo",
                "--no-agent",
                "--rate",
                "1000000",
                "--listen",
                &address,
            ])
            .args(["--agent-listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::null())
            .spawn()
            .context("starting tenure up")?;
        let mut server = Server {
            child,
            address,
            token: String::new(),
            _dir: dir,
        };
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let demo = std::fs::read_to_string(data.join("demo.json"))
                .ok()
                .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
            let ada = demo.as_ref().and_then(|demo| {
                demo["users"]
                    .as_array()?
                    .iter()
                    .find(|user| user["path"] == "acme/research/ada")
            });
            if let Some(token) = ada.and_then(|user| user["token"].as_str())
                && TcpStream::connect(&server.address).await.is_ok()
            {
                server.token = token.to_owned();
                return Ok(server);
            }
        }
        anyhow::bail!("the server did not come up")
    }

    fn request(&self) -> Vec<u8> {
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            self.token,
            BODY.len()
        );
        [head.as_bytes(), BODY.as_bytes()].concat()
    }
}

/// One keep-alive connection.
struct Connection {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            held: Vec::with_capacity(8192),
        })
    }

    /// Sends one request and reads its answer whole.
    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(request).await?;
        self.held.clear();
        loop {
            ensure!(
                self.stream.read_buf(&mut self.held).await? > 0,
                "the server closed the connection"
            );
            let Some(end) = self.held.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.held[..end])?;
            ensure!(
                head.starts_with("HTTP/1.1 201"),
                "{head}\n{}",
                String::from_utf8_lossy(&self.held[end..])
            );
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")?
                    .trim()
                    .parse::<usize>()
                    .ok()
            });
            if self.held.len() >= end + 4 + length.context("an answer without a length")? {
                return Ok(());
            }
        }
    }
}

pub async fn run(scale: Scale) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let request = Arc::new(server.request());
    let mut best = (0.0, 0);
    for clients in [16usize, 64, 256] {
        let begun = Instant::now();
        let until = begun + Duration::from_secs_f64(scale.seconds);
        let tasks: Vec<_> = (0..clients)
            .map(|_| {
                let (request, address) = (request.clone(), server.address.clone());
                tokio::spawn(async move {
                    let mut connection = Connection::open(&address).await?;
                    let mut done = 0u64;
                    while Instant::now() < until {
                        connection.ask(&request).await?;
                        done += 1;
                    }
                    anyhow::Ok(done)
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            done += task.await??;
        }
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        if rate > best.0 {
            best = (rate, clients);
        }
    }
    figure(
        "journal",
        "submissions over HTTP on SQLite",
        best.0,
        "jobs/s",
        Some(5000.0),
        &format!("{} connections", best.1),
    );
    at_rate(&server, request, 2000.0, scale).await
}

/// Latency at a given rate, counted from when each request was due, not from when it was sent.
async fn at_rate(server: &Server, request: Arc<Vec<u8>>, rate: f64, scale: Scale) -> anyhow::Result<()> {
    const CONNECTIONS: usize = 64;
    let took = Arc::new(Mutex::new(Vec::new()));
    let begun = Instant::now() + Duration::from_millis(100);
    let each = (rate * scale.seconds * 2.0) as usize / CONNECTIONS;
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|i| {
            let (request, address, took) = (request.clone(), server.address.clone(), took.clone());
            tokio::spawn(async move {
                let mut connection = Connection::open(&address).await?;
                let mut mine = Vec::with_capacity(each);
                for n in 0..each {
                    let due = begun + Duration::from_secs_f64((n * CONNECTIONS + i) as f64 / rate);
                    tokio::time::sleep_until(due.into()).await;
                    connection.ask(&request).await?;
                    mine.push(due.elapsed());
                }
                took.lock().await.append(&mut mine);
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let mut took = std::mem::take(&mut *took.lock().await);
    took.sort_unstable();
    let millis = |share| percentile(&took, share).as_secs_f64() * 1e3;
    figure(
        "journal",
        "HTTP submission p50 at 2,000/s",
        millis(0.5),
        "ms",
        None,
        "open loop, from when it was due",
    );
    figure(
        "journal",
        "HTTP submission p99 at 2,000/s",
        millis(0.99),
        "ms",
        Some(50.0),
        "open loop, from when it was due",
    );
    Ok(())
}
