//! Apps: from a name to the value that the store has for it.

use peerage_core::route::decide::Changed;
use peerage_shm::{AtomicU64, Ordering, Version};

use super::entry::{self, Entry, Meta, Seen};
use super::key::Key;
use super::put::Origin;
use super::text::{self, words_of};
use super::{Cache, Kind, Put, Read, Who};

/// What is cached of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenApp {
    /// When it was asked for.
    pub at: u64,
    /// Whether it has changed since.
    pub changed: Changed,
    /// The store told then what changes.
    pub tracked: bool,
    /// Hash of the value: who knows the value of this one need not read it.
    pub digest: u64,
}

/// Where something is said of an app: it holds as long as nobody writes or marks there.
#[derive(Clone, Copy)]
pub struct AppPlace {
    words: &'static [AtomicU64],
    version: Version,
    epoch: u64,
    at: u64,
    tracked: bool,
}

impl AppPlace {
    /// When it was asked for, and whether the store told then what changes.
    #[inline]
    pub const fn asked(&self) -> (u64, bool) {
        (self.at, self.tracked)
    }
}

impl Cache {
    /// Puts what the store said of an app. That there was none is forgotten.
    pub fn put_app(&self, name: &[u8], value: &[u8], read: Read, now: u64, who: &Who<'_>) -> Put {
        let put = self.put_app_of(name, value, &read, Origin::Store, now, who);
        if put == Put::Stored {
            self.forget_absent(Kind::App, name, read.at, who);
        }
        put
    }

    pub(super) fn put_app_of(
        &self,
        name: &[u8],
        value: &[u8],
        read: &Read,
        origin: Origin,
        now: u64,
        who: &Who<'_>,
    ) -> Put {
        let len = name.len() + value.len();
        if name.is_empty() || name.len() > Self::MAX_KEY || len > Self::MAX_APP {
            return Put::TooLong;
        }
        let digest = Key::new(0, value).hash.to_ne_bytes();
        let entry = Entry { key: name, second: value, third: &digest, code: 0 };
        self.put(Kind::App, &entry, read, origin, now, who)
    }

    /// What is cached of an app; `value` becomes its value.
    pub fn app(&self, name: &[u8], now: u64, value: &mut Vec<u8>) -> Option<SeenApp> {
        self.look_app(name, now, |len, texts| {
            value.clear();
            text::read(texts, len, value)
        })
    }

    /// The same without the value.
    #[inline]
    pub fn app_seen(&self, name: &[u8], now: u64) -> Option<SeenApp> {
        self.look_app(name, now, |_, _| Some(()))
    }

    /// Where something is said of an app that has not changed since.
    pub fn app_place(&self, name: &[u8]) -> Option<AppPlace> {
        let (key, epoch) = (self.key(Kind::App, name), self.epoch());
        self.apps.iter().find_map(|table| {
            table.pair(key.hash)?.having(key.hash).find_map(|(_, words)| {
                let version = Version::of(words.first()?);
                let (seen, ()) = entry::once(words, epoch, entry::if_of(key, |_, _| Some(())))?;
                let Seen { at, changed, tracked } = seen;
                let holds = changed == Changed::No && version.is_still(&words[0]);
                holds.then_some(AppPlace { words, version, epoch, at, tracked })
            })
        })
    }

    /// Whether what was said there holds still. It counts as used.
    #[inline(always)]
    pub fn holds(&self, place: &AppPlace, now: u64) -> bool {
        let Some(word) = place.words.first() else { return false };
        let holds = place.version.is_still(word) && place.epoch == self.epoch();
        if holds {
            entry::touch(place.words, now);
        }
        holds
    }

    #[inline(always)]
    fn look_app(
        &self,
        name: &[u8],
        now: u64,
        mut value: impl FnMut(usize, &[AtomicU64]) -> Option<()>,
    ) -> Option<SeenApp> {
        let key = self.key(Kind::App, name);
        let mut read = |meta: Meta, texts: &[AtomicU64]| {
            let digest = texts.get(words_of(meta.second()))?.load(Ordering::Relaxed);
            value(meta.second(), texts)?;
            Some(digest)
        };
        let (Seen { at, changed, tracked }, digest) =
            match self.short_apps.glance(key, now, self.epoch(), &mut read) {
                None => self.any_app(name, now, &mut read)?,
                Some(seen) => seen,
            };
        Some(SeenApp { at, changed, tracked, digest })
    }

    #[cold]
    fn any_app(
        &self,
        name: &[u8],
        now: u64,
        read: &mut dyn FnMut(Meta, &[AtomicU64]) -> Option<u64>,
    ) -> Option<(Seen, u64)> {
        let key = self.key(Kind::App, name);
        self.apps.iter().find_map(|table| table.look(key, now, self.epoch(), &mut *read))
    }
}
