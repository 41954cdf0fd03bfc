//! What is sent: an event as a CloudEvent in JSON, and its signature in the form of Standard Webhooks.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::hmac;
use serde_json::{Map, Value, json};
use tenure_domain::event::Subject;
use tenure_domain::id::WebhookId;
use tenure_domain::{Event, Time};
use tenure_journal::Line;

use crate::keyring::random;
use crate::routes::event::data;

pub(crate) const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

pub(crate) struct Message {
    /// The same however often it is sent; receivers know repetitions by it.
    pub id: String,
    pub body: String,
}

impl Message {
    /// An event as it is shown to the webhook's owner.
    pub fn of(webhook: WebhookId, platform: &str, line: &Line, event: &Event) -> Message {
        let subject = match event.subject() {
            Subject::Platform => "platform".to_owned(),
            Subject::Scope(scope) => scope.to_string(),
            Subject::Key(key) => key.to_string(),
            Subject::Job(job) => job.to_string(),
        };
        let mut fields = envelope(platform, &line.seq.to_string(), event.kind(), Time(line.at_ms));
        fields.insert("subject".into(), subject.into());
        fields.insert("by".into(), line.by.clone().into());
        if let Some(request) = &line.request {
            fields.insert("requestid".into(), request.clone().into());
        }
        fields.insert("data".into(), data(event));
        Message {
            id: format!("{webhook}_{}", line.seq),
            body: Value::Object(fields).to_string(),
        }
    }

    /// A test, which is no event.
    pub fn ping(webhook: WebhookId, platform: &str, now: Time) -> Message {
        let id = format!("{webhook}_ping_{:016x}", u64::from_le_bytes(random()));
        let mut fields = envelope(platform, &id, "Ping", now);
        fields.insert("subject".into(), webhook.to_string().into());
        fields.insert("data".into(), json!({}));
        Message {
            id,
            body: Value::Object(fields).to_string(),
        }
    }

    /// What stands in the header: a signature by each key.
    pub fn signature(&self, keys: impl Iterator<Item = Vec<u8>>, timestamp_s: i64) -> String {
        let signed = format!("{}.{timestamp_s}.{}", self.id, self.body);
        let signatures = keys.map(|key| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
            let signature = hmac::sign(&key, signed.as_bytes());
            format!("v1,{}", BASE64_STANDARD.encode(signature))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

/// What every CloudEvent has. The platform's id and not its address is the source: that outlives moves and fail-over.
fn envelope(platform: &str, id: &str, kind: &str, at: Time) -> Map<String, Value> {
    let fields = json!({
        "specversion": "1.0",
        "id": id,
        "source": format!("urn:tenure:{platform}"),
        "type": format!("tenure.{kind}"),
        "time": at.rfc3339(),
        "datacontenttype": "application/json",
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn signatures_are_those_that_receivers_libraries_know() {
        let key = BASE64_STANDARD
            .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .unwrap();
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            body: "{\"test\": 2432232314}".into(),
        };
        assert_eq!(
            message.signature([key.clone()].into_iter(), 1_614_265_330),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        let two = message.signature([key, b"another".to_vec()].into_iter(), 1_614_265_330);
        assert_eq!(two.split(' ').filter(|one| one.starts_with("v1,")).count(), 2);
    }
}
