//! Turns over a large group: a shared cursor, and a fair way around peers that are closed.
//!
//! When the peer whose turn it is cannot take the request, its share goes to peers chosen at
//! random, so that no neighbour gets all of it.

/// Random places tried before the group is searched in order.
const PROBES: u32 = 8;

/// Chooses a place of `len`, the one at `turn` when it is open.
///
/// `random` seeds the search for another; every place is looked at before none is given.
#[inline]
pub fn pick(len: usize, turn: u64, random: u32, open: impl Fn(usize) -> bool) -> Option<usize> {
    if len == 0 {
        return None;
    }
    let first = usize::try_from(turn % len as u64).unwrap_or(0);
    if open(first) {
        return Some(first);
    }
    let mut seed = random | 1;
    for _ in 0..PROBES {
        // xorshift32: good enough to part neighbours.
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        let i = seed as usize % len;
        if open(i) {
            return Some(i);
        }
    }
    let start = seed as usize % len;
    (start..len).chain(0..start).find(|&i| open(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_group_takes_turns() {
        let got: Vec<_> = (0..5).map(|turn| pick(3, turn, 9, |_| true).unwrap()).collect();
        assert_eq!(got, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn the_only_open_peer_is_found_and_none_is_said() {
        assert_eq!(pick(1000, 5, 77, |i| i == 999), Some(999));
        assert_eq!(pick(1000, 5, 77, |_| false), None);
        assert_eq!(pick(0, 5, 77, |_| true), None);
    }

    #[test]
    fn the_share_of_a_closed_peer_is_spread_over_the_others() {
        let mut got = [0u32; 100];
        let mut random = 1u32;
        for turn in 0..100_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            got[pick(100, turn, random, |i| i != 50).unwrap()] += 1;
        }
        assert_eq!(got[50], 0);
        assert!(
            got.iter().enumerate().all(|(i, &n)| i == 50 || (960..1100).contains(&n)),
            "{got:?}"
        );
    }
}
