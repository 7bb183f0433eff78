//! nginx's round robin computed ahead: while no peer fails its order repeats, and a pick is one
//! step of a shared cursor.
//!
//! Where the cycle must be left (a peer fails, a request is tried again), [`levels`] tells which
//! running weights nginx would have at that step, and the algorithm goes on from there.

/// The order in which nginx's algorithm takes peers of these weights, one cycle of it.
///
/// A weight of 0 takes no part. Empty where there is no peer, or the cycle has more than `limit`
/// steps. Costs O(steps × peers); `weights` has at most 256.
pub fn build(weights: &[u32], limit: usize) -> Vec<u8> {
    let unit = weights.iter().copied().filter(|&w| w > 0).fold(0, gcd);
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    let Some(steps) = sum.checked_div(u64::from(unit)) else { return Vec::new() };
    if steps > limit as u64 || weights.len() > 256 {
        return Vec::new();
    }
    let weights: Vec<i64> = weights.iter().map(|&w| i64::from(w / unit)).collect();
    let total = weights.iter().sum::<i64>();
    let mut current = vec![0; weights.len()];
    (0..steps)
        .filter_map(|_| {
            let mut best: Option<usize> = None;
            for (i, &weight) in weights.iter().enumerate().filter(|&(_, &w)| w > 0) {
                current[i] += weight;
                if best.is_none_or(|best| current[i] > current[best]) {
                    best = Some(i);
                }
            }
            let best = best?;
            current[best] -= total;
            u8::try_from(best).ok()
        })
        .collect()
}

/// The running weights after `step` steps of a cycle that begins at 0.
pub fn levels(weights: &[u32], order: &[u8], step: usize) -> Vec<i64> {
    let total: i64 = weights.iter().copied().map(i64::from).sum();
    let step = if order.is_empty() { 0 } else { step % order.len() };
    let mut levels: Vec<i64> = weights.iter().map(|&w| step as i64 * i64::from(w)).collect();
    for &taken in &order[..step] {
        if let Some(level) = levels.get_mut(usize::from(taken)) {
            *level -= total;
        }
    }
    levels
}

pub(super) fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::{round_robin::pick, tests::Group};

    #[test]
    fn a_cycle_is_the_order_of_the_algorithm_and_its_levels_go_on_from_any_step() {
        for weights in [vec![5, 1, 1], vec![1, 1, 1, 1], vec![6, 3, 0, 9], vec![7], vec![2, 65]] {
            let order = build(&weights, 4096);
            let group = Group::new(&weights);
            for step in 0..3 * order.len() {
                assert_eq!(group.levels(), levels(&weights, &order, step), "{weights:?} {step}");
                assert_eq!(pick(&group), Some(usize::from(order[step % order.len()])));
            }
        }
    }

    #[test]
    fn there_is_no_cycle_of_nothing_nor_beyond_the_limit() {
        assert!(build(&[], 10).is_empty() && build(&[0, 0], 10).is_empty());
        assert!(build(&[65535, 1], 4096).is_empty());
        assert_eq!(build(&[65534, 65534], 4096), [0, 1]);
    }
}
