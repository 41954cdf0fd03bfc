//! What users see when a server answers.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::stub::{Reply, Request, Stub, bytes, ended, job, ok, problem, scope, whoami};
use crate::tenure::Tenure;

const JOB: &str = "job_0000000000abc";

#[test]
fn jobs_in_every_form() {
    let evil = "\u{1b}[31mred\u{202e}";
    let stub = Stub::new(move |request| {
        request.is("GET", "/v1/jobs").then(|| ok(json!({"items": [job("job_0000000000001", "train", "queued"), job("job_0000000000002", evil, "running")]})))
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&["ps"]);
    out.expect(0, "");
    assert_eq!(
        out.stdout
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["JOB", "NAME", "PHASE", "OWNER", "RAN", "SUBMITTED"]
    );
    assert!(
        out.stdout
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("job_0000000000002  ␛[31mred"),
        "newest first: {}",
        out.stdout
    );
    assert!(
        out.stdout.contains("1 min 1 s") && !out.stdout.contains(['\u{1b}', '\u{202e}']),
        "{}",
        out.stdout
    );
    assert_eq!(
        tenure.run(&["ps", "-o", "name"]).stdout,
        "job_0000000000002\njob_0000000000001\n"
    );
    let read: serde_json::Value = serde_json::from_str(&tenure.run(&["ps", "-o", "json"]).stdout).unwrap();
    assert_eq!(read[1]["spec"]["name"], "train");
    let yaml = tenure.run(&["ps", "-o", "yaml"]);
    assert!(
        yaml.stdout.contains("phase: queued") && !yaml.stdout.contains('\u{1b}'),
        "{}",
        yaml.stdout
    );
    assert!(
        tenure
            .run(&["ps", "-o", "wide"])
            .stdout
            .contains("1 × 50 % of GPU, 8 GiB VRAM, 1 CPU, 512 MiB")
    );
    assert_eq!(stub.asked()[0].header("authorization"), Some("Bearer tnr_test"));
}

#[test]
fn an_empty_list_says_so_on_stderr_and_nothing_on_stdout() {
    let stub = Stub::new(|_| Some(ok(json!({"items": []}))));
    let out = Tenure::with_server(&stub.url).run(&["ps"]);
    out.expect(0, "no live jobs");
    assert_eq!(out.stdout, "");
}

#[test]
fn a_refusal_reads_as_the_server_said_it() {
    let stub = Stub::new(|request| match request.method.as_str() {
        "POST" => Some(problem(
            403,
            "exceeds_quota",
            "2000 of gpu_milli asked, but acme may have 1000 at most",
            "ask for at most 1000 of gpu_milli, or have the quota of acme raised",
        )),
        _ => None,
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&["run", "--gpus", "2", "--", "true"]);
    out.expect(3, "");
    assert_eq!(
        out.stderr,
        "refused: 2000 of gpu_milli asked, but acme may have 1000 at most  [exceeds_quota]\n  \
         hint: ask for at most 1000 of gpu_milli, or have the quota of acme raised\n"
    );
    let file = tenure.write("two.yaml", "name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n");
    tenure
        .run(&["apply", "-f", &file])
        .expect(3, "0 of 2 jobs were submitted; a was not");
}

#[test]
fn answers_that_are_no_answers() {
    let problem = |status: u16, code: &str| {
        format!(r#"{{"type":"","code":"{code}","title":"x","status":{status},"detail":"said so"}}"#)
    };
    for (status, body, code, said) in [
        (
            200,
            "not json".to_owned(),
            5,
            "hint: is this the address of a Tenure server",
        ),
        (500, "<html>".to_owned(), 5, "status 500"),
        (
            503,
            problem(503, "not_leader"),
            5,
            "unavailable: said so  [not_leader]",
        ),
        (
            401,
            problem(401, "unauthenticated"),
            3,
            "hint: log in with `tenure login`",
        ),
    ] {
        let stub = Stub::new(move |_| {
            Some(Reply {
                status,
                body: body.clone().into_bytes(),
                cut: false,
            })
        });
        let out = Tenure::with_server(&stub.url).run(&["whoami"]);
        out.expect(code, said);
        assert_eq!(out.stdout, "");
    }
}

#[test]
fn quotas_are_merged_and_drawn() {
    let view =
        |limits| json!({"limits": limits, "used": {"gpu_milli": 1500, "jobs": 2}, "over": [], "revision": 7});
    let stub = Stub::new(move |request: &Request| {
        match (request.method.as_str(), request.target.split('?').next()?) {
            ("GET", "/v1/scopes") => Some(ok(scope("ten_0000000000001", "tenant", "acme"))),
            ("GET", "/v1/scopes/ten_0000000000001/quota") => {
                Some(ok(view(json!({"gpu_milli": 2500, "jobs": 4}))))
            }
            ("PUT", _) => Some(ok(view(
                serde_json::from_str::<serde_json::Value>(&request.body).ok()?["limits"].clone(),
            ))),
            _ => None,
        }
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&["quota", "show", "acme"]);
    assert_eq!(
        out.stdout,
        "METER  USED  LIMIT\n\
         gpus    1.5    2.5  ████████░░░░  60 %\n\
         jobs      2      4  ██████░░░░░░  50 %\n"
    );
    tenure
        .run(&["quota", "set", "acme", "vram=40GiB", "jobs=none"])
        .expect(0, "");
    let put = stub
        .asked()
        .into_iter()
        .find(|request| request.method == "PUT")
        .unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&put.body).unwrap(),
        json!({"limits": {"gpu_milli": 2500, "vram_mib": 40960}})
    );
    assert_eq!(
        put.header("if-match"),
        Some("\"7\""),
        "nobody else's change is lost"
    );
}

fn running(outcome: serde_json::Value) -> Stub {
    let asked = AtomicUsize::new(0);
    Stub::new(
        move |request: &Request| match (request.method.as_str(), request.target.split('?').next()?) {
            ("POST", "/v1/jobs/plan") => Some(ok(
                json!({"starts_now": true, "hold_micros": 530_000, "hourly_micros": 520_000, "currency": "EUR", "node_name": "n1", "isolation": "guarded"}),
            )),
            ("POST", "/v1/jobs") => Some(ok(job(JOB, "train", "queued"))),
            ("GET", "/v1/jobs/job_0000000000abc") if asked.fetch_add(1, Ordering::SeqCst) < 2 => {
                let mut job = job(JOB, "train", "queued");
                job["waiting"] =
                    json!({"code": "no_capacity", "sentence": "no node has room now", "hint": "wait"});
                Some(ok(job))
            }
            ("GET", "/v1/jobs/job_0000000000abc") => Some(ok(ended(JOB, "train", outcome.clone()))),
            ("GET", _) if request.target.contains("stream=stdout") && request.target.contains("offset=0") => {
                Some(Reply {
                    status: 200,
                    body: b"hel".to_vec(),
                    cut: true,
                })
            }
            ("GET", _) if request.target.contains("stream=stdout") => Some(bytes(b"lo\n")),
            ("GET", _) if request.target.contains("stream=stderr") => Some(bytes(b"oops\n")),
            _ => None,
        },
    )
}

#[test]
fn run_prints_the_plan_follows_and_passes_the_code_through() {
    for (outcome, code, said) in [
        (
            json!({"result": "succeeded"}),
            0,
            "succeeded after 1 min 1 s, 0.5204 EUR",
        ),
        (
            json!({"result": "failed", "exit_code": 42}),
            42,
            "failed with exit code 42",
        ),
        (json!({"result": "failed", "signal": 9}), 137, "ended by signal 9"),
        (json!({"result": "timed_out"}), 1, "ended at its run-time limit"),
    ] {
        let stub = running(outcome);
        let out = Tenure::with_server(&stub.url).run(&[
            "run", "--gpus", "0.5", "--vram", "8GiB", "--", "python3", "train.py",
        ]);
        out.expect(code, said);
        assert_eq!(
            out.stdout, "hello\n",
            "a stream that broke was taken up where it broke"
        );
        out.expect(
            code,
            "plan: python3 1 × 50 % of GPU, 8 GiB VRAM, 1 CPU, 512 MiB, for 1 h at most",
        );
        out.expect(code, "starts now on n1, guarded");
        out.expect(code, "0.52 EUR an hour, 0.53 EUR at most");
        out.expect(code, "waiting: no node has room now  [no_capacity]");
        out.expect(code, "oops");
        let posted = stub
            .asked()
            .into_iter()
            .find(|request| request.is("POST", "/v1/jobs"))
            .unwrap();
        assert_eq!(posted.header("idempotency-key").map(str::len), Some(32));
    }
}

#[test]
fn run_detached_prints_the_job_and_leaves() {
    let stub = running(json!({"result": "succeeded"}));
    let out = Tenure::with_server(&stub.url).run(&["run", "-d", "-o", "name", "-q", "--", "x"]);
    out.expect(0, "");
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        ("job_0000000000abc\n", "")
    );
}

#[test]
fn run_now_submits_nothing_where_there_is_no_room() {
    let stub = Stub::new(|request| {
        let waiting = json!({"code": "no_capacity", "sentence": "no node has room now", "hint": "wait"});
        request.is("POST", "/v1/jobs/plan").then(|| ok(json!({"starts_now": false, "waiting": waiting, "hold_micros": 0, "hourly_micros": 0, "currency": "EUR"})))
    });
    Tenure::with_server(&stub.url)
        .run(&["run", "--now", "--", "x"])
        .expect(4, "no node has room now");
    assert!(!stub.asked().iter().any(|request| request.is("POST", "/v1/jobs")));
}

#[test]
fn jobs_are_found_by_name_and_by_the_end_of_an_id() {
    let stub = Stub::new(|request: &Request| {
        match (request.method.as_str(), request.target.split('?').next()?) {
            ("GET", "/v1/whoami") => Some(ok(whoami())),
            ("GET", "/v1/jobs") => Some(ok(json!({"items": [
                job("job_0000000000001", "train", "queued"), job("job_0000000000002", "train", "queued"),
                job("job_000000000xyz1", "a", "queued"), job("job_00000000axyz2", "b", "queued"), job("job_00000000bxyz2", "c", "queued"),
            ]}))),
            ("GET", path) => Some(ok(
                json!({"job": path.split('/').nth(3)?, "phase": "queued", "sentence": "it waits", "waiting": {"code": "quota_in_use", "sentence": "acme uses all of its 2 jobs", "hint": "wait for one to end"}}),
            )),
            _ => None,
        }
    });
    let tenure = Tenure::with_server(&stub.url);
    assert_eq!(
        tenure.run(&["why", "train"]).stdout,
        "job_0000000000002 is queued: acme uses all of its 2 jobs  [quota_in_use]\n  hint: wait for one to end\n"
    );
    assert!(
        tenure
            .run(&["why", "xyz1"])
            .stdout
            .starts_with("job_000000000xyz1 ")
    );
    tenure.run(&["why", "xyz2"]).expect(2, "2 jobs end in xyz2");
    tenure
        .run(&["why", "nosuch"])
        .expect(3, "there is no job nosuch here that you may see");
}

#[test]
fn events_are_taken_up_after_the_last_one_seen() {
    let event = |seq: u64| {
        format!(
            "id: {seq}\nevent: JobEnded\ndata: {{\"seq\":{seq},\"at\":\"2026-01-01T10:20:30Z\",\"by\":\"system\",\"kind\":\"JobEnded\",\"data\":{{\"job\":\"{JOB}\"}}}}\n\n"
        )
    };
    let stub = Stub::new(move |request: &Request| match request.target.split('?').next()? {
        "/v1/whoami" => Some(ok(whoami())),
        "/v1/events" => match request.header("last-event-id") {
            None => Some(Reply {
                status: 200,
                body: format!(": hello\n\n{}{}", event(39), event(40)).into_bytes(),
                cut: true,
            }),
            Some("40") => Some(Reply {
                status: 200,
                body: format!("{}{}", event(40), event(41)).into_bytes(),
                cut: true,
            }),
            Some(_) => Some(problem(403, "not_permitted", "no more", "")),
        },
        _ => None,
    });
    let out = Tenure::with_server(&stub.url).run(&["events", "-f"]);
    out.expect(3, "the connection broke; taking it up again");
    let seqs: Vec<&str> = out
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(seqs, ["39", "40", "41"], "each once and in order: {}", out.stdout);
    assert!(out.stdout.contains("10:20:30  JobEnded"), "{}", out.stdout);
}

#[test]
fn a_login_is_kept_for_its_owner_alone() {
    let token = tenure_api::token::write(tenure_api::token::Kind::Key, &[7; 32]);
    let stub = Stub::new(|request| request.is("GET", "/v1/whoami").then(|| ok(whoami())));
    let tenure = Tenure::without_environment();
    let input = format!("{}\n", token.reveal());
    tenure
        .run_with_stdin(&["login", "--server", &stub.url], input.as_bytes())
        .expect(0, "logged in at http://127.0.0.1:");
    assert_eq!(
        std::fs::metadata(tenure.config()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        tenure.run(&["whoami", "-o", "name"]).stdout,
        "acme/research/ada\n"
    );
    assert_eq!(
        stub.asked().last().unwrap().header("authorization"),
        Some(&*format!("Bearer {}", token.reveal()))
    );
    tenure
        .run_with_stdin(
            &["login", "--server", &stub.url, "--profile", "other"],
            input.as_bytes(),
        )
        .expect(0, "profile other");
    tenure
        .run(&["logout", "--profile", "other"])
        .expect(0, "forgot the profile other");
    tenure.run(&["whoami"]).expect(0, "");
    tenure.run(&["logout", "--all"]).expect(0, "forgot every profile");
    assert!(!std::fs::read_to_string(tenure.config()).unwrap().contains("tnr_"));
}

#[test]
fn costs_are_summed_with_their_currency() {
    let stub = Stub::new(|request| {
        request.is("GET", "/v1/costs").then(|| {
            ok(json!({"scope": "ten_0000000000001", "path": "acme", "currency": "EUR", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z",
                "charged_micros": 1_250_000, "held_micros": 30_000, "gpu_seconds": 5400, "truncated": false,
                "lines": [{"job": JOB, "name": "train", "owner_path": "acme/research/ada", "ended": "2026-01-01T10:00:00Z", "ran_ms": 5_400_000, "gpu_ms": 5_400_000, "charged_micros": 1_250_000}]}))
        })
    });
    let out = Tenure::with_server(&stub.url).run(&["cost"]);
    out.expect(0, "");
    for part in ["1 h 30 min", "1.5 GPU-h", "1.25 EUR", "0.03 EUR", "acme"] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
}

#[test]
fn costs_are_put_together_by_label() {
    let stub = Stub::new(|request| {
        request.is("GET", "/v1/analysis").then(|| {
            let sum = json!({"cost_micros": 2_000_000, "rows": 2, "gpu_ms": 3_600_000, "vram_mib_s": 1, "busy_ms": 1000, "idle_ms": 1000,
                "waste_micros": 1_000_000, "energy_mj": 0, "frames": 0});
            let group = |name: &str| {
                let mut group = sum.clone();
                group["group"] = json!(name);
                group
            };
            ok(json!({"scope": "ten_0000000000001", "path": "acme", "currency": "EUR", "by": "label:project",
                "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "total": group(""),
                "groups": [group("film"), group("")], "truncated": false, "labels": ["project"]}))
        })
    });
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run(&["cost", "--by", "label:project"]);
    out.expect(0, "");
    let asked = stub.asked();
    assert!(
        asked.last().unwrap().target.contains("by=label%3Aproject"),
        "{:?}",
        asked.last().unwrap().target
    );
    for part in ["film", "none", "2.00 EUR", "1.00 EUR", "50 %"] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
    for (bad, words) in [("planet", "label:KEY"), ("label:a=b", "no job has such a label")] {
        tenure.run(&["cost", "--by", bad]).expect(2, words);
    }
}

#[test]
fn a_secret_is_read_from_stdin_and_a_key_printed_once() {
    let stub = Stub::new(
        |request: &Request| match (request.method.as_str(), request.target.as_str()) {
            ("GET", "/v1/whoami") => Some(ok(whoami())),
            ("GET", _) => Some(ok(scope("usr_0000000000001", "user", "acme/research/ada"))),
            ("PUT", _) => Some(ok(json!({"name": "hf", "scope": "usr_0000000000001"}))),
            ("POST", _) => Some(ok(
                json!({"id": "key_0000000000001", "user": "usr_0000000000001", "label": "cli", "created": "2026-01-01T00:00:00Z", "token": "tnr_shown"}),
            )),
            _ => None,
        },
    );
    let tenure = Tenure::with_server(&stub.url);
    let out = tenure.run_with_stdin(&["secret", "set", "hf"], b"s3cret\n");
    out.expect(0, "stored");
    assert!(!format!("{}{}", out.stdout, out.stderr).contains("s3cret"));
    assert_eq!(stub.asked().last().unwrap().body, r#"{"value":"s3cret"}"#);
    let out = tenure.run(&["user", "key", "create", "acme/research/ada"]);
    out.expect(0, "shown this once");
    assert_eq!(out.stdout, "tnr_shown\n");
}

#[test]
fn what_cannot_be_taken_back_needs_a_yes_without_a_terminal() {
    let stub = Stub::new(|request: &Request| match request.method.as_str() {
        "GET" => Some(ok(scope("ten_0000000000001", "tenant", "acme"))),
        "DELETE" => Some(Reply {
            status: 204,
            body: Vec::new(),
            cut: false,
        }),
        _ => None,
    });
    let tenure = Tenure::with_server(&stub.url);
    tenure
        .run(&["tenant", "close", "acme"])
        .expect(2, "add --yes to go ahead");
    assert!(stub.asked().iter().all(|request| request.method == "GET"));
    tenure
        .run(&["tenant", "close", "acme", "--yes"])
        .expect(0, "closed acme");
    tenure
        .run(&["subscriber", "show", "acme"])
        .expect(2, "acme is a tenant, not a subscriber");
}
