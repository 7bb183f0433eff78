//! Whether a store that failed is asked: after some failures not at all for a while, then by one
//! trial.
//!
//! The state is one word, so that it can stand where all processes see it; a step takes the word
//! and gives the next one.

/// Failures in a row that open it.
const FAILURES: u64 = 5;
/// How long it is open, and how long a trial has, ms.
const OPEN_MS: u64 = 1_000;
/// Where the failures stand above the time.
const SHIFT: u32 = 56;

/// The state: failures in a row, and until when nobody asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker(u64);

impl Breaker {
    /// The state that a word holds.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether the store is not asked at `now`, monotonic ms, except by a trial.
    pub const fn is_open(self) -> bool {
        self.failures() >= FAILURES
    }

    /// Asks to ask: the next state where one may. While it is open one may at a time, who is the
    /// first after its time to have the state exchanged.
    pub const fn ask(self, now: u64) -> Option<Self> {
        if !self.is_open() {
            return Some(self);
        }
        if now < self.until() { None } else { Some(Self::of(FAILURES, now + OPEN_MS)) }
    }

    /// The state after a failure.
    pub const fn failed(self, now: u64) -> Self {
        let failures = self.failures() + 1;
        if failures < FAILURES {
            return Self::of(failures, 0);
        }
        Self::of(FAILURES, now + OPEN_MS)
    }

    /// The state after an answer, whatever it says.
    pub const fn answered(self) -> Self {
        Self(0)
    }

    const fn of(failures: u64, until: u64) -> Self {
        Self(failures << SHIFT | until & ((1 << SHIFT) - 1))
    }

    const fn failures(self) -> u64 {
        self.0 >> SHIFT
    }

    const fn until(self) -> u64 {
        self.0 & ((1 << SHIFT) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_open_it_for_a_second_and_then_one_tries() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            breaker = breaker.ask(7).expect("it is closed").failed(7);
        }
        assert!(!breaker.is_open() && breaker.answered() == Breaker::default());
        let open = breaker.failed(10);
        assert!(open.is_open());
        assert_eq!([open.ask(10), open.ask(1_009)], [None; 2]);
        let trying = open.ask(1_010).expect("its time is over");
        // Others wait for the trial, and no longer than it may take.
        assert_eq!([trying.ask(1_010), trying.ask(2_009)], [None; 2]);
        assert!(trying.ask(2_010).is_some());
        let again = trying.failed(1_100);
        assert_eq!((again.ask(2_099), again.ask(2_100).is_some()), (None, true));
        assert_eq!(trying.answered().ask(0), Some(Breaker::default()));
        assert_eq!(Breaker::from_word(open.word()), open);
    }
}
