//! The most reads a second, whatever a server does: a few at once, then one every so often.

/// How many reads there may be without a pause.
const BURST: u64 = 5;
/// Milliseconds that each costs.
const COST: u64 = 250;

/// When reads may be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When all that was read is paid for, ms.
    paid: u64,
}

impl Pace {
    /// When the next read may be made: `now` or later.
    pub fn earliest(self, now: u64) -> u64 {
        // More is owed only where the clock was set back.
        let paid = self.paid.min(now + BURST * COST);
        paid.saturating_sub((BURST - 1) * COST).max(now)
    }

    /// A read is made.
    pub fn spend(&mut self, now: u64) {
        self.paid = self.paid.clamp(now, now + BURST * COST) + COST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_6_a_server_that_answers_at_once_for_ever_is_read_a_few_times_a_second() {
        let (mut pace, mut now, mut reads) = (Pace::default(), 1_000, 0);
        while now < 11_000 {
            now = pace.earliest(now);
            pace.spend(now);
            reads += 1;
        }
        assert!((40..=46).contains(&reads), "{reads} in 10 s");
        // Who was quiet may be quick again.
        assert_eq!(pace.earliest(20_000), 20_000);
        // A clock that is set back by an hour is no debt.
        pace.spend(3_600_000);
        assert!(pace.earliest(1_000) <= 1_250);
        pace.spend(1_000);
        assert!(pace.earliest(1_250) <= 1_750);
    }
}
