//! `random`: any peer by its weight, or the less busy one of two.

use super::weights::Ranges;
use super::{MISSES, View};

/// Chooses a peer by chance, or none where it is left to round robin.
pub fn pick<V, S>(view: &V, ranges: &Ranges<S>, mut random: impl FnMut() -> u32) -> Option<usize>
where
    V: View,
    S: Fn(usize) -> u64,
{
    let total = ranges.total(view);
    (0..=MISSES).find_map(|_| {
        let i = ranges.find(view, below(total, random())?);
        view.open(i).map(|_| i)
    })
}

/// Chooses two peers by chance and of them the one with fewer requests in flight for its weight,
/// the second where both have as many; none where it is left to round robin.
pub fn pick_two<V, S>(
    view: &V,
    ranges: &Ranges<S>,
    mut random: impl FnMut() -> u32,
) -> Option<usize>
where
    V: View,
    S: Fn(usize) -> u64,
{
    let total = ranges.total(view);
    let mut first: Option<(usize, u64, u64)> = None;
    for _ in 0..=MISSES {
        let i = ranges.find(view, below(total, random())?);
        if first.is_some_and(|(first, ..)| first == i) {
            continue;
        }
        let Some(peer) = view.open(i) else { continue };
        let (active, weight) = (u64::from(peer.active), peer.weight.unsigned_abs());
        match first {
            None => first = Some((i, active, weight)),
            Some((other, busy, of)) => {
                return Some(if active * of > busy * weight { other } else { i });
            }
        }
    }
    None
}

/// A number below `total`, each as likely; none where it is 0.
fn below(total: u64, random: u32) -> Option<u64> {
    (total > 0).then(|| ((u128::from(random) * u128::from(total)) >> 32) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::tests::{Group, random};

    type Walk = Ranges<fn(usize) -> u64>;

    fn shares(n: usize, picks: usize, mut pick: impl FnMut() -> Option<usize>) -> Vec<usize> {
        let mut got = vec![0; n];
        for _ in 0..picks {
            got[pick().unwrap()] += 1;
        }
        got
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        let group = Group::new(&[5, 0, 3, 2]);
        let mut random = random();
        let got = shares(4, 100_000, || pick(&group, &Walk::Walk, &mut random));
        for (got, weight) in got.iter().zip([5, 0, 3, 2]) {
            assert!(got.abs_diff(weight * 10_000) < 600, "{got} of {weight}");
        }
    }

    #[test]
    fn closed_peers_are_passed_over_and_nobody_is_said() {
        let mut group = Group::new(&[1, 1, 1]);
        group.open = vec![true, false, false];
        let mut random = random();
        let got = shares(3, 1000, || {
            // One of three is missed 21 times in a row now and then, as in nginx.
            pick(&group, &Walk::Walk, &mut random).or(Some(0))
        });
        assert_eq!(got, [1000, 0, 0]);
        group.open = vec![false; 3];
        assert_eq!(pick(&group, &Walk::Walk, &mut random), None);
        assert_eq!(pick_two(&group, &Walk::Walk, &mut random), None);
        assert_eq!(pick(&Group::new(&[]), &Walk::Walk, &mut random), None);
    }

    #[test]
    fn of_two_the_less_busy_one_for_its_weight_is_chosen() {
        let mut group = Group::new(&[1, 1, 2]);
        group.active = vec![9, 1, 3];
        let mut random = random();
        let got = shares(3, 10_000, || pick_two(&group, &Walk::Walk, &mut random));
        assert_eq!(got[0], 0, "it is the busier one of any two: {got:?}");
        // The second wins against both: 1/1 is less than 9/1 and than 3/2.
        assert!(got[1] > got[2] && got[2] > 1000, "{got:?}");
    }

    #[test]
    fn one_open_peer_is_no_two() {
        let mut group = Group::new(&[1, 1]);
        group.open[0] = false;
        assert_eq!(pick_two(&group, &Walk::Walk, random()), None, "left to round robin, as nginx");
    }
}
