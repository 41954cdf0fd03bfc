//! One event as it is stored: a line of JSON that names its predecessor's hash.
//!
//! `{"seq":1,"prev":"<64 hex>","at":1700000000000,"by":"usr_x","req":"…","event":{…}}`
//!
//! The bytes of the line are the event: its hash is taken over them, so they are written by hand and
//! never re-encoded. What an event means is not known here.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::Hash;

/// Most events are no longer, so their text is not moved while it grows.
const USUAL: usize = 1024;

/// What a caller asks to append: who did it, when, and the event's JSON text.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at_ms: i64,
    pub by: Arc<str>,
    pub request: Option<Arc<str>>,
    pub event: EventText,
}

/// The text of an event, to be one JSON object on one line. What was encoded here is; what comes as text is read
/// through before it is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    text: String,
    encoded: bool,
}

impl EventText {
    pub fn encode(event: &impl Serialize) -> Result<EventText, serde_json::Error> {
        let mut text = Vec::with_capacity(USUAL);
        serde_json::to_writer(&mut text, event)?;
        let text = String::from_utf8(text).expect("JSON is written as UTF-8");
        Ok(EventText {
            // Compact JSON has no line breaks, and what begins an object ends it.
            encoded: text.starts_with('{'),
            text,
        })
    }

    fn is_sound(&self) -> bool {
        let text = self.text.as_bytes();
        let one_object =
            || serde_json::from_str::<&RawValue>(&self.text).is_ok_and(|raw| raw.get().len() == text.len());
        self.encoded
            || text.first() == Some(&b'{') && !text.contains(&b'\n') && !text.contains(&b'\r') && one_object()
    }
}

impl From<Box<str>> for EventText {
    fn from(text: Box<str>) -> EventText {
        EventText::from(String::from(text))
    }
}

impl From<String> for EventText {
    fn from(text: String) -> EventText {
        EventText { text, encoded: false }
    }
}

impl From<&str> for EventText {
    fn from(text: &str) -> EventText {
        EventText::from(text.to_owned())
    }
}

impl Deref for EventText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// An event read back, with the exact line it was stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub seq: u64,
    pub prev: Hash,
    pub at_ms: i64,
    pub by: String,
    pub request: Option<String>,
    pub event: Box<str>,
    pub hash: Hash,
    pub text: Box<str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    seq: u64,
    prev: Hash,
    at: i64,
    by: String,
    req: Option<String>,
    #[serde(borrow)]
    event: &'a RawValue,
}

impl Line {
    pub fn parse(text: &str) -> Result<Line, serde_json::Error> {
        let fields: Fields<'_> = serde_json::from_str(text)?;
        Ok(Line {
            seq: fields.seq,
            prev: fields.prev,
            at_ms: fields.at,
            by: fields.by,
            request: fields.req,
            event: fields.event.get().into(),
            hash: Hash::of(text.as_bytes()),
            text: text.into(),
        })
    }
}

/// What the chain needs of a line, without copying the rest.
pub(crate) struct Link {
    pub seq: u64,
    pub prev: Hash,
    pub at_ms: i64,
}

pub(crate) fn link(text: &[u8]) -> Option<Link> {
    let fields: Fields<'_> = serde_json::from_slice(text).ok()?;
    Some(Link {
        seq: fields.seq,
        prev: fields.prev,
        at_ms: fields.at,
    })
}

impl Entry {
    /// Whether the event is one JSON object on one line, so that the line it goes into can be split and
    /// read again.
    pub(crate) fn is_sound(&self) -> bool {
        self.event.is_sound()
    }

    /// Writes this entry's line at the end of `out` and returns its hash.
    pub(crate) fn write(&self, seq: u64, prev: Hash, out: &mut String) -> Hash {
        use std::fmt::Write;
        let start = out.len();
        let _ = write!(out, "{{\"seq\":{seq},\"prev\":\"");
        prev.write_hex(out);
        let _ = write!(out, "\",\"at\":{},\"by\":", self.at_ms);
        write_string(&self.by, out);
        if let Some(request) = &self.request {
            out.push_str(",\"req\":");
            write_string(request, out);
        }
        out.push_str(",\"event\":");
        out.push_str(&self.event);
        out.push('}');
        Hash::of(&out.as_bytes()[start..])
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if u32::from(c) < 0x20 => {
                use std::fmt::Write;
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str) -> Entry {
        Entry {
            at_ms: 7,
            by: "a\"\\\n\u{1}é".into(),
            request: Some("r/1".into()),
            event: event.into(),
        }
    }

    #[test]
    fn a_line_reads_back_as_written() {
        let mut text = String::from("before\n");
        let hash = entry(r#"{"n": 1}"#).write(3, Hash::of(b"x"), &mut text);
        let line = Line::parse(&text["before\n".len()..]).unwrap();
        assert_eq!((line.seq, line.prev, line.at_ms), (3, Hash::of(b"x"), 7));
        assert_eq!(
            (line.by.as_str(), line.request.as_deref()),
            ("a\"\\\n\u{1}é", Some("r/1"))
        );
        assert_eq!((&*line.event, line.hash), (r#"{"n": 1}"#, hash));
    }

    #[test]
    fn only_one_object_on_one_line_is_sound() {
        for good in ["{}", r#"{"a":{"b":[1,2]}}"#] {
            assert!(entry(good).is_sound(), "{good}");
        }
        for bad in ["", "1", "{\n}", "{\r}", "{} ", "{}{}", "{\"a\":}", "{}\"", "[{}]"] {
            assert!(!entry(bad).is_sound(), "{bad}");
        }
    }

    #[test]
    fn what_is_encoded_here_is_as_sound_as_what_is_read_through() {
        #[derive(Serialize)]
        struct Said {
            text: &'static str,
        }
        let said = EventText::encode(&Said { text: "a\n\r\"}{" }).unwrap();
        assert!(said.encoded && EventText::from(&*said).is_sound());
        for bare in [
            EventText::encode(&7),
            EventText::encode(&"{}"),
            EventText::encode(&[1]),
        ] {
            assert!(!bare.unwrap().is_sound(), "only objects are events");
        }
    }
}
