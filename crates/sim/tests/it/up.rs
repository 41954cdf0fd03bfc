//! `tenure up` as an operator meets it: started wrongly it says why and leaves; started twice it keeps its data;
//! one of two servers takes over from the other.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tenure_api::client::ClientError;
use tenure_api::v1::job::SubmitJob;
use tenure_api::v1::scope::CreateTenant;
use tenure_journal::testing::PostgresServer;

use tenure_sim::house::{House, free_port, program};

/// What a shell prints and how it ends; `up` starts a server in the directory `data` and does not wait for it.
fn shell(dir: &Path, script: &str) -> Output {
    let prelude = r#"up() { timeout 20 "$TENURE" up --no-agent --data-dir data "$@"; }"#;
    Command::new("sh")
        .args(["-c", &format!("{prelude}\n{script}")])
        .current_dir(dir)
        .env("TENURE", program("tenure"))
        .env("PORT", free_port().to_string())
        .env("AGENT_PORT", free_port().to_string())
        .output()
        .unwrap()
}

/// Ends with 2, saying `what`.
#[track_caller]
fn refused(dir: &Path, script: &str, what: &str) {
    let output = shell(dir, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains(what),
        "{script}\nended with {:?} and said:\n{said}",
        output.status.code()
    );
}

const LISTEN: &str = r#"--listen "127.0.0.1:$PORT" --agent-listen "127.0.0.1:$AGENT_PORT""#;

#[test]
fn wrong_settings_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for (script, what) in [
        (format!("up --listen {address}"), "in use"),
        (
            format!(r#"up --listen "127.0.0.1:$PORT" --agent-listen {address}"#),
            "in use",
        ),
        ("up --listen 127.0.0.1:65536".into(), "--listen"),
        ("up --listen 0.0.0.0:0".into(), "without TLS"),
        (
            "up --listen 127.0.0.1:0 --tls-cert absent.pem --tls-key absent.pem".into(),
            "absent.pem",
        ),
        ("up --listen 127.0.0.1:0 --lease-term 0s".into(), "--lease-term"),
        ("up --listen 127.0.0.1:0 --otlp collector:4318".into(), "--otlp"),
        (
            "up --listen 127.0.0.1:0 --otlp http://u:p@c".into(),
            "OTEL_EXPORTER_OTLP_HEADERS",
        ),
        (
            format!(
                "OTEL_EXPORTER_OTLP_ENDPOINT=nonsense; export OTEL_EXPORTER_OTLP_ENDPOINT; up {LISTEN} --data-dir none"
            ),
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        (format!("echo text >plain; up {LISTEN} --data-dir plain"), "plain"),
        (format!("up {LISTEN} --data-dir /proc/tenure"), "/proc/tenure"),
        (
            format!("up {LISTEN} --database postgres://127.0.0.1:1/nothing"),
            "connect",
        ),
        (
            format!("up {LISTEN} --database mysql://127.0.0.1/tenure"),
            "database",
        ),
        (
            format!(
                "mkdir -m 700 keyed; head -c 32 /dev/zero >keyed/master.key; chmod 644 keyed/master.key; up {LISTEN} --data-dir keyed"
            ),
            "others may read it",
        ),
        (
            format!(
                "mkdir -m 700 short; (umask 077; echo x >short/master.key); up {LISTEN} --data-dir short"
            ),
            "32 bytes",
        ),
    ] {
        // A flag given twice would be refused for that alone.
        let script = match script.contains("--data-dir") {
            true => script.replace("up ", r#"timeout 20 "$TENURE" up --no-agent "#),
            false => script,
        };
        refused(dir, &script, what);
    }
}

#[test]
fn a_disk_that_is_read_only_or_full_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let on = |options: &str| {
        format!(
            r#"mkdir -p data; unshare -rm sh -c 'mount -t tmpfs -o {options} none data && exec timeout 20 "$TENURE" up --no-agent --data-dir data {}'"#,
            LISTEN.replace('"', "")
        )
    };
    refused(dir, &on("size=1m,ro"), "Read-only file system");
    refused(dir, &on("size=16k"), "full");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_is_newer_damaged_held_or_not_ours_is_refused() {
    let mut house = House::new(None);
    house.start_server().await;
    let up = format!("up {LISTEN}");
    let held = house.dir.path().to_owned();
    refused(&held, &up, "held by another server");
    house.interrupt_server();
    let meddle = |sql: &str| {
        let script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
        let database = house.data().join("journal.db");
        let done = Command::new("python3")
            .args(["-c", script])
            .arg(database)
            .arg(sql)
            .status();
        assert!(done.unwrap().success());
    };
    meddle("UPDATE meta SET value = '2' WHERE name = 'format'");
    refused(&held, &up, "newer version");
    meddle("UPDATE meta SET value = '1' WHERE name = 'format'");
    let key = house.data().join("master.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::write(&key, [7; 32]).unwrap();
    refused(&held, &up, "master key");
    std::fs::write(&key, kept).unwrap();
    let bytes = std::fs::read(house.data().join("journal.db")).unwrap();
    std::fs::write(house.data().join("journal.db"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&held, &up, "damaged");
}

fn job(script: &str) -> SubmitJob {
    let command = serde_json::json!({
        "spec": { "name": "it", "command": ["sh", "-c", script], "demand": { "cpu_milli": 100, "memory_mib": 64 } }
    });
    serde_json::from_value(command).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_cleanly_and_a_second_start_has_kept_everything() {
    let mut house = House::new(None);
    house.with_agent = true;
    house.start_server().await;
    let token = house.demo_token("acme/research/ada");
    let (short, long) = (job("echo done"), job("sleep 611"));
    let ada = house.client(&token);
    let short = ada.submit_job(&short, None).await.unwrap().id.to_string();
    let long = ada.submit_job(&long, None).await.unwrap().id.to_string();
    let begun = Instant::now();
    while !(phase(&ada, &short).await == "done" && phase(&ada, &long).await == "running") {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = Instant::now();
    assert_eq!(house.interrupt_server(), Some(0), "{}", house.log());
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    assert!(
        !sleeps_611(),
        "the job ended with the server that was told to stop"
    );
    house.start_server().await;
    let ada = house.client(&token);
    assert_eq!(phase(&ada, &short).await, "done");
    let begun = Instant::now();
    while phase(&ada, &long).await != "running" {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it went back to the queue and runs again"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(house.interrupt_server(), Some(0));
}

async fn phase(client: &tenure_api::client::Client, job: &str) -> String {
    let job = client.job(job).await.unwrap();
    serde_json::to_value(job.phase)
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

fn sleeps_611() -> bool {
    let found = Command::new("pgrep").args(["-xf", "sleep 611"]).output().unwrap();
    found.status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_one_leads_and_the_other_reads_and_takes_over() {
    let postgres = PostgresServer::start();
    let url = postgres.url();
    let mut first = House::new(Some(url.clone()));
    first.start_server().await;
    let mut second = House::new(Some(url));
    std::fs::create_dir(second.data()).unwrap();
    for shared in ["master.key", "owner.token", "demo.json"] {
        std::fs::copy(first.data().join(shared), second.data().join(shared)).unwrap();
    }
    second.start_follower().await;
    let tenant = |name: &str| CreateTenant { name: name.into() };
    first.owner().create_tenant(&tenant("early"), None).await.unwrap();
    let begun = Instant::now();
    while second.owner().scope_by_path("early").await.is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the follower reads what the leader wrote"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let written = second.owner().create_tenant(&tenant("astray"), None).await;
    assert!(
        matches!(&written, Err(ClientError::Refused(problem)) if problem.status == 503 && problem.code == "not_leader"),
        "{written:?}"
    );
    first.kill_server();
    let begun = Instant::now();
    let made = loop {
        match second.owner().create_tenant(&tenant("late"), Some("late")).await {
            Ok(made) => break made,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "nobody leads: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    first.start_follower().await;
    let seen = first.owner().scope_by_path("late").await.unwrap();
    assert_eq!(seen.id, made.id, "the old leader follows the new one");
    assert!(first.owner().scope_by_path("early").await.is_ok());
    assert!(first.owner().scope_by_path("astray").await.is_err());
}
