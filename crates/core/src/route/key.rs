//! Keys of routes: 1 to 255 bytes without control characters, compared as they are.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest key, in bytes.
const MAX_LEN: usize = 255;

/// The key of a route: valid by construction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RouteKey(Box<str>);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// No byte at all.
    #[error("may not be empty")]
    Empty,
    /// More than 255 bytes.
    #[error("has at most {MAX_LEN} bytes")]
    TooLong,
    /// A control character.
    #[error("may not have control characters")]
    Control,
}

impl RouteKey {
    /// Takes a text over.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::try_from(text.to_owned())
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Tells whether the value of a variable can be a key at all; what cannot is looked up nowhere.
#[inline]
pub fn is_key(raw: &[u8]) -> bool {
    check(raw).is_ok()
}

fn check(raw: &[u8]) -> Result<(), KeyError> {
    match raw.len() {
        0 => Err(KeyError::Empty),
        1..=MAX_LEN if raw.iter().any(u8::is_ascii_control) => Err(KeyError::Control),
        1..=MAX_LEN => Ok(()),
        _ => Err(KeyError::TooLong),
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for RouteKey {
    type Error = KeyError;
    fn try_from(text: String) -> Result<Self, KeyError> {
        check(text.as_bytes())?;
        if text.chars().any(char::is_control) {
            return Err(KeyError::Control);
        }
        Ok(Self(text.into()))
    }
}

impl From<RouteKey> for String {
    fn from(key: RouteKey) -> Self {
        key.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_as_they_are() {
        for good in ["a", "Acme", "acme.example", "tenant 7", "é/ü", &"x".repeat(255)] {
            assert_eq!(RouteKey::parse(good).unwrap().as_str(), good);
            assert!(is_key(good.as_bytes()));
        }
        assert!(is_key(b"caf\xe9"), "what a request says need not be text");
        let long = "x".repeat(256);
        let table = [
            ("", KeyError::Empty),
            (long.as_str(), KeyError::TooLong),
            ("a\0", KeyError::Control),
            ("a\n", KeyError::Control),
            ("\u{7f}", KeyError::Control),
        ];
        assert_eq!(RouteKey::parse("\u{85}"), Err(KeyError::Control));
        for (bad, error) in table {
            assert_eq!(RouteKey::parse(bad), Err(error), "{bad:?}");
            assert!(!is_key(bad.as_bytes()));
        }
    }
}
