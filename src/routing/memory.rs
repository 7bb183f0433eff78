//! The memory of what a store said, in the master: laid out, or found again; and filled from the
//! store's file.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use peerage_core::route::saved::Reader;
use peerage_zone::cache::{Cache, Put, Who};

use super::clock;
use crate::conf::Store;
use crate::ffi::cycle::Cycle;
use crate::ffi::process;
use crate::ffi::shm::Memory;
use crate::log::{Level, Log};
use crate::worker::state;
use crate::zone::BUILD;

/// Called in the master while it makes a configuration's memory.
pub(crate) fn open(store: &Store, memory: Option<Memory>, log: Log<'_>) -> Result<(), ()> {
    let name = store.name();
    let cache = match memory {
        Some(memory) if memory.fresh => {
            store.set_fresh(true);
            Cache::format(memory.region, BUILD, seeds()).map_err(|_| "it is too small")
        }
        Some(memory) => Cache::attach(memory.region, BUILD).ok_or("it is of another build"),
        None => Err("it is too small"),
    };
    match cache {
        Ok(cache) => {
            store.set_cache(cache);
            Ok(())
        }
        Err(why) => {
            log.write(
                Level::Emerg,
                0,
                format_args!("cannot use the cache of redis \"{name}\": {why}"),
            );
            Err(())
        }
    }
}

/// Called in the master once the configuration is accepted: what the file has is stale.
pub(crate) fn load(store: &Store, cycle: Cycle<'_>) {
    let (Some(path), Some(cache)) = (store.conf().state.as_deref(), store.cache()) else { return };
    if !store.is_fresh() {
        return;
    }
    let log = cycle.log();
    let bytes = match state::read_whole(Path::new(path)) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            state::prepare(Path::new(path), cycle.user(), log);
            return;
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            log.write(
                Level::Crit,
                errno,
                format_args!("state file \"{path}\" of redis \"{}\" cannot be read", store.name()),
            );
            return;
        }
    };
    let who = Who { pid: process::pid(), alive: &|pid| process::alive(pid, 0) };
    let (now, shift) = (clock::now(), -clock::to_unix());
    let mut reader = Reader::new(&bytes, store.conf());
    let mut loaded = 0_usize;
    for saved in reader.by_ref() {
        loaded += usize::from(cache.load(&saved.shifted(shift), now, &who) == Put::Stored);
    }
    let (name, skipped) = (store.name(), reader.skipped());
    if reader.is_foreign() {
        log.write(
            Level::Warn,
            0,
            format_args!(
                "state file \"{path}\" of redis \"{name}\" is of another database or other prefixes"
            ),
        );
    }
    log.write(
        Level::Notice,
        0,
        format_args!("redis \"{name}\" has {loaded} answers from its state file"),
    );
    if skipped != 0 {
        log.write(
            Level::Warn,
            0,
            format_args!(
                "{skipped} lines of state file \"{path}\" of redis \"{name}\" are damaged"
            ),
        );
    }
}

fn seeds() -> [u64; 2] {
    [0, 1].map(|i| RandomState::new().hash_one(i))
}
