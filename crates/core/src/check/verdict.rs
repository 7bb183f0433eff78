//! What the results of probes say of a peer: results in a row move it from one side to the other.
//!
//! A verdict is one word, written by whoever probes the peer and read by everybody:
//!
//! ```text
//! bits 32–63  the check that it belongs to, see [`Check::identity`]; 0 = there is no check
//!      16–31  why the last failure was one, see [`Reason::bits`]; 0 = there was none
//!       8–15  results in a row that are equal, the last one among them
//!          2  whether the last result was a pass
//!        0–1  the side: 0 = not known yet, 1 = healthy, 2 = unhealthy
//! ```
//!
//! While nothing is known, a pass decides alone: a new server that works takes requests at once.
//! Failures have to come in a row then as ever. Another check begins anew.
//!
//! [`Check::identity`]: crate::check::Check::identity

use crate::check::reason::Reason;

/// The side a peer is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// Too few results yet.
    #[default]
    Unknown,
    /// It passes.
    Healthy,
    /// It fails.
    Unhealthy,
}

/// How many results in a row bring a peer to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures.
    pub fails: u8,
    /// Passes.
    pub passes: u8,
}

/// What came of a probe.
pub type Outcome = Result<(), Reason>;

/// A peer changed sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where it was.
    pub from: Side,
    /// Where it is.
    pub to: Side,
}

/// What the results of a check's probes say so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    check: u32,
    side: Side,
    run: u8,
    passed: bool,
    reason: Option<Reason>,
}

impl Verdict {
    /// Nothing is known yet of a check; 0 is none.
    pub const fn new(check: u32) -> Self {
        Self { check, side: Side::Unknown, run: 0, passed: false, reason: None }
    }

    /// Reads the word of the peer.
    pub const fn from_word(word: u64) -> Self {
        Self {
            check: (word >> 32) as u32,
            side: match word & 3 {
                1 => Side::Healthy,
                2 => Side::Unhealthy,
                _ => Side::Unknown,
            },
            run: (word >> 8) as u8,
            passed: word & 4 != 0,
            reason: Reason::from_bits((word >> 16) as u16),
        }
    }

    /// The word to keep.
    pub const fn word(self) -> u64 {
        let side = match self.side {
            Side::Unknown => 0,
            Side::Healthy => 1,
            Side::Unhealthy => 2,
        };
        let reason = match self.reason {
            Some(reason) => reason.bits(),
            None => 0,
        };
        (self.check as u64) << 32
            | (reason as u64) << 16
            | (self.run as u64) << 8
            | (self.passed as u64) << 2
            | side
    }

    /// The check that it belongs to; 0 is none.
    pub const fn check(self) -> u32 {
        self.check
    }

    /// The side.
    pub const fn side(self) -> Side {
        self.side
    }

    /// Results in a row that are equal; 0 = there was none.
    pub const fn run(self) -> u8 {
        self.run
    }

    /// Whether the last probe passed; `None` = there was none.
    pub fn last_passed(self) -> Option<bool> {
        (self.run > 0).then_some(self.passed)
    }

    /// Why the last failure was one.
    pub const fn reason(self) -> Option<Reason> {
        self.reason
    }

    /// Whether failures have come that do not decide yet: the next probe is not to wait for long.
    pub fn is_in_doubt(self) -> bool {
        self.run > 0 && !self.passed && self.side != Side::Unhealthy
    }

    /// Takes one more result; tells whether the peer changed sides.
    pub fn observe(&mut self, outcome: Outcome, rules: Thresholds) -> Option<Turn> {
        let passed = outcome.is_ok();
        self.run = if self.passed == passed { self.run.saturating_add(1) } else { 1 };
        self.passed = passed;
        if let Err(reason) = outcome {
            self.reason = Some(reason);
        }
        let from = self.side;
        let to = match (passed, from) {
            (true, Side::Unknown) => Side::Healthy,
            (true, _) if self.run >= rules.passes => Side::Healthy,
            (false, _) if self.run >= rules.fails => Side::Unhealthy,
            _ => from,
        };
        self.side = to;
        (from != to).then_some(Turn { from, to })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::reason::any_reason;

    const RULES: Thresholds = Thresholds { fails: 3, passes: 2 };
    const FAILED: Outcome = Err(Reason::Status(503));

    #[test]
    fn failures_in_a_row_make_it_unhealthy_and_passes_healthy_again() {
        let mut verdict = Verdict::new(7);
        let table = [
            (Ok(()), Side::Healthy, Some(Side::Unknown)),
            (FAILED, Side::Healthy, None),
            (FAILED, Side::Healthy, None),
            (Ok(()), Side::Healthy, None),
            (FAILED, Side::Healthy, None),
            (FAILED, Side::Healthy, None),
            (FAILED, Side::Unhealthy, Some(Side::Healthy)),
            (FAILED, Side::Unhealthy, None),
            (Ok(()), Side::Unhealthy, None),
            (FAILED, Side::Unhealthy, None),
            (Ok(()), Side::Unhealthy, None),
            (Ok(()), Side::Healthy, Some(Side::Unhealthy)),
        ];
        for (i, (outcome, side, from)) in table.into_iter().enumerate() {
            let turn = verdict.observe(outcome, RULES);
            assert_eq!((verdict.side(), turn.map(|turn| turn.from)), (side, from), "{i}");
        }
        assert_eq!((verdict.run(), verdict.last_passed()), (2, Some(true)));
        assert_eq!(verdict.reason(), Some(Reason::Status(503)));
    }

    #[test]
    fn a_new_peer_is_known_by_one_pass_and_only_by_failures_in_a_row() {
        let mut verdict = Verdict::new(7);
        assert_eq!((verdict.side(), verdict.last_passed()), (Side::Unknown, None));
        assert_eq!(verdict.observe(FAILED, RULES), None);
        assert!(verdict.is_in_doubt());
        let turn = Turn { from: Side::Unknown, to: Side::Healthy };
        assert_eq!(verdict.observe(Ok(()), RULES), Some(turn));
        let mut verdict = Verdict::new(7);
        let turns: Vec<_> = (0..3).map(|_| verdict.observe(FAILED, RULES)).collect();
        assert_eq!(turns, [None, None, Some(Turn { from: Side::Unknown, to: Side::Unhealthy })]);
        assert!(!verdict.is_in_doubt());
    }

    fn any_outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![2 => Just(Ok(())), 3 => any_reason().prop_map(Err)]
    }

    proptest! {
        /// Against a model that keeps every result and looks back. What is known survives the word.
        #[test]
        fn it_is_what_the_history_says(
            outcomes in prop::collection::vec(any_outcome(), 0..600),
            fails in 1u8..5,
            passes in 1u8..5,
            check in any::<u32>(),
        ) {
            let rules = Thresholds { fails, passes };
            let mut word = Verdict::new(check).word();
            let mut side = Side::Unknown;
            for at in 0..outcomes.len() {
                let mut verdict = Verdict::from_word(word);
                let turn = verdict.observe(outcomes[at], rules);
                word = verdict.word();

                let before = side;
                let last = |n: u8, passed: bool| {
                    at + 1 >= usize::from(n)
                        && outcomes[at + 1 - usize::from(n)..=at].iter().all(|o| o.is_ok() == passed)
                };
                if side == Side::Unknown && outcomes[at].is_ok() || last(passes, true) {
                    side = Side::Healthy;
                } else if last(fails, false) {
                    side = Side::Unhealthy;
                }
                prop_assert_eq!(verdict.side(), side);
                prop_assert_eq!(turn.map(|t| (t.from, t.to)), (before != side).then_some((before, side)));
                let same = |o: &&Outcome| o.is_ok() == outcomes[at].is_ok();
                let run = outcomes[..=at].iter().rev().take_while(same).count();
                prop_assert_eq!(usize::from(verdict.run()), run.min(255));
                let reason = outcomes[..=at].iter().rev().find_map(|o| o.err());
                prop_assert_eq!(verdict.reason(), reason);
                prop_assert_eq!(verdict.last_passed(), Some(outcomes[at].is_ok()));
                prop_assert_eq!(verdict.check(), check);
            }
        }

        #[test]
        fn any_word_is_some_verdict_and_settles(word in any::<u64>()) {
            let verdict = Verdict::from_word(word);
            prop_assert_eq!(Verdict::from_word(verdict.word()), verdict);
        }
    }
}
