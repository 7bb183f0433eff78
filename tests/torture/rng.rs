//! Chance that can be had again: every decision is drawn from numbers that the seed gives.

/// A splitmix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of one decision: of this seed, of this actor, the nth of it. What an earlier
    /// decision drew does not shift the later ones.
    pub(crate) fn of(seed: u64, actor: u64, nth: u64) -> Self {
        let mut rng = Self(seed);
        for part in [actor, nth] {
            rng.0 = rng.any() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        rng
    }

    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to n - 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.any() % n
    }

    /// True in this many of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// One of the items, each as often as its number says.
    pub(crate) fn weighted<T: Copy>(&mut self, items: &[(u64, T)]) -> T {
        let mut at = self.below(items.iter().map(|(n, _)| n).sum());
        for &(n, item) in items {
            if at < n {
                return item;
            }
            at -= n;
        }
        items[0].1
    }
}
