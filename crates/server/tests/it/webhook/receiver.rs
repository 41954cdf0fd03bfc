//! A receiver of webhooks on a port of its own: it writes down what it is sent, and answers as it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::hmac;
use serde_json::Value;

/// How long a test waits for what must come; on a busy machine all takes long.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    /// Nothing, for longer than anybody waits.
    Never,
    MovedTo(String),
}

/// One request.
#[derive(Debug, Clone)]
pub struct Got {
    pub headers: HeaderMap,
    pub raw: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.raw).unwrap()
    }

    pub fn seq(&self) -> u64 {
        self.json()["id"].as_str().unwrap().parse().unwrap_or(0)
    }

    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    /// Checks a signature as receivers do, by the secret as it was shown.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let key = BASE64_STANDARD
            .decode(secret.strip_prefix("whsec_").unwrap())
            .unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let mut signed = format!(
            "{}.{}.",
            self.header("webhook-id"),
            self.header("webhook-timestamp")
        )
        .into_bytes();
        signed.extend(&self.raw);
        self.header("webhook-signature").split(' ').any(|one| {
            let signature = BASE64_STANDARD.decode(one.strip_prefix("v1,").unwrap()).unwrap();
            hmac::verify(&key, &signed, &signature).is_ok()
        })
    }
}

#[derive(Default)]
struct Desk {
    got: Vec<Got>,
    answers: VecDeque<Answer>,
    /// When none is left.
    otherwise: Option<Answer>,
}

#[derive(Clone)]
pub struct Receiver {
    pub port: u16,
    desk: Arc<Mutex<Desk>>,
}

async fn take(State(receiver): State<Receiver>, headers: HeaderMap, raw: Bytes) -> Response {
    let answer = {
        let mut desk = receiver.desk.lock().unwrap();
        let raw = raw.to_vec();
        desk.got.push(Got { headers, raw });
        let told = desk.answers.pop_front();
        told.or(desk.otherwise.clone()).unwrap_or(Answer::Status(204))
    };
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Never => std::future::pending().await,
        Answer::MovedTo(place) => (StatusCode::FOUND, [("location", place)]).into_response(),
    }
}

impl Receiver {
    pub async fn new() -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Receiver {
            port: listener.local_addr().unwrap().port(),
            desk: Arc::default(),
        };
        let router = Router::new().fallback(take).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/in", self.port)
    }

    /// What it answers next, one after another.
    pub fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.desk.lock().unwrap().answers.extend(answers);
    }

    /// What it answers from now on, where nothing else was said.
    pub fn always(&self, answer: Answer) {
        self.desk.lock().unwrap().otherwise = Some(answer);
    }

    pub fn got(&self) -> Vec<Got> {
        self.desk.lock().unwrap().got.clone()
    }

    /// Waits until what it got is as wanted.
    pub async fn until(&self, wanted: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let begun = std::time::Instant::now();
        loop {
            let got = self.got();
            if wanted(&got) {
                return got;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it got {:?}",
                got.iter().map(|got| (got.kind(), got.seq())).collect::<Vec<_>>()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
