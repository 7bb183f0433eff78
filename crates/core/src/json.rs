//! Strict JSON: what a person or a tool sent, and nothing that could be read in two ways.
//!
//! Refused: duplicate keys, more than 16 levels, NaN and numbers out of range, bytes that are no
//! UTF-8, anything after the value. Objects keep the order of their keys.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 16;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number written without fraction or exponent.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(String),
    /// An array.
    Arr(Vec<Self>),
    /// An object, in the order of the text.
    Obj(Vec<(String, Self)>),
}

/// Why a body is no acceptable JSON.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text} at line {line} column {column}")]
pub struct JsonError {
    /// What is wrong.
    pub text: String,
    /// The key that came twice.
    pub key: Option<String>,
    /// Line of the body, from 1.
    pub line: usize,
    /// Column of the line, from 1.
    pub column: usize,
}

/// Reads one value.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = &bytes[..error.valid_up_to()];
            let line = 1 + good.iter().filter(|&&b| b == b'\n').count();
            let column = 1 + good.iter().rev().take_while(|&&b| b != b'\n').count();
            return Err(JsonError { text: "not UTF-8".into(), key: None, line, column });
        }
    };
    let twice = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Seed { depth: 0, twice: &twice }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        let full = error.to_string();
        // serde_json appends the place, which we give apart.
        let text = full.split(" at line ").next().unwrap_or(&full).to_owned();
        JsonError { text, key: twice.take(), line: error.line(), column: error.column() }
    })
}

impl Value {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Arr(_) => "an array",
            Self::Obj(_) => "an object",
        }
    }
}

struct Seed<'a> {
    depth: usize,
    twice: &'a RefCell<Option<String>>,
}

impl Seed<'_> {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format_args!("more than {MAX_DEPTH} levels")));
        }
        Ok(Seed { depth: self.depth + 1, twice: self.twice })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    /// `5.0` is the number 5: JSON knows no other kind.
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let whole = value.fract() == 0.0 && value.abs() < EXACT;
        Ok(if whole { Value::Int(value as i64) } else { Value::Float(value) })
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Str(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let inner = self.deeper::<A::Error>()?;
        while let Some(item) =
            access.next_element_seed(Seed { depth: inner.depth, twice: inner.twice })?
        {
            items.push(item);
        }
        Ok(Value::Arr(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let inner = self.deeper::<A::Error>()?;
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                let error = A::Error::custom(format_args!("duplicate key {key:?}"));
                *self.twice.borrow_mut() = Some(key);
                return Err(error);
            }
            let value = access.next_value_seed(Seed { depth: inner.depth, twice: inner.twice })?;
            entries.push((key, value));
        }
        Ok(Value::Obj(entries))
    }
}

/// Whole numbers below this are exact in a float.
const EXACT: f64 = (1u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_kind_and_order() {
        let value = parse(br#" {"b":[1,-2,1.5,true,null],"a":{"x":"\u00e9"}} "#).unwrap();
        let Value::Obj(entries) = value else { panic!("object") };
        assert_eq!(entries[0].0, "b");
        let items =
            [Value::Int(1), Value::Int(-2), Value::Float(1.5), Value::Bool(true), Value::Null];
        assert_eq!(entries[0].1, Value::Arr(items.to_vec()));
        assert_eq!(entries[1].1, Value::Obj(vec![("x".into(), Value::Str("é".into()))]));
        assert_eq!(parse(b"18446744073709551615"), Ok(Value::Float(u64::MAX as f64)));
        assert_eq!(parse(b"5.0"), Ok(Value::Int(5)));
        assert_eq!(parse(b"-2e3"), Ok(Value::Int(-2000)));
        assert_eq!(parse(b"1e300"), Ok(Value::Float(1e300)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let deep = format!("{}1{}", "[".repeat(17), "]".repeat(17));
        let deeper = "[".repeat(100_000);
        let table: [(&[u8], &str); 14] = [
            (b"", "EOF"),
            (b"{", "EOF"),
            (b"{} x", "trailing"),
            (b"NaN", "expected"),
            (b"[Infinity]", "expected"),
            (b"1e999", "out of range"),
            (b"[1,]", "trailing comma"),
            (b"{'a':1}", "key must be a string"),
            (b"\xef\xbb\xbf{}", "expected value"),
            (b"{\"a\":\"\xff\"}", "not UTF-8"),
            (br#"{"a":"\ud800"}"#, "hex escape"),
            (b"[01]", "number"),
            (deep.as_bytes(), "more than 16 levels"),
            (deeper.as_bytes(), "more than 16 levels"),
        ];
        for (body, text) in table {
            let error = parse(body).unwrap_err();
            assert!(
                error.text.to_lowercase().contains(&text.to_lowercase()),
                "{:?}: {error}",
                String::from_utf8_lossy(&body[..body.len().min(30)])
            );
        }
        let nested = format!("{}1{}", "[".repeat(16), "]".repeat(16));
        assert!(parse(nested.as_bytes()).is_ok());
    }

    #[test]
    fn a_duplicate_key_is_named_with_its_place() {
        let error = parse(b"{\"servers\":[\n{\"weight\":1,\"weight\":2}]}").unwrap_err();
        assert_eq!(error.key.as_deref(), Some("weight"));
        assert_eq!(error.line, 2);
        assert!(parse(br#"{"a":{"x":1},"b":{"x":1}}"#).is_ok());
    }
}
