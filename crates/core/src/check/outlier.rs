//! When errors of requests eject a peer, and for how long.

pub mod body;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::body::OutlierBody;
use crate::check::CheckError;
use crate::declare::DeclareError;
use crate::units::Millis;

/// The rules of `peerage_outlier`. Made by [`OutlierBody::build`] alone, or read back from what one
/// was written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outlier {
    /// Errors in a row that eject a peer.
    pub consecutive_errors: u16,
    /// For how long it is ejected the first time; each further time it is as much longer.
    pub base: Millis,
    /// For how long at most.
    pub max: Millis,
    /// How many of a hundred peers may be ejected at a time.
    pub max_percent: u8,
}

impl Default for Outlier {
    fn default() -> Self {
        Self { consecutive_errors: 5, base: Millis(30_000), max: Millis(300_000), max_percent: 10 }
    }
}

impl Outlier {
    /// `consecutive_errors` stops here.
    pub const MAX_ERRORS: u16 = 1000;

    /// Reads the words of `peerage_outlier`.
    pub fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let body = OutlierBody::parse(words)?;
        body.build().map_err(|CheckError { field, error }| {
            let said = |word: &&&str| word.split('=').next() == Some(field);
            let word = words.iter().find(said).map_or(field, |word| word);
            DeclareError::Value { word: word.to_owned(), error }
        })
    }

    /// What was read back, if it is as it would be made.
    pub fn kept(self) -> Result<Self, CheckError> {
        self.said().build()
    }

    /// What has to be said to get it: what is not at its default.
    pub fn said(&self) -> OutlierBody {
        OutlierBody::of(self)
    }

    /// Whether one more peer may be ejected, of `total` that the operator lets take requests and of
    /// which `ejected` are so already; `others` of them could take its requests.
    ///
    /// The share is that after the ejection: of fewer than ten peers, a tenth is none. The last
    /// peer that takes requests is never ejected.
    pub fn admits(&self, ejected: usize, total: usize, others: usize) -> bool {
        others > 0 && (ejected + 1) * 100 <= total * usize::from(self.max_percent)
    }

    /// Every field with the word that a directive has for its value.
    pub(crate) fn words(&self) -> [(&'static str, String); 4] {
        let Self { consecutive_errors, base, max, max_percent } = self;
        [
            ("consecutive_errors", consecutive_errors.to_string()),
            ("base", base.to_string()),
            ("max", max.to_string()),
            ("max_percent", max_percent.to_string()),
        ]
    }
}

/// The words of the directive.
impl fmt::Display for Outlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_bad_ones_named() {
        assert_eq!(Outlier::parse(&[]), Ok(Outlier::default()));
        let words = ["consecutive_errors=3", "base=1s", "max=1m", "max_percent=50"];
        let said = Outlier::parse(&words).unwrap();
        let wanted = Outlier {
            consecutive_errors: 3,
            base: Millis(1_000),
            max: Millis(60_000),
            max_percent: 50,
        };
        assert_eq!(said, wanted);
        assert_eq!(said.to_string(), "consecutive_errors=3 base=1s max=60s max_percent=50");
        let long = Outlier::parse(&["base=10m"]).unwrap();
        assert_eq!(long.max, long.base, "the longest is never below the first");
        let table = [
            ("consecutive_errors=0", "it must be a whole number from 1 to 1000"),
            ("consecutive_errors=x", "it must be a whole number from 1 to 1000"),
            ("base=500ms", "it must be a time from 1s to 86400s"),
            ("max=25h", "it must be a time from 1s to 86400s"),
            ("max=10s", "it must be at least the base"),
            ("max_percent=101", "it must be a whole number from 1 to 100"),
        ];
        for (word, why) in table {
            let error = Outlier::parse(&[word]).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid value \"{word}\": {why}"));
        }
        for (words, text) in [
            (&["base=1s", "base=2s"][..], "duplicate parameter \"base\""),
            (&["percent=1"], "invalid parameter \"percent=1\""),
            (&["max"], "invalid parameter \"max\""),
        ] {
            assert_eq!(Outlier::parse(words).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn what_is_said_makes_the_same_again() {
        for words in [&[][..], &["base=10m"], &["base=1s", "max=1s"], &["max_percent=100"]] {
            let outlier = Outlier::parse(words).unwrap();
            assert_eq!(outlier.said().build(), Ok(outlier));
        }
    }

    #[test]
    fn the_share_is_that_after_the_ejection_and_the_last_one_stays() {
        let of = |max_percent| Outlier { max_percent, ..Outlier::default() };
        let table = [
            (10, 0, 9, 8, false),
            (10, 0, 10, 9, true),
            (10, 1, 10, 8, false),
            (10, 1, 20, 18, true),
            (50, 0, 3, 2, true),
            (50, 1, 3, 1, false),
            (100, 2, 3, 0, false),
            (100, 1, 3, 1, true),
            (100, 0, 1, 0, false),
        ];
        for (percent, ejected, total, others, admits) in table {
            assert_eq!(of(percent).admits(ejected, total, others), admits, "{ejected} of {total}");
        }
    }
}
