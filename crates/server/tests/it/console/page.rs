//! What pages say and do: whole sums, all tasks, the clocks of a booking's zone, names, one window cancelled, rules in
//! words, and why something is not to be had.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Browser, hidden};
use crate::world::World;

async fn browse(world: &World, key: &str, path: &str) -> String {
    let (status, _, page) = Browser::sign_in(world, key).await.get(path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {page}");
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spent_by_the_hour_is_of_all_jobs() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (user, ada) = world.user(&tenant, "ada", Some("member")).await;
    world.node("farm", 64_000).await;
    let mut prices = world.get(&world.owner, "/v1/prices").await.json();
    prices["cpu_hour_micros"] = json!(1_000_000);
    prices["memory_gib_hour_micros"] = json!(0);
    let set = world.put(&world.owner, "/v1/prices", prices).await;
    assert_eq!(set.status, 200, "{set:?}");
    for number in 0..130 {
        let spec = json!({
            "name": format!("job-{number}"), "command": ["true"], "demand": { "cpu_milli": 100, "memory_mib": 16 },
        });
        let made = world
            .post(&world.owner, "/v1/jobs", json!({ "owner": user, "spec": spec }))
            .await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    let mut placed = 0;
    for _ in 0..500 {
        let jobs = world.get(&ada, "/v1/jobs?limit=1000").await.json();
        let items = jobs["items"].as_array().unwrap().iter();
        placed = items.filter(|job| job["allocation"].is_object()).count();
        if placed == 130 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(placed, 130);
    for key in [&ada, &world.owner] {
        let page = browse(&world, key, "/console").await;
        let sub = page.find(" an hour at present").expect("what is spent");
        let figure = &page[..sub];
        assert!(
            figure.ends_with(">13.00\u{a0}EUR"),
            "{}",
            &figure[figure.len() - 30..]
        );
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tasks_can_be_reached_and_when_they_are_done_is_said() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, ada) = world.user(&tenant, "ada", Some("member")).await;
    world.node("farm", 64_000).await;
    let spec = json!({
        "name": "bridge", "command": ["true"], "demand": { "cpu_milli": 100, "memory_mib": 16 },
        "workload": { "rendering": { "frames": "1-60", "each_ms": 9000 } },
        "tasks": { "parallel": 60, "per_task": 1 },
    });
    let job = world.post(&ada, "/v1/jobs", json!({ "spec": spec })).await.id();
    let path = format!("/v1/jobs/{job}");
    let mut view = Value::Null;
    for _ in 0..500 {
        view = world.get(&ada, &path).await.json();
        if view["tasks"]["tasks_running"] == 60 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(view["tasks"]["eta"].is_object(), "{view}");
    let browser = Browser::sign_in(&world, &ada).await;
    let rows = |page: &str| {
        let at = page.find("id=\"tasks\"").expect("tasks");
        let part = &page[at..at + page[at..].find("</section>").unwrap()];
        part.matches("<tr><th scope=\"row\">").count()
    };
    let (_, _, page) = browser.get(&format!("/console/jobs/{job}")).await;
    assert!(page.contains("Likely done <time"), "{page}");
    assert_eq!(rows(&page), 50);
    let at = page.find(&format!("/console/jobs/{job}?tasks=")).expect("more");
    let next = &page[at..at + page[at..].find('#').unwrap()];
    let (status, _, page) = browser.get(next).await;
    assert_eq!((status, rows(&page)), (StatusCode::OK, 10));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_booking_speaks_of_its_own_clocks_and_gives_up_one_window_of_many() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, ada) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    let browser = Browser::sign_in(&world, &ada).await;
    let csrf = hidden(&browser.get("/console/calendar?class=H100").await.2, "csrf");
    let day = tenure_server::controller::now().plus_ms(3 * 86_400_000).rfc3339()[..10].to_owned();
    let (start, end) = (format!("{day}T09:00"), format!("{day}T10:30"));
    let fields = [
        ("csrf", csrf.as_str()),
        ("name", "mornings"),
        ("class", "H100"),
        ("gpus", "1"),
        ("start", &start),
        ("end", &end),
        ("zone", "Asia/Tokyo"),
        ("repeat", "daily"),
    ];
    let sent = browser.http.post(format!("{}/console/calendar", world.url));
    let sent = sent
        .header("content-type", super::FORM)
        .header("cookie", format!("tenure_session={}", browser.session))
        .body(super::form_of(&fields))
        .send()
        .await
        .unwrap();
    let page = sent.text().await.unwrap();
    assert!(
        page.contains("Asia/Tokyo") && page.contains(", 09:00</span>") && page.contains(", 10:30</span>"),
        "{page}"
    );
    assert!(
        !page.contains("<time"),
        "a moment would be told by the browser's clocks"
    );
    let shown = hidden(&page, "shown_micros");
    let mut again = fields.to_vec();
    let key = hidden(&page, "repeat_key");
    again.extend([("shown_micros", shown.as_str()), ("repeat_key", &key)]);
    assert_eq!(
        browser.post("/console/calendar", &again, &[]).await,
        StatusCode::SEE_OTHER
    );

    let bookings = world.get(&ada, "/v1/bookings").await.json();
    let id = bookings["items"][0]["id"].as_str().unwrap().to_owned();
    let windows = async || {
        let found = world.get(&ada, &format!("/v1/bookings/{id}")).await.json();
        let windows = found["windows"].as_array().cloned().unwrap_or_default();
        let of = windows
            .iter()
            .map(|window| window["of"].as_str().unwrap().to_owned());
        of.collect::<Vec<_>>()
    };
    let before = windows().await;
    assert!(before.len() > 4, "{before:?}");
    let path = format!("/console/calendar/{id}");
    let (_, _, page) = browser.get(&path).await;
    assert!(
        page.contains(", 09:00</span>") && page.contains("Wall times of <bdi>Asia/Tokyo</bdi>"),
        "{page}"
    );
    let cancel = format!("{path}/cancel");
    let one = [("csrf", csrf.as_str()), ("of", &before[1]), ("which", "one")];
    assert_eq!(browser.post(&cancel, &one, &[]).await, StatusCode::SEE_OTHER);
    let after = windows().await;
    assert!(
        after.contains(&before[0]) && !after.contains(&before[1]) && after.contains(&before[2]),
        "{after:?}"
    );
    let rest = [("csrf", csrf.as_str()), ("of", &before[3]), ("which", "rest")];
    assert_eq!(browser.post(&cancel, &rest, &[]).await, StatusCode::SEE_OTHER);
    assert_eq!(windows().await, [before[0].clone(), before[2].clone()]);
    let all = [("csrf", csrf.as_str()), ("which", "all")];
    assert_eq!(browser.post(&cancel, &all, &[]).await, StatusCode::SEE_OTHER);
    assert_eq!(windows().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_did_something_has_a_name() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (user, _) = world.user(&tenant, "ada", Some("member")).await;
    world.node("farm", 1000).await;
    let page = browse(&world, &world.owner, "/console/audit").await;
    let by: Vec<&str> = page
        .split("</td><td class=\"fields\">")
        .filter_map(|before| before.rsplit("<td>").next())
        .filter(|cell| cell.starts_with("<bdi>"))
        .collect();
    assert!(by.iter().any(|by| by.starts_with("<bdi>root, key ")), "{by:?}");
    assert!(!by.iter().any(|by| by.contains("usr_")), "{by:?}");
    let of = browse(&world, &world.owner, "/console/audit?q=ada").await;
    assert!(
        of.contains("acme/ada") && of.contains("Scope created"),
        "found by name: {user}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_tells_its_rules_and_what_they_would_say() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (user, ada) = world.user(&tenant, "ada", Some("member")).await;
    world.gpu("g1").await;
    let place = format!("/v1/scopes/{tenant}");
    let rules = json!({ "rules": "forbid (principal, action == Action::\"market_trade\", resource);" });
    let set = world.put(&world.owner, &format!("{place}/rules"), rules).await;
    assert_eq!(set.status, 200, "{set:?}");
    let policy = json!({
        "min_isolation": "fenced", "max_run_time_s": 7200, "trade": { "may_sell": false, "max_price_micros": 2_500_000 },
    });
    let set = world.put(&world.owner, &format!("{place}/policy"), policy).await;
    assert_eq!(set.status, 200, "{set:?}");
    let page = browse(&world, &world.owner, &format!("/console/admin/{tenant}")).await;
    for said in [
        "forbid (principal, action == Action::&#34;market_trade&#34;, resource);",
        "<dt>Sells at the exchange</dt><dd>may not</dd>",
        "<dt>Trades at a price of at most</dt><dd>2.50\u{a0}EUR for a GPU by the hour</dd>",
        "<dt>Longest run</dt><dd>2\u{a0}h 00\u{a0}min</dd>",
    ] {
        assert!(page.contains(said), "no {said}: {page}");
    }
    assert!(!page.contains("may_sell"), "no JSON");
    // Of a tenant one asks for one of its users; all that a demand says can be asked.
    let ask =
        |more: &str| format!("/console/admin/{tenant}?user={user}&kind=batch&gpus=1&vram=1&class=H100{more}");
    let long = browse(&world, &world.owner, &ask("&hours=3")).await;
    assert!(long.contains("It would be refused: "), "{long}");
    let nowhere = browse(&world, &world.owner, &ask("&hours=1&region=moon")).await;
    assert!(
        nowhere.contains("It would be refused: ") || nowhere.contains("and wait: "),
        "{nowhere}"
    );
    let odd = browse(&world, &world.owner, &ask("&memory=much")).await;
    assert!(odd.contains("Memory: this is not a number"), "{odd}");
    let own = browse(&world, &ada, &format!("/console/admin/{user}?kind=batch&gpus=0")).await;
    assert!(own.contains("It would be taken"), "{own}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_let_says_how_it_could_be() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, gus) = world.user(&tenant, "gus", Some("owner")).await;
    world.gpu("g1").await;
    let path = "/console/exchange?class=H100";
    let page = browse(&world, &gus, path).await;
    assert!(
        page.contains("<fieldset class=\"bare stack tight\" disabled>"),
        "{page}"
    );
    assert!(page.contains(&format!("/console/admin/{tenant}\">your tenant's page</a>")));
    let quota = json!({ "limits": { "gpu_milli@class:H100": 4000 } });
    let set = world
        .put(&world.owner, &format!("/v1/scopes/{tenant}/quota"), quota)
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    let page = browse(&world, &gus, path).await;
    assert!(page.contains("<fieldset class=\"bare stack tight\">"), "{page}");

    let browser = Browser::sign_in(&world, &gus).await;
    let csrf = hidden(&browser.get(path).await.2, "csrf");
    let mut fields = vec![
        ("csrf", csrf.as_str()),
        ("class", "H100"),
        ("gpus", "2"),
        ("price", "1.5"),
        ("least", "1"),
        ("most", "8"),
        ("when", "daily"),
        ("daily_from", "20:00"),
        ("daily_until", "06:00"),
        ("zone", "Europe/Berlin"),
        ("isolation", "fenced"),
        ("source", "quota"),
    ];
    assert_eq!(
        browser.post("/console/exchange/sell", &fields, &[]).await,
        StatusCode::SEE_OTHER
    );
    let offers = world.get(&gus, "/v1/market/offers?class=H100").await.json();
    let offer = &offers["items"][0];
    let (from, until) = (
        offer["open_from"].as_str().unwrap(),
        offer["open_until"].as_str().unwrap(),
    );
    assert!(from != until && offer["gpu_milli"] == 2000, "{offer}");
    // A standing order that keeps some back.
    fields.retain(|(name, _)| !["when", "daily_from", "daily_until", "gpus"].contains(name));
    fields.extend([("auto", "1"), ("reserve", "0.5")]);
    assert_eq!(
        browser.post("/console/exchange/sell", &fields, &[]).await,
        StatusCode::SEE_OTHER
    );
    let autos = world.get(&gus, "/v1/market/auto-offers").await.json();
    assert_eq!(autos["items"][0]["reserve_milli"], 500, "{autos}");
    world.end().await;
}
