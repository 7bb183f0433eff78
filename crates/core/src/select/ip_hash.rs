//! `ip_hash`: by the client's address, over the weights in the order of the servers; nginx's own
//! answer.

use super::weights::Ranges;
use super::{View, first_open};

/// Chooses the peer of an address: three bytes of an IPv4 one, all of an IPv6 one, three zeros of
/// others; none where it is left to round robin.
pub fn pick<V, S>(view: &V, ranges: &Ranges<S>, address: &[u8]) -> Option<usize>
where
    V: View,
    S: Fn(usize) -> u64,
{
    let total = ranges.total(view);
    if total == 0 {
        return None;
    }
    let mut hash = 89;
    first_open(view, || {
        for &byte in address {
            hash = (hash * 113 + u64::from(byte)) % 6271;
        }
        ranges.find(view, hash % total)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::select::tests::{Group, naive, weights_and_states};

    #[test]
    fn the_fourth_byte_of_an_address_counts_no_more_than_nginx_says() {
        let group = Group::new(&[1; 7]);
        let walk: Ranges<fn(usize) -> u64> = Ranges::Walk;
        // ((89 * 113 + 10) * 113 + 0) * 113 + 7, step by step modulo 6271.
        let hash = [10, 0, 7].iter().fold(89, |hash, byte| (hash * 113 + byte) % 6271);
        assert_eq!(pick(&group, &walk, &[10, 0, 7]), Some(hash % 7));
        assert_eq!(pick(&Group::new(&[]), &walk, &[0; 3]), None);
    }

    proptest! {
        #[test]
        fn tries_of_a_request_are_nginx_s(
            (weights, open) in weights_and_states(),
            address in prop_oneof![
                prop::collection::vec(any::<u8>(), 3),
                prop::collection::vec(any::<u8>(), 16),
            ],
        ) {
            let mut group = Group::new(&weights);
            group.open = open;
            let mut hash = 89;
            let mut stock = naive::Request::default();
            for _ in 0..4 {
                let expected = stock.next(&group, |total| {
                    hash = address.iter().fold(hash, |h, &b| (h * 113 + u64::from(b)) % 6271);
                    hash % total
                });
                let got = pick(&group, &Ranges::Sums(|i| group.sum(i)), &address);
                prop_assert_eq!(got, expected);
                let Some(i) = got else { break };
                group.tried[i] = true;
            }
        }
    }
}
