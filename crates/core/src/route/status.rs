//! What stands on a route: whether its requests may pass, and what those that may not are answered.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest status, in bytes.
const MAX_LEN: usize = 32;

/// The status of a route; only what is active takes requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Status {
    /// Requests pass.
    #[default]
    Active,
    /// They do not.
    Suspended,
    /// Nor do they here; the word says why.
    Other(Box<str>),
}

/// Why a text is no status, or no map of them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StatusError {
    /// Not of the form.
    #[error(
        "must be 1 to {MAX_LEN} printable characters of ASCII without spaces, \":\", \",\", '\"', \
         \"\\\""
    )]
    Word,
    /// An entry of a map is no `status:code`.
    #[error("must be STATUS:CODE, codes from 400 to 599, with commas between, not \"{0}\"")]
    Entry(String),
    /// The active are not answered by a code.
    #[error("has \"active\", which routes")]
    Active,
    /// A status comes twice.
    #[error("has \"{0}\" twice")]
    Twice(String),
}

impl Status {
    /// Reads a word.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let good = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b',' | b'"' | b'\\');
        match text {
            "active" => Ok(Self::Active),
            "suspended" => Ok(Self::Suspended),
            _ if (1..=MAX_LEN).contains(&text.len()) && text.bytes().all(good) => {
                Ok(Self::Other(text.into()))
            }
            _ => Err(StatusError::Word),
        }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Status {
    type Error = StatusError;
    fn try_from(text: String) -> Result<Self, StatusError> {
        Self::parse(&text)
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}

/// What requests of routes that are not active are answered: `suspended:403,moved:451`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(Vec<(Status, u16)>);

impl Answers {
    /// The answer where the map says none.
    const OTHERS: u16 = 403;

    /// Reads a map.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let mut all: Vec<(Status, u16)> = Vec::new();
        for entry in text.split(',') {
            let wrong = || StatusError::Entry(entry.to_owned());
            let (word, code) = entry.split_once(':').ok_or_else(wrong)?;
            let status = Status::parse(word)?;
            let code = code.parse().ok().filter(|code| (400..=599).contains(code));
            let code = code.ok_or_else(wrong)?;
            if status == Status::Active {
                return Err(StatusError::Active);
            }
            if all.iter().any(|(have, _)| *have == status) {
                return Err(StatusError::Twice(word.to_owned()));
            }
            all.push((status, code));
        }
        Ok(Self(all))
    }

    /// The code for a status that is not active.
    pub fn code(&self, status: &Status) -> u16 {
        let found = self.0.iter().find(|(have, _)| have == status);
        found.map_or(Self::OTHERS, |&(_, code)| code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for word in ["active", "suspended", "moved", "Active", "trial-ended"] {
            assert_eq!(Status::parse(word).unwrap().as_str(), word);
        }
        assert_ne!(Status::parse("Active"), Ok(Status::Active));
        let long = "x".repeat(33);
        for bad in ["", "a b", "a:b", "a,b", "a\"b", "é", &long] {
            assert_eq!(Status::parse(bad), Err(StatusError::Word), "{bad}");
        }
    }

    #[test]
    fn a_map_tells_the_answer_of_what_is_not_active() {
        let answers = Answers::parse("suspended:402,moved:451").unwrap();
        let code = |word: &str| answers.code(&Status::parse(word).unwrap());
        assert_eq!([code("suspended"), code("moved"), code("gone")], [402, 451, 403]);
        assert_eq!(Answers::default().code(&Status::Suspended), 403);
        let table = [
            ("", StatusError::Entry(String::new())),
            ("moved", StatusError::Entry("moved".into())),
            ("moved:200", StatusError::Entry("moved:200".into())),
            ("moved:451,", StatusError::Entry(String::new())),
            (":403", StatusError::Word),
            ("active:403", StatusError::Active),
            ("a:403,a:404", StatusError::Twice("a".into())),
        ];
        for (text, error) in table {
            assert_eq!(Answers::parse(text), Err(error), "{text}");
        }
    }
}
