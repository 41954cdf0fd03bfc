//! Moments as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_domain::Time;

/// A moment, RFC 3339 in UTC on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Time);

impl From<Time> for Moment {
    fn from(time: Time) -> Moment {
        Moment(time)
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.rfc3339())
    }
}

impl std::str::FromStr for Moment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Time::parse_rfc3339(text)
            .map(Moment)
            .ok_or_else(|| "a moment is written like 2026-11-15T09:30:00Z".to_owned())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Moment {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl utoipa::ToSchema for Moment {}
