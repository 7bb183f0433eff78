//! The last moment of a process: what is in force and not on the disk is written there and then.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use peerage_core::journal as record;
use peerage_shm::point;
use peerage_zone::journal::Reader;

use super::checkpoint::Checkpoint;
use super::fence::Fence;
use super::file::{self, Draft};
use super::journal::{self, Journal};
use super::source::{self, Last};
use super::subject::Subject;
use super::{Leaving, REPLACED, pen};
use crate::ffi::process;

/// Writes what is behind, if no other process sees to that, and gives the duty up; `own` takes it.
pub(super) fn drain(subject: &Subject, fence: Option<&Fence>, own: impl Fn(Leaving) -> bool) {
    let durable = subject.durable();
    let begun = Instant::now();
    point!("last.begun");
    let may = || subject.is_here() && super::is_behind(subject.zone());
    while may() && begun.elapsed() < LAST_DRAIN {
        if own(Leaving::Yes) {
            match write(subject, fence, begun) {
                Ok(()) => {}
                Err(error) => {
                    subject.failed(&error);
                    break;
                }
            }
        } else {
            // The owner lives: it writes, or leaves the file to us when it goes.
            thread::sleep(Duration::from_millis(5));
        }
    }
    let owner = durable.lease().owner();
    durable.lease().take(process::pid(), 0);
    if !may() {
        return;
    }
    let (have, want) = (durable.revision(), subject.zone().revision());
    let path = subject.path.display();
    if owner != 0 && owner != process::pid() && process::alive(owner, 0) {
        // It does not run now: it writes when it goes on, or whoever takes its lease over.
        log!(Warn, "state file \"{path}\" is left to process {owner} at revision {have} of {want}");
    } else if others_live(subject) {
        // Changes go on while this process leaves: whoever stays writes them.
        log!(Info, "state file \"{path}\" is left to others at revision {have} of {want}");
    } else {
        log!(Alert, "state file \"{path}\" is left at revision {have} of {want}");
    }
}

/// Whether another process uses the zone.
fn others_live(subject: &Subject) -> bool {
    let users = subject.zone().report().workers;
    users.iter().any(|&(pid, _)| pid != process::pid() && process::alive(pid, 0))
}

fn write(subject: &Subject, fence: Option<&Fence>, begun: Instant) -> io::Result<()> {
    let opened;
    let fence = match fence {
        Some(fence) => fence,
        None => {
            opened = Fence::open(&subject.path)?;
            &opened
        }
    };
    while !fence.try_enter()? {
        if begun.elapsed() >= LAST_DRAIN {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let written = write_inside(subject, fence);
    if written.is_ok() {
        // What comes into the files after this is news.
        subject.durable().set_seen(0);
    }
    point!("last.written");
    fence.leave()?;
    written
}

fn write_inside(subject: &Subject, fence: &Fence) -> io::Result<()> {
    let (path, durable, zone) = (&subject.path, subject.durable(), subject.zone());
    let Last { newest, epoch, instance: writer, .. } = source::last(path)?;
    // As a claim finds it, see `Clerk`.
    let replaces = durable.seen() == REPLACED;
    let is_lost = durable.epoch() != 0 && epoch < durable.epoch() && !replaces;
    if writer != durable.instance() && !is_lost {
        let is_theirs = writer != 0 && fence.is_attended(writer)?;
        if is_theirs || (!replaces && journal::fingerprint(path) != durable.seen()) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        durable.set_epoch(epoch.max(durable.epoch()) + 1);
    }
    durable.raise_generation(newest);
    let number = durable.next_generation();
    let goes_on =
        writer == durable.instance() && !zone.wants_snapshot() && file::identity(path).is_some();
    if goes_on
        && let Ok(reader) = zone.journal().after(durable.revision())
        && let Some(text) = rest(subject, number, reader)
    {
        Journal::create(path, number, &text.lines)?;
        subject.succeeded(text.revision);
        return Ok(());
    }
    whole(subject, path, number)
}

struct Rest {
    lines: Vec<u8>,
    revision: u64,
}

/// What the ring holds, as a journal of its own; none where it runs over meanwhile.
fn rest(subject: &Subject, number: u64, mut reader: Reader) -> Option<Rest> {
    let mut rest = Rest { lines: Vec::new(), revision: subject.durable().revision() };
    pen::head(subject, number, rest.revision).write(&mut rest.lines);
    while let Some(entry) = reader.next_entry().ok()? {
        record::record(&mut rest.lines, entry.revision, entry.next_id, &entry.bytes);
        rest.revision = entry.revision;
    }
    Some(rest)
}

/// Writes a whole snapshot.
fn whole(subject: &Subject, path: &Path, number: u64) -> io::Result<()> {
    let mut head = Vec::new();
    pen::head(subject, number, subject.zone().revision()).write(&mut head);
    subject.zone().begin_snapshot();
    let mut draft = Draft::begin(path)?;
    let mut out = Vec::new();
    let mut making = Checkpoint::begin(subject, number, &mut out);
    let revision = making.revision;
    while making.piece(subject, &mut out) {
        if out.len() >= PORTION {
            draft.write(&out)?;
            out.clear();
        }
    }
    making.end(&mut out);
    draft.write(&out)?;
    draft.settle()?;
    // It tells who wrote, to whoever starts next.
    Journal::create(path, number, &head)?;
    draft.replace()?;
    journal::remove_before(path, number);
    subject.zone().end_snapshot();
    subject.succeeded(revision);
    Ok(())
}

const PORTION: usize = 4 << 20;
/// How long a process that exits tries; Debian's unit kills after 5 s.
const LAST_DRAIN: Duration = Duration::from_secs(3);
