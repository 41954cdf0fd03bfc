//! Logging in with ID tokens of a real OIDC provider, run in a node process of its own.

use std::path::PathBuf;
use std::process::Stdio;

use reqwest::Method;
use serde_json::json;
use tenure_server::http::{HttpOptions, OidcOptions};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::world::{Reply, World, generous};

struct Issuer {
    url: String,
    /// Ends with its standard input.
    _process: Child,
    /// It goes on talking, and would end if nobody listened.
    _output: Lines<BufReader<ChildStdout>>,
}

/// Where the provider is installed once and kept.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("oidc-provider-8")
}

async fn install() -> PathBuf {
    static ONCE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONCE.lock().await;
    let dir = cache();
    if !dir.join("node_modules/oidc-provider/package.json").is_file() {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("package.json"), r#"{"private":true,"type":"module"}"#).unwrap();
        let done = Command::new("npm")
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--silent",
                "oidc-provider@8",
            ])
            .current_dir(&dir)
            .status()
            .await
            .expect("npm runs");
        assert!(done.success(), "npm could not install oidc-provider");
    }
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/issuer.mjs"),
        dir.join("issuer.mjs"),
    )
    .unwrap();
    dir
}

impl Issuer {
    async fn start() -> Issuer {
        let dir = install().await;
        let mut process = Command::new("node")
            .arg("issuer.mjs")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("node runs");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = loop {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("the provider says where it is");
            if line.starts_with("http://") {
                break line;
            }
        };
        Issuer {
            url,
            _process: process,
            _output: lines,
        }
    }

    async fn mint(&self, world: &World, client: &str, sub: &str, nonce: &str) -> String {
        let response = world
            .http
            .get(format!(
                "{}/mint?client={client}&sub={sub}&nonce={nonce}",
                self.url
            ))
            .send()
            .await
            .unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 200, "{text}");
        text
    }

    fn options(&self, client_id: &str) -> HttpOptions {
        HttpOptions {
            oidc: Some(OidcOptions {
                issuer: self.url.clone(),
                client_id: client_id.into(),
            }),
            ..generous()
        }
    }
}

async fn login(world: &World, token: &str, nonce: &str, user: Option<&str>) -> Reply {
    let mut body = json!({ "id_token": token, "nonce": nonce });
    if let Some(user) = user {
        body["user"] = user.into();
    }
    world
        .send(world.request(Method::POST, "/v1/login", None).json(&body))
        .await
}

async fn user(world: &World, parent: &str, name: &str, issuer: &str, subject: &str) -> String {
    let identity = json!({ "issuer": issuer, "subject": subject });
    world
        .post(
            &world.owner,
            "/v1/users",
            json!({ "parent": parent, "name": name, "identity": identity }),
        )
        .await
        .id()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_becomes_a_key() {
    let issuer = Issuer::start().await;
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let client = format!("tenure-{algorithm}");
        let world = World::with(issuer.options(&client)).await;
        let shown = world
            .send(world.request(Method::GET, "/v1/login", None))
            .await
            .json();
        assert_eq!(shown, json!({ "issuer": issuer.url, "client_id": client }));
        let ada = user(
            &world,
            &world.tenant("acme").await,
            "ada",
            &issuer.url,
            "ada-at-issuer",
        )
        .await;
        let token = issuer.mint(&world, &client, "ada-at-issuer", "n-1").await;
        let reply = login(&world, &token, "n-1", None).await;
        assert_eq!(reply.status, 201, "{algorithm} {reply:?}");
        let key = reply.json();
        assert_eq!(
            (key["user"].as_str(), key["label"].as_str()),
            (Some(ada.as_str()), Some("login"))
        );
        let me = world
            .get(key["token"].as_str().unwrap(), "/v1/whoami")
            .await
            .json();
        assert_eq!(me["user"]["id"], ada.as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_proven_does_not_enter() {
    let issuer = Issuer::start().await;
    let world = World::with(issuer.options("tenure-RS256")).await;
    let tenant = world.tenant("acme").await;
    let ada = user(&world, &tenant, "ada", &issuer.url, "ada").await;
    let good = issuer.mint(&world, "tenure-RS256", "ada", "n").await;
    let other_client = issuer.mint(&world, "tenure-ES256", "ada", "n").await;
    let (header, rest) = good.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let head = world.head();
    let none = "eyJhbGciOiJub25lIn0";
    let shared_secret = "eyJhbGciOiJIUzI1NiJ9";
    for (case, token, nonce) in [
        ("another nonce", good.clone(), "m"),
        ("no nonce", good.clone(), ""),
        ("another audience", other_client, "n"),
        ("no signature", format!("{none}.{claims}."), "n"),
        (
            "algorithm none with the signature",
            format!("{none}.{claims}.{signature}"),
            "n",
        ),
        (
            "a shared secret",
            format!("{shared_secret}.{claims}.{signature}"),
            "n",
        ),
        (
            "other claims",
            format!("{header}.{}.{signature}", claims.replace('a', "b")),
            "n",
        ),
        ("cut", good[..good.len() - 4].to_owned(), "n"),
        ("an API key", world.owner.clone(), "n"),
        ("nothing", String::new(), "n"),
    ] {
        let reply = login(&world, &token, nonce, None).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (401, "unauthenticated"),
            "{case} {reply:?}"
        );
        assert!(
            !String::from_utf8_lossy(&reply.bytes).contains(claims),
            "{case}: nothing is told back"
        );
    }
    let unknown = login(
        &world,
        &issuer.mint(&world, "tenure-RS256", "eve", "n").await,
        "n",
        None,
    )
    .await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code().as_str()),
        (403, "not_permitted")
    );
    assert_eq!(world.head(), head, "nothing changed");

    // One login, two users: the caller must say which, and can only say one of them.
    let twin = user(&world, &tenant, "twin", &issuer.url, "ada").await;
    let stranger = world.user(&tenant, "stranger", None).await.0;
    let asked = login(&world, &good, "n", None).await;
    assert_eq!((asked.status.as_u16(), asked.field().as_str()), (422, "/user"));
    assert_eq!(
        login(&world, &good, "n", Some(&twin)).await.json()["user"],
        twin.as_str()
    );
    for wrong in [stranger.as_str(), "usr_0000000000000", "*"] {
        assert_eq!(
            login(&world, &good, "n", Some(wrong)).await.json()["detail"],
            unknown.json()["detail"],
            "{wrong}"
        );
    }
    assert_eq!(
        world
            .post(&world.owner, &format!("/v1/scopes/{ada}/suspend"), json!({}))
            .await
            .status,
        200
    );
    assert_eq!(login(&world, &good, "n", Some(&ada)).await.code(), "suspended");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_issuer_there_is_no_login() {
    let world = World::new().await;
    assert_eq!(
        world
            .send(world.request(Method::GET, "/v1/login", None))
            .await
            .json(),
        json!({})
    );
    assert_eq!(login(&world, "x.y.z", "n", None).await.code(), "not_permitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_away_is_said_to_be() {
    let options = OidcOptions {
        issuer: "http://127.0.0.1:9".into(),
        client_id: "tenure".into(),
    };
    let world = World::with(HttpOptions {
        oidc: Some(options),
        ..generous()
    })
    .await;
    // A header that names RS256.
    let reply = login(&world, "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", "n", None).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (503, "unavailable")
    );
}
