//! What `tenure fit` prints, and what `run` and `apply` send of a workload.

use serde_json::{Value, json};

use crate::stub::{Request, Stub, ok, problem};
use crate::tenure::Tenure;

fn told() -> Value {
    json!({
        "currency": "EUR",
        "fit": {
            "derivation": {
                "estimate": {
                    "title": "inference, llama-2-13b bf16, 4,096 tokens",
                    "terms": [
                        { "name": "weights", "bytes": 26_031_728_640_u64, "words": "13,015,864,320 parameters × 2 bytes (bf16)" },
                        { "name": "kv_cache", "bytes": 3_355_443_200_u64, "words": "2 × 40 layers × 40 KV heads × 128 × 2 bytes (bf16) × 4,096 tokens" },
                        { "name": "overhead", "bytes": 805_306_368, "words": "driver context and workspaces" },
                    ],
                    "gpus": 1, "together": 1, "token_bytes": 819_200, "notes": ["a word of warning\u{1b}[31m"],
                },
                "vram_mib": 28_794, "basis": "rule",
            },
            "demand": { "gpus": 1, "compute_permille": 1000, "vram_mib": 28_794, "cpu_milli": 1000, "memory_mib": 7168, "isolation": "guarded" },
            "classes": [
                { "class": "H100", "model": "H100 SXM", "vram_mib": 81_920, "gpus": 4, "free": 3, "tokens": 58_000,
                  "slice": { "vram_mib": 28_794, "compute_permille": 360, "hourly_micros": 960_000 },
                  "whole": { "vram_mib": 81_920, "compute_permille": 1000, "hourly_micros": 2_500_000 } },
                { "class": "A10", "model": "A10", "vram_mib": 24_576, "gpus": 1, "free": 0, "why_not": "4218 MiB short" },
            ],
            "skus": [{ "name": "large", "hourly_micros": 1_250_000 }],
        },
    })
}

fn tenure() -> (Stub, Tenure) {
    let stub = Stub::new(|request: &Request| request.is("POST", "/v1/fit").then(|| ok(told())));
    let tenure = Tenure::with_server(&stub.url);
    (stub, tenure)
}

#[test]
fn terms_add_up_and_classes_have_prices() {
    let (stub, tenure) = tenure();
    let out = tenure.run(&["fit", "llama-2-13b"]);
    out.expect(0, "");
    for word in [
        "inference, llama-2-13b bf16, 4,096 tokens  rule",
        "weights",
        "24.25 GiB",
        "3.13 GiB",
        "together",
        "28.12 GiB",
        "on one GPU",
        "CLASS",
        "28.2 GiB, 36 %",
        "0.96 EUR",
        "2.50 EUR",
        "58,000 tokens",
        "short",
        "note: a word of warning␛[31m",
        "sizes that would do: large at 1.25 EUR an hour",
    ] {
        assert!(out.stdout.contains(word), "{word}: {}", out.stdout);
    }
    let sent: Value = serde_json::from_str(&stub.asked()[0].body).unwrap();
    assert_eq!(sent["workload"]["inference"]["model"], "llama-2-13b");
    assert_eq!(tenure.run(&["fit", "13B", "-o", "name"]).stdout, "H100\n");
    let json: Value = serde_json::from_str(&tenure.run(&["fit", "13B", "-o", "json"]).stdout).unwrap();
    assert_eq!(json, told());
}

#[test]
fn flags_say_what_the_workload_is() {
    let (stub, tenure) = tenure();
    let line = [
        "fit",
        "70B",
        "--method",
        "qlora",
        "--dtype",
        "int4",
        "--context",
        "8k",
        "--batch",
        "2",
        "--tensor",
        "4",
        "--class",
        "H100",
    ];
    tenure.run(&line).expect(0, "");
    let sent: Value = serde_json::from_str(&stub.asked()[0].body).unwrap();
    let train = &sent["workload"]["fine_tune"];
    assert_eq!(
        (&train["sequence"], &train["batch"]),
        (&json!(8192), &json!(2)),
        "{sent}"
    );
    assert_eq!(
        (&sent["demand"]["class"], &sent["demand"]["gpus"]),
        (&json!("H100"), &json!(0))
    );
    tenure
        .run(&[
            "fit",
            "--frames",
            "1-240x2",
            "--each",
            "12.5s",
            "--each-vram",
            "6GiB",
        ])
        .expect(0, "");
    let sent: Value = serde_json::from_str(&stub.asked()[1].body).unwrap();
    let rendering = json!({ "frames": "1-240x2", "each_ms": 12_500, "vram_mib": 6144 });
    assert_eq!(sent["workload"]["rendering"], rendering);
}

#[test]
fn wrong_words_end_with_2_and_nothing_is_sent() {
    let (stub, tenure) = tenure();
    for (line, said) in [
        (&["fit"][..], "required"),
        (&["fit", "gpt-9000"], "no model named gpt-9000 is known"),
        (&["fit", "7B", "--frames", "1-2"], "different kinds of work"),
        (&["fit", "--frames", "9-1"], "goes down; write 1-9"),
        (&["fit", "7B", "--context", "many"], "not a number of tokens"),
        (&["fit", "7B", "--dtype", "fp7"], "fp7"),
        (&["fit", "7B", "--tensor", "3"], "cannot be shared by 3 GPUs"),
    ] {
        tenure.run(line).expect(2, said);
    }
    assert!(stub.asked().is_empty());
}

#[test]
fn the_catalogue_is_listed_without_a_server() {
    let out = Tenure::alone().run(&["fit", "--list"]);
    out.expect(0, "");
    assert!(
        out.stdout.contains("llama-2-13b") && out.stdout.contains("13,015,864,320"),
        "{}",
        out.stdout
    );
    assert!(out.stdout.contains("latent 512 + 64"));
}

#[test]
fn run_sends_the_workload_and_shows_what_was_derived() {
    let stub = Stub::new(|request: &Request| {
        let told = told();
        let derivation = told["fit"]["derivation"].clone();
        let plan = json!({
            "starts_now": true, "hold_micros": 0, "hourly_micros": 0, "currency": "EUR", "derivation": derivation,
            "filled": { "demand": told["fit"]["demand"], "run_time_s": 7200 },
        });
        request.is("POST", "/v1/jobs/plan").then(|| ok(plan))
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&[
        "run",
        "--dry-run",
        "--model-name",
        "llama-2-13b",
        "--grow",
        "--",
        "serve",
    ]);
    out.expect(
        0,
        "plan: serve 1 × GPU, 28.12 GiB VRAM, 1 CPU, 7 GiB, for 2 h at most",
    );
    out.expect(
        0,
        "inference, llama-2-13b bf16, 4,096 tokens: 28.12 GiB VRAM (rule)",
    );
    let sent: Value = serde_json::from_str(&stub.asked()[0].body).unwrap();
    assert_eq!(sent["spec"]["workload"]["inference"]["model"], "llama-2-13b");
    assert_eq!(sent["spec"]["grow"], true);
}

#[test]
fn files_say_what_a_job_is_and_wrong_ones_are_drawn() {
    let tenure = Tenure::alone();
    let job = |workload: &str| format!("name: a\ncommand: [x]\nworkload:\n  {workload}\n");
    let fine = tenure.write("fine.yaml", job("inference: { model: 13B, dtype: int4 }"));
    tenure.run(&["apply", "-f", &fine]).expect(5, "unreachable");
    let clip = tenure.write(
        "clip.yaml",
        job("video: { segments: { duration_s: 5400, segment_s: 300 } }"),
    );
    tenure.run(&["apply", "-f", &clip]).expect(5, "unreachable");
    for (name, workload, said) in [
        (
            "model.yaml",
            "inference: { model: nonsense }",
            "no model named nonsense is known",
        ),
        (
            "frames.yaml",
            "rendering: { frames: 9-1 }",
            "goes down; write 1-9",
        ),
        (
            "kind.yaml",
            "inference: { model: 7B }\nkind: video",
            "the kind is video, and the workload is inference",
        ),
        ("field.yaml", "inference: { model: 7B, colour: red }", "colour"),
    ] {
        let file = tenure.write(name, job(workload));
        let out = tenure.run(&["apply", "-f", &file]);
        out.expect(2, said);
        assert!(out.stderr.contains('┬'), "{}", out.stderr);
    }
}

#[test]
fn a_refusal_comes_through_as_it_was_said() {
    let stub = Stub::new(|request: &Request| {
        let refusal = || problem(403, "not_permitted", "you may not submit here", "ask an owner");
        request.is("POST", "/v1/fit").then(refusal)
    });
    let out = Tenure::with_server(&stub.url).run(&["fit", "7B"]);
    out.expect(3, "you may not submit here");
}
