//! People at running jobs: what they find inside, and that nothing of it outlives them or holds others up.

use std::time::{Duration, Instant};

use tenure_api::channel::LogStream;
use tenure_api::channel::stream::{Exit, Size, Target, Terminal, Up};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_engine::stream::StreamSender;
use tenure_engine::{Engine, Seen, Stream};

use crate::bench::{Bench, any_process_with, eventually, fresh, has_ended, is_running};

const PATIENCE: Duration = Duration::from_secs(20);

async fn running(bench: &Bench, script: &str) -> AllocationId {
    with(bench, script, false, false).await
}

async fn with(bench: &Bench, script: &str, stdin: bool, tty: bool) -> AllocationId {
    let mut watcher = bench.watch();
    let id = fresh();
    let mut order = bench.order(id, script);
    (order.stdin, order.tty) = (stdin, tty);
    bench.start(order).await;
    watcher.state(id, is_running).await;
    id
}

fn sh(script: &str) -> Target {
    Target::Exec {
        command: ["sh", "-c", script].map(String::from).into(),
        terminal: None,
    }
}

fn on_terminal(script: &str) -> Target {
    let Target::Exec { command, .. } = sh(script) else {
        unreachable!()
    };
    let terminal = Some(Terminal {
        size: Size { rows: 31, cols: 97 },
        name: Some("xterm-256color".into()),
    });
    Target::Exec { command, terminal }
}

async fn open(bench: &Bench, id: AllocationId, target: Target) -> Stream {
    bench.hub().open(bench.node, id, target).await.unwrap()
}

async fn heard(stream: &mut Stream) -> Option<Up> {
    tokio::time::timeout(PATIENCE, stream.receiver.next())
        .await
        .expect("nothing was said in time")
}

#[derive(Debug, Default)]
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
    exit: Option<Exit>,
    why: Option<String>,
}

impl Said {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    fn code(&self) -> Option<i32> {
        self.exit.and_then(|exit| exit.code)
    }
}

/// Everything until the stream ends.
async fn all(stream: &mut Stream) -> Said {
    let mut said = Said::default();
    loop {
        match heard(stream).await {
            Some(Up::Data { from, bytes }) => match from {
                LogStream::Stdout => said.out.extend(bytes),
                LogStream::Stderr => said.err.extend(bytes),
            },
            Some(Up::Closed { exit, why }) => {
                (said.exit, said.why) = (exit, why);
                return said;
            }
            Some(_) => {}
            None => {
                said.why = Some("the connection ended".into());
                return said;
            }
        }
    }
}

/// Output so far, until it holds `text`.
async fn until(stream: &mut Stream, text: &str) -> String {
    let mut so_far = Vec::new();
    loop {
        match heard(stream).await {
            Some(Up::Data { bytes, .. }) => so_far.extend(bytes),
            Some(Up::Closed { exit, why }) => {
                panic!(
                    "ended ({exit:?}, {why:?}) after {}",
                    String::from_utf8_lossy(&so_far)
                )
            }
            Some(_) => {}
            None => panic!("the connection ended"),
        }
        let said = String::from_utf8_lossy(&so_far);
        if said.contains(text) {
            return said.into_owned();
        }
    }
}

async fn exec(bench: &Bench, id: AllocationId, script: &str) -> Said {
    all(&mut open(bench, id, sh(script)).await).await
}

const WORLD: &str = "id -u; id -g; readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/net; \
    cat /proc/self/cgroup; grep -E 'NoNewPrivs|Cap|Seccomp:' /proc/self/status; ulimit -c; pwd; cat /tmp/mark; env | grep -v '^_=' | sort";

#[tokio::test(flavor = "multi_thread")]
async fn a_process_inside_is_walled_as_the_job_is() {
    let bench = Bench::new().await;
    let id = running(
        &bench,
        &format!("echo here > /tmp/mark; {{ {WORLD}; }} >/tmp/world; echo done; sleep 60"),
    )
    .await;
    eventually("the job looked around", || {
        std::fs::read_to_string(bench.state_dir().join(format!("allocations/{id}/stdout")))
            .is_ok_and(|log| log == "done\n")
    })
    .await;
    let own = exec(&bench, id, "cat /tmp/world").await.out();
    let entered = exec(&bench, id, WORLD).await.out();
    assert!(own.contains("NoNewPrivs:\t1") && own.contains("here\n"), "{own}");
    assert_eq!(own, entered);
    // It sees the job's processes, and nobody else's.
    let seen = exec(&bench, id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        .await
        .out();
    assert!(
        seen.contains("sleep 60") && !seen.contains("--state-dir"),
        "{seen}"
    );
    // What it may not do there, it may not do here.
    let denied = exec(
        &bench,
        id,
        "mount -t tmpfs x /tmp 2>&1; echo $?; unshare -U true 2>&1; ls /root /var/lib 2>&1",
    )
    .await;
    assert!(
        !denied.out().starts_with("0\n")
            && denied.out().contains("not permitted")
            && denied.out().contains("No such file"),
        "{denied:?}"
    );
    assert_eq!(denied.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_signals_streams_and_failures() {
    let bench = Bench::new().await;
    let id = running(&bench, "sleep 60").await;
    let said = exec(&bench, id, "echo out; echo err >&2; exit 7").await;
    assert_eq!(
        (said.out.as_slice(), said.err.as_slice(), said.code()),
        (b"out\n".as_slice(), b"err\n".as_slice(), Some(7))
    );
    let said = exec(&bench, id, "kill -SEGV $$").await;
    assert_eq!(
        said.exit,
        Some(Exit {
            code: None,
            signal: Some(11)
        })
    );
    // What it leaves behind does not hold it up, and goes on.
    let said = exec(&bench, id, "sleep 61 & echo begun").await;
    assert_eq!((said.out().as_str(), said.code()), ("begun\n", Some(0)));
    let said = exec(&bench, id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(said.out().contains("sleep 61"), "{said:?}");
    for (command, word) in [
        (vec!["no-such-program"], "not found"),
        (vec!["/etc/passwd"], "denied"),
        (vec![""], "no command"),
    ] {
        let command = command.into_iter().map(String::from).collect();
        let said = all(&mut open(
            &bench,
            id,
            Target::Exec {
                command,
                terminal: None,
            },
        )
        .await)
        .await;
        assert!(
            said.exit.is_none() && said.why.as_ref().is_some_and(|why| why.contains(word)),
            "{said:?}"
        );
    }
    let said = all(&mut open(&bench, fresh(), sh("true")).await).await;
    assert_eq!(said.why.as_deref(), Some("the job does not run here"));
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

#[tokio::test(flavor = "multi_thread")]
async fn ten_megabytes_there_and_back_are_the_same() {
    let bench = Bench::new().await;
    let id = running(&bench, "sleep 60").await;
    let sent = noise(10 << 20);
    let Stream { sender, receiver } = open(&bench, id, sh("tee /tmp/copy")).await;
    let outgoing = sent.clone();
    let sending = tokio::spawn(async move {
        sender.send(&outgoing).await.unwrap();
        sender.end().await.unwrap();
        sender
    });
    let begun = Instant::now();
    let mut stream = rejoin(&bench, id, receiver).await;
    let said = all(&mut stream.0).await;
    println!("10 MiB both ways in {} ms", begun.elapsed().as_millis());
    assert!(
        said.out == sent && said.code() == Some(0),
        "{} bytes, {:?}",
        said.out.len(),
        said.exit
    );
    drop(sending.await.unwrap());
    let said = exec(&bench, id, "cat /tmp/copy").await;
    assert!(said.out == sent);
}

/// A receiver with a sender of another stream, so that `all` can be asked.
async fn rejoin(
    bench: &Bench,
    id: AllocationId,
    receiver: tenure_engine::stream::StreamReceiver,
) -> (Stream, ()) {
    let other = open(bench, id, sh("true")).await;
    (
        Stream {
            sender: other.sender,
            receiver,
        },
        (),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_holds_up_nobody() {
    let bench = Bench::with(Duration::from_secs(2), &[]).await;
    let id = running(&bench, "sleep 60").await;
    let mut slow = open(&bench, id, sh("yes")).await;
    assert!(matches!(heard(&mut slow).await, Some(Up::Opened { .. })));
    // And one that is sent more than it reads.
    let flooded = open(&bench, id, sh("sleep 59")).await;
    let flood = tokio::spawn(async move {
        let _ = flooded.sender.send(&noise(4 << 20)).await;
        flooded
    });
    let mut seen = bench.hub().subscribe();
    // Over several terms the heart beats, and others are served.
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut beats = 0;
    while Instant::now() < deadline {
        let said = tokio::time::timeout(Duration::from_secs(2), exec(&bench, id, "echo quick")).await;
        assert_eq!(said.expect("held up").out(), "quick\n");
        while let Ok(seen) = seen.try_recv() {
            assert!(!matches!(seen, Seen::Gone { .. }), "the connection broke");
            beats += usize::from(matches!(seen, Seen::Heartbeat { .. }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(beats >= 3, "{beats} heartbeats");
    assert!(!flood.is_finished(), "it was taken though nobody read it");
    // The one who did not read finds its bytes in order.
    let mut got = Vec::new();
    while got.len() < 1 << 20 {
        match heard(&mut slow).await {
            Some(Up::Data { bytes, .. }) => got.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(got.chunks_exact(2).all(|pair| pair == b"y\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_its_size_its_name_and_its_control_characters() {
    let bench = Bench::new().await;
    let id = running(&bench, "sleep 60").await;
    let script = "stty size; echo $TERM; tty; test -w $(tty) && echo mine; trap 'stty size; echo resized' WINCH; echo ready; while :; do sleep 0.1; done; echo interrupted";
    let mut stream = open(&bench, id, on_terminal(script)).await;
    let said = until(&mut stream, "ready").await;
    assert!(
        said.contains("31 97\r\n")
            && said.contains("xterm-256color\r\n")
            && said.contains("/dev/pts/")
            && said.contains("mine"),
        "{said}"
    );
    stream.sender.resize(Size { rows: 12, cols: 40 }).await.unwrap();
    let said = until(&mut stream, "resized").await;
    assert!(said.contains("12 40"), "{said}");
    stream.sender.send(b"\x03").await.unwrap();
    let said = all(&mut stream).await;
    assert!(
        said.out().contains("^C") && !said.out().contains("interrupted"),
        "{said:?}"
    );
    assert_eq!(
        said.exit,
        Some(Exit {
            code: None,
            signal: Some(2)
        })
    );

    let mut stream = open(&bench, id, on_terminal("cat; exit 9")).await;
    stream.sender.send(b"typed\n").await.unwrap();
    until(&mut stream, "typed\r\ntyped\r\n").await;
    stream.sender.send(b"\x04").await.unwrap();
    assert_eq!(all(&mut stream).await.code(), Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_leaves_nothing_behind() {
    let bench = Bench::new().await;
    let id = running(&bench, "sleep 60").await;
    for (target, mark) in [
        (
            sh("trap '' HUP TERM; setsid sleep 4711.1 & sleep 4711.1"),
            "4711.1",
        ),
        (
            on_terminal("trap '' HUP TERM; (setsid sleep 4711.2 &) ; sleep 4711.2"),
            "4711.2",
        ),
    ] {
        let mut stream = open(&bench, id, target).await;
        assert!(matches!(heard(&mut stream).await, Some(Up::Opened { .. })));
        eventually("it runs", || any_process_with(mark)).await;
        drop(stream);
        eventually("it is gone", || !any_process_with(mark)).await;
    }
    let said = exec(&bench, id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(said.out().contains("sleep 60"), "the job goes on: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_job() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = running(&bench, "sleep 60").await;
    let mut inside = open(&bench, id, sh("trap '' TERM; echo up; sleep 4712")).await;
    let mut at = open(&bench, id, Target::Attach { from_start: true }).await;
    until(&mut inside, "up").await;
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 1)
        .await
        .unwrap();
    let said = all(&mut inside).await;
    assert_eq!(said.why.as_deref(), Some("the job ended"));
    let said = all(&mut at).await;
    assert_eq!(
        (said.exit, said.why.as_deref()),
        (
            Some(Exit {
                code: None,
                signal: Some(15)
            }),
            Some("the job was stopped")
        )
    );
    watcher.report(id, has_ended).await;
    eventually("all is gone", || !any_process_with("4712")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_ends_streams_and_no_job() {
    let mut bench = Bench::new().await;
    let id = with(&bench, "cat; echo read", true, false).await;
    let mut inside = open(&bench, id, sh("echo up; sleep 4713")).await;
    until(&mut inside, "up").await;
    bench.kill_agent();
    assert_eq!(
        all(&mut inside).await.why.as_deref(),
        Some("the connection ended")
    );
    eventually("it is gone", || !any_process_with("4713")).await;
    bench.start_agent();
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.settled().await;
    // The job is as it was, and reads from the one who comes now.
    let mut at = open(&bench, id, Target::Attach { from_start: false }).await;
    assert_eq!(
        heard(&mut at).await,
        Some(Up::Opened {
            terminal: false,
            input: true
        })
    );
    send(&at.sender, b"after\n").await;
    until(&mut at, "after").await;
    at.sender.end().await.unwrap();
    let said = all(&mut at).await;
    assert_eq!((said.out().as_str(), said.code()), ("read\n", Some(0)));
}

async fn send(sender: &StreamSender, bytes: &[u8]) {
    sender.send(bytes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_a_terminal_is_left_and_found_again() {
    let bench = Bench::new().await;
    let id = with(
        &bench,
        "echo hello; read line; echo got $line; stty size; read line; exit 5",
        false,
        true,
    )
    .await;
    let mut first = open(&bench, id, Target::Attach { from_start: true }).await;
    assert_eq!(
        heard(&mut first).await,
        Some(Up::Opened {
            terminal: true,
            input: true
        })
    );
    until(&mut first, "hello").await;
    first.sender.resize(Size { rows: 50, cols: 132 }).await.unwrap();
    send(&first.sender, b"one\n").await;
    let said = until(&mut first, "132").await;
    assert!(said.contains("got one") && said.contains("50 132"), "{said}");
    drop(first);
    let mut again = open(&bench, id, Target::Attach { from_start: false }).await;
    assert!(matches!(heard(&mut again).await, Some(Up::Opened { .. })));
    send(&again.sender, b"two\n").await;
    let said = all(&mut again).await;
    assert!(!said.out().contains("hello"), "{said:?}");
    assert_eq!(said.code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_reads_nothing_is_only_watched() {
    let bench = Bench::new().await;
    let id = running(
        &bench,
        "read line || echo nothing; sleep 0.3; echo late >&2; exit 3",
    )
    .await;
    let mut at = open(&bench, id, Target::Attach { from_start: true }).await;
    assert_eq!(
        heard(&mut at).await,
        Some(Up::Opened {
            terminal: false,
            input: false
        })
    );
    send(&at.sender, &noise(1 << 20)).await;
    let said = all(&mut at).await;
    assert_eq!(
        (said.out().as_str(), said.err.as_slice(), said.code()),
        ("nothing\n", b"late\n".as_slice(), Some(3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_leads_to_what_listens_in_the_job() {
    let bench = Bench::new().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let server = format!(
        "mkdir /tmp/site && cd /tmp/site && head -c 3000000 /dev/zero >zeros && exec /usr/bin/python3 -m http.server --bind 127.0.0.1 {port}"
    );
    let id = running(&bench, &server).await;
    let mut answer = Vec::new();
    for _ in 0..200 {
        let mut stream = open(&bench, id, Target::Port { port }).await;
        let request = b"GET /zeros HTTP/1.0\r\n\r\n";
        let _ = stream.sender.send(request).await;
        let said = all(&mut stream).await;
        answer = said.out;
        if answer.is_empty() {
            assert!(said.why.is_some_and(|why| why.contains("nothing listens")));
            tokio::time::sleep(Duration::from_millis(50)).await;
        } else {
            break;
        }
    }
    assert!(
        answer.starts_with(b"HTTP/1.0 200 OK"),
        "{}",
        String::from_utf8_lossy(&answer[..answer.len().min(200)])
    );
    assert!(answer.len() > 3_000_000);
    // Jobs of a tenant share a loopback: what is meant for one does not reach who took its port before it.
    let other = running(&bench, "sleep 60").await;
    let mut stream = open(&bench, other, Target::Port { port }).await;
    let _ = stream.sender.send(b"GET /zeros HTTP/1.0\r\n\r\n").await;
    let said = all(&mut stream).await;
    assert!(said.out.is_empty());
    assert!(
        said.why.as_ref().is_some_and(|why| why.contains("another job")),
        "{:?}",
        said.why
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many_streams() {
    use tenure_api::channel::stream::MAX_PER_ALLOCATION;
    let bench = Bench::new().await;
    let id = running(&bench, "sleep 60").await;
    let mut open_ones = Vec::new();
    for _ in 0..MAX_PER_ALLOCATION {
        open_ones.push(open(&bench, id, Target::Attach { from_start: false }).await);
    }
    let refused = bench.hub().open(bench.node, id, sh("true")).await.map(drop);
    assert!(refused.is_err_and(|error| error.to_string().contains("streams open already")));
    drop(open_ones);
    // The node hears of the end of each one by one, and has room when it has heard of one.
    let mut said = Said::default();
    for _ in 0..200 {
        if let Ok(mut stream) = bench.hub().open(bench.node, id, sh("echo room")).await {
            said = all(&mut stream).await;
        }
        if said
            .why
            .as_deref()
            .is_none_or(|why| !why.contains("streams open"))
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(said.out(), "room\n", "{said:?}");
}

/// Opens terminals until it gets none any more, says how many it has and what it was told, and keeps them.
const TERMINALS: &str = "exec python3 -c \"
import os, time
had = 0
try:
    while True:
        os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
        had += 1
except OSError as error:
    print('had', had, error.strerror, flush=True)
time.sleep(60)
\"";

#[tokio::test(flavor = "multi_thread")]
async fn no_job_has_all_the_terminals() {
    let bench = Bench::new().await;
    let greedy = running(&bench, TERMINALS).await;
    let mut at = open(&bench, greedy, Target::Attach { from_start: true }).await;
    let said = until(&mut at, "\n").await;
    assert!(said.starts_with("had 64 No space"), "{said}");
    let other = running(&bench, "sleep 60").await;
    let mut stream = open(&bench, other, on_terminal("tty; echo open")).await;
    let said = until(&mut stream, "open").await;
    assert!(said.contains("/dev/pts/"), "{said}");
}
