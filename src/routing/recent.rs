//! Names that requests had lately, with something that is known of each: of many requests with one
//! name, one looks for it.
//!
//! What is noted holds as long as no upstream of the zone comes or goes.

use std::cell::{Cell, OnceCell};
use std::ptr;

use peerage_zone::{AppName, Worker};

/// What this process knows of names of apps, in lower case.
pub(super) struct Recent<T>(OnceCell<Box<[Slot<T>; SLOTS]>>);

/// The upstreams that a zone has at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Upstreams {
    zone: *const Worker,
    /// See [`peerage_zone::Zone::upstreams`].
    moved: u64,
}

/// A name, and what is noted of it.
struct Slot<T> {
    len: Cell<usize>,
    name: [Cell<u64>; WORDS],
    among: Cell<Upstreams>,
    noted: Cell<Option<T>>,
}

impl Upstreams {
    #[inline(always)]
    pub(super) fn of(zone: &Worker) -> Self {
        Self { zone, moved: zone.zone().upstreams().now() }
    }
}

impl<T: Copy> Recent<T> {
    /// What is noted of a name among these upstreams.
    #[inline(always)]
    pub(super) fn find(&self, among: Upstreams, app: &AppName, len: usize) -> Option<T> {
        let words = app.get(..len.div_ceil(8))?;
        let slot = &self.0.get()?[place(words)];
        let is_it = slot.len.get() == len
            && slot.among.get() == among
            && words.iter().zip(&slot.name).all(|(a, b)| u64::from_ne_bytes(*a) == b.get());
        if is_it { slot.noted.get() } else { None }
    }

    /// Whether something can be noted of a name of so many bytes: not while upstreams are on their
    /// way, and of no long one.
    pub(super) const fn takes(among: Upstreams, len: usize) -> bool {
        among.moved.is_multiple_of(2) && len <= 8 * WORDS
    }

    /// Notes something of a name, if it can be.
    pub(super) fn keep(&self, among: Upstreams, app: &AppName, len: usize, noted: T) {
        let Some(words) = app.get(..len.div_ceil(8)) else { return };
        if !Self::takes(among, len) {
            return;
        }
        let slots = self.0.get_or_init(|| Box::new([const { Slot::empty() }; SLOTS]));
        let slot = &slots[place(words)];
        for (to, word) in slot.name.iter().zip(words) {
            to.set(u64::from_ne_bytes(*word));
        }
        slot.len.set(len);
        slot.among.set(among);
        slot.noted.set(Some(noted));
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Slot<T> {
    const fn empty() -> Self {
        Self {
            len: Cell::new(0),
            name: [const { Cell::new(0) }; WORDS],
            among: Cell::new(Upstreams { zone: ptr::null(), moved: 0 }),
            noted: Cell::new(None),
        }
    }
}

/// Which slot a name may be in.
#[inline(always)]
fn place(words: &[[u8; 8]]) -> usize {
    let mut mixed = 0u64;
    for word in words {
        mixed = mixed.rotate_left(25) ^ u64::from_ne_bytes(*word);
    }
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
}

/// How many are noted.
const SLOTS: usize = 1_024;
/// Words of the longest name that is.
const WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> (AppName, usize) {
        let mut name = AppName::default();
        name.as_flattened_mut()[..text.len()].copy_from_slice(text.as_bytes());
        (name, text.len())
    }

    fn among(moved: u64) -> Upstreams {
        Upstreams { zone: ptr::null(), moved }
    }

    fn find<T: Copy>(recent: &Recent<T>, moved: u64, text: &str) -> Option<T> {
        let (name, len) = name(text);
        recent.find(among(moved), &name, len)
    }

    fn keep<T: Copy>(recent: &Recent<T>, moved: u64, text: &str, noted: T) {
        let (name, len) = name(text);
        recent.keep(among(moved), &name, len, noted);
    }

    #[test]
    fn a_name_is_known_until_upstreams_move_or_another_takes_its_slot() {
        let recent = Recent::default();
        assert_eq!(find(&recent, 2, "orders"), None);
        keep(&recent, 2, "orders", 7);
        assert_eq!(find(&recent, 2, "orders"), Some(7));
        assert_eq!(find(&recent, 4, "orders"), None);
        let (orders, len) = name("orders");
        let elsewhere = Upstreams { zone: ptr::dangling(), moved: 2 };
        assert_eq!(recent.find(elsewhere, &orders, len), None);
        // None that begins as it does, nor while something moves.
        assert_eq!([find(&recent, 2, "order"), find(&recent, 2, "orders2")], [None, None]);
        keep(&recent, 5, "orders", 8);
        assert_eq!([find(&recent, 5, "orders"), find(&recent, 2, "orders")], [None, Some(7)]);
        keep(&recent, 6, "orders", 9);
        assert_eq!([find(&recent, 6, "orders"), find(&recent, 2, "orders")], [Some(9), None]);
    }

    #[test]
    fn of_many_names_each_is_itself_or_unknown() {
        let recent = Recent::default();
        let names: Vec<String> =
            (0..4_000).map(|i| format!("{}{i}", "a-name-of-some-length-".repeat(i % 4))).collect();
        let mut known = 0;
        for (i, name) in names.iter().enumerate() {
            keep(&recent, 2, name, i);
            assert_eq!(find(&recent, 2, name), (name.len() <= 8 * WORDS).then_some(i), "{name}");
        }
        for (i, name) in names.iter().enumerate() {
            match find(&recent, 2, name) {
                Some(found) => assert_eq!(found, i),
                None => continue,
            }
            known += 1;
        }
        assert!(known > SLOTS * 8 / 10, "{known}");
    }
}
