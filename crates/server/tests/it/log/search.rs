//! Finding lines, by those who may read them and nobody else.

use serde_json::json;
use tenure_api::channel::LogStream::{Stderr, Stdout};

use super::{Stage, eventually, is_each_once};

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_found_by_text_level_label_job_and_time() {
    let stage = Stage::new().await;
    let train = stage
        .run(&stage.ada, "train", json!({ "team": "vision", "run": "a b" }))
        .await;
    let serve = stage.run(&stage.ada, "serve", json!({ "team": "web" })).await;
    stage.says(
        &train,
        Stdout,
        "epoch 1\nWARNING: loss is NaN\n{\"level\":\"error\",\"msg\":\"Bad Loss\"}\n",
    );
    stage.says(&train, Stderr, "progress 10%\n");
    stage.says(&serve, Stdout, "level=debug msg=loss\nlevel=warn msg=slow\n");
    let key = &stage.ada.1;
    stage.kept(key, "", 6).await;

    let texts = async |query: &str| {
        let mut texts = stage.texts(key, query).await;
        texts.sort();
        texts
    };
    let (nan, bad) = ("WARNING: loss is NaN", r#"{"level":"error","msg":"Bad Loss"}"#);
    assert_eq!(
        texts("q=LOSS").await,
        [nan, "level=debug msg=loss", bad],
        "in whatever case"
    );
    assert_eq!(texts("q=.*").await, Vec::<String>::new(), "not a pattern");
    assert_eq!(texts("level=warn").await, [nan, "level=warn msg=slow", bad]);
    assert_eq!(texts("level=error").await, [bad]);
    assert_eq!(
        texts("level=info&label=team%3Dvision").await.len(),
        4,
        "what says nothing counts as info, on stderr too"
    );
    assert_eq!(
        texts("label=team%3Dvision,stream%3Dstderr").await,
        ["progress 10%"]
    );
    assert_eq!(texts("label=run%3Da%20b&q=epoch").await, ["epoch 1"]);
    assert_eq!(
        texts("label=team%3Dv").await,
        Vec::<String>::new(),
        "whole values"
    );
    assert_eq!(texts("label=node%3Dfarm,name%3Dserve").await.len(), 2);
    assert_eq!(texts(&format!("job={}", serve.job)).await.len(), 2);
    assert_eq!(texts(&format!("scope={}", stage.ada.0)).await.len(), 6);
    assert_eq!(texts("since=2020-01-01T00:00:00Z").await.len(), 6);
    assert_eq!(texts("until=2020-01-01T00:00:00Z").await, Vec::<String>::new());
    assert_eq!(texts("since=2120-01-01T00:00:00Z").await, Vec::<String>::new());

    let line = &stage.find(key, "q=nan").await[0];
    let said = ["level", "stream", "name", "node"].map(|field| line[field].as_str().unwrap().to_owned());
    assert_eq!(said, ["warn", "stdout", "train", "farm"]);
    assert_eq!(line["job"], train.job.to_string());
    assert_eq!(line["labels"]["team"], "vision");
    let newest = stage
        .texts(key, &format!("job={}&label=stream%3Dstdout", train.job))
        .await;
    let mut oldest = stage
        .texts(
            key,
            &format!("job={}&label=stream%3Dstdout&order=oldest", train.job),
        )
        .await;
    assert_eq!(oldest[0], "epoch 1");
    oldest.reverse();
    assert_eq!(newest, oldest);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_lines_never_appear() {
    let stage = Stage::new().await;
    let ours = stage.run(&stage.ada, "ours", json!({})).await;
    let theirs = stage.run(&stage.cleo, "theirs", json!({ "team": "x" })).await;
    stage.says(&ours, Stdout, "ours: one\n");
    stage.says(&theirs, Stdout, "theirs: secret\n");
    stage.kept(&stage.world.owner, "", 2).await;

    let (ada, cleo) = (&stage.ada.1, &stage.cleo.1);
    assert_eq!(stage.texts(ada, "").await, ["ours: one"]);
    assert_eq!(stage.texts(cleo, "").await, ["theirs: secret"]);
    for query in [
        "q=secret",
        "label=team%3Dx",
        "label=name%3Dtheirs",
        "order=oldest&q=s:",
    ] {
        let found = stage.texts(ada, query).await;
        assert!(!found.iter().any(|text| text.contains("secret")), "{query}");
    }
    for foreign in [
        format!("/v1/logs?job={}", theirs.job),
        format!("/v1/logs?scope={}", stage.cleo.0),
        "/v1/logs?scope=platform".to_owned(),
    ] {
        assert_eq!(stage.world.get(ada, &foreign).await.status, 404, "{foreign}");
    }
    for format in ["ndjson", "text"] {
        let taken = stage.world.get(ada, &format!("/v1/logs?format={format}")).await;
        let text = String::from_utf8(taken.bytes).unwrap();
        assert!(text.contains("ours: one") && !text.contains("secret"), "{text}");
    }
    // Below one's tenant as well: a colleague without sight of others' jobs, and one with.
    let plain = stage.world.user(&stage.acme, "plain", None).await;
    let auditor = stage.world.user(&stage.acme, "eye", Some("auditor")).await;
    assert_eq!(stage.texts(&plain.1, "").await, Vec::<String>::new());
    assert_eq!(stage.texts(&auditor.1, "").await, ["ours: one"]);
    // A cursor is its owner's alone.
    for n in 0..20 {
        stage.says(&theirs, Stdout, format!("theirs: {n}\n"));
    }
    stage.kept(cleo, "", 21).await;
    let page = stage.world.get(cleo, "/v1/logs?limit=2").await.json();
    let cursor = page["next"].as_str().unwrap();
    let stolen = stage
        .world
        .get(ada, &format!("/v1/logs?limit=2&cursor={cursor}"))
        .await;
    assert_eq!((stolen.status.as_u16(), stolen.field().as_str()), (422, "cursor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_walks_everything_exactly_once_while_lines_arrive() {
    let stage = Stage::new().await;
    let runs = [
        stage.run(&stage.ada, "a", json!({})).await,
        stage.run(&stage.ada, "b", json!({})).await,
    ];
    let key = &stage.ada.1;
    let mut written = 0;
    let write = |written: &mut usize, count: usize| {
        for _ in 0..count {
            stage.says(&runs[*written % 2], Stdout, format!("line {written}\n"));
            *written += 1;
        }
    };
    write(&mut written, 100);
    stage.kept(key, "", 100).await;

    // Newest first: what was there when it began, whatever comes.
    let mut walked = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = stage
            .world
            .get(key, &format!("/v1/logs?limit=9{cursor}"))
            .await
            .json();
        let items = page["items"].as_array().unwrap();
        walked.extend(items.iter().map(|line| line["text"].as_str().unwrap().to_owned()));
        write(&mut written, 3);
        if page["more"] == false {
            break;
        }
        cursor = format!("&cursor={}", page["next"].as_str().unwrap());
    }
    assert_eq!(walked.len(), 100);
    assert!(is_each_once(&walked));

    // Oldest first: everything, and by the same cursor what comes after that.
    let (mut walked, mut cursor) = (Vec::new(), String::new());
    let mut ends = 0;
    eventually(async || {
        let page = stage
            .world
            .get(key, &format!("/v1/logs?limit=11&order=oldest{cursor}"))
            .await
            .json();
        let items = page["items"].as_array().unwrap();
        walked.extend(items.iter().map(|line| line["text"].as_str().unwrap().to_owned()));
        cursor = format!("&cursor={}", page["next"].as_str().expect("always"));
        // At the end of what there is more comes, and again.
        if page["more"] == false && walked.len() >= written {
            ends += 1;
            if ends < 10 {
                write(&mut written, 5);
            }
        }
        (ends >= 10).then_some(())
    })
    .await;
    assert_eq!(walked.len(), written);
    assert!(is_each_once(&walked));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_line_acts_wherever_it_is_shown() {
    let stage = Stage::new().await;
    let run = stage.run(&stage.ada, "hostile", json!({})).await;
    let line =
        "\x1b[31mred\x1b[0m \x1b]0;title\x07 <script>alert(1)</script> \u{202e}gnp\u{9b}2J \x07 \r over\n";
    stage.says(&run, Stdout, line);
    stage.says(&run, Stdout, b"\xff\xfe \0 bytes\n");
    let key = &stage.ada.1;
    stage.kept(key, "", 2).await;
    let texts = stage.texts(key, "order=oldest").await;
    assert_eq!(
        texts[0],
        "red  <script>alert(1)</script> \u{fffd}gnp\u{fffd}2J \u{2407} \u{240d} over"
    );
    assert_eq!(texts[1], "\u{fffd}\u{fffd} \u{2400} bytes");
    let acts = |text: &str| {
        text.chars()
            .any(|letter| (letter.is_control() && letter != '\n') || letter == '\u{202e}')
    };
    for format in ["ndjson", "text"] {
        let taken = stage.world.get(key, &format!("/v1/logs?format={format}")).await;
        let text = String::from_utf8(taken.bytes).unwrap();
        assert!(!acts(&text) && text.contains("red"), "{text:?}");
        assert_eq!(text.lines().count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_by_name() {
    let stage = Stage::new().await;
    let run = stage.run(&stage.ada, "a", json!({})).await;
    let long = "x".repeat(257);
    for (query, field) in [
        ("level=loud", "level"),
        ("level=WARN", "level"),
        ("label=team", "label"),
        ("label=", "label"),
        ("since=yesterday", "since"),
        ("until=1", "until"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until"),
        ("order=random", "order"),
        ("format=xml", "format"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("cursor=zz", "cursor"),
        ("cursor=00", "cursor"),
        ("format=text&limit=5", "limit"),
        ("format=ndjson&cursor=00", "cursor"),
        (&format!("q={long}"), "q"),
        (&format!("job={}&scope={}", run.job, stage.ada.0), "job"),
    ] {
        let reply = stage.world.get(&stage.ada.1, &format!("/v1/logs?{query}")).await;
        assert_eq!(
            (
                reply.status.as_u16(),
                reply.code().as_str(),
                reply.field().as_str()
            ),
            (422, "invalid_field", field),
            "{query}"
        );
    }
    let unknown = stage.world.get(&stage.ada.1, "/v1/logs?colour=red").await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.field().as_str()),
        (400, "colour")
    );
    for absent in ["scope=ten_0", "job=job_0000000000000", "job=x", "scope=x"] {
        let reply = stage.world.get(&stage.ada.1, &format!("/v1/logs?{absent}")).await;
        assert_eq!(reply.status, 404, "{absent}");
    }
    // A label that could not be shown is not taken in the first place.
    let many: serde_json::Map<_, _> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    for labels in [
        json!({ "a b": "x" }),
        json!({ "a": "\u{1b}[31m" }),
        json!({ "a": "x".repeat(129) }),
        json!(many),
    ] {
        let spec = json!({ "name": "n", "command": ["true"], "labels": labels });
        let reply = stage
            .world
            .post(&stage.ada.1, "/v1/jobs", json!({ "spec": spec }))
            .await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "/spec/labels")
        );
    }
}
