//! What a store said, kept by all workers together: bounded, without a lock, and whole whatever
//! process dies or stops at whatever instruction.
//!
//! A cache is a region of its own, shared out once by its size: a head of single words, and tables
//! of sets of up to sixteen places. What is cached of tenants, of apps, and of keys
//! that are not there lies in tables of its own each, and none takes room from another's. A place is
//! guarded by a [`Version`](peerage_shm::Version): its writer claims it, its readers look twice,
//! and nobody waits for anybody. All of it may be lost, since the store has it.
//!
//! An entry says when its question was asked, and whether it may be out of date since: it is
//! marked where its key was told to have changed after that, or all keys were.
//!
//! Times are ms of a clock that all processes share, that never goes back and is far from 0.

mod apps;
mod entry;
mod figures;
mod flights;
mod gates;
mod key;
mod layout;
mod negatives;
mod put;
mod short;
mod table;
mod tenants;
mod text;
mod walk;

use std::fmt;

use peerage_shm::{AtomicU64, Ordering, Region, overtake};

pub use self::apps::{AppPlace, SeenApp};
pub use self::figures::{Figures, Filled};
pub use self::flights::Flight;
use self::key::Key;
pub use self::layout::TooSmall;
use self::layout::{GENERATIONS, Layout, ShortApps, ShortTenants, head};
pub use self::negatives::SeenNothing;
pub use self::put::Put;
use self::table::Table;
pub use self::tenants::SeenTenant;
pub use self::walk::Cursor;
use crate::lease::Lease;

/// Which of the two kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Keys of tenants.
    Tenant,
    /// Names of apps.
    App,
}

/// Who writes: what it writes is taken over once it is dead.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    /// Its pid.
    pub pid: u32,
    /// Tells whether a process lives; it must not say so of none that does.
    pub alive: &'a dyn Fn(u32) -> bool,
}

/// The moment at which a question was asked: what is told to have changed later wins over the
/// answer.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    at: u64,
    epoch: u64,
    generation: u64,
    tracked: bool,
}

/// The cache of a store. Copies name the same one.
#[derive(Clone, Copy)]
pub struct Cache {
    head: &'static [AtomicU64; head::END],
    seeds: [u64; 2],
    /// By the length of what an entry says: for the many, and for the longest.
    tenants: [Table; 2],
    apps: [Table; 2],
    negatives: Table,
    short_tenants: ShortTenants,
    short_apps: ShortApps,
}

impl Cache {
    /// The smallest region, in bytes.
    pub const MIN_BYTES: usize = 192 << 10;
    /// The longest key, name, or name of an app, in bytes.
    pub const MAX_KEY: usize = 255;
    /// The longest name and value of an app together, in bytes.
    pub const MAX_APP: usize = 8 << 10;

    /// Makes an empty cache of a region, whatever is in it; the seeds are random.
    pub fn format(region: Region, build: u64, seeds: [u64; 2]) -> Result<Self, TooSmall> {
        let layout = Layout::of(region).ok_or(TooSmall)?;
        layout.clear(build, seeds);
        Ok(Self::of(&layout))
    }

    /// The cache that is in a region, if this build made it.
    pub fn attach(region: Region, build: u64) -> Option<Self> {
        let layout = Layout::of(region)?;
        layout.is_of(build).then(|| Self::of(&layout))
    }

    fn of(layout: &Layout) -> Self {
        let [tenants, long_tenants, apps, long_apps, negatives] = layout.tables;
        Self {
            head: layout.head,
            seeds: layout.seeds(),
            tenants: [tenants, long_tenants],
            apps: [apps, long_apps],
            negatives,
            short_tenants: ShortTenants::of(&tenants),
            short_apps: ShortApps::of(&apps),
        }
    }

    /// The moment at which a question about a key is asked: before it is sent.
    pub fn begin(&self, kind: Kind, key: &[u8], now: u64) -> Read {
        let generation = self.generation(self.key(kind, key).hash).load(Ordering::SeqCst);
        let epoch = self.epoch();
        Read { at: now, epoch, generation, tracked: self.is_tracked(now) }
    }

    /// Whether nothing was told since of what a question is about.
    pub fn is_current(&self, kind: Kind, key: &[u8], read: Read) -> bool {
        let generation = self.generation(self.key(kind, key).hash).load(Ordering::SeqCst);
        (generation, self.epoch()) == (read.generation, read.epoch)
    }

    /// Marks what is cached of a key, and what is being asked of it: it has changed.
    pub fn invalidate(&self, kind: Kind, key: &[u8]) {
        let looked = self.key(kind, key);
        overtake(self.generation(looked.hash));
        for table in self.positives(kind) {
            table.mark(looked);
        }
        self.mark_absent(kind, key);
    }

    /// Marks all that is cached, and all that is being asked.
    pub fn mark_all(&self) {
        overtake(&self.head[head::EPOCH]);
    }

    /// Whose duty it is to hear what changes in the store.
    pub fn tracking(&self) -> Lease {
        Lease::on(&self.head[head::TRACKER], &self.head[head::TRACKER_UNTIL])
    }

    /// Says until when what changes is heard, unless it is said anew; 0 = no more.
    pub fn track(&self, until: u64) {
        self.head[head::TRACKED_UNTIL].store(until, Ordering::Release);
    }

    /// Whether what changes in the store is heard.
    #[inline]
    pub fn is_tracked(&self, now: u64) -> bool {
        self.head[head::TRACKED_UNTIL].load(Ordering::Acquire) > now
    }

    /// Whose duty it is to save what is cached.
    pub fn saving(&self) -> Lease {
        Lease::on(&self.head[head::SAVER], &self.head[head::SAVER_UNTIL])
    }

    /// How often a tenant or an app was put, or dropped for it is no more.
    pub fn changed(&self) -> u64 {
        self.head[head::CHANGED].load(Ordering::Relaxed)
    }

    fn has_changed(&self) {
        self.head[head::CHANGED].fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn epoch(&self) -> u64 {
        self.head[head::EPOCH].load(Ordering::SeqCst)
    }

    #[inline]
    fn positives(&self, kind: Kind) -> &[Table; 2] {
        match kind {
            Kind::Tenant => &self.tenants,
            Kind::App => &self.apps,
        }
    }

    /// Nobody outside knows the seed: keys come from clients.
    #[inline(always)]
    fn key<'k>(&self, kind: Kind, key: &'k [u8]) -> Key<'k> {
        let seed = self.seeds[0];
        Key::new(if kind == Kind::App { !seed } else { seed }, key)
    }

    /// What moves when a key that has this hash is told to have changed.
    fn generation(&self, hash: u64) -> &'static AtomicU64 {
        &self.head[head::GENERATIONS + hash as usize % GENERATIONS]
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
