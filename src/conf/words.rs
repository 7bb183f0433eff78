//! The words of a directive, and the texts of what is wrong with them.

use std::fmt;

use peerage_core::declare::DeclareError;

use crate::ffi::conf::Refused;

/// `name=value`.
pub(crate) fn pair(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// A value that does not fit.
pub(crate) fn invalid(directive: &str, word: &str, cause: impl fmt::Display) -> Refused {
    Refused::because(format!("invalid value \"{word}\" in \"{directive}\" directive: {cause}"))
}

/// A parameter nobody knows.
pub(crate) fn unknown(directive: &str, word: &str) -> Refused {
    Refused::because(format!("invalid parameter \"{word}\" in \"{directive}\" directive"))
}

/// A parameter twice.
pub(crate) fn twice(directive: &str, word: &str) -> Refused {
    Refused::because(format!("duplicate parameter \"{word}\" in \"{directive}\" directive"))
}

/// A directive twice.
pub(crate) fn duplicate(directive: &str) -> Refused {
    Refused::because(format!("\"{directive}\" directive is duplicate"))
}

/// Another directive that answers here.
pub(crate) fn conflict(directive: &str, other: &str) -> Refused {
    Refused::because(format!("\"{directive}\" directive conflicts with \"{other}\""))
}

/// What the model says about a server's words.
pub(crate) fn refused(directive: &str, error: &DeclareError) -> Refused {
    match error {
        DeclareError::Addr { text, error } => invalid(directive, text, error),
        DeclareError::Value { word, error } => invalid(directive, word, format!("it {error}")),
        DeclareError::Unknown(word) => unknown(directive, word),
        DeclareError::Twice(word) => twice(directive, word),
        DeclareError::Missing(name) => Refused::because(format!(
            "parameter \"{name}\" is missing in \"{directive}\" directive"
        )),
    }
}
