//! Names of upstreams and the globs that fence them.
//!
//! A name is 1 to 255 bytes of `[A-Za-z0-9._~:@-]`, compared in ASCII lower case; it is kept in
//! lower case, so that equality of the text is equality of the name.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name, in bytes.
pub const MAX_LEN: usize = 255;

/// Name of an upstream: valid and in lower case by construction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpstreamName(Box<str>);

/// Why a text is no name of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// No byte at all.
    #[error("an upstream name may not be empty")]
    Empty,
    /// More than 255 bytes.
    #[error("an upstream name has at most {MAX_LEN} bytes")]
    TooLong,
    /// A byte outside the set.
    #[error(
        "an upstream name has only letters, digits and \".\", \"_\", \"~\", \":\", \"@\", \"-\""
    )]
    BadByte,
}

impl UpstreamName {
    /// Takes a text over, in lower case.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check(text.as_bytes())?;
        Ok(Self(text.to_ascii_lowercase().into_boxed_str()))
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How the value of a variable is written, where it is a name at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// In lower case: it is what [`UpstreamName::as_str`] of the same text gives.
    Folded,
    /// It has letters to fold.
    Mixed,
}

/// Looks at the value of a variable, for the request path; `None` where it is no name.
#[inline]
pub fn case(raw: &[u8]) -> Option<Case> {
    if raw.is_empty() || raw.len() > MAX_LEN {
        return None;
    }
    let classes = raw.iter().fold(0, |seen, &byte| seen | CLASSES[usize::from(byte)]);
    match classes {
        0 => Some(Case::Folded),
        UPPER => Some(Case::Mixed),
        _ => None,
    }
}

/// Whether any of eight bytes is a letter in upper case.
#[inline]
pub fn has_upper(eight: &[u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const TOPS: u64 = 0x80 * ONES;
    let word = u64::from_ne_bytes(*eight);
    // The top bit of each byte says whether the rest of it is so much at least.
    let at_least = |least: u8| (word & !TOPS) + (0x80 - u64::from(least)) * ONES;
    at_least(b'A') & !at_least(b'Z' + 1) & !word & TOPS != 0
}

const UPPER: u8 = 1;
const OTHER: u8 = 2;

/// What each byte is: 0 = stands in a folded name.
const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'~' | b':' | b'@' | b'-' => 0,
            b'A'..=b'Z' => UPPER,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};

fn check(raw: &[u8]) -> Result<(), NameError> {
    if raw.is_empty() {
        return Err(NameError::Empty);
    }
    if raw.len() > MAX_LEN {
        return Err(NameError::TooLong);
    }
    case(raw).map(|_| ()).ok_or(NameError::BadByte)
}

impl fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UpstreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for UpstreamName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<UpstreamName> for String {
    fn from(name: UpstreamName) -> Self {
        name.0.into()
    }
}

/// A pattern of `match=`: `*` stands for any run of bytes, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Box<str>);

impl Glob {
    /// Takes a pattern over; its other bytes must be those of a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let plain = text.replace(['*', '?'], "-");
        check(plain.as_bytes())?;
        Ok(Self(text.to_ascii_lowercase().into_boxed_str()))
    }

    /// The pattern in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether a name in lower case fits.
    pub fn matches(&self, name: &str) -> bool {
        let (glob, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut g, mut n) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while n < name.len() {
            if g < glob.len() && glob[g] == b'*' {
                retry = Some((g, n));
                g += 1;
            } else if g < glob.len() && (glob[g] == b'?' || glob[g] == name[n]) {
                g += 1;
                n += 1;
            } else if let Some((star, from)) = retry {
                retry = Some((star, from + 1));
                g = star + 1;
                n = from + 1;
            } else {
                return false;
            }
        }
        glob[g..].iter().all(|&b| b == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_in_lower_case() {
        assert_eq!(UpstreamName::parse("App-1.X_~:@").unwrap().as_str(), "app-1.x_~:@");
        assert_eq!(case(b"app-1.x_~:@"), Some(Case::Folded));
        assert_eq!(case(b"App"), Some(Case::Mixed));
        assert_eq!([case(b"a/b"), case(b""), case(&[b'a'; 256]), case(b"a\xe9")], [None; 4]);
    }

    #[test]
    fn an_upper_case_letter_is_seen_at_each_place() {
        for byte in 0..=u8::MAX {
            for fill in [0, b'a', b'@', b'[', 0x7f, 0xc1, 0xff] {
                for i in 0..8 {
                    let mut eight = [fill; 8];
                    eight[i] = byte;
                    assert_eq!(has_upper(&eight), byte.is_ascii_uppercase(), "{eight:?}");
                }
            }
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        assert_eq!(UpstreamName::parse(""), Err(NameError::Empty));
        assert_eq!(UpstreamName::parse(&"a".repeat(256)), Err(NameError::TooLong));
        assert!(UpstreamName::parse(&"a".repeat(255)).is_ok());
        for bad in ["a/b", "a b", "a\0", "a\n", "é", "a%", "<a>", "a\"", "a\\"] {
            assert_eq!(UpstreamName::parse(bad), Err(NameError::BadByte), "{bad:?}");
        }
    }

    #[test]
    fn a_glob_matches_runs_and_single_bytes() {
        let table = [
            ("svc-*", "svc-a", true),
            ("svc-*", "svc-", true),
            ("SVC-*", "svc-a", true),
            ("svc-*", "xsvc-a", false),
            ("*", "", true),
            ("*a*b", "xxaxxb", true),
            ("*a*b", "xxaxxbc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("**x", "yyx", true),
            ("app", "app", true),
            ("app", "apps", false),
        ];
        for (glob, name, fits) in table {
            assert_eq!(Glob::parse(glob).unwrap().matches(name), fits, "{glob} {name}");
        }
        assert!(Glob::parse("a/b").is_err());
        assert!(Glob::parse("").is_err());
    }
}
