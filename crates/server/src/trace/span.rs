//! A span, and how it is written: as the JSON of OTLP has it (decision 40).

use serde_json::{Value as Json, json};
use tenure_domain::Time;
use tenure_domain::workload::trace::{SpanId, TraceId};

pub(super) const NS_PER_MS: u64 = 1_000_000;
/// Of what people and nodes say, more is left out.
const MAX_TEXT_BYTES: usize = 1024;
const SAMPLED: u32 = 0x01;
/// Whether the span above is another program's is known; and it is.
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const STATUS_ERROR: u32 = 2;

pub(super) type Attributes = Vec<(&'static str, Value)>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
}

impl Value {
    pub fn text(text: impl ToString) -> Value {
        Value::Text(text.to_string())
    }

    fn json(&self) -> Json {
        match self {
            Value::Text(text) => json!({ "stringValue": bounded(text) }),
            // As text: numbers of 64 bits are too long for some.
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::Texts(texts) => {
                let values: Vec<Json> = texts
                    .iter()
                    .map(|text| json!({ "stringValue": bounded(text) }))
                    .collect();
                json!({ "arrayValue": { "values": values } })
            }
        }
    }
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal,
    Server,
}

/// Something that happened while a span lasted.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub at: Time,
    pub name: &'static str,
    pub attributes: Attributes,
}

#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) parent_is_remote: bool,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) attributes: Attributes,
    pub(super) moments: Vec<Moment>,
    pub(super) link: Option<(TraceId, SpanId)>,
    /// What went wrong, where something did.
    pub(super) error: Option<String>,
}

impl Span {
    pub fn json(&self) -> String {
        let mut flags = SAMPLED | HAS_REMOTE;
        if self.parent_is_remote {
            flags |= IS_REMOTE;
        }
        let mut span = json!({
            "traceId": self.trace.to_string(),
            "spanId": self.id.to_string(),
            "flags": flags,
            "name": self.name,
            "kind": match self.kind { Kind::Internal => 1, Kind::Server => 2 },
            "startTimeUnixNano": self.began_ns.to_string(),
            "endTimeUnixNano": self.ended_ns.max(self.began_ns).to_string(),
            "attributes": attributes(&self.attributes),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = parent.to_string().into();
        }
        if !self.moments.is_empty() {
            let events: Vec<Json> = self
                .moments
                .iter()
                .map(|moment| {
                    json!({
                        "timeUnixNano": ns(moment.at).to_string(),
                        "name": moment.name,
                        "attributes": attributes(&moment.attributes),
                    })
                })
                .collect();
            span["events"] = events.into();
        }
        if let Some((trace, id)) = self.link {
            span["links"] = json!([{ "traceId": trace.to_string(), "spanId": id.to_string() }]);
        }
        if let Some(why) = &self.error {
            span["status"] = json!({ "code": STATUS_ERROR, "message": bounded(why) });
        }
        span.to_string()
    }
}

pub(super) fn ns(time: Time) -> u64 {
    u64::try_from(time.0).unwrap_or(0).saturating_mul(NS_PER_MS)
}

fn attributes(of: &Attributes) -> Json {
    of.iter()
        .map(|(key, value)| json!({ "key": key, "value": value.json() }))
        .collect()
}

/// The body of a request: spans, already written, of one server.
pub(super) fn body<'a>(resource: &str, spans: impl Iterator<Item = &'a str>) -> String {
    let mut text = format!(
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"tenure","version":"{}"}},"spans":["#,
        env!("CARGO_PKG_VERSION")
    );
    for (number, span) in spans.enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(span);
    }
    text.push_str("]}]}]}");
    text
}

pub(super) fn resource(said: &[(String, String)]) -> String {
    let attributes: Vec<Json> = said
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }))
        .collect();
    json!({ "attributes": attributes }).to_string()
}
