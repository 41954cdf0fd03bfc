//! Strict reading of what callers send. JSON is first read into a tree that refuses duplicate keys and deep
//! nesting, then into the wanted type: an object is never taken from an array, and every fault names its place
//! by JSON Pointer. Query strings take the same way, as an object of texts.

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde_json::{Map, Number, Value};

const MAX_DEPTH: usize = 64;

/// Why a text was not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The steps to the place at fault, innermost first; each was added on the way out.
    steps: Vec<String>,
    pub message: String,
}

impl Fault {
    fn at(mut self, step: impl Into<String>) -> Fault {
        self.steps.push(step.into());
        self
    }

    /// RFC 6901.
    pub fn pointer(&self) -> String {
        let steps = self
            .steps
            .iter()
            .rev()
            .map(|step| step.replace('~', "~0").replace('/', "~1"));
        steps.map(|step| format!("/{step}")).collect()
    }

    /// The outermost step, for flat texts such as query strings.
    pub fn name(&self) -> &str {
        self.steps.last().map_or("", String::as_str)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: std::fmt::Display>(message: T) -> Fault {
        Fault {
            steps: Vec::new(),
            message: message.to_string(),
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Fault {
        let message = if expected.is_empty() {
            "there is no such field".to_owned()
        } else {
            format!("there is no such field; known are {}", expected.join(", "))
        };
        Fault {
            steps: Vec::new(),
            message,
        }
        .at(shortened(field))
    }

    fn missing_field(field: &'static str) -> Fault {
        Fault {
            steps: Vec::new(),
            message: "this field is needed".into(),
        }
        .at(field)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Fault {
        Fault {
            steps: Vec::new(),
            message: format!("not one of {}", expected.join(", ")),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Reads JSON text; refuses what the grammar refuses, keys said twice, and nesting deeper than 64.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Tree(0)
        .deserialize(&mut deserializer)
        .map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Builds the tree at one depth.
struct Tree(usize);

impl Tree {
    fn deeper<E: de::Error>(&self) -> Result<Tree, E> {
        if self.0 >= MAX_DEPTH {
            Err(E::custom(format!("nested deeper than {MAX_DEPTH}")))
        } else {
            Ok(Tree(self.0 + 1))
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self.deeper()?)?;
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!(
                    "the key \"{}\" stands twice in one object",
                    shortened(&key)
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Reads a tree of JSON as the wanted type.
pub(super) fn from_json<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    T::deserialize(Strict { value, text: false })
}

/// Reads an object of texts as the wanted type; texts become the numbers and booleans it asks for.
pub(super) fn from_texts<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    T::deserialize(Strict { value, text: true })
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    value: &'a Value,
    /// Scalars are written as text.
    text: bool,
}

impl<'a> Strict<'a> {
    fn child(self, value: &'a Value) -> Strict<'a> {
        Strict {
            value,
            text: self.text,
        }
    }

    fn mismatch(self, expected: &dyn de::Expected) -> Fault {
        let found = match self.value {
            Value::Null => Unexpected::Other("null"),
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(_) => Unexpected::Other("a number of another kind or size"),
            Value::String(_) => Unexpected::Other("text"),
            Value::Array(_) => Unexpected::Other("an array"),
            Value::Object(_) => Unexpected::Other("an object"),
        };
        de::Error::invalid_type(found, expected)
    }

    fn parsed<V: std::str::FromStr>(self, expected: &str) -> Result<V, Fault> {
        let text = self.value.as_str().unwrap_or_default();
        text.parse()
            .map_err(|_| de::Error::custom(format!("not {expected}")))
    }
}

struct Items<'a> {
    strict: Strict<'a>,
    list: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some((i, item)) = self.list.next() else {
            return Ok(None);
        };
        seed.deserialize(self.strict.child(item))
            .map(Some)
            .map_err(|fault| fault.at(i.to_string()))
    }
}

struct Fields<'a> {
    strict: Strict<'a>,
    map: serde_json::map::Iter<'a>,
    next: Option<(&'a str, &'a Value)>,
    /// Keys are data, not names of fields: a fault in one stands at that key.
    open: bool,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some((key, value)) = self.map.next() else {
            return Ok(None);
        };
        self.next = Some((key, value));
        let read = seed.deserialize(StrDeserializer::<Fault>::new(key)).map(Some);
        read.map_err(|fault| {
            if self.open {
                fault.at(shortened(key))
            } else {
                fault
            }
        })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let (key, value) = self.next.take().expect("a key was read");
        seed.deserialize(self.strict.child(value))
            .map_err(|fault| fault.at(shortened(key)))
    }
}

struct Variant<'a> {
    strict: Strict<'a>,
    name: &'a str,
    body: Option<&'a Value>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Fault;
    type Variant = Variant<'a>;
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Variant<'a>), Fault> {
        let variant = seed.deserialize(StrDeserializer::<Fault>::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Fault;
    fn unit_variant(self) -> Result<(), Fault> {
        self.body
            .map_or(Ok(()), |_| Err(de::Error::custom("a plain word is wanted")))
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        let body = self
            .body
            .ok_or_else(|| <Fault as de::Error>::custom("a value is wanted"))?;
        seed.deserialize(self.strict.child(body))
            .map_err(|fault| fault.at(self.name))
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        let body = self
            .body
            .ok_or_else(|| <Fault as de::Error>::custom("a value is wanted"))?;
        self.strict
            .child(body)
            .deserialize_seq(visitor)
            .map_err(|fault| fault.at(self.name))
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let body = self
            .body
            .ok_or_else(|| <Fault as de::Error>::custom("a value is wanted"))?;
        self.strict
            .child(body)
            .deserialize_struct("", fields, visitor)
            .map_err(|fault| fault.at(self.name))
    }
}

/// Whole numbers, or their texts in a query string.
macro_rules! scalars {
    ($($method:ident $visit:ident $kind:ty, $expected:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            if self.text { visitor.$visit(self.parsed::<$kind>($expected)?) } else { self.deserialize_any(visitor) }
        }
    )*};
}

impl<'de> Deserializer<'de> for Strict<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(n), ..) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (.., Some(n)) => visitor.visit_f64(n),
                _ => Err(self.mismatch(&visitor)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(list) => visitor.visit_seq(Items {
                strict: self,
                list: list.iter().enumerate(),
            }),
            Value::Object(map) => visitor.visit_map(Fields {
                strict: self,
                map: map.iter(),
                next: None,
                open: false,
            }),
        }
    }

    scalars! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_u8 visit_u8 u8, "a whole number in range";
        deserialize_u16 visit_u16 u16, "a whole number in range";
        deserialize_u32 visit_u32 u32, "a whole number in range";
        deserialize_u64 visit_u64 u64, "a whole number in range";
        deserialize_i8 visit_i8 i8, "a whole number in range";
        deserialize_i16 visit_i16 i16, "a whole number in range";
        deserialize_i32 visit_i32 i32, "a whole number in range";
        deserialize_i64 visit_i64 i64, "a whole number in range";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Object(map) => visitor.visit_map(Fields {
                strict: self,
                map: map.iter(),
                next: None,
                open: true,
            }),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value {
            Value::Object(map) => visitor.visit_map(Fields {
                strict: self,
                map: map.iter(),
                next: None,
                open: false,
            }),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value {
            Value::String(name) => visitor.visit_enum(Variant {
                strict: self,
                name,
                body: None,
            }),
            Value::Object(map) if map.len() == 1 => {
                let (name, body) = map.iter().next().expect("one field");
                visitor.visit_enum(Variant {
                    strict: self,
                    name,
                    body: Some(body),
                })
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    serde::forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        name: String,
        #[serde(default)]
        limits: BTreeMap<String, u64>,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        word: Option<Word>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        n: u32,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Yes,
    }

    fn read(text: &str) -> Result<Outer, String> {
        let value = parse(text)?;
        from_json(&value).map_err(|fault| format!("{} {}", fault.pointer(), fault.message))
    }

    #[test]
    fn good_texts_are_read() {
        let outer =
            read(r#"{"name":"a","limits":{"x":18446744073709551615},"inner":{"n":4},"word":"yes"}"#).unwrap();
        assert_eq!(
            (outer.limits["x"], outer.inner, outer.word),
            (u64::MAX, Some(Inner { n: 4 }), Some(Word::Yes))
        );
    }

    #[test]
    fn every_fault_names_its_place() {
        for (text, place) in [
            (r#"{"name":1}"#, "/name "),
            (r#"{}"#, "/name "),
            (r#"{"name":"a","inner":{"n":-1}}"#, "/inner/n "),
            (r#"{"name":"a","inner":{"n":-0}}"#, "/inner/n "),
            (r#"{"name":"a","inner":{"n":4294967296}}"#, "/inner/n "),
            (r#"{"name":"a","inner":[4]}"#, "/inner "),
            (r#"{"name":"a","inner":{"n":1,"m":2}}"#, "/inner/m "),
            (r#"{"name":"a","limits":{"a/b":"c"}}"#, "/limits/a~1b "),
            (
                r#"{"name":"a","limits":{"a":18446744073709551616}}"#,
                "/limits/a ",
            ),
            (r#"{"name":"a","word":"no"}"#, "/word "),
            (r#"["a"]"#, " "),
            ("null", " "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(place), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let just_too_deep = format!("{}{}", "[".repeat(66), "]".repeat(66));
        for text in [
            "",
            " ",
            "{",
            "{}{}",
            "NaN",
            "01",
            "1e400",
            r#"{"a":1,"a":2}"#,
            r#"{"l":{"a":1,"a":1}}"#,
            r#""\ud800""#,
            &deep,
            &just_too_deep,
        ] {
            assert!(parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
        assert!(parse(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
    }
}
