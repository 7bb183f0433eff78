//! Smooth weighted round robin, nginx's own: with one worker the order is nginx's to the request.
//!
//! Every open peer gains its effective weight, the richest is chosen and pays the sum. Several
//! workers move the levels at once; each addition counts, so races only decide who is richest at
//! that moment, never the share that a peer gets.

use super::{Candidate, Level, View};

/// Chooses a peer, or none when no peer is open. Looks at every peer of the group.
#[inline]
pub fn pick<V: View>(view: &V) -> Option<usize> {
    // The richest so far, its level, and what it gains. It is moved once: by what it
    // gains, or by what it pays as well.
    let mut best: Option<(usize, Level<'_>, i64)> = None;
    let mut top = 0;
    let mut total = 0;
    for i in 0..view.len() {
        let Some(peer) = view.open(i) else { continue };
        // As ngx_http_upstream_get_peer: a peer that failed wins its weight back step by step.
        let effective = peer.effective.load();
        total += effective;
        if effective < peer.weight {
            peer.effective.raise(effective);
        }
        let current = peer.current.load().wrapping_add(effective);
        let mut poorer = Some((i, peer.current, effective));
        if best.is_none() || current > top {
            top = current;
            std::mem::swap(&mut best, &mut poorer);
        }
        if let Some((_, level, gain)) = poorer {
            level.shift(gain);
        }
    }
    let (i, level, gain) = best?;
    level.shift(gain - total);
    Some(i)
}

/// Counts a peer that a session chose as if it had been its turn, so that new sessions go where
/// fewer requests of old ones do. `weights` are those of the whole group, closed peers too.
pub fn charge<V: View>(view: &V, chosen: usize, weights: i64) {
    let Some(Candidate { current, weight, .. }) = view.open(chosen) else { return };
    // As ngx_http_upstream_get_peer: of requests in a row no more than one counts.
    if current.load() <= weight - weights {
        return;
    }
    let mut total = 0;
    for peer in (0..view.len()).filter_map(|i| view.open(i)) {
        let effective = peer.effective.load();
        peer.current.shift(effective);
        total += effective;
        if effective < peer.weight {
            peer.effective.raise(effective);
        }
    }
    current.shift(-total);
}

/// Brings a running weight back into the range it can have in a group of `total` weight.
///
/// Called after a change of weights, so that a peer which was far behind in the old cycle is not
/// starved, and one that was far ahead is not flooded, in the new one.
pub fn settle(current: i64, weight: i64, total: i64) -> i64 {
    current.clamp(weight - total, weight.max(0))
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::select::tests::Group;

    fn order(group: &Group, picks: usize) -> String {
        (0..picks)
            .map(|_| pick(group).map_or('-', |i| char::from(b'a' + u8::try_from(i).unwrap())))
            .collect()
    }

    #[test]
    fn weights_5_1_1_give_the_order_that_nginx_documents() {
        assert_eq!(order(&Group::new(&[5, 1, 1]), 14), "aabacaaaabacaa");
    }

    #[test]
    fn equal_weights_take_turns() {
        assert_eq!(order(&Group::new(&[1, 1, 1, 1]), 8), "abcdabcd");
    }

    #[test]
    fn closed_peer_is_passed_over_and_nothing_open_gives_none() {
        let mut group = Group::new(&[2, 1, 1]);
        group.open[0] = false;
        assert_eq!(order(&group, 4), "bcbc");
        group.open = vec![false; 3];
        assert_eq!(order(&group, 2), "--");
    }

    #[test]
    fn a_peer_that_lost_its_weight_wins_it_back_one_a_pick() {
        let group = Group::new(&[3, 3]);
        group.effective[0].store(0, Relaxed);
        let got = order(&group, 6);
        assert_eq!(group.effective[0].load(Relaxed), 3, "{got}");
        assert!(got.starts_with('b'));
    }

    #[test]
    fn any_cycle_gives_each_peer_exactly_its_weight() {
        for weights in [vec![5, 3, 1], vec![1, 1], vec![100, 1, 7, 3], vec![65535, 1]] {
            let group = Group::new(&weights);
            let total: u32 = weights.iter().sum();
            let mut got = vec![0; weights.len()];
            for _ in 0..total {
                got[pick(&group).unwrap()] += 1;
            }
            assert_eq!(got, weights);
        }
    }

    #[test]
    fn sessions_count_and_many_in_a_row_count_once() {
        let group = Group::new(&[2, 1, 1]);
        charge(&group, 0, 4);
        assert_eq!(group.levels(), [-2, 1, 1]);
        for _ in 0..5 {
            charge(&group, 0, 4);
        }
        assert_eq!(group.levels(), [-2, 1, 1]);
        assert_eq!(order(&group, 4), "bcaa");

        let mut group = Group::new(&[1, 1]);
        group.open[1] = false;
        charge(&group, 1, 2);
        assert_eq!(group.levels(), [0, 0], "who takes no turns does not pay for one");
    }

    #[test]
    fn settle_keeps_a_place_that_is_possible_and_clamps_one_that_is_not() {
        assert_eq!(settle(-1, 1, 3), -1);
        assert_eq!(settle(-100, 1, 3), -2);
        assert_eq!(settle(100, 1, 3), 1);
    }
}
