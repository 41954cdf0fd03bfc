//! Being at a job, with the real programs: what a person types at one end and finds at the other.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::termios::{Winsize, tcsetwinsize};
use tenure_sim::house::{House, free_port, program};

const ADA: &str = "acme/research/ada";
const OTHER: &str = "globex/labs/cleo";

struct Stage {
    house: House,
    job: String,
}

/// A house with a node and one job that runs `script`.
async fn stage(script: &str) -> Stage {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let mut stage = Stage {
        house,
        job: String::new(),
    };
    let output = stage
        .tenure(ADA, &["run", "-d", "-y", "-o", "name", "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    stage.job = text(&output.stdout).trim().to_owned();
    stage.until("running").await;
    stage
}

impl Stage {
    fn tenure(&self, user: &str, args: &[&str]) -> Command {
        self.with(Command::new(program("tenure")), user, args)
    }

    /// As the leader of a session, so that its stdin becomes its terminal.
    fn tenure_on_terminal(&self, user: &str, args: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program("tenure"));
        self.with(command, user, args)
    }

    fn with(&self, mut command: Command, user: &str, args: &[&str]) -> Command {
        command
            .args(args)
            .env("TENURE_SERVER", self.house.url())
            .env("TENURE_TOKEN", self.house.demo_token(user))
            .env("HOME", self.house.dir.path())
            .env("TERM", "xterm");
        command
    }

    async fn until(&self, phase: &str) {
        let client = self.house.client(&self.house.demo_token(ADA));
        let begun = Instant::now();
        while client.job(&self.job).await.unwrap().phase.as_str() != phase {
            assert!(begun.elapsed() < Duration::from_secs(60), "never {phase}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn exec(&self, script: &str) -> Output {
        self.tenure(ADA, &["exec", &self.job, "--", "sh", "-c", script])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What the owner of the platform finds of sessions in the journal.
    fn journalled(&self) -> String {
        let mut command = Command::new(program("tenure"));
        let token = std::fs::read_to_string(self.house.data().join("owner.token")).unwrap();
        let output = command
            .args([
                "events",
                "--from",
                "1",
                "--kind",
                "SessionOpened,SessionEnded",
                "-o",
                "json",
            ])
            .env("TENURE_SERVER", self.house.url())
            .env("TENURE_TOKEN", token.trim())
            .env("HOME", self.house.dir.path())
            .output()
            .unwrap();
        text(&output.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A terminal with a program on it.
struct Terminal {
    ours: std::fs::File,
    child: Child,
    seen: String,
}

impl Terminal {
    fn with(mut command: Command, rows: u16, cols: u16) -> Terminal {
        let (ours, theirs) = both_ends();
        size(&ours, rows, cols);
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Terminal {
            ours: ours.into(),
            child,
            seen: String::new(),
        }
    }

    fn types(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until `wanted` was seen since the last time, and forgets up to there.
    fn sees(&mut self, wanted: &str) -> String {
        let begun = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "never {wanted:?} in {:?}",
                self.seen
            );
            match self.ours.read(&mut buffer) {
                Ok(got) => self.seen.push_str(&text(&buffer[..got])),
                Err(_) => panic!("it ended without {wanted:?}: {:?}", self.seen),
            }
        }
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

fn both_ends() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both numbers are live, and neither a name, settings nor a size are asked for or given.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(made, 0, "no terminal could be made");
    // SAFETY: the call made both descriptors, and nobody else owns them.
    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let (ours, theirs) = (owned(ours), owned(theirs));
    for end in [&ours, &theirs] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).unwrap();
    }
    (ours, theirs)
}

fn size(terminal: &OwnedFd, rows: u16, cols: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}

/// A process with just these arguments: whoever asked for it has them among its own.
fn any_process(arguments: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = entries.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
    lines.any(|line| text(&line).replace('\0', " ").trim_end() == arguments)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_in_the_jobs_world_and_it_is_journalled() {
    let stage =
        stage("echo mark >/tmp/mark; id -u >/tmp/uid; readlink /proc/self/ns/pid >/tmp/pid; sleep 600").await;
    let output = stage.exec("cat /tmp/mark; test $(id -u) = $(cat /tmp/uid) && test $(readlink /proc/self/ns/pid) = $(cat /tmp/pid) && echo same >&2; exit 7");
    assert_eq!(
        (text(&output.stdout).as_str(), text(&output.stderr).as_str()),
        ("mark\n", "same\n")
    );
    assert_eq!(output.status.code(), Some(7));

    let sent = noise(10 << 20);
    let mut child = stage
        .tenure(ADA, &["exec", "-i", &stage.job, "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let outgoing = sent.clone();
    let sending = std::thread::spawn(move || stdin.write_all(&outgoing).unwrap());
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    sending.join().unwrap();
    assert!(got == sent, "{} bytes came back", got.len());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // Neither another tenant's user nor one without a terminal is let in.
    let output = stage
        .tenure(OTHER, &["exec", &stage.job, "--", "id"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let output = stage
        .tenure(ADA, &["exec", "-t", &stage.job, "--", "id"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("terminal"));
    let journal = stage.journalled();
    assert_eq!(journal.matches("SessionOpened").count(), 2, "{journal}");
    assert!(
        journal.contains("\"exit_code\":7")
            && journal.contains("127.0.0.1")
            && !journal.contains("/tmp/mark; test")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_as_large_as_ours_and_keys_reach_the_program() {
    let stage = stage("sleep 600").await;
    let command = stage.tenure_on_terminal(ADA, &["exec", "-it", &stage.job, "--", "sh"]);
    let mut terminal = Terminal::with(command, 33, 101);
    terminal.types("stty size; echo o''k\n");
    assert!(terminal.sees("ok\r\n").contains("33 101"));
    let ours = terminal.ours.try_clone().unwrap();
    size(&ours.into(), 20, 60);
    eventually("the new size is known", || {
        terminal.types("stty size; echo o''k\n");
        terminal.sees("ok\r\n").contains("20 60")
    });
    // Ctrl-C ends what is in front, not the session.
    terminal.types("sleep 4721\n");
    eventually("it sleeps", || any_process("sleep 4721"));
    terminal.types("\x03");
    eventually("it is ended", || !any_process("sleep 4721"));
    terminal.types("exit 9\n");
    assert_eq!(terminal.ends(), Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_on_a_terminal_is_left_and_found_again() {
    let stage = stage("sleep 600").await;
    let args = ["run", "-it", "-y", "-q", "--name", "shell", "--", "sh"];
    let mut terminal = Terminal::with(stage.tenure_on_terminal(ADA, &args), 30, 90);
    terminal.types("echo he''re; stty size\n");
    terminal.sees("here");
    terminal.sees("30 90");
    terminal.types("\x10\x11");
    assert_eq!(terminal.ends(), Some(0), "left, it ends well");
    let mut terminal = Terminal::with(stage.tenure_on_terminal(ADA, &["attach", "shell"]), 30, 90);
    eventually("the shell answers", || {
        terminal.types("echo st''ill\n");
        std::thread::sleep(Duration::from_millis(200));
        terminal.sees("still").contains("st''ill")
    });
    terminal.types("exit 5\n");
    assert_eq!(terminal.ends(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_read_through_a_port() {
    let port = free_port();
    let stage = stage(&format!("mkdir /tmp/site; cd /tmp/site; echo hello >page; exec /usr/bin/python3 -m http.server --bind 127.0.0.1 {port}")).await;
    let mut child = stage
        .tenure(ADA, &["port", &stage.job, &format!("0:{port}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let page = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(line.trim())?;
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    eventually("the page is served", || {
        page().is_ok_and(|page| page.ends_with("hello\n"))
    });
    for _ in 0..20 {
        assert!(page().unwrap().ends_with("hello\n"));
    }
    let _ = Command::new("kill")
        .arg("-INT")
        .arg(child.id().to_string())
        .status();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    eventually("its end is noted", || stage.journalled().contains("SessionEnded"));
    assert_eq!(stage.journalled().matches("SessionOpened").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_command_leaves_nothing_and_a_jobs_end_ends_its_sessions() {
    let stage = stage("sleep 600").await;
    let mut child = stage
        .tenure(
            ADA,
            &["exec", &stage.job, "--", "sh", "-c", "trap '' HUP; sleep 4722"],
        )
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it runs", || any_process("sleep 4722"));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("it is gone", || !any_process("sleep 4722"));
    eventually("its end is noted", || stage.journalled().contains("SessionEnded"));

    let mut inside = stage
        .tenure(
            ADA,
            &["exec", &stage.job, "--", "sh", "-c", "trap '' TERM; sleep 4723"],
        )
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it runs", || any_process("sleep 4723"));
    assert!(
        stage
            .tenure(ADA, &["stop", &stage.job])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(inside.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    inside.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("the job ended"), "{said}");
    eventually("nothing is left", || !any_process("sleep 4723"));
}
