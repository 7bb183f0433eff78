//! A record of the routes' table: a route, or an app that routes name.

use peerage_core::route::{Route, Status};
use peerage_shm::{AtomicU64, Ordering, Ref, Region, Words};

use crate::layout::{get, granules, high, low, pack, set, words_of};
use crate::routes::{AppName, Hashed};

/// A record in a chain of the table. What it says never changes, but for the number of an app's
/// routes: a route that changes is another record in its place.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    w: &'static [AtomicU64; Self::WORDS],
}

/// Which of the two links of each record a table goes by: the next table uses the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Even,
    Odd,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Route,
    App,
}

impl Node {
    /// Words before the key or the name.
    pub(crate) const WORDS: usize = 2;
    /// Bytes of a key or a name, at most.
    pub(crate) const MAX_NAME: usize = Self::LEN as usize;
    /// The next record of the same bucket by either side, the even one high. Under the lock.
    const NEXT: usize = 0;
    /// Of a route its app, of an app the number of its routes; then the bits below.
    const META: usize = 1;
    /// Length of the key or the name: 8 bits.
    const LEN: u32 = 0xff;
    /// The status of a route, 2 bits.
    const STATUS: u32 = 8;
    const SUSPENDED: u32 = 1 << Self::STATUS;
    /// The rest says which.
    const OTHER: u32 = 2 << Self::STATUS;
    /// There is a rest.
    const REST: u32 = 1 << 10;
    /// It ends by itself, see the rest.
    const UNTIL: u32 = 1 << 11;
    const APP: u32 = 1 << 12;
    /// A part of the hash, 16 bits.
    const TAG: u32 = 16;

    #[inline]
    pub(crate) fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { w: region.array(at)? })
    }

    #[inline]
    pub(crate) fn place(self, region: &Region) -> Ref {
        region.place(self.w)
    }

    /// Granules of a record with a key or name and a rest of so many bytes.
    pub(crate) const fn granules_of(name: usize, rest: usize) -> u32 {
        let rest = if rest == 0 { 0 } else { 1 + words_of(rest) };
        granules(Self::WORDS + words_of(name) + rest)
    }

    /// Its granules.
    pub(crate) fn granules(self, region: &Region) -> u32 {
        Self::granules_of(self.len(), self.rest_len(region))
    }

    /// Fills a new record of an app, before it is linked.
    pub(crate) fn fill_app(self, region: &Region, name: &[u8], hash: Hashed) {
        let bits = name.len() as u32 & Self::LEN | Self::APP | u32::from(hash.tag()) << Self::TAG;
        set(&self.w[Self::NEXT], 0);
        set(&self.w[Self::META], pack(0, bits));
        region.write_bytes(self.place(region), Self::WORDS, name);
    }

    /// Fills a new record of a route, before it is linked.
    pub(crate) fn fill_route(
        self,
        region: &Region,
        route: &Route,
        rest: &[u8],
        app: Ref,
        hash: Hashed,
    ) {
        let key = route.key.as_str().as_bytes();
        let status = match route.status {
            Status::Active => 0,
            Status::Suspended => Self::SUSPENDED,
            Status::Other(_) => Self::OTHER,
        };
        let bits = key.len() as u32 & Self::LEN
            | status
            | if rest.is_empty() { 0 } else { Self::REST }
            | if route.until.is_some() { Self::UNTIL } else { 0 }
            | u32::from(hash.tag()) << Self::TAG;
        set(&self.w[Self::NEXT], 0);
        set(&self.w[Self::META], pack(app.raw(), bits));
        let at = self.place(region);
        region.write_bytes(at, Self::WORDS, key);
        if !rest.is_empty() {
            let after = Self::WORDS + words_of(key.len());
            if let Some(word) = region.word(at, after) {
                set(word, rest.len() as u64);
            }
            region.write_bytes(at, after + 1, rest);
        }
    }

    /// The next record of the bucket.
    #[inline]
    pub(crate) fn next(self, side: Side) -> Ref {
        let word = self.w[Self::NEXT].load(Ordering::SeqCst);
        Ref::from_raw(match side {
            Side::Even => high(word),
            Side::Odd => low(word),
        })
    }

    /// Links the next record. Under the lock.
    pub(crate) fn set_next(self, side: Side, next: Ref) {
        let word = get(&self.w[Self::NEXT]);
        let word = match side {
            Side::Even => pack(next.raw(), low(word)),
            Side::Odd => pack(high(word), next.raw()),
        };
        self.w[Self::NEXT].store(word, Ordering::SeqCst);
    }

    #[inline]
    fn bits(self) -> u32 {
        low(get(&self.w[Self::META]))
    }

    /// Whether it is the record of this key or name, which has so many bytes; `at` is its place.
    #[inline(always)]
    pub(crate) fn is(
        self,
        region: &Region,
        at: Ref,
        kind: Kind,
        hash: Hashed,
        (len, name): (usize, Words<'_>),
    ) -> bool {
        let app = if kind == Kind::App { Self::APP } else { 0 };
        let wanted = u32::from(hash.tag()) << Self::TAG | app | len as u32;
        let mask = 0xffff << Self::TAG | Self::APP | Self::LEN;
        self.bits() & mask == wanted && region.eq_words(at, Self::WORDS, name)
    }

    pub(crate) fn kind(self) -> Kind {
        if self.bits() & Self::APP != 0 { Kind::App } else { Kind::Route }
    }

    /// The app of a route.
    #[inline]
    pub(crate) fn app(self) -> Ref {
        Ref::from_raw(high(get(&self.w[Self::META])))
    }

    /// Routes that name an app.
    pub(crate) fn routes(self) -> u32 {
        high(get(&self.w[Self::META]))
    }

    /// Counts an app's routes anew. Under the lock.
    pub(crate) fn set_routes(self, routes: u32) {
        set(&self.w[Self::META], pack(routes, self.bits()));
    }

    /// The status of a route; `None`: it stands in the rest.
    #[inline]
    pub(crate) fn plain_status(self) -> Option<Status> {
        match self.bits() >> Self::STATUS & 3 {
            0 => Some(Status::Active),
            1 => Some(Status::Suspended),
            _ => None,
        }
    }

    /// Whether a route ends by itself.
    pub(crate) fn has_end(self) -> bool {
        self.bits() & Self::UNTIL != 0
    }

    #[inline]
    fn len(self) -> usize {
        (self.bits() & Self::LEN) as usize
    }

    /// Appends the key or the name.
    #[inline]
    pub(crate) fn read_name(self, region: &Region, to: &mut Vec<u8>) {
        region.read_bytes(self.place(region), Self::WORDS, self.len(), to);
    }

    /// Copies the name of the record at a place into memory that takes any, and tells how many
    /// bytes it has.
    #[inline(always)]
    pub(crate) fn copy_name(region: &Region, at: Ref, to: &mut AppName) -> Option<usize> {
        let len = Self::at(region, at)?.len();
        let words = region.words(at, Self::WORDS + words_of(len))?;
        for (eight, word) in to.iter_mut().zip(&words[Self::WORDS..]) {
            *eight = get(word).to_ne_bytes();
        }
        Some(len)
    }

    pub(crate) fn name(self, region: &Region) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.len() + 8);
        self.read_name(region, &mut name);
        name
    }

    /// What else a route says.
    pub(crate) fn rest(self, region: &Region) -> Vec<u8> {
        let mut rest = Vec::new();
        let after = Self::WORDS + words_of(self.len()) + 1;
        region.read_bytes(self.place(region), after, self.rest_len(region), &mut rest);
        rest
    }

    fn rest_len(self, region: &Region) -> usize {
        if self.bits() & Self::REST == 0 {
            return 0;
        }
        let word = region.word(self.place(region), Self::WORDS + words_of(self.len()));
        word.map_or(0, |word| get(word) as u32 as usize)
    }
}
