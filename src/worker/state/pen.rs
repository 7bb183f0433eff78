//! What the writer of a state file does: changes go from the zone's ring into a journal, and a
//! whole snapshot is made when the journal is not enough or has grown long.

use std::collections::VecDeque;

use peerage_core::journal::{self, Head};
use peerage_shm::point;
use peerage_zone::journal::Reader;

use super::checkpoint::Checkpoint;
use super::helper::{Helper, Order, Saved};
use super::subject::Subject;
use crate::ffi::process;
use crate::ffi::timer;

/// Where a writer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The ring tells all that is not on the disk.
    Ring,
    /// The zone has taken over what others wrote: only a snapshot tells all.
    Snapshot,
}

/// The writer's place in the ring and on the disk.
pub(super) struct Pen {
    reader: Reader,
    /// Revision of the last record that was handed to the helper.
    handed: u64,
    /// Revision of the last record on the disk.
    appended: u64,
    /// What the helper has: the last revision of each portion, and until when it has all,
    /// monotonic ms.
    underway: VecDeque<(u64, u64)>,
    /// The snapshot on the disk and the journals since make up the whole.
    is_whole: bool,
    /// Bytes and journals since the snapshot.
    bytes: u64,
    journals: u32,
    /// Bytes of the snapshot.
    snapshot: u64,
    making: Option<Checkpoint>,
    /// The helper has a snapshot whole.
    saving: Option<Saving>,
    /// No snapshot begins before this, monotonic ms.
    not_before: u64,
    /// Changes wait for others until then.
    due: u64,
}

/// A snapshot that the helper is to put in its place.
struct Saving {
    /// The first journal that is needed with it: no other snapshot has the same.
    journal: u64,
    begun: u64,
}

impl Pen {
    /// Goes on after what is on the disk, in a journal of its own; `from` says whether the ring
    /// tells all that has happened since. So many journals are there already.
    pub(super) fn begin(subject: &Subject, helper: &Helper, from: From, journals: u32) -> Self {
        let (zone, durable) = (subject.zone(), subject.durable());
        let now = timer::now();
        let after = durable.revision();
        let ring = (from == From::Ring).then(|| zone.journal().after(after).ok()).flatten();
        let (reader, handed, is_whole) = match ring {
            Some(reader) => (reader, after, !zone.wants_snapshot()),
            None => {
                zone.ask_snapshot();
                let reader = zone.journal().now();
                (reader, zone.revision(), false)
            }
        };
        let mut pen = Self {
            reader,
            handed,
            appended: handed,
            underway: VecDeque::new(),
            is_whole,
            bytes: 0,
            journals,
            snapshot: 0,
            making: None,
            saving: None,
            not_before: 0,
            due: now + subject.patience,
        };
        pen.next_journal(subject, helper, after);
        helper.order(Order::Release);
        pen
    }

    /// Looks for something to do; gives the time until the next look, none where the ring has run
    /// over: then begin anew.
    pub(super) fn turn(&mut self, subject: &Subject, helper: &Helper) -> Option<u64> {
        if helper.backlog() > BACKLOG {
            return Some(WAIT_MS);
        }
        let now = timer::now();
        let wanted = subject.always || subject.durable().is_wanted() || process::exiting();
        if self.reader.is_at_end() {
            self.due = now + subject.patience;
        } else if wanted || now >= self.due || self.reader.is_urgent() {
            self.drain(helper)?;
            self.due = timer::now() + subject.patience;
        }
        if let Some(making) = self.making.take() {
            self.go_on(making, subject, helper)?;
            return Some(1);
        }
        if self.saving.is_some() {
            return Some(IDLE_MS);
        }
        if !self.wants_snapshot(subject) {
            return Some(IDLE_MS);
        }
        if now < self.not_before {
            return Some(IDLE_MS.min(self.not_before - now));
        }
        self.begin_snapshot(subject, helper)?;
        Some(1)
    }

    /// All up to this revision is in journals on the disk.
    pub(super) fn appended(&mut self, subject: &Subject, revision: u64) {
        self.appended = revision;
        let mut reached = 0;
        while let Some(&(last, at)) = self.underway.front()
            && last <= revision
        {
            self.underway.pop_front();
            reached = at;
        }
        if self.is_whole {
            subject.succeeded(revision);
            subject.durable().reached(reached);
        }
    }

    /// The snapshot is in its place.
    pub(super) fn saved(&mut self, subject: &Subject, saved: Saved) {
        let Saved { journal, revision, bytes } = saved;
        let Some(Saving { begun, .. }) = self.saving.take_if(|saving| saving.journal == journal)
        else {
            // Of a pen that lost its place: it holds, but says nothing of this one's journals.
            return subject.succeeded(revision);
        };
        subject.zone().end_snapshot();
        self.is_whole = true;
        self.snapshot = bytes;
        subject.succeeded(revision.max(self.appended));
        subject.durable().reached(begun);
        // Under a stream of changes, at most a third of the time goes into snapshots.
        let now = timer::now();
        self.not_before = now + (2 * (now - begun)).clamp(PAUSE_MS, MAX_PAUSE_MS);
    }

    /// Journals that are there.
    pub(super) const fn journals(&self) -> u32 {
        self.journals
    }

    /// Whether nothing is on its way.
    pub(super) fn is_done(&self) -> bool {
        self.reader.is_at_end() && self.appended >= self.handed && self.is_whole
    }

    fn wants_snapshot(&self, subject: &Subject) -> bool {
        let long = self.bytes > LONG.max(2 * self.snapshot) || self.journals > MANY;
        long || !self.is_whole || subject.zone().wants_snapshot()
    }

    /// Hands over what has come.
    fn drain(&mut self, helper: &Helper) -> Option<()> {
        let now = timer::now();
        let mut lines = Vec::new();
        while let Some(entry) = self.reader.next_entry().ok()? {
            if entry.revision > self.handed {
                journal::record(&mut lines, entry.revision, entry.next_id, &entry.bytes);
                self.handed = entry.revision;
            }
            if lines.len() >= PORTION {
                self.append(std::mem::take(&mut lines), helper);
            }
        }
        if !lines.is_empty() {
            point!("pen.drained");
            self.append(lines, helper);
        }
        // Up to now the ring has told all.
        if let Some(last) = self.underway.back_mut() {
            last.1 = now;
        }
        Some(())
    }

    fn append(&mut self, lines: Vec<u8>, helper: &Helper) {
        self.bytes += lines.len() as u64;
        // Of a portion that others follow, nothing is known.
        self.underway.push_back((self.handed, 0));
        helper.order(Order::Append { lines, revision: self.handed });
    }

    fn next_journal(&mut self, subject: &Subject, helper: &Helper, after: u64) -> u64 {
        let number = subject.durable().next_generation();
        let mut head = Vec::new();
        self::head(subject, number, after).write(&mut head);
        helper.order(Order::Journal { number, head });
        self.journals += 1;
        number
    }

    fn begin_snapshot(&mut self, subject: &Subject, helper: &Helper) -> Option<()> {
        // First, so that what is asked for from now on is not forgotten.
        subject.zone().begin_snapshot();
        self.drain(helper)?;
        (self.bytes, self.journals) = (0, 0);
        // What the zone's revision does not cover yet stands in the ring after this place.
        let number = self.next_journal(subject, helper, self.handed);
        helper.order(Order::Begin);
        let mut out = Vec::new();
        let making = Checkpoint::begin(subject, number, &mut out);
        helper.order(Order::Write(out));
        self.go_on(making, subject, helper)
    }

    fn go_on(&mut self, mut making: Checkpoint, subject: &Subject, helper: &Helper) -> Option<()> {
        let mut out = Vec::new();
        let more = making.slice(subject, &mut out);
        point!("checkpoint.sliced");
        if more {
            helper.order(Order::Write(out));
            self.making = Some(making);
            return Some(());
        }
        let (revision, begun, journal) = (making.revision, making.begun, making.journal);
        making.end(&mut out);
        helper.order(Order::Write(out));
        // What lines of the snapshot are newer than it, is in the journal before it counts.
        self.drain(helper)?;
        helper.order(Order::Commit { journal, revision });
        self.saving = Some(Saving { journal, begun });
        Some(())
    }
}

/// The first line of a journal of this zone.
pub(super) fn head(subject: &Subject, number: u64, after: u64) -> Head {
    let durable = subject.durable();
    Head::new(
        &subject.name,
        number,
        durable.epoch(),
        durable.instance(),
        after,
        process::clock().msec,
    )
}

/// Between two looks for a change.
pub(super) const IDLE_MS: u64 = 100;
/// Between two looks at the helper, while it is behind.
const WAIT_MS: u64 = 5;
/// Bytes that the disk may be behind before the rest waits.
const BACKLOG: usize = 4 << 20;
/// Bytes of records handed over together.
const PORTION: usize = 256 << 10;
/// Bytes of journals that make a new snapshot worth its cost, or twice the old one's.
const LONG: u64 = 1 << 20;
/// Journals likewise.
const MANY: u32 = 16;
/// The shortest and the longest time between two snapshots.
const PAUSE_MS: u64 = 200;
const MAX_PAUSE_MS: u64 = 2_000;
