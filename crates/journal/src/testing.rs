//! A private PostgreSQL server for tests: one per test program, gone with it however it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Location;

pub struct PostgresServer {
    dir: PathBuf,
    port: u16,
    watcher: Child,
    /// While this end is open the server lives. The kernel closes it when the test program dies.
    leash: Option<ChildStdin>,
}

/// Waits for its input to end, then stops the server and removes its directory.
const WATCHER: &str = r#"
dir=$1; port=$2; bin=$3; shift 3
trap '' INT TERM HUP
"$@" "$bin/postgres" -D "$dir/data" -p "$port" -k "$dir" -c listen_addresses=127.0.0.1 \
    -c max_connections=200 -c shared_buffers=32MB >"$dir/log" 2>&1 &
server=$!
cat >/dev/null
kill -QUIT "$server" 2>/dev/null
wait "$server"
rm -rf "$dir"
"#;

impl PostgresServer {
    /// The server shared by all tests of this program.
    pub fn shared() -> &'static PostgresServer {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        SERVER.get_or_init(PostgresServer::start)
    }

    /// Starts a server of its own, for tests that stop it.
    pub fn start() -> PostgresServer {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bin = bin();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tenure-pg-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for PostgreSQL");
        let prefix = owner(&dir);
        let mut init = command(&prefix, &bin.join("initdb"));
        init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
            .arg(dir.join("data"));
        let output = init.current_dir("/").output().expect("initdb runs");
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );

        let port = free_port();
        let mut watcher = Command::new("sh");
        watcher
            .args(["-c", WATCHER, "watcher"])
            .arg(&dir)
            .arg(port.to_string())
            .arg(&bin)
            .args(&prefix);
        let mut watcher = watcher
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let leash = watcher.stdin.take();
        let server = PostgresServer {
            dir,
            port,
            watcher,
            leash,
        };
        server.wait_until_ready(&bin);
        server
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// A schema nobody else uses.
    pub fn new_location(&self) -> Location {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Location::Postgres(self.url(), format!("t{count}_{}", std::process::id()))
    }

    fn wait_until_ready(&self, bin: &Path) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut ready = Command::new(bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ready.status().is_ok_and(|status| status.success()) {
                return;
            }
            let log = || std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut leash) = self.leash.take() {
            let _ = leash.flush();
        }
        let _ = self.watcher.wait();
    }
}

/// The newest installed server.
fn bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let found = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").is_file());
    let version = |bin: &PathBuf| {
        let name = bin
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        name.and_then(|name| name.parse::<u32>().ok())
    };
    found
        .max_by_key(version)
        .expect("PostgreSQL is installed under /usr/lib/postgresql")
}

/// PostgreSQL refuses to run as root; then its files go to the user `postgres` and so do its programs.
fn owner(dir: &Path) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let status = Command::new("chown").arg("postgres").arg(dir).status();
    assert!(status.is_ok_and(|status| status.success()), "chown to postgres");
    ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        .map(str::to_owned)
        .to_vec()
}

fn command(prefix: &[String], program: &Path) -> Command {
    match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}
