//! `peerage_zone name size [state=file] [flush=time|always|off] [orphans=time|off|forever]`.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use peerage_core::merge::Conflict;
use peerage_core::units;
use peerage_zone::{Format, Worker};

use super::words;
use crate::ffi::conf::{Conf, Refused};
use crate::ffi::cycle::Home;
use crate::ffi::shm;

const DIRECTIVE: &str = "peerage_zone";

/// A zone of the configuration, and this process's place in it.
pub(crate) struct Zone {
    pub(crate) name: String,
    /// The name of its memory, by which nginx finds it again.
    pub(crate) place: String,
    pub(crate) size: usize,
    /// The state file, as an absolute path.
    pub(crate) state: Option<String>,
    pub(crate) flush: Flush,
    pub(crate) orphans: Orphans,
    /// It has the apps of a store, which can be had again.
    pub(crate) of_store: bool,
    home: Home,
    memory: OnceCell<Memory>,
    worker: Cell<Option<&'static Worker>>,
    /// The configuration is not merged yet: the master could not write in time.
    unmerged: Cell<bool>,
    /// What the merge of this configuration found changed on both sides.
    conflicts: RefCell<Vec<Conflict>>,
}

/// The zone's shared memory, known once nginx has mapped it.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) zone: peerage_zone::Zone,
    pub(crate) format: Format,
    /// Laid out for this configuration: the state is to be loaded.
    pub(crate) fresh: bool,
}

/// When changes are written to the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// So many milliseconds after a change.
    After(u64),
    /// Before the change is answered.
    Always,
    /// Never: the file is read at start.
    Off,
}

/// How long upstreams stay that no block names any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// So many milliseconds.
    After(u64),
    Off,
    Forever,
}

impl Zone {
    /// A zone of a store's apps, that no file keeps, and whose upstreams no block names.
    pub(super) fn unkept(cf: &Conf<'_>, name: &str, place: &str, size: usize) -> Self {
        Self {
            name: name.to_owned(),
            place: place.to_owned(),
            size,
            state: None,
            flush: Flush::Off,
            orphans: Orphans::Forever,
            of_store: true,
            home: cf.home(),
            memory: OnceCell::new(),
            worker: Cell::new(None),
            unmerged: Cell::new(false),
            conflicts: RefCell::default(),
        }
    }

    /// The shared memory; `None` until nginx has mapped it.
    pub(crate) fn memory(&self) -> Option<Memory> {
        self.memory.get().copied()
    }

    /// Says where the memory is, once.
    pub(crate) fn set_memory(&self, memory: Memory) {
        // A zone of the configuration is initialised once; a second time would be the same memory.
        let _ = self.memory.set(memory);
    }

    /// What nginx needs to know of its own configuration.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// This process's place in the zone; `None` in the master, and in a worker that found none.
    #[inline]
    pub(crate) fn worker(&self) -> Option<&'static Worker> {
        self.worker.get()
    }

    pub(crate) fn set_worker(&self, worker: &'static Worker) {
        self.worker.set(Some(worker));
    }

    /// Whether the configuration is still to be merged into the zone, by a worker.
    pub(crate) fn is_unmerged(&self) -> bool {
        self.unmerged.get()
    }

    pub(crate) fn set_unmerged(&self, unmerged: bool) {
        self.unmerged.set(unmerged);
    }

    /// What the merge of this configuration found changed on both sides; workers have it from the
    /// master.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        self.conflicts.borrow().clone()
    }

    pub(crate) fn set_conflicts(&self, conflicts: Vec<Conflict>) {
        self.conflicts.replace(conflicts);
    }
}

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let (name, size) = (args[1], args[2]);
    if name.is_empty() || name.contains(['/', ' ']) {
        return Err(words::invalid(DIRECTIVE, name, "not a zone name"));
    }
    let bytes = units::parse_size(size).map_err(|e| words::invalid(DIRECTIVE, size, e))?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes < shm::least_size() {
        let least = shm::least_size() / 1024;
        return Err(words::invalid(
            DIRECTIVE,
            size,
            format_args!("zone \"{name}\" is too small, at least {least}k"),
        ));
    }

    let (mut state, mut flush, mut orphans) = (None, None, None);
    for &word in &args[3..] {
        match words::pair(word) {
            ("state", Some(path)) => {
                if path.is_empty() {
                    return Err(words::invalid(DIRECTIVE, word, "no path"));
                }
                put(&mut state, cf.full_name(path)?, word)?;
            }
            ("flush", Some("off")) => put(&mut flush, Flush::Off, word)?,
            ("flush", Some("always")) => put(&mut flush, Flush::Always, word)?,
            ("flush", Some(time)) => {
                put(&mut flush, Flush::After(millis(word, time)?), word)?;
            }
            ("orphans", Some("off")) => put(&mut orphans, Orphans::Off, word)?,
            ("orphans", Some("forever")) => put(&mut orphans, Orphans::Forever, word)?,
            ("orphans", Some(time)) => {
                put(&mut orphans, Orphans::After(millis(word, time)?), word)?;
            }
            _ => return Err(words::unknown(DIRECTIVE, word)),
        }
    }

    let main = cf.main();
    if main.store(name).is_some() {
        return Err(Refused::because(format!("peerage zone \"{name}\" has the name of a redis")));
    }
    if main.zone(name).is_some() {
        return Err(Refused::because(format!("duplicate peerage zone \"{name}\"")));
    }
    if let Some(path) = &state
        && let Some(whose) = main.keeps(path)
    {
        return Err(Refused::because(format!(
            "state file \"{path}\" of peerage zone \"{name}\" is already used by {whose}"
        )));
    }
    let zone = Rc::new(Zone {
        state,
        flush: flush.unwrap_or(Flush::After(1000)),
        orphans: orphans.unwrap_or(Orphans::After(24 * 3_600_000)),
        of_store: false,
        ..Zone::unkept(cf, name, name, bytes)
    });
    shm::add(cf, bytes, &zone)?;
    main.zones.borrow_mut().push(zone);
    Ok(())
}

fn put<T>(place: &mut Option<T>, value: T, word: &str) -> Result<(), Refused> {
    if place.replace(value).is_some() {
        return Err(words::twice(DIRECTIVE, words::pair(word).0));
    }
    Ok(())
}

fn millis(word: &str, time: &str) -> Result<u64, Refused> {
    match units::parse_millis(time) {
        Ok(0) => Err(words::invalid(DIRECTIVE, word, "must be more than 0")),
        Ok(ms) => Ok(ms),
        Err(error) => Err(words::invalid(DIRECTIVE, word, error)),
    }
}
