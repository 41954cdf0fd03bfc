//! Bytes inside JSON as base64: a third more than the bytes, where an array of numbers is nearly four times.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;

pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Vec<u8>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes as base64")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
            STANDARD.decode(text).map_err(|_| E::custom("not base64"))
        }
    }
    deserializer.deserialize_str(Text)
}

#[cfg(test)]
mod tests {
    use crate::channel::LogChunk;

    #[test]
    fn all_bytes_come_back_and_nothing_else_is_taken() {
        let chunk = LogChunk {
            offset: 7,
            bytes: (0..=255).cycle().take(1000).collect(),
            end: false,
        };
        let text = serde_json::to_string(&chunk).unwrap();
        assert!(text.len() < 1500);
        assert_eq!(serde_json::from_str::<LogChunk>(&text).unwrap(), chunk);
        for bad in [r#""*""#, r#""YQ""#, "[97]", "null"] {
            let text = format!(r#"{{"offset":0,"bytes":{bad},"end":false}}"#);
            assert!(serde_json::from_str::<LogChunk>(&text).is_err(), "{bad}");
        }
    }
}
