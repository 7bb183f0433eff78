//! Single words of checks and outliers: what each may be, for directives and bodies alike.

use std::collections::HashSet;

use crate::body::Field;
use crate::check::outlier::Outlier;
use crate::check::{CheckError, Kind, OnAllDown};
use crate::declare::{DeclareError, number};
use crate::field::FieldError;
use crate::units::Millis;

/// The largest jitter, in hundredths.
pub(super) const MAX_JITTER: u8 = 50;
/// Results in a row that a check may ask for.
pub(super) const MAX_RUN: u8 = 100;

pub(super) const RUN: FieldError = FieldError::Between { min: 1, max: MAX_RUN as u32 };
pub(super) const PORT: FieldError = FieldError::Between { min: 1, max: 65_535 };
pub(super) const ERRORS: FieldError =
    FieldError::Between { min: 1, max: Outlier::MAX_ERRORS as u32 };
pub(super) const SHARE: FieldError = FieldError::Between { min: 1, max: 100 };

/// Reads words, each once; `set` tells whether there is such a parameter.
pub(crate) fn each(
    words: &[&str],
    mut set: impl FnMut(&str, Option<&str>) -> Result<bool, FieldError>,
) -> Result<(), DeclareError> {
    let mut seen = HashSet::new();
    for &word in words {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        if !seen.insert(name) {
            return Err(DeclareError::Twice(name.to_owned()));
        }
        let known = set(name, value);
        let known = known.map_err(|error| DeclareError::Value { word: word.to_owned(), error })?;
        if !known {
            return Err(DeclareError::Unknown(word.to_owned()));
        }
    }
    Ok(())
}

/// The word of a kind.
pub(crate) fn kind(text: &str) -> Result<Kind, FieldError> {
    Kind::parse(text).ok_or(FieldError::Word(Kind::WORDS))
}

/// The word of what is done where all are unhealthy.
pub(crate) fn on_all_down(text: &str) -> Result<OnAllDown, FieldError> {
    OnAllDown::parse(text).ok_or(FieldError::Word(OnAllDown::WORDS))
}

/// A time of nginx's form.
pub(crate) fn millis(text: &str) -> Result<Millis, FieldError> {
    Millis::parse(text).map_err(FieldError::Time)
}

/// `10%`
pub(crate) fn percent(text: &str) -> Result<u8, FieldError> {
    let share = text.strip_suffix('%').map(number).and_then(|n| u8::try_from(n).ok());
    share.filter(|&n| n <= MAX_JITTER).ok_or(FieldError::Percent { max: MAX_JITTER })
}

/// Results in a row.
pub(crate) fn run(value: i64) -> Result<u8, FieldError> {
    u8::try_from(value).ok().filter(|n| (1..=MAX_RUN).contains(n)).ok_or(RUN)
}

/// A port to ask.
pub(crate) fn port(value: i64) -> Result<u16, FieldError> {
    u16::try_from(value).ok().filter(|&n| n > 0).ok_or(PORT)
}

/// Errors in a row.
pub(crate) fn errors(value: i64) -> Result<u16, FieldError> {
    u16::try_from(value).ok().filter(|n| (1..=Outlier::MAX_ERRORS).contains(n)).ok_or(ERRORS)
}

/// How many of a hundred peers.
pub(crate) fn share(value: i64) -> Result<u8, FieldError> {
    u8::try_from(value).ok().filter(|n| (1..=100).contains(n)).ok_or(SHARE)
}

pub(crate) fn flag(text: &str) -> Result<bool, FieldError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(FieldError::Word("on, off")),
    }
}

pub(super) fn or<T: Clone>(said: &Field<T>, unsaid: T) -> T {
    match said {
        Field::Given(value) => value.clone(),
        Field::Absent | Field::Default => unsaid,
    }
}

pub(super) fn within(
    field: &'static str,
    time: Millis,
    (min, max): (Millis, Millis),
) -> Result<(), CheckError> {
    if (min..=max).contains(&time) {
        Ok(())
    } else {
        Err(bad(field, FieldError::Span { min, max }))
    }
}

pub(super) fn text(
    field: &'static str,
    said: &Field<String>,
    check: impl Fn(&str) -> Result<(), FieldError>,
) -> Result<Option<String>, CheckError> {
    let Field::Given(text) = said else { return Ok(None) };
    check(text).map_err(|error| bad(field, error))?;
    Ok(Some(text.clone()))
}

pub(super) fn bad(field: &'static str, error: FieldError) -> CheckError {
    CheckError { field, error }
}
