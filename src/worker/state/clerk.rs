//! What the helper thread does with files, an order at a time.
//!
//! After a failure the journal and the snapshot that were begun are given up, and what is ordered
//! for them is ignored until others are begun: a descriptor whose fsync failed is never used again.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::fence::Fence;
use super::file::{self, Draft, Identity};
use super::helper::{Claimed, Order, Outcome, Saved};
use super::journal::{self, Journal};
use super::source::{self, Last, Source};

pub(super) struct Clerk {
    path: PathBuf,
    fence: Fence,
    source: Source,
    journal: Option<Journal>,
    draft: Option<Draft>,
    /// The snapshot that journals go on from.
    snapshot: Option<Identity>,
    /// Whether this process may replace files.
    inside: bool,
    /// The next journal is the first of its epoch.
    is_first: bool,
}

impl Clerk {
    pub(super) fn new(path: &Path, fence: Fence) -> Self {
        let source = Source::new(path);
        let path = path.to_owned();
        Self {
            path,
            fence,
            source,
            journal: None,
            draft: None,
            snapshot: None,
            inside: false,
            is_first: false,
        }
    }

    pub(super) fn carry_out(&mut self, order: Order) -> Option<Outcome> {
        let outcome = match order {
            Order::Claim { instance, epoch, seen } => {
                self.claim(instance, epoch, seen).map(Outcome::Claimed).map(Some)
            }
            Order::Journal { number, head } => self.begin_journal(number, &head).map(|()| None),
            Order::Append { lines, revision } => self.append(&lines, revision),
            // A writer of which no journal tells yet stays inside.
            Order::Release if self.journal.is_none() => Ok(None),
            Order::Release => self.leave().map(|()| None),
            Order::Begin => self.begin().map(|()| None),
            Order::Write(bytes) => match self.draft.as_mut() {
                Some(draft) => draft.write(&bytes).map(|()| None),
                None => Ok(None),
            },
            Order::Commit { journal, revision } => self.commit(journal, revision),
        };
        outcome.unwrap_or_else(|error| {
            if let Some(journal) = self.journal.take() {
                journal.give_up();
            }
            self.draft = None;
            Some(Outcome::Failed(error))
        })
    }

    /// Finds out who writes. The highest epoch is the truth: where the files have lost what this
    /// zone wrote, or an older copy was put in their place, it goes on all the same.
    fn claim(&mut self, instance: u64, epoch: u64, seen: u64) -> io::Result<Claimed> {
        self.look_at_lock()?;
        if !self.enter()? {
            return Ok(Claimed::Busy);
        }
        self.snapshot = file::identity(&self.path);
        let Last { newest, journals, epoch: last, instance: writer } = source::last(&self.path)?;
        let mut has_snapshot = self.snapshot.is_some();
        if seen == REPLACED && writer != instance {
            // Of another zone, which may not have left yet.
            if writer != 0 && self.fence.is_attended(writer)? {
                self.leave()?;
                return Ok(Claimed::Busy);
            }
            self.is_first = true;
            let has_snapshot = false;
            return Ok(Claimed::Free { newest, journals, epoch: last, has_snapshot, news: None });
        }
        if (epoch != 0 && last < epoch) || writer == instance {
            has_snapshot &= writer == instance;
            self.leave()?;
            self.source.forget();
            return Ok(Claimed::Ours { newest, journals, has_snapshot });
        }
        if writer != 0 && self.fence.is_attended(writer)? {
            self.leave()?;
            return Ok(Claimed::Theirs(Box::new(self.source.refresh()?)));
        }
        let unseen = self.source.is_open() || journal::fingerprint(&self.path) != seen;
        let news = if unseen && (has_snapshot || newest != 0) {
            // A writer that was stopped may have gone on in a journal that was read past.
            self.source.look_again();
            Some(Box::new(self.source.refresh()?))
        } else {
            None
        };
        self.source.forget();
        self.is_first = true;
        Ok(Claimed::Free { newest, journals, epoch: last, has_snapshot, news })
    }

    fn begin_journal(&mut self, number: u64, head: &[u8]) -> io::Result<()> {
        self.journal = None;
        let mut journal = Journal::create(&self.path, number, head)?;
        if std::mem::take(&mut self.is_first) {
            // It tells who writes.
            journal.keep();
        }
        self.journal = Some(journal);
        Ok(())
    }

    fn append(&mut self, lines: &[u8], revision: u64) -> io::Result<Option<Outcome>> {
        self.look_at_lock()?;
        let Some(journal) = self.journal.as_mut() else { return Ok(None) };
        if self.snapshot.is_some() && file::identity(&self.path) != self.snapshot {
            // Somebody removed the snapshot or put another in its place.
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        journal.append(lines)?;
        Ok(Some(Outcome::Appended(revision)))
    }

    fn begin(&mut self) -> io::Result<()> {
        self.draft = None;
        file::sweep(&self.path, |_| true);
        self.draft = Some(Draft::begin(&self.path)?);
        Ok(())
    }

    fn commit(&mut self, needed: u64, revision: u64) -> io::Result<Option<Outcome>> {
        // Nor is it anything without the journal that was begun with it.
        let Some(mut draft) = self.draft.take().filter(|_| self.journal.is_some()) else {
            return Ok(None);
        };
        draft.settle()?;
        let was_inside = self.inside;
        // Whoever is inside stays for moments, unless it is stopped there.
        for _ in 0..PATIENCE_MS / 5 {
            if self.enter()? {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if !self.inside {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let saved = self.replace(draft, needed);
        if !was_inside {
            self.leave()?;
        }
        saved.map(|bytes| Some(Outcome::Saved(Saved { journal: needed, revision, bytes })))
    }

    fn replace(&mut self, draft: Draft, needed: u64) -> io::Result<u64> {
        if source::journal_of(&self.path)? > needed {
            // A later one lies there already, of a process that took this one for gone.
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let snapshot = draft.replace()?;
        self.snapshot = Some(snapshot);
        journal::remove_before(&self.path, needed);
        Ok(snapshot.bytes)
    }

    fn look_at_lock(&self) -> io::Result<()> {
        if self.fence.is_current() { Ok(()) } else { Err(io::Error::from_raw_os_error(LOCK_LOST)) }
    }

    fn enter(&mut self) -> io::Result<bool> {
        self.inside = self.inside || self.fence.try_enter()?;
        Ok(self.inside)
    }

    fn leave(&mut self) -> io::Result<()> {
        self.inside = false;
        self.fence.leave()
    }
}

/// The error that tells that the lock file is another one.
pub(super) const LOCK_LOST: i32 = libc::ENOLCK;
/// What stands for files of another zone, whose place this one takes.
pub(crate) const REPLACED: u64 = u64::MAX;
/// How long another process may be inside before a snapshot is given up.
const PATIENCE_MS: u64 = 2_000;
