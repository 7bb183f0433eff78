//! How long to wait after failures in a row: up to twice as long each time, and at random within
//! that, so that many who lost one server do not come back together.

/// The first wait at most, ms.
const FIRST: u64 = 1_000;
/// The longest, ms.
pub const LONGEST: u64 = 30_000;

/// Milliseconds to wait after so many failures in a row; `random` is any number.
pub fn after(failures: u32, random: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(16);
    let most = (FIRST << doublings).min(LONGEST);
    (u64::from(random) * (most + 1)) >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rule_5_it_doubles_from_one_second_to_thirty() {
        let most: Vec<u64> = (1..8).map(|failures| after(failures, u32::MAX)).collect();
        assert_eq!(most, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!((after(3, 0), after(u32::MAX, u32::MAX)), (0, 30_000));
    }

    proptest! {
        #[test]
        fn it_is_anywhere_from_none_to_the_most(failures in 1u32..20, random in any::<u32>()) {
            prop_assert!(after(failures, random) <= after(failures, u32::MAX));
        }
    }
}
