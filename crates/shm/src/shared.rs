//! The region as a whole: laid out once, attached by every process.

use std::fmt;

use crate::arena::{Arena, Usage};
use crate::head::{self, BUILD, EPOCH, MAGIC, MAGIC_WORD, RECORD, ROOT, ROOT_COUNT, SIZE};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};
use crate::writer::{Trace, Writer};

/// Bytes besides the head and the slots that a region must have.
const LEAST: usize = if cfg!(loom) { 384 } else { 4096 };

/// Words that belong to the user and that everything of his is reached from.
pub const ROOT_WORDS: usize = ROOT_COUNT;

/// How a region is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Build of the user's layout; another build does not read it.
    pub build: u64,
    /// Slots at first.
    pub slots: u16,
    /// References that one slot's owner may hold; no more than 2^18 of them count.
    pub list_capacity: u32,
    /// Granules of a record with an in-flight word.
    pub record_granules: u32,
}

impl Config {
    /// Bytes of a region of that size that are given out once it is laid out.
    pub const fn laid_out(&self, bytes: usize) -> usize {
        let slot = crate::slot::granules(self.list_capacity) as usize;
        (Arena::first_of(bytes / 8) + self.slots as usize * slot) * crate::GRANULE
    }
}

/// The region is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Bytes it would take at least.
    pub need: usize,
    /// Bytes there are.
    pub have: usize,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes are too few, at least {} are needed", self.have, self.need)
    }
}

impl std::error::Error for FormatError {}

/// The region cannot be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// It was never laid out, or by something else.
    Foreign,
    /// It was laid out by another build.
    OtherBuild(u64),
    /// It was laid out for another size.
    OtherSize,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the memory holds something else"),
            Self::OtherBuild(build) => write!(f, "the memory was laid out by build {build:x}"),
            Self::OtherSize => f.write_str("the memory was laid out for another size"),
        }
    }
}

impl std::error::Error for AttachError {}

/// A point in time of the region: see [`Shared::passed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u64);

/// A region that is laid out. Copies name the same.
#[derive(Clone, Copy)]
pub struct Shared {
    region: Region,
    lock: &'static AtomicU64,
    arena: Arena,
}

/// At format time nothing is reachable yet but the slots.
struct Nothing;

impl Trace for Nothing {
    fn trace(&self, _: &Shared, _: &mut dyn FnMut(crate::Ref, u32)) {}
    fn companion(&self, _: &Shared, _: crate::Ref) -> Option<(crate::Ref, u32)> {
        None
    }
}

impl Shared {
    /// Lays a region out; whatever it held is gone.
    ///
    /// `lock` is the writers' lock: 0, or the pid of the one inside. Nobody else may use the
    /// region meanwhile.
    pub fn format(
        region: Region,
        lock: &'static AtomicU64,
        config: Config,
    ) -> Result<Self, FormatError> {
        let need = config.laid_out(region.bytes()) + LEAST;
        let error = FormatError { need, have: region.bytes() };
        if region.bytes() < error.need {
            return Err(error);
        }
        for i in 0..head::WORDS {
            head::set(&region, i, 0);
        }
        let arena = Arena::format(region).ok_or(error)?;
        head::set(&region, BUILD, config.build);
        head::set(&region, SIZE, region.all().len() as u64);
        head::set(&region, EPOCH, 1);
        head::set(&region, RECORD, u64::from(config.record_granules));
        let shared = Self { region, lock, arena };
        let mut writer = shared.try_write(std::process::id(), &Nothing).map_err(|_| error)?;
        if writer.add_slots(config.slots, config.list_capacity) < config.slots {
            return Err(error);
        }
        drop::<Writer<'_>>(writer);
        head::word(&region, MAGIC_WORD).store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// Uses a region that was laid out.
    pub fn attach(
        region: Region,
        lock: &'static AtomicU64,
        build: u64,
    ) -> Result<Self, AttachError> {
        let magic = region.all().first().map(|word| word.load(Ordering::Acquire));
        if magic != Some(MAGIC) || region.all().len() < head::WORDS {
            return Err(AttachError::Foreign);
        }
        if head::get(&region, BUILD) != build {
            return Err(AttachError::OtherBuild(head::get(&region, BUILD)));
        }
        if head::get(&region, SIZE) != region.all().len() as u64 {
            return Err(AttachError::OtherSize);
        }
        let arena = Arena::attach(region).ok_or(AttachError::Foreign)?;
        Ok(Self { region, lock, arena })
    }

    /// The memory.
    #[inline]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// A root word.
    #[inline]
    pub fn root(&self, i: usize) -> &'static AtomicU64 {
        debug_assert!(i < ROOT_WORDS);
        head::word(&self.region, ROOT + i)
    }

    /// Figures of the memory.
    pub fn usage(&self) -> Usage {
        self.arena.usage()
    }

    /// Pid of the writer now, 0 = nobody.
    pub fn writer(&self) -> u32 {
        self.lock.load(Ordering::Relaxed) as u32
    }

    pub(crate) const fn lock(&self) -> &'static AtomicU64 {
        self.lock
    }

    pub(crate) const fn arena(&self) -> Arena {
        self.arena
    }
}
