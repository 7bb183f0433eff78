//! The statuses that pass: single ones and ranges, `200-399,404`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::field::FieldError;

/// A set of statuses: ranges in order, none next to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Statuses(Vec<(u16, u16)>);

/// Ranges in a list, at most.
const MOST: usize = 32;

impl Default for Statuses {
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl Statuses {
    /// Whether a status is in it.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

impl FromStr for Statuses {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let number = |text: &str| -> Result<u16, FieldError> {
            let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse().ok().filter(|status| digits && (100..600).contains(status));
            number.ok_or(FieldError::Statuses)
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = (number(first)?, number(last)?);
            if range.0 > range.1 || ranges.len() == MOST {
                return Err(FieldError::Statuses);
            }
            ranges.push(range);
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Ok(Self(joined))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl From<Statuses> for String {
    fn from(statuses: Statuses) -> Self {
        statuses.to_string()
    }
}

impl TryFrom<String> for Statuses {
    type Error = FieldError;
    fn try_from(text: String) -> Result<Self, FieldError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_and_said_in_one_way() {
        let table = [
            ("200-399", "200-399"),
            ("204", "204"),
            ("404,200-299", "200-299,404"),
            ("200-299,300,250-399,404", "200-300,250-399,404"),
            ("200,201", "200-201"),
            ("100-599", "100-599"),
        ];
        for (text, said) in table {
            let statuses: Statuses = text.parse().unwrap();
            let said: Statuses = said.parse().unwrap();
            assert_eq!(statuses, said, "{text}");
        }
        assert_eq!("404,200-299".parse::<Statuses>().unwrap().to_string(), "200-299,404");
        for text in ["", "99", "600", "200-", "-200", "399-200", "200,,201", "2xx", "+20", "0200"] {
            assert_eq!(text.parse::<Statuses>(), Err(FieldError::Statuses), "{text:?}");
        }
        let many: Vec<String> = (0..33).map(|i| (100 + 2 * i).to_string()).collect();
        assert!(many.join(",").parse::<Statuses>().is_err());
    }

    proptest! {
        #[test]
        fn it_has_what_its_ranges_have_and_reads_back(
            ranges in prop::collection::vec((100u16..600, 0u16..40), 1..6),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(a, n)| (a, (a + n).min(599))).collect();
            let parts: Vec<String> = ranges.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            let statuses: Statuses = parts.join(",").parse().unwrap();
            for status in 90..610 {
                let wanted = ranges.iter().any(|&(a, b)| a <= status && status <= b);
                prop_assert_eq!(statuses.has(status), wanted);
            }
            prop_assert_eq!(statuses.to_string().parse(), Ok(statuses));
        }
    }
}
