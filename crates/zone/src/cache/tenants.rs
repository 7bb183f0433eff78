//! Tenants: from a key to the name of its app, and its status.

use peerage_core::route::Status;
use peerage_core::route::decide::Changed;
use peerage_shm::{AtomicU64, Ordering};

use super::entry::{Entry, Meta, Seen};
use super::put::Origin;
use super::text::{self, words_of};
use super::{Cache, Kind, Put, Read, Who};
use crate::routes::AppName;

/// What is cached of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTenant {
    /// Its status.
    pub status: Status,
    /// Bytes of the name of its app; 0 = it has none.
    pub app_len: usize,
    /// When it was asked for.
    pub at: u64,
    /// Whether it has changed since.
    pub changed: Changed,
    /// The store told then what changes.
    pub tracked: bool,
}

const ACTIVE: u8 = 0;
const SUSPENDED: u8 = 1;
const OTHER: u8 = 2;

impl Cache {
    /// Puts what the store said of a tenant. That there was none is forgotten.
    pub fn put_tenant(
        &self,
        key: &[u8],
        app: Option<&str>,
        status: &Status,
        read: Read,
        now: u64,
        who: &Who<'_>,
    ) -> Put {
        let put = self.put_tenant_of(key, app, status, &read, Origin::Store, now, who);
        if put == Put::Stored {
            self.forget_absent(Kind::Tenant, key, read.at, who);
        }
        put
    }

    #[expect(clippy::too_many_arguments, reason = "a tenant, when, and who")]
    pub(super) fn put_tenant_of(
        &self,
        key: &[u8],
        app: Option<&str>,
        status: &Status,
        read: &Read,
        origin: Origin,
        now: u64,
        who: &Who<'_>,
    ) -> Put {
        let app = app.unwrap_or_default().as_bytes();
        if [key, app].iter().any(|text| text.len() > Self::MAX_KEY) || key.is_empty() {
            return Put::TooLong;
        }
        let (code, third) = match status {
            Status::Active => (ACTIVE, ""),
            Status::Suspended => (SUSPENDED, ""),
            Status::Other(word) => (OTHER, &**word),
        };
        let entry = Entry { key, second: app, third: third.as_bytes(), code };
        self.put(Kind::Tenant, &entry, read, origin, now, who)
    }

    /// What is cached of a tenant; the name of its app is in the first bytes of `app`.
    #[inline]
    pub fn tenant(&self, key: &[u8], now: u64, app: &mut AppName) -> Option<SeenTenant> {
        let looked = self.key(Kind::Tenant, key);
        let active = |meta: Meta, texts: &[AtomicU64]| {
            if meta.code() != ACTIVE {
                return None;
            }
            copy(texts, meta.second(), app)?;
            Some(meta.second())
        };
        match self.short_tenants.glance(looked, now, self.epoch(), active) {
            None => self.any_tenant(key, now, app),
            Some((seen, len)) => Some(SeenTenant::of(seen, len, Status::Active)),
        }
    }

    #[cold]
    fn any_tenant(&self, key: &[u8], now: u64, app: &mut AppName) -> Option<SeenTenant> {
        let key = self.key(Kind::Tenant, key);
        let mut read = |meta: Meta, texts: &[AtomicU64]| {
            let rest = copy(texts, meta.second(), app)?;
            Some((meta.second(), status(meta, rest)?))
        };
        let mut tables = self.tenants.iter();
        tables.find_map(|table| {
            let (seen, (len, status)) = table.look(key, now, self.epoch(), &mut read)?;
            Some(SeenTenant::of(seen, len, status))
        })
    }
}

impl SeenTenant {
    #[inline(always)]
    fn of(seen: Seen, app_len: usize, status: Status) -> Self {
        let Seen { at, changed, tracked } = seen;
        Self { status, app_len, at, changed, tracked }
    }
}

/// Copies the name of the app, and gives the words behind it.
#[inline(always)]
fn copy<'a>(texts: &'a [AtomicU64], len: usize, app: &mut AppName) -> Option<&'a [AtomicU64]> {
    let (name, rest) = texts.split_at_checked(words_of(len))?;
    for (to, word) in app.get_mut(..name.len())?.iter_mut().zip(name) {
        *to = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    Some(rest)
}

/// The status of an entry, whose word is the last text.
pub(super) fn status(meta: Meta, texts: &[AtomicU64]) -> Option<Status> {
    match meta.code() {
        ACTIVE => Some(Status::Active),
        SUSPENDED => Some(Status::Suspended),
        _ => {
            let mut word = Vec::new();
            text::read(texts, meta.third(), &mut word)?;
            Status::parse(std::str::from_utf8(&word).ok()?).ok()
        }
    }
}
