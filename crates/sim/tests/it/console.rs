//! The console in a real browser, before a real server with real jobs: every page for every role, a job from its form to
//! its bill by mouse alone, and what hostile names can do there, which is nothing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tenure_sim::house::{House, program};

/// Where the browser's driver and the accessibility rules are installed once and kept.
fn peers() -> PathBuf {
    static ONCE: Mutex<()> = Mutex::new(());
    let _once = ONCE.lock().unwrap();
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console-peers-1");
    let wanted = ["playwright-core@1", "axe-core@4"];
    let there =
        ["playwright-core", "axe-core"].map(|name| dir.join("node_modules").join(name).join("package.json"));
    if !there.iter().all(|file| file.is_file()) {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("package.json"), r#"{"private":true,"type":"module"}"#).unwrap();
        let done = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--silent"])
            .args(wanted)
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
            .current_dir(&dir)
            .status()
            .expect("npm runs");
        assert!(done.success(), "npm could not install {wanted:?}");
    }
    for script in ["console.mjs", "console-fleet.mjs"] {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/it")
            .join(script);
        std::fs::copy(ours, dir.join(script)).unwrap();
    }
    dir
}

/// Runs a script to its end; what it said where that is not as it should be, and for whoever reads along.
fn walk(mut node: Command) {
    let walked = node.output().expect("node runs");
    let said =
        String::from_utf8_lossy(&walked.stdout).into_owned() + &String::from_utf8_lossy(&walked.stderr);
    assert!(walked.status.success() && said.contains("all done"), "{said}");
    println!("{said}");
}

/// A server with a fleet that is not there.
struct Bare(Child);

impl Bare {
    /// With its address and its owner's key, once it has all its devices.
    fn start(dir: &Path, gpus: usize) -> (Bare, String) {
        let mut server = Command::new(program("examples/bare_server"))
            .arg(dir.join(gpus.to_string()))
            .arg(gpus.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut line = || said.next().expect("an address and a key").unwrap();
        let (address, key) = (line(), line());
        (Bare(server), format!("{gpus} {address} {key}"))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_frame_of_the_fleet_costs_what_it_shows_however_large_the_fleet_is() {
    let dir = tempfile::tempdir().unwrap();
    let (_small, of_small) = Bare::start(dir.path(), 1_000);
    let (_large, of_large) = Bare::start(dir.path(), 10_000);
    let mut node = Command::new("node");
    node.arg("console-fleet.mjs")
        .current_dir(peers())
        .env("SERVERS", format!("{of_small}\n{of_large}"));
    walk(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_for_every_role_and_a_job_from_its_form_to_its_bill() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let owner = std::fs::read_to_string(house.data().join("owner.token")).unwrap();
    let dir = peers();
    let mut node = Command::new("node");
    node.arg("console.mjs")
        .current_dir(dir)
        .env("TENURE_SERVER", house.url())
        .env("OWNER", owner.trim())
        .env("ALMA", house.demo_token("acme/alma"))
        .env("ADA", house.demo_token("acme/research/ada"))
        .env("GUS", house.demo_token("globex/gus"))
        .env("BO", house.demo_token("acme/studio/bo"))
        .env("CLEO", house.demo_token("globex/labs/cleo"));
    tokio::task::spawn_blocking(move || walk(node)).await.unwrap();
}
