//! A collector on a port of its own. It takes nothing that is not OTLP's JSON to the letter, and writes down the spans.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

/// How long a test waits for what must come; on a busy machine all takes long.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    /// With `Retry-After`, in seconds.
    Later(u16, u64),
    Partial(u64),
    /// Nothing, for longer than anybody waits.
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub name: String,
    pub at: u64,
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub kind: u32,
    pub remote: bool,
    pub began: u64,
    pub ended: u64,
    pub attributes: BTreeMap<String, Value>,
    pub moments: Vec<Moment>,
    pub links: Vec<(String, String)>,
    pub error: Option<String>,
}

impl Span {
    pub fn text(&self, key: &str) -> &str {
        match self.attributes.get(key) {
            Some(Value::Text(text)) => text,
            other => panic!("{key} of {} is {other:?}", self.name),
        }
    }

    pub fn number(&self, key: &str) -> i64 {
        match self.attributes.get(key) {
            Some(Value::Number(number)) => *number,
            other => panic!("{key} of {} is {other:?}", self.name),
        }
    }

    pub fn has(&self, moment: &str) -> bool {
        self.moments.iter().any(|known| known.name == moment)
    }
}

mod wire {
    //! ExportTraceServiceRequest as JSON: every field by its own name, none unknown.
    // Some are there to be known, and not looked at.
    #![allow(dead_code)]

    use super::Deserialize;

    macro_rules! message {
        ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields, rename_all = "camelCase")]
            pub struct $name { $(#[serde(default)] pub $field: $type,)* }
        )*};
    }

    message! {
        Request { resource_spans: Vec<ResourceSpans> }
        ResourceSpans { resource: Option<Resource>, scope_spans: Vec<ScopeSpans>, schema_url: String }
        Resource { attributes: Vec<Pair> }
        ScopeSpans { scope: Option<Scope>, spans: Vec<Span>, schema_url: String }
        Scope { name: String, version: String }
        Span {
            trace_id: String, span_id: String, trace_state: String, parent_span_id: Option<String>, flags: u32, name: String,
            kind: u32, start_time_unix_nano: String, end_time_unix_nano: String, attributes: Vec<Pair>,
            dropped_attributes_count: u32, events: Vec<Event>, dropped_events_count: u32, links: Vec<Link>,
            dropped_links_count: u32, status: Option<Status>,
        }
        Event { time_unix_nano: String, name: String, attributes: Vec<Pair>, dropped_attributes_count: u32 }
        Link { trace_id: String, span_id: String, trace_state: String, attributes: Vec<Pair>, flags: u32 }
        Status { message: String, code: u32 }
        Values { values: Vec<Any> }
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Pair {
        pub key: String,
        pub value: Any,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub enum Any {
        #[serde(rename = "stringValue")]
        Text(String),
        #[serde(rename = "intValue")]
        Number(String),
        #[serde(rename = "arrayValue")]
        List(Values),
    }
}

fn id(text: &str, digits: usize) -> String {
    let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    assert!(
        text.len() == digits && hex && text.bytes().any(|byte| byte != b'0'),
        "id {text:?}"
    );
    text.to_owned()
}

fn value(any: wire::Any) -> Value {
    match any {
        wire::Any::Text(text) => Value::Text(text),
        wire::Any::Number(text) => Value::Number(text.parse().unwrap()),
        wire::Any::List(array) => Value::Texts(
            array
                .values
                .into_iter()
                .map(|any| match value(any) {
                    Value::Text(text) => text,
                    other => panic!("{other:?} in an array"),
                })
                .collect(),
        ),
    }
}

fn attributes(pairs: Vec<wire::Pair>) -> BTreeMap<String, Value> {
    let count = pairs.len();
    let map: BTreeMap<_, _> = pairs
        .into_iter()
        .map(|pair| (pair.key, value(pair.value)))
        .collect();
    assert_eq!(map.len(), count, "a key is there once: {map:?}");
    assert!(map.keys().all(|key| !key.is_empty()));
    map
}

/// What a request holds: what is said of the server, and the spans.
pub fn read(body: &[u8]) -> (BTreeMap<String, Value>, Vec<Span>) {
    let request: wire::Request = serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)));
    let [resource] = <[_; 1]>::try_from(request.resource_spans)
        .ok()
        .expect("of one server");
    let [scope] = <[_; 1]>::try_from(resource.scope_spans)
        .ok()
        .expect("of one library");
    let named = scope.scope.expect("a scope");
    assert_eq!(
        (named.name.as_str(), named.version.as_str()),
        ("tenure", env!("CARGO_PKG_VERSION"))
    );
    let spans = scope.spans.into_iter().map(|span| {
        let (began, ended) = (
            span.start_time_unix_nano.parse().unwrap(),
            span.end_time_unix_nano.parse().unwrap(),
        );
        assert!(began <= ended, "{} ends before it begins", span.name);
        assert!((1..=5).contains(&span.kind) && !span.name.is_empty());
        assert_eq!(span.flags & !0x3ff, 0);
        assert_eq!(
            span.flags & 0x101,
            0x101,
            "sampled, and it is known whose its parent is"
        );
        let status = span.status.map(|status| {
            assert_eq!(status.code, 2, "only errors have a status");
            status.message
        });
        let moments = span.events.into_iter().map(|event| Moment {
            name: event.name,
            at: event.time_unix_nano.parse().unwrap(),
            attributes: attributes(event.attributes),
        });
        let moments: Vec<Moment> = moments.collect();
        for moment in &moments {
            assert!(
                (began..=ended).contains(&moment.at),
                "{moment:?} of {}",
                span.name
            );
        }
        Span {
            trace: id(&span.trace_id, 32),
            id: id(&span.span_id, 16),
            parent: span.parent_span_id.map(|parent| id(&parent, 16)),
            name: span.name,
            kind: span.kind,
            remote: span.flags & 0x200 != 0,
            began,
            ended,
            attributes: attributes(span.attributes),
            moments,
            links: span
                .links
                .into_iter()
                .map(|link| (id(&link.trace_id, 32), id(&link.span_id, 16)))
                .collect(),
            error: status,
        }
    });
    let spans = spans.collect();
    (
        attributes(resource.resource.expect("a resource").attributes),
        spans,
    )
}

#[derive(Default)]
struct Desk {
    bodies: Vec<Vec<u8>>,
    spans: Vec<Span>,
    headers: Vec<HeaderMap>,
    resource: BTreeMap<String, Value>,
    answers: VecDeque<Answer>,
    otherwise: Option<Answer>,
    asked: usize,
    fault: Option<String>,
}

#[derive(Clone)]
pub struct Collector {
    pub port: u16,
    desk: Arc<Mutex<Desk>>,
}

async fn take(State(collector): State<Collector>, uri: Uri, headers: HeaderMap, raw: Bytes) -> Response {
    let answer = {
        let mut desk = collector.desk.lock().unwrap();
        desk.asked += 1;
        let told = desk.answers.pop_front();
        told.or(desk.otherwise.clone())
    };
    match answer {
        Some(Answer::Never) => std::future::pending().await,
        Some(Answer::Status(status)) => StatusCode::from_u16(status).unwrap().into_response(),
        Some(Answer::Later(status, seconds)) => (
            StatusCode::from_u16(status).unwrap(),
            [("retry-after", seconds.to_string())],
        )
            .into_response(),
        answer => {
            let taken = std::panic::catch_unwind(AssertUnwindSafe(|| {
                assert_eq!(uri.path(), "/v1/traces");
                assert_eq!(headers["content-type"], "application/json");
                let mut body = Vec::new();
                match headers.get("content-encoding") {
                    None => body.extend_from_slice(&raw),
                    Some(encoding) => {
                        assert_eq!(encoding, "gzip");
                        flate2::read::GzDecoder::new(&raw[..])
                            .read_to_end(&mut body)
                            .unwrap();
                    }
                }
                let read = read(&body);
                (body, read)
            }));
            let mut desk = collector.desk.lock().unwrap();
            let Ok((body, (resource, spans))) = taken else {
                desk.fault = Some(String::from_utf8_lossy(&raw).into_owned());
                return StatusCode::BAD_REQUEST.into_response();
            };
            desk.bodies.push(body);
            desk.headers.push(headers);
            desk.resource = resource;
            let rejected = match answer {
                Some(Answer::Partial(rejected)) => rejected,
                _ => 0,
            };
            desk.spans.extend(spans);
            let body = format!(r#"{{"partialSuccess":{{"rejectedSpans":"{rejected}"}}}}"#);
            ([("content-type", "application/json")], body).into_response()
        }
    }
}

impl Collector {
    pub async fn new() -> Collector {
        Collector::at(0).await
    }

    /// One that was away comes back.
    pub async fn at(port: u16) -> Collector {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let collector = Collector {
            port: listener.local_addr().unwrap().port(),
            desk: Arc::default(),
        };
        let router = Router::new().fallback(take).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.desk.lock().unwrap().answers.extend(answers);
    }

    /// What it answers from now on, where nothing else was said.
    pub fn always(&self, answer: Option<Answer>) {
        self.desk.lock().unwrap().otherwise = answer;
    }

    pub fn asked(&self) -> usize {
        self.desk.lock().unwrap().asked
    }

    pub fn spans(&self) -> Vec<Span> {
        let desk = self.desk.lock().unwrap();
        assert_eq!(desk.fault, None, "not as OTLP has it");
        desk.spans.clone()
    }

    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.desk.lock().unwrap().bodies.clone()
    }

    pub fn headers(&self) -> HeaderMap {
        self.desk.lock().unwrap().headers.last().cloned().unwrap()
    }

    pub fn resource(&self) -> BTreeMap<String, Value> {
        self.desk.lock().unwrap().resource.clone()
    }

    /// Waits until what it has is as wanted.
    pub async fn until(&self, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let begun = std::time::Instant::now();
        loop {
            let spans = self.spans();
            if wanted(&spans) {
                return spans;
            }
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            assert!(begun.elapsed() < PATIENCE, "it got {names:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the end of a job, and gives all that was told of it.
    pub async fn job(&self, job: &str) -> Vec<Span> {
        let of = |span: &&Span| span.attributes.get("tenure.job.id") == Some(&Value::Text(job.to_owned()));
        let all = self
            .until(|spans| {
                let mut own = spans.iter().filter(of);
                own.any(|span| span.name == "job")
            })
            .await;
        all.iter().filter(of).cloned().collect()
    }
}
