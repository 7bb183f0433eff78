//! `least_time`: the peer that takes the least time for its load and its weight.
//!
//! The time of a peer is a moving average; what it costs to choose it is that time for each request
//! in flight and the one to come. A time below 1 ms, which nginx cannot measure, is 1 ms. A peer
//! whose time nobody knows counts as the best one that is known, so that it is tried; and a time
//! that was measured long ago counts for less, so that a peer that was slow once is tried again.

use super::ramp::WHOLE;
use super::{View, least};

/// Fractions of a millisecond in an average.
const UNIT: u64 = 256;
/// How much a new time moves an average: an eighth of the difference.
const SHIFT: u32 = 3;
/// The longest time, over an hour: products stay in their range.
const LONGEST: u64 = 1 << 32;
/// An average is halved for each of these times in which its peer was not chosen.
const HALF_LIFE_MS: u64 = 10_000;

/// Chooses a peer, or none when no peer is open; `time` is what [`known`] says of one. `start` as
/// in [`super::least_conn`].
#[inline]
pub fn pick<V: View>(
    view: &V,
    start: Option<usize>,
    time: impl Fn(usize) -> Option<u64>,
) -> Option<usize> {
    let open = (0..view.len()).filter(|&i| view.open(i).is_some());
    let best = open.filter_map(&time).min().unwrap_or(UNIT);
    let whole = u64::from(WHOLE);
    least::pick(view, start, |i, busy| {
        let time = time(i).unwrap_or(best).clamp(UNIT, LONGEST);
        time.saturating_mul(busy + whole)
    })
}

/// An average after one more time, ms; 0 is one of nothing yet.
pub fn average(word: u64, ms: u64) -> u64 {
    let ms = (ms.saturating_mul(UNIT)).min(LONGEST);
    match word.checked_sub(1) {
        None => ms + 1,
        Some(old) if ms >= old => old + ((ms - old) >> SHIFT) + 1,
        Some(old) => old - ((old - ms) >> SHIFT) + 1,
    }
}

/// What an average counts for when its peer was chosen last so long ago; `None`: there is none.
#[inline]
pub fn known(word: u64, since_ms: u64) -> Option<u64> {
    let halves = (since_ms / HALF_LIFE_MS).min(63);
    word.checked_sub(1).map(|average| average >> halves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::tests::Group;

    #[test]
    fn an_average_follows_the_times() {
        let mut word = average(0, 80);
        assert_eq!(known(word, 0), Some(80 * UNIT));
        for _ in 0..100 {
            word = average(word, 10);
        }
        let now = known(word, 0).unwrap();
        assert!((10 * UNIT..10 * UNIT + 8).contains(&now), "{now}");
        assert_eq!(known(average(0, 0), 0), Some(0));
        assert_eq!(known(0, 0), None);
        assert!(known(average(0, u64::MAX), 0) <= Some(LONGEST));
        assert_eq!(known(word, HALF_LIFE_MS), Some(now / 2));
        assert_eq!(known(word, u64::MAX), Some(0));
    }

    #[test]
    fn the_faster_one_is_chosen_until_it_is_busier_by_as_much() {
        let mut group = Group::new(&[1, 1]);
        let time = |i: usize| Some([UNIT * 30, UNIT * 10][i]);
        let mut got = [0; 2];
        for _ in 0..40 {
            let i = pick(&group, None, time).unwrap();
            group.active[i] += 1;
            got[i] += 1;
        }
        assert_eq!(got, [10, 30]);
    }

    #[test]
    fn weights_count_and_equal_ones_take_turns_by_them() {
        let group = Group::new(&[3, 1]);
        let got: String =
            (0..8).map(|_| pick(&group, None, |_| Some(0)).unwrap().to_string()).collect();
        assert_eq!(got.matches('0').count(), 8, "idle, it costs a third of the other: {got}");
        let group = Group::new(&[2, 2, 2]);
        let got: String =
            (0..6).map(|_| pick(&group, None, |_| Some(99)).unwrap().to_string()).collect();
        assert_eq!(got, "012012");
    }

    #[test]
    fn a_peer_of_unknown_time_counts_as_the_best() {
        let mut group = Group::new(&[1, 1, 1]);
        group.active = vec![1, 0, 0];
        let time = |i: usize| [Some(UNIT * 2), Some(UNIT * 8), None][i];
        assert_eq!(pick(&group, None, time), Some(2));
        assert_eq!(pick(&group, None, |_| None), Some(1), "nobody's is known: fewest requests");
        group.open = vec![false; 3];
        assert_eq!(pick(&group, None, time), None);
    }
}
