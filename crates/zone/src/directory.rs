//! The directory: from a name to its upstream, read without a lock.
//!
//! A fixed number of buckets, set when the zone is made, each a chain of upstream records. A
//! record comes in by one store to its bucket and goes by one store to its predecessor; readers
//! inside a section may still stand on it.

use peerage_shm::{AtomicU64, Ordering, Ref, Words, point};

use crate::choice::{Fixed, FoundUp};
use crate::generation::Generation;
use crate::layout::{Up, get, high, low, root};
use crate::zone::Zone;

/// Bytes of zone for each bucket: chains stay short even when the zone is full of upstreams.
const BYTES_PER_BUCKET: usize = 1024;
const MIN_BUCKETS: usize = 64;

/// Buckets of a zone of so many bytes, a power of two.
pub(crate) fn bucket_count(zone_bytes: usize) -> usize {
    (zone_bytes / BYTES_PER_BUCKET).next_power_of_two().max(MIN_BUCKETS)
}

/// A name in lower case as it is looked for; the same for every zone.
pub struct Sought<'a> {
    hash: u32,
    len: usize,
    words: Words<'a>,
}

impl<'a> Sought<'a> {
    /// Takes a name apart, once.
    #[inline]
    pub fn new(name: &'a [u8]) -> Self {
        let words = Words::of(name);
        Self { hash: folded(mixed(0, name.len(), words)), len: name.len(), words }
    }
}

impl Zone {
    /// Goes up when an upstream comes or goes.
    #[inline]
    pub fn upstreams(&self) -> Generation {
        Generation::new(self.root(root::UPSTREAMS_MOVED))
    }

    /// The upstream of this name in lower case. To be called inside a read section.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<Up> {
        self.find_sought(&Sought::new(name))
    }

    /// The same.
    #[inline]
    pub(crate) fn find_sought(&self, name: &Sought<'_>) -> Option<Up> {
        let mut at = first(self.bucket(name.hash)?);
        // Not by `chain`, which looks for the next record before this one is compared.
        while let Some(up) = Up::at(self.region(), at) {
            if up.hash() == name.hash && up.is_named(self.region(), at, name.len, name.words) {
                return Some(up);
            }
            at = up.next();
        }
        None
    }

    /// The same for a name known beforehand: the last answer holds while its record lives.
    #[inline]
    pub(crate) fn find_fixed(&self, fixed: &Fixed) -> Option<(FoundUp, Up)> {
        if let Some(found) = fixed.seen.get()
            && let Some(up) = found.again()
        {
            return Some((found, up));
        }
        self.find_anew(fixed)
    }

    #[cold]
    fn find_anew(&self, fixed: &Fixed) -> Option<(FoundUp, Up)> {
        let up = self.find(&fixed.name)?;
        let found = FoundUp::new(up);
        fixed.seen.set(Some(found));
        Some((found, up))
    }

    /// Upstreams of bucket `i`; `None` past the last bucket.
    pub(crate) fn bucket_at(&self, i: usize) -> Option<impl Iterator<Item = Up>> {
        Some(self.chain(self.buckets()?.get(i)?).filter(|up| !up.has_ended()))
    }

    /// Makes a filled record visible. Under the lock.
    pub(crate) fn link(&self, up: Up) {
        let Some(bucket) = self.bucket(up.hash()) else { return };
        up.set_next(Ref::from_raw(low(get(bucket))));
        bucket.store(u64::from(up.place(self.region()).raw()), Ordering::SeqCst);
    }

    /// Ends an upstream, and takes its record out of its chain. Under the lock.
    ///
    /// In this order: the memory of a record whose writer dies after it was taken out is free as it
    /// is, and who remembers the record must not take it for living.
    pub(crate) fn unlink(&self, up: Up) {
        up.end();
        point!("upstream.ended");
        let Some(bucket) = self.bucket(up.hash()) else { return };
        let at = up.place(self.region());
        if low(get(bucket)) == at.raw() {
            bucket.store(u64::from(up.next().raw()), Ordering::SeqCst);
        } else if let Some(before) = self.chain(bucket).find(|other| other.next() == at) {
            before.set_next(up.next());
        }
        point!("upstream.unlinked");
    }

    /// Takes out what a writer that died has ended and no more. Under the lock.
    pub(crate) fn unlink_ended(&self) {
        for bucket in self.buckets().unwrap_or_default() {
            let ended: Vec<Up> = self.chain(bucket).filter(|up| up.has_ended()).collect();
            ended.into_iter().for_each(|up| self.unlink(up));
        }
    }

    fn buckets(&self) -> Option<&'static [AtomicU64]> {
        let word = get(self.root(root::BUCKETS));
        self.region().words(Ref::from_raw(high(word)), low(word) as usize + 1)
    }

    #[inline]
    fn bucket(&self, hash: u32) -> Option<&'static AtomicU64> {
        let buckets = self.buckets()?;
        buckets.get(hash as usize & (buckets.len() - 1))
    }

    #[inline]
    fn chain(&self, bucket: &AtomicU64) -> impl Iterator<Item = Up> + use<> {
        let region = *self.region();
        std::iter::successors(Up::at(&region, first(bucket)), move |up| Up::at(&region, up.next()))
    }
}

/// The first record of a bucket.
#[inline]
fn first(bucket: &AtomicU64) -> Ref {
    Ref::from_raw(low(bucket.load(Ordering::SeqCst)))
}

/// A quick hash; names come from operators, so chains cannot be grown from outside.
#[inline]
pub(crate) fn hash(name: &[u8]) -> u32 {
    Sought::new(name).hash
}

#[inline]
const fn folded(state: u64) -> u32 {
    (state ^ state >> 32) as u32
}

/// The same in full, by a seed, of a name of `len` bytes.
#[inline]
pub(crate) fn mixed(seed: u64, len: usize, name: Words<'_>) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = seed ^ K ^ len as u64;
    let mix = |state: u64, word: u64| {
        let wide = u128::from(state ^ word) * u128::from(K);
        (wide >> 64) as u64 ^ wide as u64
    };
    for eight in name.whole {
        state = mix(state, u64::from_ne_bytes(*eight));
    }
    mix(state, name.rest)
}
