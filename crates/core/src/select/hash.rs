//! `hash`: by a key, over the weights in the order of the servers; nginx's own answer.

use super::weights::Ranges;
use super::{View, first_open};
use crate::crc::{crc32, extend32};

/// Chooses the peer of a key, or none where it is left to round robin.
pub fn pick<V, S>(view: &V, ranges: &Ranges<S>, key: &[u8]) -> Option<usize>
where
    V: View,
    S: Fn(usize) -> u64,
{
    let total = ranges.total(view);
    if total == 0 || key.is_empty() {
        return None;
    }
    let mut hash = 0u32;
    let mut round = 0;
    first_open(view, || {
        // As ngx_http_upstream_get_hash_peer: the number of the round before the key.
        hash = hash.wrapping_add(numbered(round, key) >> 16 & 0x7fff);
        round += 1;
        ranges.find(view, u64::from(hash) % total)
    })
}

fn numbered(round: u32, key: &[u8]) -> u32 {
    if round == 0 {
        return crc32(key);
    }
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = round;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    extend32(crc32(&digits[at..]), key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::select::tests::{Group, naive, weights_and_states};

    #[test]
    fn a_round_is_written_before_the_key() {
        assert_eq!(numbered(0, b"key"), crc32(b"key"));
        assert_eq!(numbered(7, b"key"), crc32(b"7key"));
        assert_eq!(numbered(120, b"key"), crc32(b"120key"));
    }

    #[test]
    fn a_closed_peer_moves_only_its_own_keys_and_they_come_back() {
        let mut group = Group::new(&[3, 1, 2, 1]);
        let walk: Ranges<fn(usize) -> u64> = Ranges::Walk;
        let all = |group: &Group| -> Vec<usize> {
            let key = |i: u32| pick(group, &walk, format!("key-{i}").as_bytes()).unwrap();
            (0..2000).map(key).collect()
        };
        let before = all(&group);
        group.open[2] = false;
        for (was, is) in before.iter().zip(all(&group)) {
            assert!(if *was == 2 { is != 2 } else { is == *was });
        }
        group.open[2] = true;
        assert_eq!(all(&group), before);
    }

    #[test]
    fn nothing_to_choose_by_is_left_to_round_robin() {
        let walk: Ranges<fn(usize) -> u64> = Ranges::Walk;
        assert_eq!(pick(&Group::new(&[1, 1]), &walk, b""), None);
        assert_eq!(pick(&Group::new(&[0, 0]), &walk, b"key"), None);
        assert_eq!(pick(&Group::new(&[]), &walk, b"key"), None);
        let mut group = Group::new(&[1, 1]);
        group.open = vec![false; 2];
        assert_eq!(pick(&group, &walk, b"key"), None);
    }

    proptest! {
        #[test]
        fn tries_of_a_request_are_nginx_s((weights, open) in weights_and_states(), key in ".{1,12}") {
            let mut group = Group::new(&weights);
            group.open = open;
            let key = key.as_bytes();
            let mut step = naive::Hash::new(key);
            let mut stock = naive::Request::default();
            for _ in 0..4 {
                let expected = stock.next(&group, |total| step.next() % total);
                let got = pick(&group, &Ranges::Sums(|i| group.sum(i)), key);
                prop_assert_eq!(got, expected);
                let Some(i) = got else { break };
                group.tried[i] = true;
            }
        }
    }
}
