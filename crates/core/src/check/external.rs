//! The verdict of an outside checker, in one word: apart from the operator's will and from checks.
//!
//! ```text
//! bits 2–63  until when it holds, unix ms; 0 = until another one comes
//!      0–1   0 = there is none, 1 = healthy, 2 = unhealthy
//! ```

/// What an outside checker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It is well. That lifts nothing but the checker's own `unhealthy`.
    Healthy,
    /// It is not.
    Unhealthy,
}

impl Opinion {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Healthy, Self::Unhealthy].into_iter().find(|opinion| opinion.as_str() == text)
    }
}

/// What was said last, and until when it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct External {
    said: Option<Opinion>,
    until: u64,
}

impl External {
    /// Said at `now`, for so many ms; without an end where nothing is said of it.
    pub fn new(opinion: Opinion, ttl: Option<u64>, now: u64) -> Self {
        let until = ttl.map_or(0, |ttl| now.saturating_add(ttl).clamp(1, u64::MAX >> 2));
        Self { said: Some(opinion), until }
    }

    /// Reads the word of the peer.
    pub const fn from_word(word: u64) -> Self {
        let said = match word & 3 {
            1 => Some(Opinion::Healthy),
            2 => Some(Opinion::Unhealthy),
            _ => None,
        };
        Self { said, until: word >> 2 }
    }

    /// The word to keep.
    pub const fn word(self) -> u64 {
        match self.said {
            None => 0,
            Some(Opinion::Healthy) => self.until << 2 | 1,
            Some(Opinion::Unhealthy) => self.until << 2 | 2,
        }
    }

    /// What holds now.
    pub fn holds(self, now: u64) -> Option<Opinion> {
        self.said.filter(|_| self.until == 0 || now < self.until)
    }

    /// When that ends, unix ms.
    pub fn until(self) -> Option<u64> {
        (self.said.is_some() && self.until != 0).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_holds_until_its_end() {
        let for_ever = External::new(Opinion::Unhealthy, None, 1_000);
        assert_eq!(for_ever.holds(u64::MAX), Some(Opinion::Unhealthy));
        assert_eq!(for_ever.until(), None);
        let short = External::new(Opinion::Unhealthy, Some(30), 1_000);
        assert_eq!((short.holds(1_029), short.holds(1_030)), (Some(Opinion::Unhealthy), None));
        assert_eq!(short.until(), Some(1_030));
        assert_eq!(External::default().holds(0), None);
    }

    proptest! {
        #[test]
        fn a_word_keeps_it(healthy in any::<bool>(), ttl in any::<Option<u64>>(), now in any::<u64>()) {
            let opinion = if healthy { Opinion::Healthy } else { Opinion::Unhealthy };
            let external = External::new(opinion, ttl, now);
            prop_assert_eq!(External::from_word(external.word()), external);
        }
    }
}
