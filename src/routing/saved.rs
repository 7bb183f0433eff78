//! The file of what a store said last: written by one process of nginx, by and by; read at start as
//! stale, so that nginx may be restarted while the store is away.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use peerage_core::route::saved;
use peerage_zone::cache::Cursor;

use super::clock;
use super::desk::Desk;
use crate::duty::{self, Whose};
use crate::ffi::{process, thread, timer};
use crate::log::Seldom;
use crate::net::executor::{self, Handle};
use crate::net::time::sleep;
use crate::worker::state;

/// Who writes the file, in one process.
#[derive(Default)]
pub(super) struct Saver {
    task: RefCell<Option<Handle>>,
    /// What writes now, since a disk may take its time.
    thread: RefCell<Option<JoinHandle<()>>>,
    /// As many changes have been written.
    written: Cell<u64>,
    /// When the next time is, monotonic ms.
    due: Cell<u64>,
}

impl Saver {
    /// Writes what has changed, where that is this process's to do.
    pub(super) fn look(&self, desk: &Rc<Desk>, round: bool) {
        let Some(path) = desk.state() else { return };
        if process::exiting() || duty::take(desk.cache.saving(), round) == Whose::Another {
            return;
        }
        let is_over = self.task.borrow().as_ref().is_none_or(Handle::is_over) && !self.is_writing();
        if !is_over || timer::now() < self.due.get() || desk.cache.changed() == self.written.get() {
            return;
        }
        let task = executor::spawn(save(Rc::downgrade(desk), path.to_owned()));
        self.task.replace(Some(task));
    }

    /// Leaves it to others; whether it was this process's.
    pub(super) fn give_up(&self, desk: &Desk) -> bool {
        self.task.take();
        desk.state().is_some() && duty::leave(desk.cache.saving())
    }

    /// Waits for what is being written, as long as a process that exits may. A disk that does not
    /// answer would hold it for ever: then the thread ends with the process, and the file is the old
    /// one.
    pub(super) fn end(&self, desk: &Desk, began: Instant) {
        while self.is_writing() && began.elapsed() < LAST {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.is_writing() && thread::keep_code() {
            self.thread.take();
            if let (name, Some(path)) = (desk.name(), desk.state().map(Path::display)) {
                log!(
                    Warn,
                    "state file \"{path}\" of redis \"{name}\" is left to the disk, which is slow"
                );
            }
        }
        self.join();
    }

    /// Whether the disk has not taken everything yet.
    fn is_writing(&self) -> bool {
        self.thread.borrow().as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits for the thread, before the module's code may go.
    fn join(&self) {
        if let Some(thread) = self.thread.take() {
            // A panic in it was told there.
            let _ = thread.join();
        }
    }

    /// Writes a file; whether that went well, once it is known.
    async fn write(&self, path: PathBuf, text: Vec<u8>) -> io::Result<()> {
        let written = Arc::new(Mutex::new(None));
        let tell = Arc::clone(&written);
        let thread = thread::spawn("peerage-store", move || {
            let outcome = state::write_whole(&path, &text);
            tell.lock().unwrap_or_else(PoisonError::into_inner).replace(outcome);
        })?;
        self.thread.replace(Some(thread));
        while self.is_writing() {
            sleep(5).await;
        }
        self.join();
        let outcome = written.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
    }

    /// Notes what was written, or that the file is to be tried again.
    fn done(&self, changed: Option<u64>, took: u64) {
        if let Some(changed) = changed {
            self.written.set(changed);
        }
        self.due.set(timer::now() + PAUSE_MS.max(20 * took));
    }
}

async fn save(desk: Weak<Desk>, path: PathBuf) {
    let Some(desk) = desk.upgrade() else { return };
    let (began, changed) = (timer::fresh(), desk.cache.changed());
    let mut cursor = Cursor::default();
    let mut text = Vec::new();
    saved::begin(&mut text, desk.conf());
    while desk.cache.walk(&mut cursor, AT_ONCE, &mut |one| {
        saved::line(&mut text, &one.shifted(clock::to_unix()));
    }) {
        sleep(0).await;
    }
    let written = desk.saver().write(path.clone(), text).await;
    if let Err(error) = &written {
        static FAILED: Seldom = Seldom::new();
        if FAILED.may() {
            let (name, path) = (desk.name(), path.display());
            log!(Crit, "state file \"{path}\" of redis \"{name}\" cannot be written: {error}");
        }
    }
    let changed = written.is_ok().then_some(changed);
    desk.saver().done(changed, timer::fresh().saturating_sub(began));
}

/// Entries read in one turn of the event loop.
const AT_ONCE: usize = 512;
/// How long a process that exits waits for the disk, as for the zone's own files.
const LAST: Duration = Duration::from_secs(3);
/// Between two files, ms.
const PAUSE_MS: u64 = 1_000;
