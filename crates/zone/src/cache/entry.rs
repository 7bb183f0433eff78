//! A place of a tenant or an app: what is said of it, and its texts, the key first.

use peerage_core::route::decide::Changed;
use peerage_shm::{AtomicU64, Ordering, Version};

use super::key::Key;
use super::table::{Pair, Table};
use super::text::{self, words_of};

/// Words before the texts: the version, when it was used, when it was asked for, the epoch, and
/// the lengths with the rest.
pub(super) const HEADER: usize = 5;
const USED: usize = 1;
const AT: usize = 2;
const EPOCH: usize = 3;
const META: usize = 4;

/// About a second: who hits an entry again within it writes nothing.
const TICK: u32 = 10;

/// When something was used.
#[inline]
pub(super) const fn tick(now: u64) -> u64 {
    now >> TICK
}

/// Lengths of the texts, a code, and whether the store told then what changes.
#[derive(Clone, Copy)]
pub(super) struct Meta(u64);

impl Meta {
    #[inline]
    const fn key(self) -> usize {
        self.0 as u16 as usize
    }

    #[inline]
    pub(super) const fn second(self) -> usize {
        (self.0 >> 16) as u16 as usize
    }

    #[inline]
    pub(super) const fn third(self) -> usize {
        (self.0 >> 32) as u8 as usize
    }

    #[inline]
    pub(super) const fn code(self) -> u8 {
        (self.0 >> 40) as u8
    }

    #[inline]
    const fn tracked(self) -> bool {
        self.0 >> 48 & 1 == 1
    }
}

/// What every entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) at: u64,
    pub(super) changed: Changed,
    pub(super) tracked: bool,
}

/// What is to be written.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) key: &'a [u8],
    pub(super) second: &'a [u8],
    pub(super) third: &'a [u8],
    pub(super) code: u8,
}

/// When it was asked for, and what held then.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) at: u64,
    pub(super) used: u64,
    pub(super) epoch: u64,
    pub(super) tracked: bool,
}

impl Entry<'_> {
    /// Whether a table has places for it.
    pub(super) fn fits(&self, table: &Table) -> bool {
        let texts = [self.key, self.second, self.third].map(|text| words_of(text.len()));
        HEADER + texts.iter().sum::<usize>() <= table.slot()
    }

    /// Under the claim of the place.
    pub(super) fn write(&self, words: &[AtomicU64], stamp: Stamp) {
        let set = |i: usize, value| words[i].store(value, Ordering::Relaxed);
        let lens = self.key.len() as u64
            | (self.second.len() as u64) << 16
            | (self.third.len() as u64) << 32;
        set(USED, stamp.used);
        set(AT, stamp.at);
        set(EPOCH, stamp.epoch);
        set(META, lens | u64::from(self.code) << 40 | u64::from(stamp.tracked) << 48);
        let rest = text::write(&words[HEADER..], self.key);
        let rest = text::write(rest, self.second);
        text::write(rest, self.third);
    }
}

#[inline]
fn load(words: &[AtomicU64], i: usize) -> u64 {
    words[i].load(Ordering::Relaxed)
}

pub(super) fn used(words: &[AtomicU64]) -> u64 {
    load(words, USED)
}

pub(super) fn at(words: &[AtomicU64]) -> u64 {
    load(words, AT)
}

/// Whether a place is of this key.
#[inline]
pub(super) fn is_of(words: &[AtomicU64], key: Key<'_>) -> bool {
    Meta(load(words, META)).key() == key.len && key.behind(&words[HEADER..]).is_some()
}

/// Reads a place through `read`, which finds all its texts behind each other; `None` where it says
/// so, or where they are not whole. Two tries: who writes is not waited for.
pub(super) fn read<T>(
    words: &[AtomicU64],
    epoch: u64,
    mut read: impl FnMut(Meta, &[AtomicU64]) -> Option<T>,
) -> Option<(Seen, T)> {
    once(words, epoch, &mut read).or_else(|| once(words, epoch, &mut read))
}

/// One try.
#[inline(always)]
pub(super) fn once<T>(
    words: &[AtomicU64],
    epoch: u64,
    read: impl FnOnce(Meta, &[AtomicU64]) -> Option<T>,
) -> Option<(Seen, T)> {
    let (header, texts) = words.split_first_chunk::<HEADER>()?;
    let version = Version::of(&header[0]);
    if !version.is_whole() {
        return None;
    }
    let meta = Meta(load(header, META));
    let found = read(meta, texts)?;
    let changed = match () {
        () if version.is_marked() => Changed::Yes,
        () if load(header, EPOCH) != epoch => Changed::Perhaps,
        () => Changed::No,
    };
    let seen = Seen { at: load(header, AT), changed, tracked: meta.tracked() };
    version.is_still(&header[0]).then_some((seen, found))
}

/// What reads a place if it is of a key: the rest of its texts through `rest`.
#[inline(always)]
pub(super) fn if_of<T>(
    key: Key<'_>,
    mut rest: impl FnMut(Meta, &[AtomicU64]) -> Option<T>,
) -> impl FnMut(Meta, &[AtomicU64]) -> Option<T> {
    move |meta, texts| match meta.key() == key.len {
        true => rest(meta, key.behind(texts)?),
        false => None,
    }
}

/// The key, appended to `to`, and the words behind it.
pub(super) fn key<'a>(
    meta: Meta,
    texts: &'a [AtomicU64],
    to: &mut Vec<u8>,
) -> Option<&'a [AtomicU64]> {
    let (key, rest) = texts.split_at_checked(words_of(meta.key()))?;
    text::read(key, meta.key(), to)?;
    Some(rest)
}

/// It counts as used.
#[inline(always)]
pub(super) fn touch(words: &[AtomicU64], now: u64) {
    if load(words, USED) != tick(now) {
        words[USED].store(tick(now), Ordering::Relaxed);
    }
}

impl Table {
    /// Looks a key up, and reads what is behind it through `rest`. It counts as used.
    pub(super) fn look<T>(
        &self,
        key: Key<'_>,
        now: u64,
        epoch: u64,
        mut rest: impl FnMut(Meta, &[AtomicU64]) -> Option<T>,
    ) -> Option<(Seen, T)> {
        self.pair(key.hash)?.having(key.hash).find_map(|(_, words)| {
            let seen = read(words, epoch, if_of(key, &mut rest))?;
            touch(words, now);
            Some(seen)
        })
    }

    /// The places that have a key.
    pub(super) fn places<'k>(
        &self,
        key: Key<'k>,
        epoch: u64,
    ) -> impl Iterator<Item = (Pair, usize, Seen)> + use<'k> {
        self.pair(key.hash).into_iter().flat_map(move |pair| {
            pair.having(key.hash).filter_map(move |(way, words)| {
                let (seen, ()) = read(words, epoch, if_of(key, |_, _| Some(())))?;
                Some((pair, way, seen))
            })
        })
    }

    /// Marks what there is of a key.
    pub(super) fn mark(&self, key: Key<'_>) {
        let ways = self.pair(key.hash).into_iter().flat_map(|pair| pair.having(key.hash));
        ways.for_each(|(_, words)| mark(&words[0], || is_of(words, key)));
    }
}

/// Marks what a version guards, if it is what `is` knows. What is being written needs none: its
/// writer looks, before it confirms it, whether it was overtaken. Each try that fails is a step
/// that somebody else made.
pub(super) fn mark(word: &AtomicU64, is: impl Fn() -> bool) {
    loop {
        let version = Version::of(word);
        if !version.is_whole() {
            return;
        }
        let is = is();
        if version.is_still(word) && (!is || version.mark(word)) {
            return;
        }
    }
}
