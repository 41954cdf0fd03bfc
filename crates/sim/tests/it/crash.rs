//! The server killed at random moments under load: nothing acknowledged is lost, nothing is doubled, the ledger
//! sums to zero, what runs is adopted, and no job runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_api::client::{Client, ClientError};
use tenure_api::v1::job::{JobPhase, JobQuery, SubmitJob};
use tenure_domain::id::JobId;
use tenure_domain::workload::job::Outcome;
use tenure_domain::{Event, State, Time};
use tenure_journal::testing::PostgresServer;
use tenure_journal::{JournalReader, Location, VerifyOptions};
use tokio::sync::Mutex;

use tenure_sim::house::House;

const CLIENTS: u64 = 4;
/// How many jobs are submitted for each kill: on a slow machine kills are far between, and the rest would only queue.
const JOBS_PER_KILL: u64 = 10;

fn crashes() -> u64 {
    std::env::var("TENURE_CRASHES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_on_sqlite() {
    let house = House::new(None);
    let location = Location::Sqlite(house.data());
    crash_and_check(house, location).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_on_postgresql() {
    let Location::Postgres(url, _) = PostgresServer::shared().new_location() else {
        unreachable!()
    };
    let house = House::new(Some(url.clone()));
    crash_and_check(house, Location::Postgres(url, "tenure".into())).await;
}

/// Jobs by the Idempotency-Key they were submitted with, as the server acknowledged them.
type Acknowledged = Arc<Mutex<BTreeMap<String, JobId>>>;

async fn crash_and_check(mut house: House, location: Location) {
    house.start_server().await;
    house.start_agent().await;
    lift_quotas(&house).await;
    let acknowledged = Acknowledged::default();
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let allowed = Arc::new(AtomicU64::new(JOBS_PER_KILL));
    let token = house.demo_token("acme/research/ada");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            tokio::spawn(submit_until(
                house.client(&token),
                next.clone(),
                allowed.clone(),
                acknowledged.clone(),
                stop.clone(),
            ))
        })
        .collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..crashes() {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis(20 + (seed >> 33) % 300)).await;
        house.kill_server();
        house.start_server().await;
        allowed.fetch_add(JOBS_PER_KILL, Ordering::Relaxed);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    until_all_done(&house, &token).await;
    let acknowledged = acknowledged.lock().await.clone();
    assert!(
        acknowledged.len() as u64 >= crashes(),
        "too little was submitted to prove anything: {}",
        acknowledged.len()
    );
    check_jobs(&house.client(&token), &acknowledged).await;
    house.kill_server();
    check_journal(&location, &acknowledged).await;
    check_runs(&house, &acknowledged);
}

async fn lift_quotas(house: &House) {
    let owner = house.owner();
    let acme = owner.scope_by_path("acme").await.unwrap();
    let none = tenure_api::v1::limit::SetQuota {
        limits: Default::default(),
    };
    owner.set_quota(&acme.id.to_string(), &none, None).await.unwrap();
}

/// Submits jobs one after another; after a broken connection the same key is sent again until it is answered.
async fn submit_until(
    client: Client,
    next: Arc<AtomicU64>,
    allowed: Arc<AtomicU64>,
    acknowledged: Acknowledged,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        if next.load(Ordering::Relaxed) >= allowed.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let key = format!("key-{}", next.fetch_add(1, Ordering::Relaxed));
        let spec = format!(
            r#"{{"spec":{{"name":"{key}","command":["sh","-c","echo ran {key}; sleep 0.05"],"demand":{{"cpu_milli":1,"memory_mib":16}}}}}}"#
        );
        let body: SubmitJob = serde_json::from_str(&spec).unwrap();
        loop {
            match client.submit_job(&body, Some(&key)).await {
                Ok(job) => {
                    acknowledged.lock().await.insert(key, job.id);
                    break;
                }
                Err(ClientError::Refused(problem))
                    if problem.status != 503 && problem.code != "idempotency_in_flight" =>
                {
                    panic!("{problem:?}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits while fewer and fewer jobs are left.
async fn until_all_done(house: &House, token: &str) {
    let client = house.client(token);
    let (mut least, mut since) = (usize::MAX, Instant::now());
    loop {
        let mut query = JobQuery {
            limit: Some(1000),
            ..JobQuery::default()
        };
        let mut left = Vec::new();
        loop {
            let page = client.jobs(&query).await.unwrap();
            left.extend(page.items);
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        let Some(job) = left.first() else { return };
        if left.len() < least {
            (least, since) = (left.len(), Instant::now());
        }
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "{} jobs have not ended, and none did for two minutes: {job:?}",
            left.len()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn check_jobs(client: &Client, acknowledged: &BTreeMap<String, JobId>) {
    let ids: BTreeSet<&JobId> = acknowledged.values().collect();
    assert_eq!(
        ids.len(),
        acknowledged.len(),
        "two keys were answered with one job"
    );
    for (key, id) in acknowledged {
        let job = client
            .job(&id.to_string())
            .await
            .unwrap_or_else(|error| panic!("{key} was acknowledged as {id} and is gone: {error}"));
        assert_eq!(
            (job.phase, &job.outcome, job.attempt),
            (JobPhase::Done, &Some(Outcome::Succeeded), 1),
            "{job:?}"
        );
    }
}

async fn check_journal(location: &Location, acknowledged: &BTreeMap<String, JobId>) {
    let journal = JournalReader::open(location).await.unwrap();
    let report = journal.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.first_bad.is_none(), "{report:?}");
    let mut state = State::default();
    let mut submitted: BTreeMap<String, u32> = BTreeMap::new();
    let mut started: BTreeMap<JobId, u32> = BTreeMap::new();
    let mut seq = 0;
    loop {
        let lines = journal.read(seq + 1, 10_000).await.unwrap();
        let Some(last) = lines.last() else { break };
        seq = last.seq;
        for line in &lines {
            let event: Event = serde_json::from_str(&line.event).unwrap();
            match &event {
                Event::JobSubmitted { spec, .. } => *submitted.entry(spec.name.clone()).or_default() += 1,
                Event::JobRunning { job } => *started.entry(*job).or_default() += 1,
                _ => {}
            }
            state.apply(Time(line.at_ms), &event);
            assert_eq!(
                state.accounts.sum(),
                0,
                "the ledger does not sum to zero after event {}",
                line.seq
            );
        }
    }
    assert!(
        submitted.values().all(|&times| times == 1),
        "a submission was journalled twice"
    );
    assert!(
        started.values().all(|&times| times == 1),
        "a job was seen to start twice"
    );
    assert_eq!(
        submitted.len(),
        acknowledged.len(),
        "every key was answered in the end, and nothing else was submitted"
    );
    assert!(state.jobs.is_empty() && state.fleet.allocations().next().is_none());
}

/// What the jobs themselves wrote: each its line, once.
fn check_runs(house: &House, acknowledged: &BTreeMap<String, JobId>) {
    let mut ran: BTreeMap<String, u32> = BTreeMap::new();
    collect_logs(&house.agent_dir(), &mut ran);
    for key in acknowledged.keys() {
        assert_eq!(ran.get(key), Some(&1), "{key} ran {:?} times", ran.get(key));
    }
    assert_eq!(ran.len(), acknowledged.len());
}

fn collect_logs(dir: &std::path::Path, ran: &mut BTreeMap<String, u32>) {
    for entry in std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() && !entry.is_symlink() {
            collect_logs(&entry, ran);
        } else if entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("stdout"))
        {
            let text = std::fs::read_to_string(&entry).unwrap_or_default();
            for key in text.lines().filter_map(|line| line.strip_prefix("ran ")) {
                *ran.entry(key.to_owned()).or_default() += 1;
            }
        }
    }
}
