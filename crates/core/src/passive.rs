//! What passive failures say about a peer: nginx's `max_fails` and `fail_timeout`.
//!
//! nginx keeps `fails`, `checked` and `accessed`. Of the last two only their order matters
//! (`accessed < checked`: a request was let through again after the time-out), so one bit stands
//! for it and the whole fits one word, which workers change by compare and swap.

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
}

const PROBING: u64 = 1 << 31;

impl Passive {
    /// Reads the word of the peer.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            fails: (word & (PROBING - 1)) as u32,
            probing: word & PROBING != 0,
            checked: (word >> 32) as u32,
        }
    }

    /// The word to keep.
    #[inline]
    pub const fn word(self) -> u64 {
        (self.checked as u64) << 32
            | if self.probing { PROBING } else { 0 }
            | (self.fails as u64 & (PROBING - 1))
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
        let fails = if self.fails < u32::MAX >> 1 { self.fails + 1 } else { self.fails };
        Self { fails, probing: false, checked: now }
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
        let passive = Passive { fails: 77, probing: true, checked: 0xdead_beef };
        assert_eq!(Passive::from_word(passive.word()), passive);
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
