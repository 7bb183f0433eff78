//! `peerage_log`: a line for each event, written by the process that made the change.
//!
//! Lines are taken from what the zone told this process, after the lock is free again; a process
//! that dies in between leaves its last lines unwritten. Events of a ring are never read for the
//! log: it misses nothing however many there are.

use std::cell::RefCell;
use std::rc::Rc;

use peerage_zone::Said;

use crate::ffi::file::File;
use crate::ffi::global::Global;
use crate::log::{Level, Log, Seldom};

static FILE: Global<RefCell<Option<Rc<File>>>> = Global::new(RefCell::new(None));
static FAILED: Seldom = Seldom::new();

/// Writes to this file from now on, if any: that of the configuration in force, which workers
/// have from the master.
pub(crate) fn to(file: Option<Rc<File>>) {
    FILE.get().replace(file);
}

/// Writes what was told in a zone.
pub(crate) fn write(zone: &str, said: &[Said]) {
    let file = FILE.get().borrow();
    let Some(file) = file.as_ref().filter(|_| !said.is_empty()) else { return };
    for some in said.chunks(PIECE) {
        let mut lines = Vec::with_capacity(256 * some.len());
        for one in some {
            one.write_of_zone(&mut lines, zone);
            lines.push(b'\n');
        }
        if let Err(error) = file.append(&lines)
            && FAILED.may()
        {
            let errno = error.raw_os_error().unwrap_or(0);
            Log::cycle().write(
                Level::Crit,
                errno,
                format_args!("write() to \"{}\" failed", file.name()),
            );
        }
    }
}

/// Lines of one write.
const PIECE: usize = 64;
