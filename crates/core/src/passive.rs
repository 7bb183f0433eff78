//! What passive failures say about a peer: nginx's `max_fails` and `fail_timeout`.
//!
//! nginx keeps `fails`, `checked` and `accessed`. Of the last two only their order matters
//! (`accessed < checked`: a request was let through again after the time-out), so one bit stands
//! for it and the whole fits one word, which workers change by compare and swap.
//!
//! The same word, which every choice of a peer reads, has three hints for its health. So a peer
//! without failures and without hints is known to be well by one look; with a hint, other words say
//! what it is.
//!
//! ```text
//! bits 32–63  when the peer last failed or was last let through, seconds
//!         31  a request was let through
//!         30  the peer may be barred by its health, see [`crate::check::bar::Bar`]
//!         29  it takes nothing before the first pass of its check
//!         28  requests to it have erred in a row, see [`crate::check::ejection`]
//!       0–27  failures that count
//! ```

/// The rules of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Failures within `fail_timeout` that bar the peer; 0: never.
    pub max_fails: u32,
    /// Seconds in which failures count, and for which the peer is barred then.
    pub fail_timeout: u32,
}

/// Failures of one peer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passive {
    /// Failures that count.
    pub fails: u32,
    /// A request was let through after the time-out: its success clears the failures.
    probing: bool,
    /// When the peer last failed or was last let through, seconds.
    checked: u32,
    /// Those of [`BARRED`], [`WAITS`] and [`ERRS`] that are set.
    hints: u32,
}

const PROBING: u64 = 1 << 31;
/// The bit of a peer that its health may bar.
pub const BARRED: u64 = 1 << 30;
/// The bit of a peer that waits for its first pass.
pub const WAITS: u64 = 1 << 29;
/// The bit of a peer whose last request erred.
pub const ERRS: u64 = 1 << 28;
/// All of these.
pub const HINTS: u64 = BARRED | WAITS | ERRS;
/// Failures that are counted, at most.
const MOST: u64 = ERRS - 1;

impl Passive {
    /// Reads the word of the peer.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            fails: (word & MOST) as u32,
            probing: word & PROBING != 0,
            checked: (word >> 32) as u32,
            hints: (word & HINTS) as u32,
        }
    }

    /// The word to keep.
    #[inline]
    pub const fn word(self) -> u64 {
        (self.checked as u64) << 32
            | if self.probing { PROBING } else { 0 }
            | self.hints as u64
            | (self.fails as u64 & MOST)
    }

    /// Whether there is no failure that counts, and no hint: nothing bars the peer.
    #[inline]
    pub const fn is_plain(self) -> bool {
        self.fails == 0 && self.hints == 0
    }

    /// Whether its health may bar the peer.
    #[inline]
    pub const fn may_be_barred(self) -> bool {
        self.hints as u64 & (BARRED | WAITS) != 0
    }

    /// Whether the peer takes nothing before its first pass.
    pub const fn waits(self) -> bool {
        self.hints as u64 & WAITS != 0
    }

    /// Whether its last request erred.
    pub const fn errs(self) -> bool {
        self.hints as u64 & ERRS != 0
    }

    /// Whether the peer takes no request now.
    #[inline]
    pub const fn barred(self, rules: Rules, now: u32) -> bool {
        rules.max_fails != 0
            && self.fails >= rules.max_fails
            && now.abs_diff(self.checked) <= rules.fail_timeout
    }

    /// After the peer was chosen at `now`; `None` where nothing changes.
    #[inline]
    pub const fn chosen(self, rules: Rules, now: u32) -> Option<Self> {
        if now.abs_diff(self.checked) > rules.fail_timeout {
            Some(Self { checked: now, probing: true, ..self })
        } else {
            None
        }
    }

    /// After a request to the peer failed at `now`.
    pub const fn failed(self, now: u32) -> Self {
        let fails = if (self.fails as u64) < MOST { self.fails + 1 } else { self.fails };
        Self { fails, probing: false, checked: now, ..self }
    }

    /// After a request to the peer succeeded; `None` where nothing changes.
    #[inline]
    pub const fn succeeded(self) -> Option<Self> {
        if self.probing && self.fails != 0 { Some(Self { fails: 0, ..self }) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { max_fails: 2, fail_timeout: 10 };

    #[test]
    fn word_keeps_everything() {
        let passive = Passive { fails: 77, probing: true, checked: 0xdead_beef, hints: 0 };
        assert_eq!(Passive::from_word(passive.word()), passive);
        assert!(Passive::default().is_plain() && !passive.is_plain());
    }

    #[test]
    fn hints_stay_whatever_requests_do_and_count_as_no_failure() {
        let hinted = Passive::from_word(HINTS);
        assert_eq!((hinted.fails, hinted.is_plain(), hinted.barred(RULES, 0)), (0, false, false));
        let failed = hinted.failed(100).failed(100);
        assert!(failed.barred(RULES, 100));
        let well = failed.chosen(RULES, 200).unwrap().succeeded().unwrap();
        assert_eq!((well.fails, well.word() & HINTS), (0, HINTS));
        let most = Passive::from_word(MOST | WAITS).failed(1);
        assert_eq!((u64::from(most.fails), most.waits(), most.errs()), (MOST, true, false));
        for (hint, may) in [(BARRED, true), (WAITS, true), (ERRS, false)] {
            assert_eq!(Passive::from_word(hint).may_be_barred(), may);
        }
    }

    #[test]
    fn max_fails_bars_for_fail_timeout_then_one_success_clears() {
        let once = Passive::default().failed(100);
        assert!(!once.barred(RULES, 100));
        let twice = once.failed(101);
        assert!(twice.barred(RULES, 101) && twice.barred(RULES, 111));
        assert!(!twice.barred(RULES, 112));
        let let_through = twice.chosen(RULES, 112).unwrap();
        assert!(let_through.barred(RULES, 112), "only one request tries it, as in nginx");
        assert_eq!(let_through.succeeded().unwrap().fails, 0);
        assert_eq!(twice.succeeded(), None, "a late success of an older request clears nothing");
    }

    #[test]
    fn max_fails_0_never_bars() {
        let mut passive = Passive::default();
        for now in 0..1000 {
            passive = passive.failed(now);
        }
        assert!(!passive.barred(Rules { max_fails: 0, fail_timeout: 10 }, 1000));
    }

    #[test]
    fn a_clock_set_back_bars_no_longer_than_the_time_out() {
        let passive = Passive::default().failed(5000).failed(5000);
        assert!(passive.barred(RULES, 4995));
        assert!(!passive.barred(RULES, 4000));
    }
}
