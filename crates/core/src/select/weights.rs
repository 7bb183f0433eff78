//! The weights of a group as ranges beside each other: which peer a number below their sum hits.
//!
//! All configured weights count, those of closed peers too, so that a peer that closes moves
//! nobody else's requests.

use super::View;

/// How the ranges are found; all ways give the same peer.
#[derive(Clone, Copy)]
pub enum Ranges<S> {
    /// All weights are equal to this one, which is not 0.
    Equal(u32),
    /// By the sums of the weights up to and with each peer.
    Sums(S),
    /// By looking at one peer after the other.
    Walk,
}

/// The sums for [`Ranges::Sums`].
pub fn sums(weights: impl IntoIterator<Item = u32>) -> Vec<u64> {
    let mut sum = 0;
    let add = |weight: u32| {
        sum += u64::from(weight);
        sum
    };
    weights.into_iter().map(add).collect()
}

impl<S: Fn(usize) -> u64> Ranges<S> {
    /// The sum of all weights.
    pub fn total<V: View>(&self, view: &V) -> u64 {
        match (self, view.len().checked_sub(1)) {
            (_, None) => 0,
            (Self::Equal(weight), _) => u64::from(*weight) * view.len() as u64,
            (Self::Sums(sum), Some(last)) => sum(last),
            (Self::Walk, _) => (0..view.len()).map(|i| u64::from(view.weight(i))).sum(),
        }
    }

    /// The peer that a number below the sum hits.
    pub fn find<V: View>(&self, view: &V, number: u64) -> usize {
        match self {
            Self::Equal(weight) => (number / u64::from(*weight).max(1)) as usize,
            Self::Sums(sum) => {
                let (mut from, mut to) = (0, view.len());
                while from < to {
                    let middle = from.midpoint(to);
                    if number < sum(middle) {
                        to = middle;
                    } else {
                        from = middle + 1;
                    }
                }
                from
            }
            Self::Walk => {
                let mut rest = number;
                for i in 0..view.len() {
                    match rest.checked_sub(u64::from(view.weight(i))) {
                        Some(less) => rest = less,
                        None => return i,
                    }
                }
                view.len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::tests::Group;

    #[test]
    fn every_way_hits_the_same_peer() {
        for weights in [vec![5, 1, 1], vec![1, 1, 1], vec![0, 3, 0, 2, 0], vec![65_535; 5], vec![7]]
        {
            let group = Group::new(&weights);
            let sums = sums(weights.iter().copied());
            let total = sums[sums.len() - 1];
            let by_sums = Ranges::Sums(|i: usize| sums[i]);
            let walk: Ranges<fn(usize) -> u64> = Ranges::Walk;
            assert_eq!((by_sums.total(&group), walk.total(&group)), (total, total));
            for number in (0..total).step_by((total as usize / 1000).max(1)) {
                let hit = walk.find(&group, number);
                assert_eq!(by_sums.find(&group, number), hit);
                if weights.iter().all(|w| *w == weights[0]) {
                    let equal: Ranges<fn(usize) -> u64> = Ranges::Equal(weights[0]);
                    assert_eq!((equal.total(&group), equal.find(&group, number)), (total, hit));
                }
            }
        }
    }
}
