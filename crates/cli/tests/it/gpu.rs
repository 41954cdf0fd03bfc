//! Devices as users see them.

use serde_json::{Value, json};

use crate::stub::{Stub, job, ok};
use crate::tenure::Tenure;

const GPU: &str = "gpu_0000000000abc";

fn device() -> Value {
    json!({
        "node": "nod_0000000000001", "node_name": "alpha",
        "gpu": {
            "id": GPU, "uuid": "GPU-11", "vendor": "maker", "model": "Model 9", "class": "H100", "vram_mib": 8192,
            "used_vram_mib": 6144, "used_permille": 800, "slices": 2,
            "isolation": { "guarded": "by the guard alone" }, "present": true,
        },
        "slices": [
            {
                "vram_mib": 2048, "compute_permille": 300,
                "holder": {
                    "allocation": "alc_0000000000001", "job": "job_0000000000001", "job_name": "train",
                    "owner_path": "acme/research/ada", "isolation": "guarded", "isolation_why": "both agreed", "capped": true,
                },
                "used": {
                    "used_vram_mib": 1024, "peak_vram_mib": 1536, "limit_vram_mib": 2048, "processes": 1,
                    "busy_permille": 285, "throttled_permille": 40, "waited_permille": 11, "launches_per_s": 900,
                    "refusals": 3, "denials": 0,
                },
            },
            { "vram_mib": 4096, "compute_permille": 500 },
        ],
        "read": "2026-01-01T00:00:00Z", "stale": false,
        "gauges": {
            "busy_permille": 642, "used_vram_mib": 3000, "temperature_c": 61, "power_mw": 215_400,
            "energy_mj": 7_200_000_000_u64, "ecc_corrected": 4, "ecc_uncorrected": 0, "throttled_by": ["power"],
        },
        "recent": { "step_s": 5, "busy_permille": [null, 0, 500, 1000], "used_vram_mib": [null, 1, 2, 3] },
    })
}

fn tenure(device: Value) -> (Stub, Tenure) {
    let stub = Stub::new(move |request| match () {
        () if request.is("GET", "/v1/gpus") => Some(ok(json!({ "items": [device] }))),
        () if request.is("GET", &format!("/v1/gpus/{GPU}")) => Some(ok(device.clone())),
        () => None,
    });
    let tenure = Tenure::with_server(&stub.url);
    (stub, tenure)
}

#[test]
fn a_list_tells_what_is_given_and_what_is_used() {
    let (_stub, tenure) = tenure(device());
    let out = tenure.run(&["gpu", "list"]);
    out.expect(0, "");
    assert_eq!(
        out.stdout,
        "\
GPU                NODE   CLASS   VRAM  GIVEN      USED  BUSY   TEMP  SLICES
gpu_0000000000abc  alpha  H100   8 GiB  6 GiB  2.92 GiB  65 %  61 °C       2
"
    );
    let wide = tenure.run(&["gpu", "ls", "-o", "wide"]).stdout;
    for word in ["maker Model 9", "215.4 W", "80 %", "guarded", "GPU-11"] {
        assert!(wide.contains(word), "{word}: {wide}");
    }
    assert_eq!(
        tenure.run(&["gpu", "ls", "-o", "name"]).stdout,
        format!("{GPU}\n")
    );
    let read: Value = serde_json::from_str(&tenure.run(&["gpu", "ls", "-o", "json"]).stdout).unwrap();
    assert_eq!(read[0]["slices"][0]["used"]["busy_permille"], 285);
    assert!(
        tenure
            .run(&["gpu", "ls", "-o", "yaml"])
            .stdout
            .contains("temperature_c: 61")
    );
}

#[test]
fn a_device_is_shown_with_its_slices_to_scale() {
    let (_stub, tenure) = tenure(device());
    for name in [GPU, "0abc", "GPU-11"] {
        let out = tenure.run(&["gpu", "show", name]);
        out.expect(0, "");
        for line in [
            "vram          aaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbb············  6 GiB of 8 GiB given",
            "compute       aaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbb··········  80 % given",
            "isolation     guarded: by the guard alone",
            "used          2.92 GiB",
            "busy          64.2 %",
            "temperature   61 °C",
            "power         215.4 W",
            "energy        2.00 kWh since its driver was loaded",
            "ecc errors    4 corrected, 0 uncorrected",
            "throttled by  power",
            "▁▅█  busy, last 0 min",
            "a  acme/research/ada  train  30 % at most  28.5 %        4 %  2 GiB  1 GiB  1.5 GiB  guarded",
            "b  in use                            50 %       –          –  4 GiB      –        –",
        ] {
            assert!(out.stdout.contains(line), "{line}\nin\n{}", out.stdout);
        }
    }
    let wide = tenure.run(&["gpu", "show", GPU, "-o", "wide"]).stdout;
    assert!(wide.contains("900") && wide.contains("both agreed"), "{wide}");
    tenure
        .run(&["gpu", "show", "nothing"])
        .expect(3, "there is no GPU nothing");
}

#[test]
fn what_is_old_or_unknown_is_not_zero() {
    let mut old = device();
    old["stale"] = json!(true);
    let (_stub, old) = tenure(old);
    let list = old.run(&["gpu", "list"]).stdout;
    assert!(
        list.contains("stale") && !list.contains("65 %") && !list.contains(" 0 %"),
        "{list}"
    );
    let shown = old.run(&["gpu", "show", GPU]).stdout;
    assert!(
        shown.contains("too old to say how it is now") && !shown.contains("215.4 W"),
        "{shown}"
    );
    let mut unread = device();
    for field in ["gauges", "read", "recent"] {
        unread.as_object_mut().unwrap().remove(field);
    }
    unread["slices"][0].as_object_mut().unwrap().remove("used");
    let (_stub, unread) = tenure(unread);
    let list = unread.run(&["gpu", "list"]).stdout;
    assert!(
        list.contains('–') && !list.contains("TEMP") && !list.contains("0 %"),
        "{list}"
    );
}

#[test]
fn top_prints_once_where_there_is_no_terminal() {
    let (_stub, tenure) = tenure(device());
    let expected = "\
1 GPU, 2 slices   vram 2.9G used, 6G given of 8G   busy 65 %
gpu_0000000000abc  H100 on alpha   busy 65 %   used 2.9G of 8G   61 °C   215 W
";
    for args in [&["top"][..], &["top", "--once"]] {
        let out = tenure.run(args);
        out.expect(0, "");
        assert!(out.stdout.starts_with(expected), "{}", out.stdout);
        assert!(out.stdout.contains("a acme/research/ada train") && out.stdout.contains("1G/2G"));
        assert!(out.stdout.contains("29/30 %") && out.stdout.contains("b in use"));
        assert!(!out.stdout.contains('\u{1b}'), "{:?}", out.stdout);
    }
    let filtered = tenure.run(&["top", "--filter", "nowhere"]).stdout;
    assert!(filtered.contains("nothing fits the filter"), "{filtered}");
    let read: Value = serde_json::from_str(&tenure.run(&["top", "-o", "json"]).stdout).unwrap();
    assert_eq!(read[0]["node_name"], "alpha");
}

#[test]
fn a_job_tells_what_it_did_with_its_devices() {
    let id = "job_0000000000abc";
    let stub = Stub::new(move |request| {
        let mut job = job(id, "train", "running");
        job["usage"] = json!({
            "busy_ms": 15_250, "throttled_ms": 6_100, "waited_ms": 0, "launches": 77, "refusals": 2, "denials": 0,
            "peak_vram_mib": 6000,
        });
        request.is("GET", &format!("/v1/jobs/{id}")).then(|| ok(job))
    });
    let out = Tenure::with_server(&stub.url).run(&["show", id]);
    out.expect(0, "");
    for line in [
        "gpu busy   25 % of the time it ran, 77 launches",
        "held back  10 % by its own limit, 0 % by the turns of others",
        "peak vram  5.85 GiB of 8 GiB",
        "refused    2 allocations of memory, 0 calls",
    ] {
        assert!(out.stdout.contains(line), "{line}\nin\n{}", out.stdout);
    }
}
