//! Ctrl-C at each step of a command: the program leaves at once, says what goes on, and nothing is half done.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_api::client::Client;
use tenure_api::v1::job::{JobPhase, JobView};
use tenure_domain::workload::job::Outcome;
use tenure_sim::house::{House, program};

/// Starts `tenure` as ada, without a terminal; Ctrl-C means what it does at one, also where the tests were started
/// in the background.
fn tenure(house: &House, args: &[&str]) -> Child {
    Command::new("env")
        .arg("--default-signal=INT")
        .arg(program("tenure"))
        .args(args)
        .env("TENURE_SERVER", house.url())
        .env("TENURE_TOKEN", house.demo_token("acme/research/ada"))
        .env("HOME", house.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Presses Ctrl-C; gives the exit code and what was still said.
fn interrupt(mut child: Child, mut said: impl Read) -> (Option<i32>, String) {
    let asked = Instant::now();
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let code = child.wait().unwrap().code();
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}: {text}",
        asked.elapsed()
    );
    (code, text)
}

async fn named(client: &Client, name: &str, phase: JobPhase) -> JobView {
    let begun = Instant::now();
    loop {
        let jobs = client.jobs(&Default::default()).await.unwrap().items;
        let found = jobs.into_iter().find(|job| job.spec.name == name);
        if let Some(job) = found.filter(|job| job.phase == phase) {
            return job;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{name} is not {phase:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_leaves_at_each_step() {
    let mut house = House::new(None);
    house.start_server().await;
    let ada = house.client(&house.demo_token("acme/research/ada"));

    // While it waits, for no node has joined: it goes on waiting.
    let mut run = tenure(&house, &["run", "--name", "waits", "--", "sleep", "60"]);
    let said = run.stderr.take().unwrap();
    let waits = named(&ada, "waits", JobPhase::Queued).await;
    let (code, said) = interrupt(run, said);
    assert!(code == Some(130) && said.contains("goes on"), "{code:?}: {said}");
    assert_eq!(
        ada.job(&waits.id.to_string()).await.unwrap().phase,
        JobPhase::Queued
    );
    house.start_agent().await;

    // While it runs: it goes on running, unless asked to be stopped.
    named(&ada, "waits", JobPhase::Running).await;
    let mut run = tenure(
        &house,
        &[
            "run",
            "--name",
            "stops",
            "--stop-on-interrupt",
            "--",
            "sleep",
            "60",
        ],
    );
    let said = run.stderr.take().unwrap();
    let stops = named(&ada, "stops", JobPhase::Running).await;
    let (code, said) = interrupt(run, said);
    assert!(code != Some(0) && said.contains("stopping"), "{code:?}: {said}");
    let stopped = ada.job(&stops.id.to_string()).await.unwrap();
    assert_eq!(
        (stopped.phase, stopped.outcome),
        (JobPhase::Done, Some(Outcome::Cancelled))
    );

    // While it only looks: nothing changes.
    for args in [vec!["logs", "-f", "waits"], vec!["events", "-f"]] {
        let mut look = tenure(&house, &args);
        let mut said = BufReader::new(look.stdout.take().unwrap());
        if args[0] == "events" {
            said.read_line(&mut String::new()).unwrap();
        } else {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let (code, _) = interrupt(look, said);
        assert!(code != Some(0), "{args:?} ended as if it had come to an end");
        assert_eq!(
            ada.job(&waits.id.to_string()).await.unwrap().phase,
            JobPhase::Running
        );
    }
}
