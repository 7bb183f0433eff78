//! A group in plain memory, and nginx's loops written down as they are, to compare with.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;

use super::*;

pub(crate) struct Group {
    pub(crate) weights: Vec<u32>,
    pub(crate) open: Vec<bool>,
    pub(crate) tried: Vec<bool>,
    pub(crate) active: Vec<u32>,
    pub(crate) fresh: Vec<u32>,
    current: Vec<AtomicU64>,
    pub(crate) effective: Vec<AtomicU64>,
}

impl Group {
    pub(crate) fn new(weights: &[u32]) -> Self {
        let n = weights.len();
        Self {
            weights: weights.to_vec(),
            open: weights.iter().map(|&weight| weight > 0).collect(),
            tried: vec![false; n],
            active: vec![0; n],
            fresh: vec![0; n],
            current: weights.iter().map(|_| AtomicU64::new(0)).collect(),
            effective: weights.iter().map(|&weight| AtomicU64::new(weight.into())).collect(),
        }
    }

    pub(crate) fn levels(&self) -> Vec<i64> {
        self.current.iter().map(|level| level.load(Relaxed).cast_signed()).collect()
    }

    /// The sum of the weights up to and with peer `i`.
    pub(crate) fn sum(&self, i: usize) -> u64 {
        self.weights[..=i].iter().map(|&weight| u64::from(weight)).sum()
    }
}

impl View for Group {
    fn len(&self) -> usize {
        self.weights.len()
    }
    fn open(&self, i: usize) -> Option<Candidate<'_>> {
        (self.open[i] && !self.tried[i]).then(|| Candidate {
            weight: i64::from(self.weights[i]),
            current: Level::new(&self.current[i]),
            effective: Level::new(&self.effective[i]),
            active: self.active[i],
            fresh: self.fresh[i],
        })
    }
    fn has_newcomers(&self) -> bool {
        self.fresh.iter().any(|&fresh| fresh != 0)
    }
    fn tried(&self, i: usize) -> bool {
        self.tried[i]
    }
    fn weight(&self, i: usize) -> u32 {
        self.weights[i]
    }
}

/// Weights of a group, and which of its peers are open.
pub(crate) fn weights_and_states() -> impl Strategy<Value = (Vec<u32>, Vec<bool>)> {
    let weights = prop::collection::vec(1u32..9, 1..12);
    weights.prop_flat_map(|weights| {
        let n = weights.len();
        (Just(weights), prop::collection::vec(prop::bool::weighted(0.7), n))
    })
}

/// xorshift32.
pub(crate) fn random() -> impl FnMut() -> u32 {
    let mut seed = 0x9e37_79b9_u32;
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    }
}

/// What nginx keeps for a request, and does at each of its tries.
pub(crate) mod naive {
    use super::*;
    use crate::crc::crc32;

    /// The part that `hash` and `ip_hash` have in common.
    #[derive(Default)]
    pub(crate) struct Request {
        tries: u32,
    }

    impl Request {
        pub(crate) fn next(
            &mut self,
            group: &Group,
            mut step: impl FnMut(u64) -> u64,
        ) -> Option<usize> {
            if self.tries > 20 {
                return None;
            }
            let total: u64 = group.weights.iter().map(|&weight| u64::from(weight)).sum();
            loop {
                let mut w = step(total);
                let mut p = 0;
                while w >= u64::from(group.weights[p]) {
                    w -= u64::from(group.weights[p]);
                    p += 1;
                }
                if group.open[p] && !group.tried[p] {
                    return Some(p);
                }
                self.tries += 1;
                if self.tries > 20 {
                    return None;
                }
            }
        }
    }

    pub(crate) struct Hash {
        key: Vec<u8>,
        rehash: u32,
        hash: u32,
    }

    impl Hash {
        pub(crate) fn new(key: &[u8]) -> Self {
            Self { key: key.to_vec(), rehash: 0, hash: 0 }
        }

        pub(crate) fn next(&mut self) -> u64 {
            let mut text = Vec::new();
            if self.rehash > 0 {
                text.extend_from_slice(self.rehash.to_string().as_bytes());
            }
            text.extend_from_slice(&self.key);
            self.hash = self.hash.wrapping_add(crc32(&text) >> 16 & 0x7fff);
            self.rehash += 1;
            u64::from(self.hash)
        }
    }

    /// Peers of one name have equal weights, and each adds its points.
    pub(crate) struct Ring {
        points: Vec<(u32, usize)>,
        of: Vec<usize>,
        hash: u32,
        tries: u32,
        current: Vec<i64>,
        weights: Vec<u32>,
    }

    impl Ring {
        pub(crate) fn new(names: &[String], of: &[usize], weights: &[u32], key: &[u8]) -> Self {
            let mut points = Vec::new();
            for (&server, &weight) in of.iter().zip(weights) {
                let (host, port) = names[server].rsplit_once(':').unwrap();
                let mut previous = [0; 4];
                for _ in 0..weight * 160 {
                    let text = [host.as_bytes(), b"\0", port.as_bytes(), &previous].concat();
                    let hash = crc32(&text);
                    points.push((hash, server));
                    previous = hash.to_le_bytes();
                }
            }
            points.sort_by_key(|&(hash, _)| hash);
            points.dedup_by_key(|&mut (hash, _)| hash);
            let hash = points.iter().position(|&(hash, _)| hash >= crc32(key));
            Self {
                hash: hash.unwrap_or(points.len()) as u32,
                points,
                of: of.to_vec(),
                tries: 0,
                current: vec![0; weights.len()],
                weights: weights.to_vec(),
            }
        }

        pub(crate) fn next(&mut self, group: &Group) -> Option<usize> {
            while self.tries <= 20 {
                let (_, server) = self.points[self.hash as usize % self.points.len()];
                let mut best: Option<usize> = None;
                let mut total = 0;
                for i in 0..self.of.len() {
                    if group.tried[i] || !group.open[i] || self.of[i] != server {
                        continue;
                    }
                    self.current[i] += i64::from(self.weights[i]);
                    total += i64::from(self.weights[i]);
                    if best.is_none_or(|best| self.current[i] > self.current[best]) {
                        best = Some(i);
                    }
                }
                if let Some(best) = best {
                    self.current[best] -= total;
                    return Some(best);
                }
                self.hash += 1;
                self.tries += 1;
            }
            None
        }
    }

    pub(crate) struct LeastConn {
        current: Vec<i64>,
    }

    impl LeastConn {
        pub(crate) fn new(group: &Group) -> Self {
            Self { current: vec![0; group.weights.len()] }
        }

        pub(crate) fn next(&mut self, group: &Group) -> Option<usize> {
            let open: Vec<usize> =
                (0..group.weights.len()).filter(|&i| group.open[i] && !group.tried[i]).collect();
            let mut best: Option<usize> = None;
            let mut many = false;
            let of = |i: usize| (group.active[i], group.weights[i]);
            for &i in &open {
                let (conns, weight) = of(i);
                match best.map(of) {
                    None => (best, many) = (Some(i), false),
                    Some((least, its)) if conns * its < least * weight => {
                        (best, many) = (Some(i), false);
                    }
                    Some((least, its)) if conns * its == least * weight => many = true,
                    Some(_) => {}
                }
            }
            let mut best = best?;
            if !many {
                return Some(best);
            }
            let (least, its) = of(best);
            let mut total = 0;
            for &i in open.iter().filter(|&&i| i >= best).collect::<Vec<_>>() {
                let (conns, weight) = of(i);
                if conns * its != least * weight {
                    continue;
                }
                self.current[i] += i64::from(weight);
                total += i64::from(weight);
                if self.current[i] > self.current[best] {
                    best = i;
                }
            }
            self.current[best] -= total;
            Some(best)
        }
    }
}
