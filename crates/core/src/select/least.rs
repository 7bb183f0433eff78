//! The peer with the least cost for its weight; what `least_conn` and `least_time` share.

use super::ramp::WHOLE;
use super::{Candidate, View, round_robin};

/// Chooses the open peer whose cost, over its weight, is the least.
///
/// `cost` gets a peer, and its requests in flight in parts of [`WHOLE`]; it is less than 2^63. In a
/// group of up to 64 peers, equal ones are chosen among by smooth round robin, as in nginx; in a
/// larger one, of which `start` is the peer whose turn it is, the first from there on.
#[inline]
pub(super) fn pick<V: View>(
    view: &V,
    start: Option<usize>,
    cost: impl Fn(usize, u64) -> u64,
) -> Option<usize> {
    let own = |i, peer: &Candidate<'_>| cost(i, busy(peer));
    let first = scan(view, start, own)?;
    if !first.fresh || first.active == 0 {
        return first.choose(view);
    }
    // A newcomer, while it has less than its share of what the others have in flight, counts as if
    // it had that share besides: all of it at first, less and less. Else all requests would go to it
    // until it has as many as the others.
    let presumed = |i, peer: &Candidate<'_>| {
        let share = first.active * peer.weight.unsigned_abs();
        let even = share * u64::from(WHOLE) / first.weights.max(1);
        let besides = share * u64::from(peer.fresh) / first.weights.max(1);
        let busy = busy(peer);
        cost(i, busy.max((busy + besides).min(even)))
    };
    scan(view, start, presumed)?.choose(view)
}

#[inline]
fn busy(peer: &Candidate<'_>) -> u64 {
    u64::from(peer.active) * u64::from(WHOLE)
}

/// What a look at all peers found.
struct Best {
    at: usize,
    /// In a small group: which peers are as good, a bit each.
    equal: u64,
    /// A newcomer is among all.
    fresh: bool,
    /// Requests in flight of the others, and their weights.
    active: u64,
    weights: u64,
}

impl Best {
    /// The one of the best peers whose turn it is.
    #[inline]
    fn choose<V: View>(&self, view: &V) -> Option<usize> {
        let mut rest = self.equal;
        if rest.count_ones() < 2 {
            return Some(self.at);
        }
        let equal = std::iter::from_fn(|| {
            let i = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (i < 64).then_some(i)
        });
        round_robin::among(equal.filter_map(|i| Some((i, view.again(i)?))))
    }
}

#[inline]
fn scan<V: View>(
    view: &V,
    start: Option<usize>,
    cost: impl Fn(usize, &Candidate<'_>) -> u64,
) -> Option<Best> {
    let (mut fresh, mut active, mut weights) = (false, 0, 0);
    let (mut at, mut least, mut its, mut equal) = (usize::MAX, 0, 0, 0);
    let from = start.unwrap_or(0);
    for i in (from..view.len()).chain(0..from.min(view.len())) {
        let Some(peer) = view.open(i) else { continue };
        let weight = peer.weight.unsigned_abs();
        if peer.fresh == 0 {
            active += u64::from(peer.active);
            weights += weight;
        } else {
            fresh = true;
        }
        let cost = cost(i, &peer);
        let (one, other) =
            (u128::from(cost) * u128::from(its), u128::from(least) * u128::from(weight));
        // Only the bits of a small group are looked at.
        let bit = 1 << (i & 63);
        if at == usize::MAX || one < other {
            (at, least, its, equal) = (i, cost, weight, bit);
        } else if one == other {
            equal |= bit;
        }
        if cost == 0 && start.is_some() && peer.fresh == 0 {
            // Nobody costs less, and it is the first of those that cost nothing.
            break;
        }
    }
    let equal = if start.is_some() { 0 } else { equal };
    (at != usize::MAX).then_some(Best { at, equal, fresh, active, weights })
}
