//! The console without a browser: sessions, forms, headers, and that what others wrote stays text.

mod page;
mod reading;

use reqwest::header::{HeaderMap, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use serde_json::json;
use tenure_server::controller::now;

use crate::money::Money;
use crate::world::World;

const FORM: &str = "application/x-www-form-urlencoded";

/// Fields as a form sends them.
fn form_of(fields: &[(&str, &str)]) -> String {
    let url = reqwest::Url::parse_with_params("http://form", fields).unwrap();
    url.query().unwrap_or_default().to_owned()
}

/// A browser with nothing but cookies.
struct Browser<'a> {
    world: &'a World,
    http: Client,
    session: String,
}

fn set(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let mut ours = all.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    ours.next()
        .map(|rest| rest.split(';').next().unwrap_or_default().to_owned())
}

/// A hidden field's value.
fn hidden(page: &str, name: &str) -> String {
    let at = page
        .find(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("no {name}: {page}"));
    let rest = &page[at + name.len() + 15..];
    rest[..rest.find('"').unwrap()].to_owned()
}

impl<'a> Browser<'a> {
    fn new(world: &'a World) -> Browser<'a> {
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        Browser {
            world,
            http,
            session: String::new(),
        }
    }

    async fn sign_in(world: &'a World, key: &str) -> Browser<'a> {
        let mut browser = Browser::new(world);
        let (status, headers) = browser.try_key(key).await;
        assert_eq!(status, StatusCode::SEE_OTHER);
        browser.session = set(&headers, "tenure_session").unwrap();
        browser
    }

    async fn try_key(&self, key: &str) -> (StatusCode, HeaderMap) {
        let form = self
            .http
            .get(format!("{}/console/sign-in", self.world.url))
            .send()
            .await
            .unwrap();
        let visit = set(form.headers(), "tenure_visit").unwrap();
        let csrf = hidden(&form.text().await.unwrap(), "csrf");
        let sent = self
            .http
            .post(format!("{}/console/sign-in", self.world.url))
            .header("cookie", format!("tenure_visit={visit}"))
            .header("content-type", FORM)
            .body(form_of(&[
                ("csrf", csrf.as_str()),
                ("key", key),
                ("next", "https://evil.example/"),
            ]))
            .send()
            .await
            .unwrap();
        if sent.status().is_redirection() {
            assert_eq!(sent.headers()["location"], "/console", "nobody is led elsewhere");
        }
        (sent.status(), sent.headers().clone())
    }

    async fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        let request = self.http.get(format!("{}{path}", self.world.url));
        let answer = request
            .header("cookie", format!("tenure_session={}", self.session))
            .send()
            .await
            .unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        (status, headers, answer.text().await.unwrap())
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> StatusCode {
        let mut request = self.http.post(format!("{}{path}", self.world.url));
        request = request.header("content-type", FORM).body(form_of(fields));
        request = request.header("cookie", format!("tenure_session={}", self.session));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status()
    }
}

#[tokio::test]
async fn a_session_is_a_key_that_ends_with_the_one_it_was_made_of() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let user = world
        .post(
            &world.owner,
            "/v1/users",
            json!({ "parent": tenant, "name": "ada", "role": "member" }),
        )
        .await
        .id();
    let keys = format!("/v1/users/{user}/keys");
    let made = world
        .post(
            &world.owner,
            &keys,
            json!({ "label": "mine", "allow": ["scope_read", "job_read"] }),
        )
        .await;
    let (id, token) = (made.id(), made.json()["token"].as_str().unwrap().to_owned());

    let browser = Browser::sign_in(&world, &token).await;
    assert_ne!(browser.session, token, "the browser does not get the key itself");
    assert_eq!(browser.get("/console").await.0, StatusCode::OK);
    let listed = world.get(&world.owner, &keys).await.json();
    let session = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["label"] == format!("console.{id}"))
        .unwrap()
        .clone();
    assert_eq!(
        session["allow"],
        json!(["scope_read", "job_read"]),
        "no more than the key may"
    );
    assert!(session["expires"].is_string());
    // What the key may not do, the session may not either.
    let csrf = hidden(&browser.get("/console").await.2, "csrf");
    let fields = [("csrf", csrf.as_str()), ("kind", "batch"), ("command", "true")];
    assert_eq!(
        browser.post("/console/jobs/new", &fields, &[]).await,
        StatusCode::OK,
        "the form again, with why"
    );
    assert_eq!(
        world.get(&world.owner, "/v1/jobs?show=all").await.json()["items"],
        json!([])
    );

    world.delete(&world.owner, &format!("/v1/keys/{id}")).await;
    let (status, headers, _) = browser.get("/console/jobs").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert_eq!(headers["location"], "/console/sign-in?next=%2Fconsole%2Fjobs");
    assert_eq!(
        world.get(&browser.session, "/v1/whoami").await.status,
        StatusCode::UNAUTHORIZED
    );
    world.end().await;
}

#[tokio::test]
async fn signing_out_ends_the_session_and_wrong_keys_open_none() {
    let world = World::new().await;
    let browser = Browser::sign_in(&world, &world.owner).await;
    let csrf = hidden(&browser.get("/console").await.2, "csrf");
    assert_eq!(
        browser.post("/console/sign-out", &[("csrf", &csrf)], &[]).await,
        StatusCode::SEE_OTHER
    );
    assert_eq!(browser.get("/console").await.0, StatusCode::SEE_OTHER);
    assert_eq!(
        world.get(&world.owner, "/v1/whoami").await.status,
        StatusCode::OK,
        "the key stays"
    );
    for wrong in ["", "nonsense", "tnr_AAAA"] {
        let (status, headers) = Browser::new(&world).try_key(wrong).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{wrong:?}");
        assert_eq!(set(&headers, "tenure_session"), None);
    }
    world.end().await;
}

#[tokio::test]
async fn nothing_is_changed_from_elsewhere() {
    let world = World::new().await;
    let browser = Browser::sign_in(&world, &world.owner).await;
    let csrf = hidden(&browser.get("/console").await.2, "csrf");
    let tenant = world.tenant("acme").await;
    let path = format!("/console/admin/{tenant}/suspend");
    let other = Browser::sign_in(&world, &world.owner).await;
    let foreign = hidden(&other.get("/console").await.2, "csrf");
    for (csrf, headers) in [
        ("", &[][..]),
        ("wrong", &[]),
        (foreign.as_str(), &[]),
        (csrf.as_str(), &[("sec-fetch-site", "cross-site")]),
        (csrf.as_str(), &[("origin", "http://evil.example")]),
    ] {
        assert_eq!(
            browser.post(&path, &[("csrf", csrf)], headers).await,
            StatusCode::FORBIDDEN,
            "{csrf} {headers:?}"
        );
    }
    let suspended = world
        .get(&world.owner, &format!("/v1/scopes/{tenant}"))
        .await
        .json();
    assert_eq!(suspended["suspended"], false);
    assert_eq!(
        browser.post(&path, &[("csrf", &csrf)], &[]).await,
        StatusCode::SEE_OTHER
    );

    // The scripts' door: reading with the cookie, changing with the token, and nothing but the API behind it.
    let door = |method: Method, path: &str| {
        let request = browser
            .http
            .request(method, format!("{}/console/api{path}", world.url));
        request.header("cookie", format!("tenure_session={}", browser.session))
    };
    assert_eq!(
        door(Method::GET, "/v1/whoami").send().await.unwrap().status(),
        StatusCode::OK
    );
    let queried = door(Method::GET, "/v1/jobs?show=all&limit=5")
        .send()
        .await
        .unwrap();
    assert_eq!(queried.status(), StatusCode::OK, "with what is asked of it");
    let resume = format!("/v1/scopes/{tenant}/resume");
    assert_eq!(
        door(Method::POST, &resume).send().await.unwrap().status(),
        StatusCode::FORBIDDEN
    );
    let sent = door(Method::POST, &resume)
        .header("x-csrf-token", &csrf)
        .send()
        .await
        .unwrap();
    assert_eq!(sent.status(), StatusCode::OK);
    for beyond in ["/healthz", "/console/sign-in", "//v1/whoami", "/v1/../docs/"] {
        let status = door(Method::GET, beyond).send().await.unwrap().status();
        assert!(
            status.is_client_error() || status.is_redirection(),
            "{beyond}: {status}"
        );
    }
    let bare = browser.http.get(format!("{}/v1/whoami", world.url));
    let bare = bare
        .header("cookie", format!("tenure_session={}", browser.session))
        .send()
        .await
        .unwrap();
    assert_eq!(
        bare.status(),
        StatusCode::UNAUTHORIZED,
        "the API knows no cookies"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_put_together_by_labels_and_wasted_as_the_api_says() {
    let money = Money::new().await;
    let spec = json!({ "name": "lazy", "command": ["true"], "labels": { "project": "film" }, "run_time_s": 3600,
        "demand": { "gpus": 1, "compute_permille": 300, "vram_mib": 1000 } });
    let (job, allocation) = money.starts(spec).await;
    let usage = tenure_domain::workload::usage::Usage {
        busy_ms: 1_350,
        ..Default::default()
    };
    money.meter_as(allocation, 9_000, usage).await;
    let api = money.get(&money.boss, "/v1/analysis?by=job").await;
    let group = &api["groups"][0];
    assert_eq!(
        (&group["name"], &group["idle_ms"]),
        (&json!("lazy"), &json!(1_350)),
        "{api}"
    );
    let browser = Browser::sign_in(&money.world, &money.boss).await;
    let (_, _, page) = browser.get("/console/money?by=label:project").await;
    for part in [
        "by=label:project\" aria-current=\"page\">label project",
        "by=workload",
        "<th scope=\"row\"><bdi>film</bdi>",
        "50\u{a0}% idle",
        &format!("/console/jobs/{job}"),
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    money.world.end().await;
}

#[tokio::test]
async fn what_others_wrote_is_text_and_pages_hold_no_script() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let user = json!({ "parent": tenant, "name": "ada", "role": "member" });
    let user = world.post(&world.owner, "/v1/users", user).await.id();
    let text = "<script>alert(1)</script>\u{202e}&\"'\u{1b}[31m";
    let spec = json!({ "name": "job", "command": ["echo", text], "env": { "TEXT": text } });
    let job = world
        .post(&world.owner, "/v1/jobs", json!({ "owner": user, "spec": spec }))
        .await
        .id();
    let browser = Browser::sign_in(&world, &world.owner).await;
    let job = format!("/console/jobs/{job}");
    let draft = format!("/console/money/invoices/draft?scope={tenant}&what=usage&class=%3Cscript%3E");
    let place = format!("/console/admin/{tenant}?kind=%3Cscript%3E");
    let pages = [
        "/console",
        "/console/fleet",
        "/console/jobs",
        "/console/jobs?show=waiting",
        "/console/jobs/new",
        &job,
        "/console/calendar",
        "/console/exchange",
        "/console/money",
        "/console/health",
        "/console/audit",
        "/console/admin",
        "/console/nothing",
        "/console/jobs/nothing",
        "/console/jobs?show=%3Cscript%3E&cursor=%00",
        "/console/audit?q=%22%3E%3Cscript%3E",
        "/console/money?by=name&days=7",
        "/console/money?by=label:team",
        "/console/money?by=%3Cscript%3E&days=%3Cscript%3E",
        &draft,
        &place,
    ];
    for path in pages {
        let (status, headers, page) = browser.get(path).await;
        assert!(!status.is_server_error(), "{path}: {status} {page}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"),
            "{policy}"
        );
        assert!(
            !page.contains("<script>") && !page.contains("\u{202e}") && !page.contains('\u{1b}'),
            "{path}"
        );
        for inline in [" style=", " onclick=", " onerror=", " onload=", "javascript:"] {
            assert!(!page.contains(inline), "{path} has {inline}");
        }
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["cache-control"], "no-store");
    }
    assert!(
        browser
            .get(&job)
            .await
            .2
            .contains("&lt;script&gt;alert(1)&lt;/script&gt;")
    );
    world.end().await;
}

/// What is free of the class by the calendar of who has this key, quarter by quarter from the day before the week on.
async fn free(world: &World, key: &str) -> (Vec<u16>, String) {
    let browser = Browser::sign_in(world, key).await;
    let (status, _, page) = browser.get("/console/calendar?class=H100").await;
    assert_eq!(status, StatusCode::OK);
    let at = page.find("data-free=\"").expect("what is free") + 11;
    let text = &page[at..at + page[at..].find('"').unwrap()];
    let quarters = text.split_whitespace().map(|free| free.parse().unwrap());
    (quarters.collect(), page)
}

#[tokio::test]
async fn the_calendar_shades_what_is_taken_and_does_not_say_by_whom() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let (_, ada) = world.user(&acme, "ada", Some("member")).await;
    let globex = world.tenant("globex").await;
    let (_, gus) = world.user(&globex, "gus", Some("member")).await;
    world.gpu("g1").await;
    world.gpu("g2").await;
    let before = free(&world, &gus).await.0;
    assert_eq!(before, vec![1000; 9 * 96], "nothing is booked");
    let wall = |hours: u64| now().plus_ms(hours * 3_600_000).rfc3339()[..13].to_owned() + ":00";
    let booking = json!({
        "name": "nobody-else-knows", "class": "H100", "size": { "unit": "gpus", "count": 1 },
        "zone": "UTC", "start": wall(2), "end": wall(4).replace(":00", ":45"),
    });
    let made = world.post(&ada, "/v1/bookings", booking).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (after, page) = free(&world, &gus).await;
    let half = after.iter().filter(|&&quarter| quarter == 500).count();
    assert_eq!(half, 11, "two hours and three quarters: {after:?}");
    assert!(after.iter().all(|&free| free == 500 || free == 1000), "{after:?}");
    assert!(!page.contains("nobody-else-knows") && !page.contains("acme"));
    world.end().await;
}
