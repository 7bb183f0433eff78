//! A peer's errors in a row and its ejections, in one word that workers change by compare and swap.
//!
//! ```text
//! bits 52–63  errors in a row
//!      44–51  ejections that count for how long the next one lasts
//!       0–43  until when it is ejected, or was last, unix ms; 0 = it never was
//! ```
//!
//! Each ejection lasts longer than the one before, and one is forgotten for each `base` that the
//! peer has gone without.

use crate::check::outlier::Outlier;

/// What a peer's word says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ejection {
    errors: u16,
    times: u8,
    until: u64,
}

const UNTIL_BITS: u32 = 44;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
const TIMES_BITS: u32 = 8;
const MOST_ERRORS: u16 = (1 << 12) - 1;
/// No ejection lasts longer; one that would was written before the clock was set back.
const LONGEST_MS: u64 = 24 * 3_600_000;

impl Ejection {
    /// Reads the word of the peer.
    pub const fn from_word(word: u64) -> Self {
        Self {
            errors: (word >> (UNTIL_BITS + TIMES_BITS)) as u16,
            times: (word >> UNTIL_BITS) as u8,
            until: word & UNTIL_MASK,
        }
    }

    /// The word to keep.
    pub const fn word(self) -> u64 {
        (self.errors as u64) << (UNTIL_BITS + TIMES_BITS)
            | (self.times as u64) << UNTIL_BITS
            | (self.until & UNTIL_MASK)
    }

    /// Errors in a row.
    pub const fn errors(self) -> u16 {
        self.errors
    }

    /// Until when the peer is ejected, unix ms; `None`: it is not.
    pub const fn until(self, now: u64) -> Option<u64> {
        let left = self.until.saturating_sub(now);
        if left > 0 && left <= LONGEST_MS { Some(self.until) } else { None }
    }

    /// When the last ejection ends or ended, unix ms; 0 = there was none.
    pub const fn end(self) -> u64 {
        self.until
    }

    /// After one more error.
    pub const fn erred(self) -> Self {
        let errors = if self.errors < MOST_ERRORS { self.errors + 1 } else { self.errors };
        Self { errors, ..self }
    }

    /// After a success; `None` where nothing changes.
    pub const fn succeeded(self) -> Option<Self> {
        if self.errors == 0 { None } else { Some(Self { errors: 0, ..self }) }
    }

    /// The peer is ejected from now on.
    pub fn ejected(self, rules: &Outlier, now: u64) -> Self {
        let (base, max) = (rules.base.0.max(1), rules.max.0.min(LONGEST_MS));
        let without = now.saturating_sub(self.until);
        let forgotten = u8::try_from(without / base).unwrap_or(u8::MAX);
        let times = self.times.saturating_sub(forgotten).saturating_add(1);
        let lasts = base.saturating_mul(u64::from(times)).min(max);
        Self { errors: 0, times, until: now.saturating_add(lasts) & UNTIL_MASK }
    }

    /// An operator says that it is well: nothing counts any more.
    pub fn pardoned() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Millis;

    const NOW: u64 = 1_795_986_307_000;

    #[test]
    fn ejections_grow_up_to_the_longest_and_are_forgotten() {
        let rules = Outlier { base: Millis(1_000), max: Millis(3_000), ..Outlier::default() };
        let mut now = NOW;
        let mut peer = Ejection::default();
        let mut lasted = Vec::new();
        for _ in 0..5 {
            peer = peer.ejected(&rules, now);
            let until = peer.until(now).unwrap();
            lasted.push(until - now);
            assert_eq!((peer.until(until - 1), peer.until(until)), (Some(until), None));
            now = until + 999;
        }
        assert_eq!(lasted, [1_000, 2_000, 3_000, 3_000, 3_000]);
        // Five times it was ejected; four of them are forgotten after four times the base.
        peer = peer.ejected(&rules, now + 3_001);
        assert_eq!(peer.until(now + 3_001), Some(now + 3_001 + 2_000));
        peer = peer.ejected(&rules, now + 1_000_000);
        assert_eq!(peer.until(now + 1_000_000), Some(now + 1_001_000));
    }

    #[test]
    fn errors_count_in_a_row() {
        let twice = Ejection::default().erred().erred();
        assert_eq!(twice.errors(), 2);
        assert_eq!(twice.succeeded().unwrap().errors(), 0);
        assert_eq!(Ejection::default().succeeded(), None);
        let many = (0..10_000).fold(Ejection::default(), |peer, _| peer.erred());
        assert_eq!(Ejection::from_word(many.word()), many);
        assert_eq!(many.ejected(&Outlier::default(), NOW).errors(), 0);
    }

    #[test]
    fn a_clock_set_back_frees_what_would_stay_for_ever() {
        let peer = Ejection::default().ejected(&Outlier::default(), NOW);
        assert_eq!(peer.until(NOW - 100 * LONGEST_MS), None);
    }

    proptest! {
        #[test]
        fn a_word_keeps_everything(word in any::<u64>()) {
            prop_assert_eq!(Ejection::from_word(word).word(), word);
        }

        /// Against the plain account of every ejection.
        #[test]
        fn times_follow_the_plain_account(gaps in prop::collection::vec(0u64..10_000, 1..40)) {
            let rules = Outlier { base: Millis(1_000), max: Millis(7_500), ..Outlier::default() };
            let (mut peer, mut now) = (Ejection::default(), NOW);
            let (mut times, mut over) = (0u64, 0);
            for gap in gaps {
                now += gap;
                peer = peer.ejected(&rules, now);
                let mut forgotten = 0;
                while over + 1_000 * (forgotten + 1) <= now {
                    forgotten += 1;
                    if forgotten > times {
                        break;
                    }
                }
                times = times.saturating_sub(forgotten) + 1;
                over = now + (times * 1_000).min(7_500);
                prop_assert_eq!(peer.until(now), Some(over));
                now = over;
            }
        }
    }
}
