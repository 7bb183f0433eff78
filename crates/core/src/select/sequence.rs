//! A smooth sequence computed once per change, for groups too large to look at every peer.
//!
//! Each peer stands in the sequence as often as its scaled weight says, evenly spread: its k-th
//! place is due at (k + 1/2) / weight of the cycle. A pick is then one step of a shared cursor.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cycle::gcd;

/// The order in which peers of these weights take turns; a weight of 0 has no turn.
///
/// At most `limit` places or one per peer, whichever is more: larger sums are scaled down, every
/// peer with a weight keeping at least one place. Costs O(places × log peers).
pub fn build(weights: &[u32], limit: usize) -> Vec<u32> {
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    if sum == 0 {
        return Vec::new();
    }
    let unit = weights.iter().copied().filter(|&w| w > 0).fold(0, gcd);
    let limit = limit.max(weights.len()) as u64;
    let places = |weight: u32| -> u64 {
        let exact = u64::from(weight / unit);
        let cycle = sum / u64::from(unit);
        if cycle <= limit || weight == 0 { exact } else { (exact * limit / cycle).max(1) }
    };
    let places: Vec<u64> = weights.iter().map(|&w| places(w)).collect();
    let cycle: u64 = places.iter().sum();

    // Due times as fractions of the cycle in fixed point; ties go to the earlier peer.
    let due = |k: u64, n: u64| (2 * k + 1) * (1 << 40) / (2 * n);
    let mut heap: BinaryHeap<_> = places
        .iter()
        .enumerate()
        .filter(|&(_, &n)| n > 0)
        .map(|(i, &n)| Reverse((due(0, n), i, 0)))
        .collect();
    let mut order = Vec::with_capacity(usize::try_from(cycle).unwrap_or(0));
    while let Some(Reverse((_, i, k))) = heap.pop() {
        order.push(u32::try_from(i).unwrap_or(u32::MAX));
        if k + 1 < places[i] {
            heap.push(Reverse((due(k + 1, places[i]), i, k + 1)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(order: &[u32], peer: u32) -> usize {
        order.iter().filter(|&&p| p == peer).count()
    }

    #[test]
    fn a_cycle_holds_each_peer_as_often_as_its_weight() {
        let order = build(&[5, 3, 0, 1], 100);
        assert_eq!([0, 1, 2, 3].map(|p| share(&order, p)), [5, 3, 0, 1]);
    }

    #[test]
    fn common_factors_are_taken_out() {
        assert_eq!(build(&[200, 100], 100), [0, 1, 0]);
        assert!(build(&[0, 0], 100).is_empty());
    }

    #[test]
    fn large_sums_are_scaled_and_nobody_is_lost() {
        let mut weights = vec![1; 100];
        weights[7] = 65535;
        let order = build(&weights, 1000);
        assert!(order.len() <= 1100, "{}", order.len());
        assert!((0..100).all(|p| share(&order, p) >= 1));
        assert!(share(&order, 7) > 900);
    }

    #[test]
    fn places_of_a_peer_are_evenly_spread() {
        let order = build(&[4, 1, 1, 1, 1], 100);
        for window in order.windows(3) {
            assert!(share(window, 0) <= 2, "{order:?}");
        }
    }
}
