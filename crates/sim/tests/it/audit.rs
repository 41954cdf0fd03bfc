//! The audit with the real programs: a prober's record from its node to the command line, checked there without the
//! server, and what its tenant, a stranger and the operator hear of it.

use std::process::{Command, Output, Stdio};

use tenure_sim::house::{House, program};

const ADA: &str = "acme/research/ada";
const OTHER: &str = "globex/labs/cleo";

/// Tries what no job may.
const PROBE: &str = "
import ctypes
libc = ctypes.CDLL(None)
for call in [155, 161, 163, 165, 166, 167, 170, 175, 246, 248, 250, 272, 298, 304, 308, 321]: libc.syscall(call, 0, 0)
";

fn tenure(house: &House, user: &str, args: &[&str]) -> Output {
    Command::new(program("tenure"))
        .args(args)
        .env("TENURE_SERVER", house.url())
        .env("TENURE_TOKEN", house.demo_token(user))
        .env("HOME", house.dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(house: &House, user: &str, args: &[&str]) -> String {
    let output = tenure(house, user, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probers_record_reaches_its_tenant_and_nobody_else() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    said(&house, ADA, &["run", "-y", "--name", "quiet", "--", "true"]);
    said(
        &house,
        ADA,
        &["run", "-y", "--name", "prober", "--", "python3", "-c", PROBE],
    );
    let shown = said(&house, ADA, &["audit", "show", "prober"]);
    for words in [
        "probing_limits",
        "different system calls were denied",
        "good, by key",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!said(&house, ADA, &["audit", "show", "quiet"]).contains("anomaly"));

    let json = said(&house, ADA, &["audit", "show", "prober", "-o", "json"]);
    let file = house.dir.path().join("audit.json");
    std::fs::write(&file, &json).unwrap();
    let path = file.to_str().unwrap();
    assert!(said(&house, ADA, &["audit", "verify", path]).contains("signed by key"));
    let changed = json.replacen("\"ran_ms\": ", "\"ran_ms\": 1", 1);
    assert_ne!(changed, json, "something was changed");
    std::fs::write(&file, changed).unwrap();
    let output = tenure(&house, ADA, &["audit", "verify", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("the signature does not match"));
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(
        tenure(&house, ADA, &["audit", "verify", path]).status.code(),
        Some(2)
    );

    let heard = ["events", "--last", "1000", "--kind", "AnomalyFound"];
    assert!(said(&house, ADA, &heard).contains("probing_limits"));
    assert!(
        !said(&house, OTHER, &heard).contains("probing_limits"),
        "not a stranger"
    );
    let job = said(&house, ADA, &["show", "prober", "-o", "name"]);
    let refused = tenure(&house, OTHER, &["audit", "show", job.trim()]);
    assert_eq!(refused.status.code(), Some(3));
}
