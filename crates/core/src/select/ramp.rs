//! The first time of a peer that is new or came back: the ramp of `slow_start`, and how busy a
//! newcomer is taken to be.
//!
//! Both count from the moment at which it began, unix ms; 0 is long ago.

/// For how long a newcomer is taken to be as busy as the others, less and less.
pub const FRESH_MS: u64 = 10_000;

/// All of [`freshness`].
pub const WHOLE: u32 = 1024;

/// Whether a peer that began at `start` still ramps up over `length` ms.
#[inline]
pub const fn is_ramping(start: u64, now: u64, length: u64) -> bool {
    // A clock that was set back ends a ramp rather than stopping it.
    start != 0 && now.abs_diff(start) < length
}

/// Whether a peer takes part in one choice: the more often the longer it is there.
#[inline]
pub fn takes_part(start: u64, now: u64, length: u64, random: u32) -> bool {
    if !is_ramping(start, now, length) {
        return true;
    }
    let elapsed = now.saturating_sub(start);
    u128::from(random) * u128::from(length) < u128::from(elapsed) << 32
}

/// How new a peer is: [`WHOLE`] at first, 0 after [`FRESH_MS`].
#[inline]
pub fn freshness(start: u64, now: u64) -> u32 {
    if !is_ramping(start, now, FRESH_MS) {
        return 0;
    }
    let left = FRESH_MS - now.saturating_sub(start);
    (u64::from(WHOLE) * left).div_ceil(FRESH_MS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::tests::random;

    #[test]
    fn a_ramp_takes_the_share_of_the_time_that_has_passed() {
        let mut random = random();
        for (elapsed, share) in [(0, 0), (7_500, 25), (15_000, 50), (29_999, 100), (30_000, 100)] {
            let takes =
                (0..20_000).filter(|_| takes_part(1_000, 1_000 + elapsed, 30_000, random()));
            let got = takes.count();
            assert!(got.abs_diff(share * 200) < 400, "{got} at {elapsed}");
        }
        assert!(takes_part(0, 5, 30_000, u32::MAX), "it never began");
        assert!(takes_part(90_000, 5, 30_000, u32::MAX), "the clock was set back");
    }

    #[test]
    fn a_newcomer_is_less_new_every_second() {
        assert_eq!(freshness(0, 5), 0);
        assert_eq!(freshness(1_000, 1_000), WHOLE);
        assert_eq!(freshness(1_000, 6_000), WHOLE / 2);
        assert_eq!(freshness(1_000, 10_999), 1);
        assert_eq!(freshness(1_000, 11_000), 0);
        assert_eq!(freshness(1_000_000, 5), 0);
    }
}
