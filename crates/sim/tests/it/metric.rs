//! A real Prometheus scrapes a real server with a real agent: the public dashboard for dcgm-exporter's metrics lights
//! up unchanged, our own boards and alerts are sound.
//!
//! The agent has the machine's OpenCL device, and an H100 of which the double of NVML tells: what the former does not
//! measure of itself has readings all the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_sim::house::{House, free_port, program};
use tenure_sim::shared::contract;

const ADA: &str = "acme/research/ada";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Prometheus of the test's own.
struct Prometheus {
    url: String,
    child: Child,
    http: reqwest::Client,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(dir: &Path, server: u16, token: &str) -> Prometheus {
        let shipped = std::fs::read_to_string(root().join("deploy/prometheus/prometheus.yml")).unwrap();
        let home = dir.join("prometheus");
        std::fs::create_dir(&home).unwrap();
        let secret = home.join("tenure.token");
        std::fs::write(&secret, token).unwrap();
        let rules = root().join("deploy/prometheus/tenure.rules.yml");
        let config = shipped
            .replace("127.0.0.1:7070", &format!("127.0.0.1:{server}"))
            .replace("/etc/prometheus/tenure.token", &secret.display().to_string())
            .replace("tenure.rules.yml", &rules.display().to_string())
            .replace("scrape_interval: 15s", "scrape_interval: 1s");
        std::fs::write(home.join("prometheus.yml"), config).unwrap();
        let port = free_port();
        let log = std::fs::File::create(home.join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", home.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", home.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus is there: scripts/setup test installs it");
        Prometheus {
            url: format!("http://127.0.0.1:{port}"),
            child,
            http: reqwest::Client::new(),
        }
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query).ok()?;
        let answer = self.http.get(url).send().await.ok()?.text().await.ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// The series a query gives now; none where it is no query.
    async fn query(&self, query: &str) -> Option<Vec<Value>> {
        let answer = self.ask("/api/v1/query", &[("query", query)]).await?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned()
    }

    /// What a variable of a dashboard stands for, where all of it is chosen.
    async fn label(&self, metric: &str, label: &str) -> String {
        let path = format!("/api/v1/label/{label}/values");
        let answer = self.ask(&path, &[("match[]", metric)]).await.unwrap_or_default();
        let values = answer["data"].as_array().cloned().unwrap_or_default();
        let values: BTreeSet<&str> = values.iter().filter_map(Value::as_str).collect();
        values.into_iter().collect::<Vec<_>>().join("|")
    }
}

/// Every query of a dashboard, rows and all.
fn queries(panel: &Value, found: &mut Vec<String>) {
    let targets = panel["targets"].as_array().into_iter().flatten();
    found.extend(targets.filter_map(|target| target["expr"].as_str().map(str::to_owned)));
    for panel in panel["panels"].as_array().into_iter().flatten() {
        queries(panel, found);
    }
}

fn dashboard(path: &Path) -> Option<Vec<String>> {
    let board: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).expect("JSON");
    let mut found = Vec::new();
    queries(&board, &mut found);
    assert!(!found.is_empty(), "{} asks for nothing", path.display());
    Some(found)
}

/// An H100 and its readings, as the double of NVML tells them.
fn lay_nvml(house: &mut House) {
    let profile = house.dir.path().join("profile.json");
    let machine = json!({"driver": "570.86.15", "devices": [
        {"model": "H100-80GB", "uuid": "GPU-11111111-2222-3333-4444-555555555555", "bus": 65, "ecc": true, "gauges": {
            "busy_percent": 83, "used_mib": 1234, "temperature_c": 71, "power_mw": 301_500, "energy_mj": 987_654_321,
            "throttle_reasons": 0, "corrected": 5, "sm_clock_mhz": 1410, "memory_clock_mhz": 1593,
            "memory_percent": 31, "graphics_percent": 77.5, "tensor_percent": 42.0,
        }},
    ]});
    std::fs::write(&profile, machine.to_string()).unwrap();
    let library = program("examples/libnvml_double.so");
    house.agent_env = vec![
        ("TENURE_NVML_LIBRARY".into(), library.display().to_string()),
        ("TENURE_NVML_PROFILE".into(), profile.display().to_string()),
    ];
}

/// A key that may scrape and nothing else, of the platform's owner.
async fn scraper(house: &House) -> String {
    let owner = house.owner();
    let user = owner.whoami().await.unwrap().user.id;
    let body = serde_json::from_value(json!({ "label": "prometheus", "allow": ["metric_read"] })).unwrap();
    let key = owner.create_key(&user.to_string(), &body).await.unwrap();
    key.token
}

/// A job of a tenant on the OpenCL device, running; one that waits for all of the device; and a budget that both count on.
async fn run_a_job(house: &House) {
    let devices = house.owner().gpus(&Default::default()).await.unwrap().items;
    let opencl = devices.iter().find(|device| device.gpu.vendor != "NVIDIA");
    let class = &opencl.expect("the machine's OpenCL device").gpu.class;
    let run = |name: &str, gpus: &str, more: &[&str]| {
        let done = Command::new(program("tenure"))
            .args([
                "run", "-d", "-y", "--name", name, "--gpus", gpus, "--class", class,
            ])
            .args(more)
            .args(["--", "sleep", "600"])
            .env("TENURE_SERVER", house.url())
            .env("TENURE_TOKEN", house.demo_token(ADA))
            .env("HOME", house.dir.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let budget = json!({ "budgets": [{ "period": "month", "money_micros": 1_000_000_000 }] });
    let budget = serde_json::from_value(budget).unwrap();
    let owner = house.owner();
    let me = house.client(&house.demo_token(ADA)).whoami().await.unwrap().user;
    let research = me.parent.expect("it is a user of a subscriber").to_string();
    owner.set_budgets(&research, &budget, None).await.unwrap();
    run("spins", "0.5", &["--vram", "256MiB"]);
    run("waits", "1", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboards_light_up_in_a_real_prometheus() {
    let mut house = House::new(None);
    lay_nvml(&mut house);
    house.start_server().await;
    house.start_agent().await;
    run_a_job(&house).await;
    let prometheus = Prometheus::start(house.dir.path(), house.port, &scraper(&house).await);

    // What jobs and devices do takes a few seconds to be there.
    let slices = "DCGM_FI_DEV_GPU_UTIL{container=\"spins\"}";
    let tensor = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE";
    let begun = Instant::now();
    loop {
        let mut there = 0;
        for query in [
            slices,
            tensor,
            "up{job=\"tenure\"} == 1",
            "rate(tenure_decisions_total[1m])",
        ] {
            there += usize::from(
                prometheus
                    .query(query)
                    .await
                    .is_some_and(|found| !found.is_empty()),
            );
        }
        if there == 4 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "only {there} of 4 are there; {}",
            std::fs::read_to_string(house.dir.path().join("prometheus/log")).unwrap_or_default()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(prometheus.query("up == 0").await.unwrap().is_empty());
    // The tenant's slice beside the device's own row.
    let of_job = prometheus
        .query("DCGM_FI_DEV_FB_FREE{container=\"spins\"}")
        .await
        .unwrap();
    assert_eq!(of_job[0]["metric"]["namespace"], "acme/research", "{of_job:?}");
    assert_eq!(of_job[0]["value"][1], "256");

    let instance = prometheus.label("DCGM_FI_DEV_GPU_TEMP", "instance").await;
    let gpu = prometheus.label("DCGM_FI_DEV_GPU_TEMP", "gpu").await;
    if let Some(public) = contract("grafana-12239-dcgm.json") {
        for query in dashboard(&public).expect("it is there") {
            let asked = query
                .replace("$instance", &format!("({instance})"))
                .replace("$gpu", &format!("({gpu})"));
            let found = prometheus.query(&asked).await.unwrap();
            assert!(!found.is_empty(), "{query} gives nothing");
            println!("{query}: {}", found[0]["value"][1]);
        }
    }
    // Of these nothing happened here.
    let quiet = [
        "evictions",
        "_leased",
        "_let",
        "_offered",
        "_bid",
        "refusals",
        "jobs_ended",
    ];
    for board in ["tenure-fleet.json", "tenure-tenants.json"] {
        for query in dashboard(&root().join("deploy/grafana").join(board)).expect("is shipped") {
            let asked = query
                .replace("$__rate_interval", "1m")
                .replace("$class", ".*")
                .replace("$tenant", ".*");
            let found = prometheus.query(&asked).await.unwrap();
            let expected = !quiet.iter().any(|quiet| query.contains(quiet));
            assert!(!expected || !found.is_empty(), "{board}: {query} gives nothing");
        }
    }
    // The alerts we ship are loaded, and none is wrong about a platform that is well.
    let rules = prometheus.ask("/api/v1/rules", &[]).await.unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(rules.len() >= 11, "{rules:?}");
    for rule in rules {
        assert_ne!(rule["health"], "err", "{rule}");
        assert_ne!(rule["state"], "firing", "{rule}");
    }
}

#[test]
fn alert_rules_are_sound_and_fire_when_they_should() {
    let dir = root().join("deploy/prometheus");
    for arguments in [
        ["check", "rules", "tenure.rules.yml"],
        ["test", "rules", "tenure.test.yml"],
        ["check", "config", "--syntax-only"],
    ] {
        let config = (arguments[1] == "config").then_some("prometheus.yml");
        let output = Command::new("promtool")
            .args(arguments)
            .args(config)
            .current_dir(&dir)
            .output()
            .expect("promtool is there: scripts/setup test installs it");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&said)
        );
    }
    // Each alert has a test that sees it fire.
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let (rules, tests) = (read("tenure.rules.yml"), read("tenure.test.yml"));
    for alert in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        let fires = tests
            .split("alertname: ")
            .skip(1)
            .any(|rest| rest.starts_with(alert) && !rest.lines().next().unwrap_or_default().contains("[]"));
        assert!(fires, "no test sees {alert} fire");
    }
}
