//! Bookings over HTTP: quoted, made, shown, changed, shown to calendars, and refused with what there is instead.

mod race;

use reqwest::Method;
use serde_json::{Value, json};
use tenure_server::controller::now;

use crate::world::World;

fn wall(hours: u64) -> String {
    now().plus_ms(hours * 3_600_000).rfc3339()[..13].to_owned() + ":00"
}

fn body(name: &str, hours: u64) -> Value {
    json!({
        "name": name, "class": "H100", "size": { "unit": "gpus", "count": 1 },
        "zone": "UTC", "start": wall(hours), "end": wall(hours + 2),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_booking_from_its_quote_to_its_end() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (ada, key) = world.user(&tenant, "ada", Some("member")).await;
    let beta = world.tenant("beta").await;
    let (_, bob) = world.user(&beta, "bob", Some("member")).await;
    world.gpu("g1").await;
    let quote = world.post(&key, "/v1/bookings/quote", body("train", 48)).await;
    assert_eq!(quote.status, 200, "{quote:?}");
    let price = quote.json()["price_micros"].as_i64().unwrap();
    assert!(price > 0);
    let mut cheaper = body("train", 48);
    cheaper["shown_micros"] = json!(price - 1);
    let refused = world.post(&key, "/v1/bookings", cheaper).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["code"]),
        (409, &json!("price_changed"))
    );
    let mut agreed = body("train", 48);
    agreed["shown_micros"] = json!(price);
    let made = world.post(&key, "/v1/bookings", agreed).await;
    assert_eq!(made.status, 201, "{made:?}");
    let booking = made.json();
    let path = format!("/v1/bookings/{}", booking["id"].as_str().unwrap());
    assert_eq!(
        (&booking["scope"], &booking["price_micros"]),
        (&json!(ada), &json!(price))
    );

    let taken = world.post(&bob, "/v1/bookings", body("mine", 49)).await;
    assert_eq!(
        (taken.status.as_u16(), &taken.json()["code"]),
        (409, &json!("booked_out"))
    );
    assert!(
        taken.json()["hint"].as_str().unwrap().contains(&wall(50)),
        "{taken:?}"
    );
    assert_eq!(
        world.get(&bob, &path).await.status,
        404,
        "another user's is not there"
    );

    let of = booking["windows"][0]["of"].as_str().unwrap();
    let longer = world
        .post(
            &key,
            &format!("{path}/extend"),
            json!({ "of": of, "more_s": 3600 }),
        )
        .await;
    assert_eq!(longer.json()["price_micros"], json!(price / 2 * 3), "{longer:?}");
    let moved = json!({ "which": "one", "of": of, "start": wall(60), "end": wall(61) });
    let moved = world.post(&key, &format!("{path}/edit"), moved).await;
    assert_eq!(moved.json()["price_micros"], json!(price / 2), "{moved:?}");
    let listed = world.get(&key, "/v1/bookings").await.json();
    assert_eq!(listed["items"][0]["id"], booking["id"]);
    let soon = world.get(&key, "/v1/calendar").await.json();
    assert_eq!(
        (&soon["items"][0]["booking"], &soon["items"][0]["start"]),
        (&booking["id"], &json!(format!("{}:00Z", wall(60)))),
        "{soon}"
    );
    let span = format!("/v1/calendar?since={}:00Z&until={}:00Z", wall(61), wall(62));
    assert_eq!(world.get(&key, &span).await.json()["items"], json!([]));
    let feed = world.get(&key, "/v1/calendar.ics").await;
    let text = String::from_utf8(feed.bytes.to_vec()).unwrap();
    assert!(
        feed.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/calendar")
    );
    assert!(
        text.contains("SUMMARY:train (1 × H100)") && text.ends_with("END:VCALENDAR\r\n"),
        "{text}"
    );
    let job =
        json!({ "name": "j", "command": ["/bin/true"], "booking": booking["id"], "demand": { "gpus": 1 } });
    let job = world.post(&key, "/v1/jobs", json!({ "spec": job })).await;
    assert_eq!(job.status, 201, "{job:?}");
    let why = world
        .get(&key, &format!("/v1/jobs/{}/why", job.id()))
        .await
        .json();
    assert!(why.to_string().contains("booking_closed"), "{why}");
    let cancelled = world
        .post(&key, &format!("{path}/cancel"), json!({ "which": "all" }))
        .await;
    assert_eq!(cancelled.status, 204, "{cancelled:?}");
    assert_eq!(world.get(&key, &path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    for (field, value, pointer) in [
        ("start", json!("2026-03-02"), "/start"),
        ("start", json!("2020-01-01T09:00"), "/end"),
        ("end", json!("2999-01-01T09:00:00+01:00"), "/end"),
        ("zone", json!("Mars/Olympus"), "/zone"),
        ("rule", json!("FREQ=SECONDLY"), "/rule"),
        ("rule", json!("FREQ=DAILY;COUNT=0"), "/rule"),
        ("dates", json!(["tomorrow"]), "/dates"),
        ("size", json!({ "unit": "gpus", "count": 0 }), "/size/count"),
    ] {
        let mut wrong = body("w", 48);
        wrong[field] = value;
        let refused = world.post(&key, "/v1/bookings", wrong).await;
        assert_eq!(refused.status, 422, "{field}: {refused:?}");
        assert!(refused.json().to_string().contains(pointer), "{refused:?}");
    }
    for wrong in [
        json!({}),
        json!({ "unit": "gpus", "count": -1 }),
        json!({ "unit": "racks", "count": 1 }),
    ] {
        let mut body = body("w", 48);
        body["size"] = wrong;
        let refused = world.post(&key, "/v1/bookings", body).await;
        assert!(refused.status.is_client_error(), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calendars_read_the_feed_with_a_password_and_nothing_else() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    let ask = |path: &str, password: &str| {
        let request = world.request(Method::GET, path, None);
        world.send(request.basic_auth("calendar", Some(password.to_owned())))
    };
    assert_eq!(ask("/v1/calendar.ics", &key).await.status, 200);
    let wrong = ask("/v1/calendar.ics", "no key").await;
    assert_eq!(wrong.status, 401);
    let schemes = wrong.headers.get_all("www-authenticate").iter();
    assert!(
        schemes
            .map(|scheme| scheme.to_str().unwrap())
            .any(|scheme| scheme.starts_with("Basic")),
        "{wrong:?}"
    );
    for path in ["/v1/calendar", "/v1/bookings", "/v1/whoami", "/v1/calendar.ics/"] {
        assert_ne!(ask(path, &key).await.status, 200, "{path}");
    }
    let nobody = world
        .send(world.request(Method::GET, "/v1/calendar.ics", None))
        .await;
    assert_eq!(nobody.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_series_is_edited_with_what_was_left_of_it() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    let mut series = body("daily", 48);
    series["rule"] = json!("FREQ=DAILY;COUNT=5");
    let made = world.post(&key, "/v1/bookings", series).await.json();
    let path = format!("/v1/bookings/{}", made["id"].as_str().unwrap());
    let of = made["windows"][2]["of"].clone();
    let edit = json!({ "which": "rest", "of": of, "end": wall(48 + 2 * 24 + 3) });
    let edited = world.post(&key, &format!("{path}/edit"), edit).await;
    assert_eq!(edited.status, 200, "{edited:?}");
    assert_eq!(edited.json()["windows"].as_array().unwrap().len(), 2);
    let all = world.get(&key, "/v1/bookings").await.json();
    let rest = &all["items"][1];
    assert_eq!(rest["rule"], json!("FREQ=DAILY;COUNT=3"), "{all}");
    assert_eq!(rest["windows"].as_array().unwrap().len(), 3);
    // Page by page the calendar is the same as whole, and in order.
    let far = now().plus_ms(30 * 86_400_000).rfc3339();
    let whole = world.get(&key, &format!("/v1/calendar?until={far}")).await.json();
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world
            .get(&key, &format!("/v1/calendar?until={far}&limit=2{cursor}"))
            .await
            .json();
        pages.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((pages.len(), &json!(pages)), (5, &whole["items"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_from_a_window_there_is_not_is_asked_of_nobody() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    let mut hourly = body("hourly", 48);
    hourly["rule"] = json!("FREQ=HOURLY;INTERVAL=3");
    let made = world.post(&key, "/v1/bookings", hourly).await.json();
    let path = format!("/v1/bookings/{}", made["id"].as_str().unwrap());
    // Counted through to there, it would be tens of millions of windows, with the books held meanwhile.
    let far = json!({ "which": "rest", "of": "9989-01-01T00:00", "end": wall(49) });
    let edit = format!("{path}/edit");
    let refused = world.post(&key, &edit, far);
    let refused = tokio::time::timeout(std::time::Duration::from_secs(20), refused).await;
    let refused = refused.expect("answered while somebody still waits");
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["code"]),
        (404, &json!("not_found")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_made_longer_once_for_each_key() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    let made = world.post(&key, "/v1/bookings", body("w", 48)).await.json();
    let path = format!("/v1/bookings/{}/extend", made["id"].as_str().unwrap());
    let longer = json!({ "of": made["windows"][0]["of"], "more_s": 3600 });
    let extend = |name: &'static str, body: Value| {
        let request = world.request(Method::POST, &path, Some(&key)).json(&body);
        world.send(request.header("Idempotency-Key", name))
    };
    let first = extend("one", longer.clone()).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(!first.headers.contains_key("location"));
    let again = extend("one", longer.clone()).await;
    assert_eq!((again.status, &again.bytes), (first.status, &first.bytes));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let other = extend("two", longer).await;
    let price = |reply: &crate::world::Reply| reply.json()["price_micros"].as_i64().unwrap();
    let hour = made["price_micros"].as_i64().unwrap() / 2;
    assert_eq!((price(&first), price(&other)), (3 * hour, 4 * hour));
    let reused = extend("one", json!({ "of": made["windows"][0]["of"], "more_s": 60 })).await;
    assert_eq!(reused.code(), "idempotency_key_reused", "{reused:?}");
}
