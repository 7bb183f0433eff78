//! The peer with the least cost for its weight; what `least_conn` and `least_time` share.

use std::cmp::Ordering;

use super::ramp::WHOLE;
use super::{Candidate, Level, View};

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
    if !view.has_newcomers() {
        return first.choose(view);
    }
    among_newcomers(view, start, cost, first)
}

/// The rest of [`pick`] where a newcomer is among the peers.
#[cold]
fn among_newcomers<V: View>(
    view: &V,
    start: Option<usize>,
    cost: impl Fn(usize, u64) -> u64,
    first: Best,
) -> Option<usize> {
    // Requests in flight of the others, and their weights.
    let others = (0..view.len()).filter_map(|i| view.open(i)).filter(|peer| peer.fresh == 0);
    let (active, weights) = others.fold((0, 0), |(active, weights), peer| {
        (active + u64::from(peer.active), weights + peer.weight.unsigned_abs())
    });
    if active == 0 {
        return first.choose(view);
    }
    // A newcomer, while it has less than its share of what the others have in flight, counts as if
    // it had that share besides: all of it at first, less and less. Else all requests would go to it
    // until it has as many as the others.
    let presumed = |i, peer: &Candidate<'_>| {
        let share = active * peer.weight.unsigned_abs();
        let even = share * u64::from(WHOLE) / weights.max(1);
        let besides = share * u64::from(peer.fresh) / weights.max(1);
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
    /// `usize::MAX` while there is none.
    at: usize,
    /// In a small group: which peers are as good, a bit each.
    equal: u64,
    /// Its cost and its weight.
    least: u64,
    its: u64,
}

impl Best {
    /// Looks at a peer; whether nobody can cost less.
    #[inline(always)]
    fn look<V: View>(
        &mut self,
        view: &V,
        i: usize,
        cost: impl Fn(usize, &Candidate<'_>) -> u64,
    ) -> bool {
        let Some(peer) = view.open(i) else { return false };
        let weight = peer.weight.unsigned_abs();
        let cost = cost(i, &peer);
        let order = compare((cost, weight), (self.least, self.its));
        // Only the bits of a small group are looked at.
        let bit = 1 << (i & 63);
        if self.at == usize::MAX || order.is_lt() {
            (self.at, self.least, self.its, self.equal) = (i, cost, weight, bit);
        } else if order.is_eq() {
            self.equal |= bit;
        }
        // It is the first of those that cost nothing.
        cost == 0 && peer.fresh == 0
    }

    /// The one of the best peers whose turn it is.
    #[inline]
    fn choose<V: View>(&self, view: &V) -> Option<usize> {
        let mut rest = self.equal;
        if rest & rest.wrapping_sub(1) == 0 {
            return Some(self.at);
        }
        // As `round_robin`, but without the price of an atomic step for each: one that gets lost
        // between workers makes one of equally good choices another one, and the levels even out by
        // themselves.
        let mut best: Option<(usize, Level<'_>)> = None;
        let (mut top, mut total) = (i64::MIN, 0);
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let Some(peer) = view.again(i) else { continue };
            let effective = peer.effective.load();
            if effective < peer.weight {
                peer.effective.raise(effective);
            }
            total += effective;
            let level = peer.current.load().wrapping_add(effective);
            peer.current.store(level);
            if level > top {
                (best, top) = (Some((i, peer.current)), level);
            }
        }
        let (i, level) = best?;
        level.store(top.wrapping_sub(total));
        Some(i)
    }
}

/// Compares costs over weights.
#[inline(always)]
fn compare(one: (u64, u64), other: (u64, u64)) -> Ordering {
    const SMALL: u64 = 1 << 47;
    // Weights are below 2^16.
    if (one.0 | other.0) < SMALL {
        return (one.0 * other.1).cmp(&(other.0 * one.1));
    }
    (u128::from(one.0) * u128::from(other.1)).cmp(&(u128::from(other.0) * u128::from(one.1)))
}

#[inline]
fn scan<V: View>(
    view: &V,
    start: Option<usize>,
    cost: impl Fn(usize, &Candidate<'_>) -> u64,
) -> Option<Best> {
    let mut best = Best { at: usize::MAX, equal: 0, least: 0, its: 0 };
    match start {
        None => {
            for i in 0..view.len() {
                best.look(view, i, &cost);
            }
        }
        Some(from) => {
            for i in (from..view.len()).chain(0..from.min(view.len())) {
                if best.look(view, i, &cost) {
                    break;
                }
            }
            best.equal = 0;
        }
    }
    (best.at != usize::MAX).then_some(best)
}
