//! What was counted of a peer's probes, in two words, with the names of the Plus peer when shown.
//!
//! ```text
//! counts  bits 32–63  probes that failed
//!              0–31   probes
//! last    bits 20–63  when the last result came, unix ms; 0 = none did
//!              0–19   how often the peer became unhealthy
//! ```

use serde::ser::{Serialize, SerializeMap, Serializer};

/// Results of the probes of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthChecks {
    /// Probes that ended.
    pub checks: u64,
    /// Those that failed.
    pub fails: u64,
    /// How often the peer became unhealthy.
    pub unhealthy: u64,
    /// Whether the last one passed; `None` = there was none.
    pub last_passed: Option<bool>,
}

impl HealthChecks {
    /// With those of one more peer of the same server.
    pub fn add(&mut self, other: &Self) {
        self.checks += other.checks;
        self.fails += other.fails;
        self.unhealthy += other.unhealthy;
        self.last_passed = match (self.last_passed, other.last_passed) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
    }
}

impl Serialize for HealthChecks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("checks", &self.checks)?;
        map.serialize_entry("fails", &self.fails)?;
        map.serialize_entry("unhealthy", &self.unhealthy)?;
        if let Some(passed) = self.last_passed {
            map.serialize_entry("last_passed", &passed)?;
        }
        map.end()
    }
}

/// The word of counts; one addition counts a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes that ended.
    pub checks: u32,
    /// Those that failed.
    pub fails: u32,
}

impl Counts {
    /// What is added to the word for a result.
    pub const fn step(passed: bool) -> u64 {
        if passed { 1 } else { 1 << 32 | 1 }
    }

    /// Reads the word of the peer.
    pub const fn from_word(word: u64) -> Self {
        Self { checks: word as u32, fails: (word >> 32) as u32 }
    }
}

/// The word of the last result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// When it came, unix ms; 0 = none did.
    pub at: u64,
    /// How often the peer became unhealthy.
    pub unhealthy: u32,
}

const UNHEALTHY_BITS: u32 = 20;
const MOST_UNHEALTHY: u32 = (1 << UNHEALTHY_BITS) - 1;

impl Last {
    /// Reads the word of the peer.
    pub const fn from_word(word: u64) -> Self {
        Self { at: word >> UNHEALTHY_BITS, unhealthy: word as u32 & MOST_UNHEALTHY }
    }

    /// The word to keep.
    pub const fn word(self) -> u64 {
        self.at << UNHEALTHY_BITS | (self.unhealthy & MOST_UNHEALTHY) as u64
    }

    /// After a result at `now`, by which the peer became unhealthy or not.
    pub fn seen(self, now: u64, became_unhealthy: bool) -> Self {
        let unhealthy = self.unhealthy + u32::from(became_unhealthy);
        Self { at: now & (u64::MAX >> UNHEALTHY_BITS), unhealthy: unhealthy.min(MOST_UNHEALTHY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_plus_peer() {
        let mut all = HealthChecks::default();
        let text = |all: &HealthChecks| serde_json::to_string(all).unwrap();
        assert_eq!(text(&all), r#"{"checks":0,"fails":0,"unhealthy":0}"#);
        let passed = |last_passed| HealthChecks { checks: 3, fails: 1, unhealthy: 1, last_passed };
        all.add(&passed(Some(true)));
        assert_eq!(text(&all), r#"{"checks":3,"fails":1,"unhealthy":1,"last_passed":true}"#);
        all.add(&passed(None));
        all.add(&passed(Some(false)));
        assert_eq!((all.checks, all.last_passed), (9, Some(false)));
    }

    #[test]
    fn words_keep_what_was_counted() {
        let word = [true, false, true].map(Counts::step).iter().sum();
        assert_eq!(Counts::from_word(word), Counts { checks: 3, fails: 1 });
        let now = 1_795_986_307_123;
        let last = Last::default().seen(now, true).seen(now + 1, false);
        assert_eq!(Last::from_word(last.word()), Last { at: now + 1, unhealthy: 1 });
        let most = Last { at: 1, unhealthy: MOST_UNHEALTHY }.seen(2, true);
        assert_eq!(Last::from_word(most.word()).unhealthy, MOST_UNHEALTHY);
    }
}
