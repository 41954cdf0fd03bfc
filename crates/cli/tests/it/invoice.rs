//! Invoices at the terminal: a file is checked without a server; what is asked of one is as it was said.

use serde_json::{Value, json};

use crate::stub::{Stub, ok};
use crate::tenure::Tenure;

/// As a server wrote it: nine seconds of a job in three intervals.
fn file() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/invoice.json");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_file_is_checked_without_a_server_and_what_was_altered_is_named() {
    let tenure = Tenure::alone();
    let file = file();
    let whole = tenure.write("whole.json", &file);
    let out = tenure.run(&["invoice", "verify", &whole]);
    out.expect(0, "");
    assert!(
        out.stdout.starts_with("sound: inv_") && out.stdout.contains("over 3 rows of 3 events"),
        "{}",
        out.stdout
    );

    let value: Value = serde_json::from_str(&file).unwrap();
    let head = tenure.write("head.json", value["proof"]["head"].to_string());
    tenure
        .run(&["invoice", "verify", &whole, "--head", &head])
        .expect(0, "");
    let mut other = value["proof"]["head"].clone();
    other["platform"] = json!("another");
    let other = tenure.write("other.json", other.to_string());
    let out = tenure.run(&["invoice", "verify", &whole, "--head", &other]);
    assert!(
        out.code == 1 && out.stdout.starts_with("bad: the head is signed with the key"),
        "{}",
        out.stdout
    );

    let mut altered = value.clone();
    altered["rows"][1]["row"]["amount_micros"] = json!(1);
    let altered = tenure.write("altered.json", altered.to_string());
    let out = tenure.run(&["invoice", "verify", &altered]);
    assert_eq!(out.code, 1);
    assert!(
        out.stdout.contains("bad: row 2 (usage \"train\", event") && !out.stdout.contains("sound"),
        "{}",
        out.stdout
    );
    let out = tenure.run(&["invoice", "verify", &altered, "-o", "json"]);
    let said: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((out.code, &said["sound"]), (1, &json!(false)));

    let half = tenure.write("half.json", &file[..file.len() / 2]);
    tenure
        .run(&["invoice", "verify", &half])
        .expect(2, "cannot be read as an invoice");
    tenure
        .run(&["invoice", "verify", "/no/such"])
        .expect(2, "there is no such file");
}

#[test]
fn what_is_asked_is_as_it_was_said() {
    let invoice = json!({
        "id": "inv_0000000000001", "state": "issued", "scope": "ten_0000000000001", "path": "acme", "seller": "platform",
        "currency": "EUR", "since": "2026-10-01T00:00:00Z", "until": "2026-11-01T00:00:00Z", "total_micros": 12_500_000,
        "rows": 1, "root": "00", "lines": [{ "what": "usage", "class": "H100", "kind": "batch", "rows": 1, "ran_ms": 60_000,
        "gpu_ms": 60_000, "busy_ms": 0, "frames": 0, "amount_micros": 12_500_000 }], "refunded_micros": 0,
    });
    let stub = Stub::new(move |request| {
        if request.is("POST", "/v1/invoices") || request.is("GET", "/v1/invoices/inv_0000000000001") {
            return Some(ok(invoice.clone()));
        }
        if request.is("GET", "/v1/scopes/ten_0000000000001") {
            return Some(ok(crate::stub::scope("ten_0000000000001", "tenant", "acme")));
        }
        request.is("POST", "/v1/adjustments").then(|| {
            ok(json!({ "id": "adj_0000000000001", "scope": "ten_0000000000001", "path": "acme", "kind": "correction",
                "amount_micros": -1_500_000, "currency": "EUR", "reason": "r", "at": "2026-11-01T00:00:00Z" }))
        })
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&["invoice", "issue", "ten_0000000000001", "--month", "2026-10"]);
    out.expect(0, "");
    assert!(
        out.stdout.contains("12.50 EUR") && out.stdout.contains("issued"),
        "{}",
        out.stdout
    );
    let asked = stub.asked();
    let body = asked.iter().find(|request| request.method == "POST").unwrap();
    let body: Value = serde_json::from_str(&body.body).unwrap();
    assert_eq!(body["since"], "2026-10-01T00:00:00Z");
    assert_eq!(body["until"], "2026-11-01T00:00:00Z");
    tenure
        .run(&[
            "invoice",
            "correct",
            "ten_0000000000001",
            "-1.50",
            "--reason",
            "charged too low",
        ])
        .expect(0, "");
    let asked = stub.asked();
    let body: Value = serde_json::from_str(&asked.last().unwrap().body).unwrap();
    assert_eq!(
        (&body["kind"], &body["amount_micros"]),
        (&json!("correction"), &json!(-1_500_000))
    );
    let line = tenure.run(&["invoice", "show", "inv_0000000000001", "--line", "2"]);
    line.expect(2, "the invoice has lines 1 to 1, not 2");
    for bad in [
        &["invoice", "issue", "acme", "--month", "October"][..],
        &["invoice", "credit", "acme", "0.0000001", "--reason", "r"],
        &["invoice", "credit", "acme", "-1", "--reason", "r"],
        &["invoice", "pay", "inv_0000000000001"],
        &["price", "set-book", "platform"],
        &["price", "set-book", "platform", "--fee", "101%"],
        &["budget", "set", "acme", "day", "money=1", "--alert", "x"],
        &["cost", "--class", "H100"],
    ] {
        assert_eq!(tenure.run(bad).code, 2, "{bad:?}");
    }
}
