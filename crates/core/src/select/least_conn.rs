//! `least_conn`: the peer with the fewest requests in flight for its weight.

use super::{View, least};

/// Chooses a peer, or none when no peer is open; looks at every peer of a group of up to 64.
///
/// In a larger group `start` is the peer whose turn it is: it takes the request where it is idle.
#[inline]
pub fn pick<V: View>(view: &V, start: Option<usize>) -> Option<usize> {
    least::pick(view, start, |_, busy| busy)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::select::ramp::WHOLE;
    use crate::select::tests::{Group, naive, weights_and_states};

    fn run(group: &mut Group, picks: usize) -> Vec<usize> {
        let mut got = vec![0; group.weights.len()];
        for _ in 0..picks {
            let i = pick(group, None).unwrap();
            group.active[i] += 1;
            got[i] += 1;
        }
        got
    }

    #[test]
    fn requests_that_stay_fill_the_peers_by_their_weights() {
        let mut group = Group::new(&[3, 1, 2]);
        assert_eq!(run(&mut group, 60), [30, 10, 20]);
    }

    #[test]
    fn idle_peers_take_turns_by_weight() {
        let group = Group::new(&[5, 1, 1]);
        let got: String = (0..7).map(|_| pick(&group, None).unwrap().to_string()).collect();
        assert_eq!(got, "0010200");
    }

    #[test]
    fn a_newcomer_gets_its_share_and_no_flood() {
        let mut group = Group::new(&[1; 6]);
        group.active = vec![10, 10, 10, 10, 10, 0];
        group.fresh[5] = WHOLE;
        let got = run(&mut group, 12);
        assert!((1..=2).contains(&got[5]), "{got:?}");
        group.active = vec![10, 10, 10, 10, 10, 0];
        group.fresh[5] = WHOLE / 2;
        let got = run(&mut group, 8);
        assert!((5..=6).contains(&got[5]), "half as new, it comes up to half: {got:?}");
        group.fresh[5] = 0;
        group.active = vec![10, 10, 10, 10, 10, 0];
        assert_eq!(run(&mut group, 10)[5], 10);
    }

    #[test]
    fn a_large_group_begins_with_the_peer_whose_turn_it_is() {
        let mut group = Group::new(&[1; 100]);
        assert_eq!(pick(&group, Some(70)), Some(70));
        group.active[70..].fill(3);
        assert_eq!(pick(&group, Some(70)), Some(0));
        group.active[..70].fill(3);
        assert_eq!(pick(&group, Some(70)), Some(70));
        group.active[7] = 2;
        assert_eq!(pick(&group, Some(70)), Some(7));
        group.open = vec![false; 100];
        assert_eq!(pick(&group, Some(70)), None);
    }

    proptest! {
        #[test]
        fn choices_are_nginx_s(
            (weights, open) in weights_and_states(),
            ends in prop::collection::vec(0usize..8, 0..60),
        ) {
            let mut group = Group::new(&weights);
            group.open = open;
            let mut stock = naive::LeastConn::new(&group);
            let mut begun = Vec::new();
            for end in ends {
                let expected = stock.next(&group);
                prop_assert_eq!(pick(&group, None), expected);
                let Some(i) = expected else { break };
                group.active[i] += 1;
                begun.push(i);
                if end < begun.len() {
                    group.active[begun.swap_remove(end)] -= 1;
                }
            }
        }
    }
}
