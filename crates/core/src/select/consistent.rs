//! `hash consistent`: by a key, on a ring of points that a change of servers hardly moves; nginx's
//! own ring.
//!
//! A server has 160 points for each unit of its weight, at places that come from its text alone. A
//! key belongs to the server of the first point at or after it. Where two servers have a point at
//! the same place, the one counts whose text comes first, in whatever order they were declared.

use super::{Candidate, MISSES, View, round_robin};
use crate::crc::{crc32, extend32};

/// Points for a unit of weight.
pub const POINTS: u64 = 160;

/// A server on the ring.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// Its address as it was given.
    pub text: &'a str,
    /// Its first peer; the others follow.
    pub peer: u32,
    /// Its points.
    pub points: u32,
}

/// The points of servers of these weights: 160 for each unit, as long as these are at most `limit`;
/// beyond, as many as their share of the limit is, one at least.
///
/// The limit holds if it is above the number of servers.
pub fn points(weights: &[u32], limit: usize) -> Vec<u32> {
    let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
    let limit = limit as u64;
    let share = |weight: u32| match u64::from(weight) {
        0 => 0,
        weight if sum * POINTS <= limit => weight * POINTS,
        weight => (weight * limit.saturating_sub(weights.len() as u64) / sum).max(1),
    };
    weights.iter().map(|&weight| share(weight) as u32).collect()
}

/// The ring: place and first peer of each point, in order, each place once.
pub fn ring(shares: &[Share<'_>]) -> Vec<(u32, u32)> {
    let mut by_text: Vec<&Share<'_>> = shares.iter().collect();
    by_text.sort_unstable_by_key(|share| share.text);
    let all = shares.iter().map(|share| share.points as usize).sum();
    let mut points: Vec<u64> = Vec::with_capacity(all);
    for (rank, share) in by_text.iter().enumerate() {
        let (host, port) = parts(share.text);
        let base = extend32(extend32(crc32(host), b"\0"), port);
        let mut place = 0u32;
        for _ in 0..share.points {
            place = extend32(base, &place.to_le_bytes());
            points.push(u64::from(place) << 32 | rank as u64);
        }
    }
    points.sort_unstable();
    points.dedup_by_key(|point| *point >> 32);
    let peer = |point: u64| by_text[(point & 0xffff_ffff) as usize].peer;
    points.into_iter().map(|point| ((point >> 32) as u32, peer(point))).collect()
}

/// Host and port as ngx_http_upstream_init_chash parts them.
fn parts(text: &str) -> (&[u8], &[u8]) {
    let text = text.as_bytes();
    if let Some((start, path)) = text.split_at_checked(5)
        && start.eq_ignore_ascii_case(b"unix:")
    {
        return (path, b"");
    }
    match text.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(colon) if text[colon] == b':' => (&text[..colon], &text[colon + 1..]),
        _ => (text, b""),
    }
}

/// Chooses the peer of a key on a ring of `points`; none where it is left to round robin.
///
/// `point` gives place and first peer of a point, `peers` how many peers the server has whose first
/// one this is.
pub fn pick<V: View>(
    view: &V,
    points: usize,
    point: impl Fn(usize) -> (u32, u32),
    peers: impl Fn(usize) -> usize,
    key: &[u8],
) -> Option<usize> {
    if points == 0 || key.is_empty() {
        return None;
    }
    let place = crc32(key);
    let (mut from, mut to) = (0, points);
    while from < to {
        let middle = from.midpoint(to);
        if point(middle).0 < place {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    (0..=MISSES as usize).find_map(|step| {
        let first = point((from + step) % points).1 as usize;
        match peers(first) {
            1 => alone(view, first),
            len => round_robin::pick(&Peers { view, first, len }).map(|i| first + i),
        }
    })
}

/// The only peer of a server: what round robin does with one, without moving its place.
#[inline]
fn alone<V: View>(view: &V, i: usize) -> Option<usize> {
    let peer = view.open(i)?;
    let effective = peer.effective.load();
    if effective < peer.weight {
        peer.effective.raise(effective);
    }
    Some(i)
}

/// The peers of one server.
struct Peers<'a, V> {
    view: &'a V,
    first: usize,
    len: usize,
}

impl<V: View> View for Peers<'_, V> {
    fn len(&self) -> usize {
        self.len
    }
    fn open(&self, i: usize) -> Option<Candidate<'_>> {
        self.view.open(self.first + i)
    }
    fn tried(&self, i: usize) -> bool {
        self.view.tried(self.first + i)
    }
    fn weight(&self, i: usize) -> u32 {
        self.view.weight(self.first + i)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::select::tests::{Group, naive};

    /// A ring of servers with a peer each.
    fn of(servers: &[(&str, u32)]) -> Vec<(u32, u32)> {
        let weights: Vec<u32> = servers.iter().map(|&(_, weight)| weight).collect();
        let points = points(&weights, usize::MAX);
        let share = |(i, points)| {
            let (text, _): (&str, u32) = servers[i];
            Share { text, peer: i as u32, points }
        };
        ring(&points.into_iter().enumerate().map(share).collect::<Vec<_>>())
    }

    fn owner<'a>(servers: &[(&'a str, u32)], key: u32) -> &'a str {
        let ring = of(servers);
        let group = Group::new(&servers.iter().map(|&(_, weight)| weight).collect::<Vec<_>>());
        let key = format!("key-{key}");
        let i = pick(&group, ring.len(), |i| ring[i], |_| 1, key.as_bytes()).unwrap();
        servers[i].0
    }

    #[test]
    fn a_text_is_parted_as_nginx_parts_it() {
        let table = [
            ("10.0.0.1:8080", "10.0.0.1", "8080"),
            ("10.0.0.1", "10.0.0.1", ""),
            ("[::1]:80", "[::1]", "80"),
            ("[::1]", "[::1]", ""),
            ("app:", "app", ""),
            ("app", "app", ""),
            ("8080", "8080", ""),
            ("unix:/run/app:80", "/run/app:80", ""),
            ("UNIX:/a", "/a", ""),
        ];
        for (text, host, port) in table {
            assert_eq!(parts(text), (host.as_bytes(), port.as_bytes()), "{text}");
        }
    }

    #[test]
    fn points_are_nginx_s_up_to_the_limit_and_shares_beyond() {
        assert_eq!(points(&[1, 0, 3], 1000), [160, 0, 480]);
        assert_eq!(points(&[1, 0, 3], 640), [160, 0, 480]);
        let scaled = points(&[1, 0, 3], 639);
        assert_eq!(scaled, [159, 0, 477]);
        for limit in [4, 10, 100, 1000] {
            let few = points(&[65_535, 1, 1, 1], limit);
            assert!(few.iter().all(|&n| n > 0) && few.iter().sum::<u32>() <= limit.max(4) as u32);
        }
    }

    #[test]
    fn servers_in_another_order_have_the_same_keys_and_one_that_goes_moves_only_its_own() {
        let names: Vec<String> = (1..=10).map(|i| format!("10.0.0.{i}:80")).collect();
        let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let reversed: Vec<(&str, u32)> = servers.iter().rev().copied().collect();
        for key in 0..50 {
            let was = owner(&servers, key);
            assert_eq!(owner(&reversed, key), was);
            let is = owner(&servers[1..], key);
            assert!(is == was || was == "10.0.0.1:80");
        }
    }

    #[test]
    fn a_place_that_two_servers_have_is_of_the_text_that_comes_first() {
        // 160,000 points of a thousand servers: some places come twice.
        let names: Vec<String> =
            (0..1000).map(|i| format!("10.1.{}.{}:80", i / 250, i % 250)).collect();
        let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let reversed: Vec<(&str, u32)> = servers.iter().rev().copied().collect();
        let (one, other) = (of(&servers), of(&reversed));
        assert!(one.len() < 160_000);
        let texts = |ring: &[(u32, u32)], servers: &[(&str, u32)]| -> Vec<(u32, String)> {
            ring.iter().map(|&(at, i)| (at, servers[i as usize].0.to_owned())).collect()
        };
        assert!(texts(&one, &servers) == texts(&other, &reversed));
    }

    proptest! {
        #[test]
        fn tries_of_a_request_are_nginx_s(
            peers in prop::collection::vec((1u32..3, 1usize..4, any::<bool>()), 1..6),
            key in ".{1,12}",
        ) {
            // A server with several peers stands for a name with several addresses.
            let names: Vec<String> = (0..peers.len()).map(|i| format!("app-{i}:80")).collect();
            let mut shares = Vec::new();
            let mut weights = Vec::new();
            let mut of = Vec::new();
            let mut open = Vec::new();
            for (i, &(weight, n, first)) in peers.iter().enumerate() {
                let peer = weights.len() as u32;
                shares.push(Share { text: &names[i], peer, points: weight * POINTS as u32 });
                for k in 0..n {
                    weights.push(weight);
                    of.push(i);
                    open.push(first || k > 0);
                }
            }
            let ring = ring(&shares);
            let (mut group, mut stock) = (Group::new(&weights), Group::new(&weights));
            group.open.clone_from(&open);
            stock.open.clone_from(&open);
            let key = key.as_bytes();
            let mut request = naive::Ring::new(&names, &of, &weights, key);
            for _ in 0..4 {
                let expected = request.next(&stock);
                let count = |first: usize| of.iter().filter(|&&server| server == of[first]).count();
                let got = pick(&group, ring.len(), |i| ring[i], count, key);
                prop_assert_eq!(got, expected);
                let Some(i) = got else { break };
                group.tried[i] = true;
                stock.tried[i] = true;
            }
        }
    }
}
