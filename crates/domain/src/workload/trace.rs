//! Which trace a job belongs to, where whoever submitted it was in one: W3C Trace Context's `traceparent`.
//!
//! Kept with the job as it was given, so that its trace is the same over restarts. Absent: traces of jobs that were given
//! none, and everything that is told of a job in its trace (the server's `trace`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Of version 00, which is what is written here.
const LENGTH: usize = 55;
/// A later version may say more behind; nobody has to read for ever.
const MAX_LENGTH: usize = 256;
/// Sampled, and that the trace's id is random; what else there may be is not to be passed on.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED: u8 = 0b01;

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// None of zeros alone, which no such id is.
            pub fn new(bytes: [u8; $bytes]) -> Option<$name> {
                (bytes != [0; $bytes]).then_some($name(bytes))
            }

            pub fn bytes(&self) -> [u8; $bytes] {
                self.0
            }

            fn read(text: &str) -> Option<$name> {
                let mut bytes = [0; $bytes];
                for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
                    *byte = octet(digits)?;
                }
                $name::new(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hex_id! {
    /// What all spans of a trace have in common.
    TraceId 16
}
hex_id! {
    /// One span of a trace.
    SpanId 8
}

/// Two lower-case digits; capitals are none here.
fn octet(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// A span of somebody's trace, below which what follows belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: TraceId,
    pub span: SpanId,
    flags: u8,
}

/// Text that is no `traceparent`. To be ignored where it was not meant for Tenure alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent as W3C Trace Context has it")]
pub struct BadTraceParent;

impl TraceParent {
    pub fn new(trace: TraceId, span: SpanId, sampled: bool) -> TraceParent {
        let flags = if sampled { SAMPLED } else { 0 };
        TraceParent { trace, span, flags }
    }

    /// Whether what belongs to the trace is to be recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, below another of its spans.
    pub fn below(self, span: SpanId) -> TraceParent {
        TraceParent { span, ..self }
    }
}

impl FromStr for TraceParent {
    type Err = BadTraceParent;

    fn from_str(text: &str) -> Result<TraceParent, BadTraceParent> {
        read(text).ok_or(BadTraceParent)
    }
}

/// Of a version to come, what version 00 says stands where it stands there.
fn read(text: &str) -> Option<TraceParent> {
    if !text.is_ascii() || !(LENGTH..=MAX_LENGTH).contains(&text.len()) {
        return None;
    }
    let (known, more) = text.split_at(LENGTH);
    let mut fields = known.split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if (version.len(), trace.len(), span.len(), flags.len()) != (2, 32, 16, 2) {
        return None;
    }
    match octet(version.as_bytes())? {
        0 if more.is_empty() => {}
        1..=0xfe if more.is_empty() || more.starts_with('-') => {}
        _ => return None,
    }
    Some(TraceParent {
        trace: TraceId::read(trace)?,
        span: SpanId::read(span)?,
        flags: octet(flags.as_bytes())? & KNOWN_FLAGS,
    })
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn what_is_read_is_what_is_written() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        assert!(parent.is_sampled());
        assert_eq!(serde_json::to_string(&parent).unwrap(), format!("\"{text}\""));
        let back: TraceParent = serde_json::from_str(&format!("\"{text}\"")).unwrap();
        assert_eq!(back, parent);
        let not: TraceParent = format!("00-{TRACE}-{SPAN}-00").parse().unwrap();
        assert!(!not.is_sampled());
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for more in ["", "-", "-what-comes-later"] {
            let text = format!("cc-{TRACE}-{SPAN}-ff{more}");
            let parent: TraceParent = text.parse().unwrap();
            assert_eq!(parent.to_string(), format!("00-{TRACE}-{SPAN}-03"), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        let zeros = "0".repeat(32);
        let long = "x".repeat(MAX_LENGTH);
        for text in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-001"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("cc-{TRACE}-{SPAN}-01-{long}"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}-zz"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{}é-{SPAN}-01", &TRACE[..30]),
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(BadTraceParent), "{text:?}");
        }
    }
}
