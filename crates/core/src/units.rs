//! Times and sizes as nginx writes them: `30s`, `1m30s`, `10`, `16m`.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A time in whole seconds, at most 2^31 - 1; its text is `10s`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "u32", try_from = "u32")]
pub struct Secs(pub u32);

impl From<Secs> for u32 {
    fn from(time: Secs) -> Self {
        time.0
    }
}

impl TryFrom<u32> for Secs {
    type Error = UnitError;
    fn try_from(seconds: u32) -> Result<Self, UnitError> {
        Self::new(seconds.into())
    }
}

/// Why a text is no time or size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// Not of the form.
    #[error("not a time like \"30s\" or \"1m30s\"")]
    Time,
    /// Not of the form.
    #[error("not a size like \"512k\" or \"16m\"")]
    Size,
    /// Not of the form.
    #[error("not a rate like \"200r/s\"")]
    Rate,
    /// More than fits.
    #[error("too large")]
    TooLarge,
}

impl Secs {
    /// The longest time.
    pub const MAX: u32 = i32::MAX as u32;

    /// Reads a time; a plain number is seconds, parts of a second are refused.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let ms = parse_time(text, Finest::Second)?;
        Self::new(ms / 1000)
    }

    /// Takes a number of seconds.
    pub fn new(seconds: u64) -> Result<Self, UnitError> {
        match u32::try_from(seconds) {
            Ok(seconds) if seconds <= Self::MAX => Ok(Self(seconds)),
            _ => Err(UnitError::TooLarge),
        }
    }
}

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

/// Milliseconds, at most as many as a [`Secs`] has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Millis(pub u64);

impl Millis {
    /// Reads a time of nginx's form; a plain number is seconds.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        parse_millis(text).map(Self)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// Reads a time in milliseconds; a plain number is seconds.
pub fn parse_millis(text: &str) -> Result<u64, UnitError> {
    let ms = parse_time(text, Finest::Millisecond)?;
    if ms / 1000 > u64::from(Secs::MAX) { Err(UnitError::TooLarge) } else { Ok(ms) }
}

/// Reads a size in bytes with `k`, `m` or `g`.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UnitError::Size);
    }
    let size = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    size.ok_or(UnitError::TooLarge)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Finest {
    Second,
    Millisecond,
}

/// As ngx_parse_time: units from large to small, each once, spaces between them.
fn parse_time(text: &str, finest: Finest) -> Result<u64, UnitError> {
    let mut rest = text.as_bytes();
    let mut total: u64 = 0;
    let mut last_rank = 0;
    if rest.is_empty() {
        return Err(UnitError::Time);
    }
    while !rest.is_empty() {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return Err(UnitError::Time);
        }
        let value = rest[..digits].iter().try_fold(0u64, |sum, b| {
            sum.checked_mul(10).and_then(|sum| sum.checked_add(u64::from(b - b'0')))
        });
        rest = &rest[digits..];
        let (rank, ms, len) = match rest {
            [b'y', ..] => (1, 365 * DAY, 1),
            [b'M', ..] => (2, 30 * DAY, 1),
            [b'w', ..] => (3, 7 * DAY, 1),
            [b'd', ..] => (4, DAY, 1),
            [b'h', ..] => (5, 3_600_000, 1),
            [b'm', b's', ..] if finest == Finest::Millisecond => (8, 1, 2),
            [b'm', ..] => (6, 60_000, 1),
            [b's', ..] => (7, 1000, 1),
            [] => (9, 1000, 0),
            _ => return Err(UnitError::Time),
        };
        if rank <= last_rank || (rank == 9 && last_rank >= 7) {
            return Err(UnitError::Time);
        }
        last_rank = rank;
        rest = &rest[len..];
        let part = value.and_then(|value| value.checked_mul(ms));
        total = part.and_then(|part| total.checked_add(part)).ok_or(UnitError::TooLarge)?;
        if let Some(next) = rest.iter().position(|&b| b != b' ') {
            rest = &rest[next..];
        }
    }
    Ok(total)
}

const DAY: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_read_as_nginx_reads_them() {
        let table = [
            ("0", Ok(0)),
            ("10", Ok(10)),
            ("30s", Ok(30)),
            ("1m30s", Ok(90)),
            ("1m 30s", Ok(90)),
            ("1m30", Ok(90)),
            ("1h", Ok(3600)),
            ("1d12h", Ok(129_600)),
            ("1y", Ok(31_536_000)),
            ("2147483647", Ok(2_147_483_647)),
            ("2147483648", Err(UnitError::TooLarge)),
            ("99999999999999999999", Err(UnitError::TooLarge)),
            ("", Err(UnitError::Time)),
            ("s", Err(UnitError::Time)),
            ("-1", Err(UnitError::Time)),
            ("1.5s", Err(UnitError::Time)),
            ("30s1m", Err(UnitError::Time)),
            ("1s1s", Err(UnitError::Time)),
            ("1s5", Err(UnitError::Time)),
            ("100ms", Err(UnitError::Time)),
            ("1x", Err(UnitError::Time)),
            (" 1", Err(UnitError::Time)),
        ];
        for (text, seconds) in table {
            assert_eq!(Secs::parse(text).map(|s| s.0), seconds, "{text:?}");
        }
        assert_eq!(parse_millis("1s500ms"), Ok(1500));
        assert_eq!(parse_millis("250ms"), Ok(250));
        assert_eq!(parse_millis("2"), Ok(2000));
        assert_eq!(parse_millis("1m"), Ok(60_000));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("16m"), Ok(16 << 20));
        assert_eq!(parse_size("512K"), Ok(512 << 10));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("m"), Err(UnitError::Size));
        assert_eq!(parse_size("99999999999999999g"), Err(UnitError::TooLarge));
    }

    proptest! {
        #[test]
        fn text_of_a_time_reads_back(seconds in 0..=Secs::MAX) {
            prop_assert_eq!(Secs::parse(&Secs(seconds).to_string()), Ok(Secs(seconds)));
        }

        #[test]
        fn text_of_milliseconds_reads_back(ms in prop_oneof![0..10_000u64, 0..2_147_483_648_000u64]) {
            prop_assert_eq!(Millis::parse(&Millis(ms).to_string()), Ok(Millis(ms)));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,20}") {
            let _ = (Secs::parse(&text), parse_millis(&text), parse_size(&text));
        }
    }
}
