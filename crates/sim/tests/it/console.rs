//! The console in a real browser, before a real server with real jobs: every page for every role, a job from its form to
//! its bill by mouse alone, and what hostile names can do there, which is nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_sim::house::House;

/// Where the browser's driver and the accessibility rules are installed once and kept.
fn peers() -> PathBuf {
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/console.mjs");
    std::fs::copy(script, dir.join("console.mjs")).unwrap();
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_for_every_role_and_a_job_from_its_form_to_its_bill() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let owner = std::fs::read_to_string(house.data().join("owner.token")).unwrap();
    let dir = peers();
    let browsed = tokio::task::spawn_blocking({
        let mut browse = Command::new("node");
        browse
            .arg("console.mjs")
            .current_dir(dir)
            .env("TENURE_SERVER", house.url())
            .env("OWNER", owner.trim())
            .env("ALMA", house.demo_token("acme/alma"))
            .env("ADA", house.demo_token("acme/research/ada"))
            .env("GUS", house.demo_token("globex/gus"))
            .env("BO", house.demo_token("acme/studio/bo"))
            .env("CLEO", house.demo_token("globex/labs/cleo"));
        move || browse.output().expect("node runs")
    });
    let browsed = browsed.await.unwrap();
    let said =
        String::from_utf8_lossy(&browsed.stdout).into_owned() + &String::from_utf8_lossy(&browsed.stderr);
    assert!(browsed.status.success(), "{said}");
    assert!(said.contains("all done"), "{said}");
}
