//! How many look-ups a second unknown keys get: guessed names must not become the store's load.
//!
//! The state is one word, as a [`Breaker`](super::breaker::Breaker)'s is: the time up to which
//! what was let through is paid for.

use crate::units::UnitError;

/// A rate, as nginx writes it: `200r/s` or `30r/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What one takes, µs.
    each: u64,
    /// What may be taken at once, µs.
    burst: u64,
}

impl Default for Rate {
    /// `200r/s`
    fn default() -> Self {
        Self::of(200, 1_000_000)
    }
}

impl Rate {
    const fn of(n: u64, span: u64) -> Self {
        Self { each: span / n, burst: span }
    }

    /// Reads a rate.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let (digits, span) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
            (Some(digits), _) => (digits, 1_000_000),
            (_, Some(digits)) => (digits, 60_000_000),
            _ => return Err(UnitError::Rate),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(UnitError::Rate);
        }
        match digits.parse() {
            Ok(0) => Err(UnitError::Rate),
            Ok(n) if n <= 1_000_000 => Ok(Self::of(n, span)),
            _ => Err(UnitError::TooLarge),
        }
    }

    /// Tells rates apart; never 0. Each has a state of its own.
    pub const fn id(self) -> u64 {
        self.each << 32 | self.burst
    }

    /// Lets one through at `now`, monotonic ms: the next state, or nothing where it is too many.
    pub const fn take(self, state: u64, now: u64) -> Option<u64> {
        let now = now * 1_000;
        // What was not used longer ago than a burst is lost.
        let least = (now + self.each).saturating_sub(self.burst);
        let paid = if state > least { state } else { least };
        if paid > now { None } else { Some(paid + self.each) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_may_come_at_once_and_then_each_in_its_time() {
        let rate = Rate::parse("200r/s").unwrap();
        assert_eq!(rate, Rate::default());
        let mut state = 0;
        let burst = std::iter::from_fn(|| {
            state = rate.take(state, 50_000)?;
            Some(())
        });
        assert_eq!(burst.count(), 200);
        assert_eq!(rate.take(state, 50_004), None);
        let state = rate.take(state, 50_005).expect("5 ms are one more");
        assert_eq!(rate.take(state, 50_009), None);
        let mut state = state;
        let second = (50_010..51_010).filter(|&now| match rate.take(state, now) {
            Some(next) => {
                state = next;
                true
            }
            None => false,
        });
        assert_eq!(second.count(), 200);
    }

    #[test]
    fn rates_are_those_of_nginx() {
        assert!(Rate::parse("30r/m").is_ok());
        for bad in ["", "r/s", "0r/s", "200", "-1r/s", "1.5r/s", "200r/h", "2000000r/s"] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }
}
