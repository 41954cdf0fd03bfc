//! Price books over HTTP: each level sets and sees its own, and what it pays.

use serde_json::{Value, json};
use tenure_server::controller::now;

use crate::money::Money;

#[tokio::test(flavor = "multi_thread")]
async fn each_level_sees_what_it_pays_and_what_it_asks() {
    let money = Money::with_books().await;
    let (acme, lab) = (&money.acme, &money.lab);
    let gpu = |sheet: &Value| sheet["other"]["gpu_hour_micros"].as_i64().unwrap();
    let of_lab = format!("/v1/scopes/{lab}/prices");
    let of_acme = format!("/v1/scopes/{acme}/prices");
    assert_eq!(gpu(&money.get(&money.clerk, &of_lab).await), 1_800_000);
    assert_eq!(gpu(&money.get(&money.boss, &of_lab).await), 1_800_000);
    assert_eq!(gpu(&money.get(&money.boss, &of_acme).await), 1_200_000);
    // Whoever stands above the tenant sees what the tenant pays, and never what it asks.
    assert_eq!(gpu(&money.get(&money.staff, &of_lab).await), 1_200_000);
    assert_eq!(
        gpu(&money.get(&money.staff, "/v1/scopes/platform/prices").await),
        1_000_000
    );
    assert_eq!(money.world.get(&money.clerk, &of_acme).await.status, 404);
    // The list is the caller's own too.
    for (token, hourly) in [
        (&money.member, 1_800_000),
        (&money.boss, 1_200_000),
        (&money.staff, 1_000_000),
    ] {
        assert_eq!(gpu(&money.get(token, "/v1/prices").await), hourly);
    }

    let books = format!("/v1/scopes/{acme}/price-books");
    let own = money.get(&money.boss, &books).await;
    assert_eq!(own["items"][0]["book"]["markup_permille"], 1500);
    assert_eq!(own["items"][0]["current"], true);
    for token in [
        &money.world.owner,
        &money.staff,
        &money.auditor,
        &money.clerk,
        &money.stranger,
    ] {
        assert_eq!(
            money.world.get(token, &books).await.status,
            404,
            "a tenant's books are its own"
        );
    }
    let set = money
        .world
        .put(&money.world.owner, &books, json!({ "book": {} }))
        .await;
    assert_eq!(set.status, 404, "nor does the platform's owner set them");
    let platform = money.get(&money.staff, "/v1/scopes/platform/price-books").await;
    assert_eq!(platform["items"][0]["book"]["fee_permille"], 100);
    assert_eq!(
        money
            .world
            .get(&money.boss, "/v1/scopes/platform/price-books")
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_for_one_comes_before_the_one_for_all_and_from_its_moment_on() {
    let money = Money::with_books().await;
    let books = format!("/v1/scopes/{}/price-books", money.acme);
    let later = now().plus_ms(3_600_000).rfc3339();
    let dear = json!({ "buyer": money.lab, "from": later, "book": { "markup_permille": 3000 } });
    let set = money.world.put(&money.boss, &books, dear).await;
    assert_eq!(
        (set.status.as_u16(), &set.json()["current"]),
        (200, &json!(false))
    );
    let path = format!("/v1/scopes/{}/prices", money.lab);
    assert_eq!(
        money.get(&money.clerk, &path).await["other"]["gpu_hour_micros"],
        1_800_000
    );
    let now_on = json!({ "buyer": money.lab, "book": {
        "classes": { "H100": { "gpu_hour_micros": 7_000_000 } }, "spot_permille": 500, "zone": "Europe/Berlin",
        "windows": [{ "from": "22:00", "to": "06:00", "permille": 800 }], "kinds": { "rendering": { "frame_micros": 20 } },
    } });
    assert_eq!(money.world.put(&money.boss, &books, now_on).await.status, 200);
    let sheet = money.get(&money.clerk, &path).await;
    assert_eq!(sheet["classes"]["H100"]["gpu_hour_micros"], 7_000_000);
    assert_eq!(sheet["other"]["gpu_hour_micros"], 1_200_000);
    assert_eq!(
        (&sheet["spot_permille"], &sheet["windows"][0]["from"]),
        (&json!(500), &json!("22:00"))
    );
    assert_eq!(sheet["kinds"]["rendering"]["frame_micros"], 20);
    let all = money.get(&money.boss, &format!("{books}?limit=2")).await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let next = format!("{books}?cursor={}", all["next"].as_str().unwrap());
    assert_eq!(
        money.get(&money.boss, &next).await["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn books_that_make_no_sense_name_their_field() {
    let money = Money::new().await;
    let platform = "/v1/scopes/platform/price-books";
    let past = "2020-01-01T00:00:00Z";
    for (body, code, field) in [
        (
            json!({ "book": { "markup_permille": -1 } }),
            "invalid_field",
            "/book/markup_permille",
        ),
        (
            json!({ "book": { "markup_permille": 100_001 } }),
            "invalid_field",
            "/book/markup_permille",
        ),
        (
            json!({ "book": { "fee_permille": 1010 } }),
            "invalid_field",
            "/book/fee_permille",
        ),
        (
            json!({ "book": { "minimum_micros": -1 } }),
            "invalid_field",
            "/book/minimum_micros",
        ),
        (
            json!({ "book": { "classes": { "H100": { "gpu_hour_micros": 0.1 } } } }),
            "invalid_field",
            "/book/classes/H100/gpu_hour_micros",
        ),
        (
            json!({ "book": { "classes": { "H100": { "gpu_hour_micros": -1 } } } }),
            "invalid_field",
            "/book/classes",
        ),
        (
            json!({ "book": { "windows": [{ "from": "22:00", "to": "24:00", "permille": 1 }], "zone": "UTC" } }),
            "invalid_field",
            "/book/windows/0/to",
        ),
        (
            json!({ "book": { "windows": [{ "from": "22:00", "to": "06:00", "permille": 1 }] } }),
            "invalid_field",
            "/book/zone",
        ),
        (
            json!({ "book": { "zone": "Mars/Base" , "windows": [] } }),
            "invalid_field",
            "/book/zone",
        ),
        (
            json!({ "book": { "tiers": [{ "from_gpu_hours": 5, "permille": 1001 }] } }),
            "invalid_field",
            "/book/tiers",
        ),
        (json!({ "book": { "price": 1 } }), "invalid_field", "/book/price"),
        (json!({ "book": {}, "from": past }), "invalid_field", "/from"),
        (
            json!({ "book": {}, "buyer": money.lab }),
            "invalid_field",
            "/buyer",
        ),
        (
            json!({ "book": {}, "buyer": "nobody" }),
            "invalid_field",
            "/buyer",
        ),
        (json!({}), "invalid_field", "/book"),
    ] {
        let head = money.world.head();
        let reply = money.world.put(&money.world.owner, platform, body.clone()).await;
        assert_eq!(
            (reply.code().as_str(), reply.field().as_str()),
            (code, field),
            "{body}: {reply:?}"
        );
        assert_eq!(money.world.head(), head, "{body} changed nothing");
    }
    // 10^30 is no integer of ours.
    let huge = money
        .world
        .request(reqwest::Method::PUT, platform, Some(&money.world.owner));
    let huge = huge
        .header("content-type", "application/json")
        .body(format!("{{\"book\":{{\"minimum_micros\":1{}}}}}", "0".repeat(30)));
    let reply = money.world.send(huge).await;
    assert!(reply.status.is_client_error(), "{reply:?}");
    let free = json!({ "book": { "fee_permille": 0, "markup_permille": 0 } });
    assert_eq!(
        money.world.put(&money.world.owner, platform, free).await.status,
        200,
        "free is a price"
    );
    let whole = json!({ "book": { "fee_permille": 1000 } });
    assert_eq!(
        money.world.put(&money.world.owner, platform, whole).await.status,
        200,
        "and a whole fee a fee"
    );
    let user = format!("/v1/scopes/{}/price-books", money.lab);
    let reply = money.world.put(&money.boss, &user, json!({ "book": {} })).await;
    assert_eq!(
        (reply.code().as_str(), reply.field().as_str()),
        ("invalid_field", "scope")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_job_tell_each_level_its_own_price() {
    let money = Money::with_books().await;
    money.use_some().await;
    for (token, hourly, resale) in [
        (&money.boss, Some(1_200_000), true),
        (&money.member, Some(1_800_000), false),
        (&money.auditor, Some(1_200_000), true),
        (&money.stranger, None, false),
    ] {
        let events = money
            .world
            .get(token, "/v1/events?from=1&follow=false&kinds=JobAdmitted,BookSet")
            .await;
        let text = String::from_utf8(events.bytes).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let all: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let admitted = all.iter().find(|event| event["kind"] == "JobAdmitted");
        let hold = admitted.map(|event| &event["data"]["admission"]["hold"]);
        // A core and its memory are priced beside the GPU.
        let told = hold.and_then(|hold| hold["hourly"].as_i64());
        assert_eq!(
            told.map(|told| told / 100_000),
            hourly.map(|hourly: i64| hourly / 100_000),
            "{text}"
        );
        assert_eq!(
            hold.is_some_and(|hold| !hold["resale"].is_null()),
            resale,
            "{text}"
        );
        let books = all.iter().filter(|event| event["kind"] == "BookSet").count();
        let seen = match (token == &money.boss, token == &money.auditor) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 0,
        };
        assert_eq!(books, seen, "{text}");
    }
}
