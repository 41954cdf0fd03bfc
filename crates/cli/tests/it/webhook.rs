//! Webhooks as people make and see them.

use serde_json::{Value, json};

use crate::stub::{Request, Stub, ok, problem, scope};
use crate::tenure::Tenure;

const HOOK: &str = "whk_0000000000abc";

fn hook(standing: &str) -> Value {
    json!({
        "id": HOOK, "scope": "ten_0000000000001", "scope_path": "acme", "name": "chat", "owner": "usr_0000000000001",
        "owner_path": "acme/op", "origin": "https://hooks.example.com", "kinds": ["JobEnded"],
        "created": "2026-11-15T09:30:00Z", "standing": standing, "revision": 1,
        "delivery": {
            "delivered": 7, "last_success": "2026-11-15T09:31:00Z", "done": 41, "behind": 3,
            "failing": {
                "event": 42, "since": "2026-11-15T09:32:00Z", "tries": 5, "next_try": "2026-11-15T09:40:00Z",
                "why": "it answered 500\u{1b}[31m",
            },
        },
    })
}

fn server() -> Stub {
    Stub::new(|request: &Request| {
        let path = request.target.split('?').next().unwrap_or_default().to_owned();
        Some(match (request.method.as_str(), path.as_str()) {
            ("GET", "/v1/scopes") => ok(scope("ten_0000000000001", "tenant", "acme")),
            ("GET", "/v1/webhooks") => ok(json!({ "items": [hook("retrying")] })),
            ("POST", "/v1/webhooks") | ("POST", "/v1/webhooks/whk_0000000000abc/rotate") => {
                ok(json!({ "webhook": hook("active"), "secret": "whsec_c2VjcmV0" }))
            }
            ("POST", "/v1/webhooks/whk_0000000000abc/ping") => {
                ok(json!({ "taken": false, "status": 500, "why": "it answered 500", "took_ms": 3 }))
            }
            _ => problem(404, "not_found", "there is no such thing", "look elsewhere"),
        })
    })
}

#[test]
fn a_key_is_printed_once_and_a_url_may_come_from_a_file() {
    let stub = server();
    let tenure = Tenure::with_server(&stub.url);
    let file = tenure.write("url", "https://hooks.example.com/T0/B0\n");
    let out = tenure.run(&[
        "webhook",
        "create",
        "chat",
        "--for",
        "acme",
        "--url-file",
        &file,
        "--kind",
        "JobEnded",
    ]);
    out.expect(0, "shown this once");
    assert_eq!(out.stdout, "whsec_c2VjcmV0\n");
    assert!(!out.stderr.contains("whsec_"), "{}", out.stderr);
    let asked = stub.asked();
    let made = asked.iter().find(|request| request.method == "POST").unwrap();
    let body: Value = serde_json::from_str(&made.body).unwrap();
    let wanted = json!({
        "scope": "ten_0000000000001", "name": "chat", "url": "https://hooks.example.com/T0/B0", "kinds": ["JobEnded"],
    });
    assert_eq!(body, wanted);
    let out = tenure.run(&["webhook", "rotate", HOOK, "--keep-old", "1h"]);
    // By its id it is looked up first.
    out.expect(3, "there is no such thing");
    let out = tenure.run(&["webhook", "rotate", "chat", "--keep-old", "1h"]);
    out.expect(0, "");
    assert_eq!(out.stdout, "whsec_c2VjcmV0\n");
    let body: Value = serde_json::from_str(&stub.asked().last().unwrap().body).unwrap();
    assert_eq!(body, json!({ "keep_old_s": 3600 }));
}

#[test]
fn what_is_behind_and_what_fails_is_shown() {
    let stub = server();
    let tenure = Tenure::with_server(&stub.url);
    let list = tenure.run(&["webhook", "list"]);
    list.expect(0, "");
    let row: Vec<&str> = list.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..5],
        ["chat", "acme", "https://hooks.example.com", "retrying", "7"]
    );
    let show = tenure.run(&["webhook", "show", "acme/chat"]);
    show.expect(0, "");
    for said in ["it answered 500␛[31m", "tries", "JobEnded", "42", "acme/op"] {
        assert!(show.stdout.contains(said), "{said}\n{}", show.stdout);
    }
    assert!(!show.stdout.contains('\u{1b}'), "{}", show.stdout);
    tenure
        .run(&["webhook", "ping", "chat"])
        .expect(1, "did not take it: it answered 500");
    tenure
        .run(&["webhook", "show", "nobody"])
        .expect(3, "there is no webhook nobody");
}
