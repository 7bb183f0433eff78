//! How long no connection is made after failures in a row.

/// The first wait at most, ms.
const FIRST: u64 = 100;
/// The longest, ms.
pub const LONGEST: u64 = 2_000;

/// Milliseconds to wait after so many failures in a row: twice as long each time, and between half
/// of it and the whole by `random`, which is any number, so that not all workers come back at once.
pub fn after(failures: u32, random: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(16);
    let most = (FIRST << doublings).min(LONGEST);
    most / 2 + ((u64::from(random) * (most / 2 + 1)) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_from_a_tenth_of_a_second_to_two() {
        let most: Vec<u64> = (1..8).map(|failures| after(failures, u32::MAX)).collect();
        assert_eq!(most, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        let least: Vec<u64> = [1, 2, u32::MAX].iter().map(|&n| after(n, 0)).collect();
        assert_eq!(least, [50, 100, 1_000]);
    }
}
