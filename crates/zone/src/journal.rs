//! The journal: what each revision changed, in a ring of the zone that the writer of the state
//! file copies from.
//!
//! An entry is revision, next id, and the bytes of [`peerage_core::journal::changes`]. It is
//! written under the lock before the change is published, and told right after it is in force: an
//! entry that can be read is of a change that holds. What is in force without an entry - it was
//! too long, or its writer died - leaves a gap between revisions, so that nobody reads over it,
//! and a wish for a whole snapshot.

use std::sync::atomic::Ordering::SeqCst;

pub(crate) use peerage_core::journal::changes;
use peerage_shm::{Ref, Writer};

use crate::commit::Revision;
use crate::layout::{get, root};
use crate::ring::{Places, Ring};
use crate::size::journal_bytes;
use crate::zone::Zone;

/// The journal of a zone.
#[derive(Clone, Copy)]
pub struct Journal {
    zone: Zone,
    ring: Ring<2>,
}

/// What a revision changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Revision of the zone with it.
    pub revision: u64,
    /// No server that the zone had then has this id or a higher one.
    pub next_id: u64,
    /// See [`peerage_core::journal::changes`].
    pub bytes: Vec<u8>,
}

/// Not every change from there on is in the journal: a whole snapshot is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal does not go on from there")]
pub struct Lost;

/// Reads entries one after the other, without a gap.
pub struct Reader {
    journal: Journal,
    at: u64,
    last: u64,
}

/// What is to be told of a change once it is in force.
#[derive(Clone, Copy)]
pub(crate) enum Noted {
    /// The entry before this head.
    Entry(u64),
    /// It has none.
    Missing,
    /// It stands in the state file.
    Known,
}

impl Zone {
    /// The journal.
    pub fn journal(&self) -> Journal {
        Journal { zone: *self, ring: Ring::new(self, PLACES) }
    }

    /// Whether something is in force that the journal lacks.
    pub fn wants_snapshot(&self) -> bool {
        self.root(root::SNAPSHOT).load(SeqCst) != 0
    }

    /// Asks for a whole snapshot.
    pub fn ask_snapshot(&self) {
        self.root(root::SNAPSHOT).store(1, SeqCst);
    }

    /// Takes the wish back: before [`Journal::now`] says where the snapshot begins, so that a
    /// change that comes later can ask again.
    pub fn clear_snapshot_wish(&self) {
        // A swap: who takes a wish back sees the revision that asked.
        self.root(root::SNAPSHOT).swap(0, SeqCst);
    }

    /// Says that the snapshot that was asked for is being made: it is wanted until it is saved, by
    /// whoever goes on when its maker dies. Before [`Journal::now`] says where it begins, so that
    /// a change that comes later can ask again.
    pub fn begin_snapshot(&self) {
        // Who exchanges sees the revision that asked.
        let _ = self.root(root::SNAPSHOT).compare_exchange(1, 2, SeqCst, SeqCst);
    }

    /// The snapshot is on the disk.
    pub fn end_snapshot(&self) {
        let _ = self.root(root::SNAPSHOT).compare_exchange(2, 0, SeqCst, SeqCst);
    }

    /// Takes the ring, in a zone that is being laid out. A very small zone does without, and asks
    /// for a snapshot at each change.
    pub(crate) fn lay_out_journal(&self, writer: &mut Writer<'_>) -> Option<()> {
        match journal_bytes(self.region().bytes()) {
            0 => Some(()),
            bytes => self.lay_out_ring(writer, PLACES, bytes),
        }
    }

    /// The block of the ring, for the allocator's truth.
    pub(crate) fn journal_block(&self) -> (Ref, u32) {
        self.ring_block(PLACES)
    }

    /// Writes the entry of a change that is about to come in force. Under the lock.
    pub(crate) fn note(&self, _: &mut Writer<'_>, revision: u64, given: &Revision) -> Noted {
        let ring = self.journal().ring;
        match given {
            Revision::Known(_) => {
                // What was told before does not lead to the file's state.
                ring.cut();
                Noted::Known
            }
            Revision::Next(changes) => {
                if Ring::<2>::entry_words(changes.len()) > ring.words() / 4 {
                    return Noted::Missing;
                }
                let first = [revision, get(self.root(root::NEXT_ID))];
                ring.write(first, changes, None).map_or(Noted::Missing, Noted::Entry)
            }
        }
    }

    /// Tells of a change that has come in force, or that it has no entry. Under the lock.
    ///
    /// Only now: who reads the head, or takes the wish back, sees the change in force.
    pub(crate) fn tell(&self, _: &mut Writer<'_>, noted: Noted) {
        match noted {
            Noted::Entry(head) => self.journal().ring.publish(head),
            Noted::Missing => self.ask_snapshot(),
            Noted::Known => {}
        }
    }

    /// Leaves a revision out: a writer that died may have put a change in force that it has not
    /// told, or of which not even the revision is known. Under the lock.
    pub(crate) fn pass_over(&self) {
        self.root(root::REVISION).fetch_add(1, SeqCst);
        self.ask_snapshot();
    }
}

impl Journal {
    /// Reads what comes after the revision that is in force now, which is [`Reader::last`].
    pub fn now(self) -> Reader {
        // The head first: what is told before it is in force, and is not newer than the revision.
        let at = self.ring.head();
        Reader { journal: self, at, last: self.zone.revision() }
    }

    /// Reads what came after a revision.
    pub fn after(self, revision: u64) -> Result<Reader, Lost> {
        let reader = |at| Reader { journal: self, at, last: revision };
        let mut at = self.ring.tail();
        'again: for _ in 0..RACES {
            let head = self.ring.head();
            let in_force = self.zone.revision();
            while at < head {
                let Ok(([this, _], next)) = self.ring.peek(at) else {
                    at = self.ring.tail();
                    continue 'again;
                };
                if this > revision {
                    return if this == revision + 1 { Ok(reader(at)) } else { Err(Lost) };
                }
                at = next;
            }
            if in_force <= revision {
                return if in_force == revision { Ok(reader(at)) } else { Err(Lost) };
            }
            // A change that is in force and will be told in a moment, or never.
            std::hint::spin_loop();
        }
        Err(Lost)
    }
}

impl Reader {
    /// Revision of the last entry read, or of the one after which reading began.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Whether there is no entry yet that was not read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.journal.ring.head()
    }

    /// Whether much of the ring waits to be read: it runs over soon.
    pub fn is_urgent(&self) -> bool {
        let ring = self.journal.ring;
        ring.head().saturating_sub(self.at) > ring.words() / 2
    }

    /// The next entry; `None`: there is none yet. Once lost, a reader stays so.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Lost> {
        while !self.is_at_end() {
            let read = self.journal.ring.read(self.at).map_err(|_| Lost)?;
            let ([revision, next_id], bytes, next) = read;
            if revision > self.last + 1 {
                return Err(Lost);
            }
            self.at = next;
            // Told after reading began, but in force before.
            if revision <= self.last {
                continue;
            }
            self.last = revision;
            return Ok(Some(Entry { revision, next_id, bytes }));
        }
        Ok(None)
    }
}

/// Where the ring lies.
const PLACES: Places =
    Places { block: root::JOURNAL, head: root::JOURNAL_HEAD, tail: root::JOURNAL_TAIL };
/// How often a reader looks for its place while a change is on its way.
const RACES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{die, writer, zone};

    /// A change that only the journal knows of.
    fn change(zone: &Zone, changes: &[u8]) {
        let mut writer = writer(zone);
        let revision = zone.revision() + 1;
        let noted = zone.note(&mut writer, revision, &Revision::Next(changes.to_vec()));
        zone.root(root::REVISION).store(revision, SeqCst);
        zone.tell(&mut writer, noted);
    }

    #[test]
    fn what_is_not_in_force_is_not_told() {
        let zone = zone(256 << 10);
        change(&zone, b"[1]");
        let mut reader = zone.journal().after(0).expect("it is kept");
        assert_eq!(
            reader.next_entry().map(|entry| entry.map(|e| e.bytes)),
            Ok(Some(b"[1]".into()))
        );
        let mut dying = writer(&zone);
        zone.note(&mut dying, 2, &Revision::Next(b"[2]".to_vec()));
        assert!(reader.is_at_end() && reader.next_entry() == Ok(None));
        die(dying);
        assert!(reader.is_at_end() && zone.journal().after(1).is_ok());
        change(&zone, b"[3]");
        assert!(zone.wants_snapshot());
        assert_eq!(reader.next_entry(), Err(Lost));
        assert_eq!(zone.journal().after(1).err(), Some(Lost));
    }

    #[test]
    fn a_revision_that_was_never_told_is_not_read_over() {
        let zone = zone(256 << 10);
        change(&zone, b"[1]");
        let mut reader = zone.journal().now();
        let mut dying = writer(&zone);
        zone.note(&mut dying, 2, &Revision::Next(b"[2]".to_vec()));
        zone.root(root::REVISION).store(2, SeqCst);
        die(dying);
        assert_eq!(zone.journal().after(1).err(), Some(Lost), "nobody wrote since");
        change(&zone, b"[3]");
        assert_eq!(reader.next_entry(), Err(Lost));
        // Two that were put in force without so much as a revision.
        let mut reader = zone.journal().now();
        die(writer(&zone));
        assert!(zone.journal().after(zone.revision()).is_ok(), "nobody wrote since");
        drop(writer(&zone));
        assert_eq!(zone.journal().after(reader.last()).err(), Some(Lost));
        change(&zone, b"[4]");
        assert_eq!(reader.next_entry(), Err(Lost));
    }

    #[test]
    fn a_wish_that_comes_while_a_snapshot_begins_is_kept() {
        let zone = zone(256 << 10);
        let long = vec![b' '; 8 << 10];
        let mut slow = writer(&zone);
        let noted = zone.note(&mut slow, 1, &Revision::Next(long.clone()));
        // The owner begins a snapshot for another reason, in which the change is not.
        zone.ask_snapshot();
        zone.clear_snapshot_wish();
        assert_eq!(zone.journal().now().last(), 0);
        zone.root(root::REVISION).store(1, SeqCst);
        zone.tell(&mut slow, noted);
        assert!(zone.wants_snapshot());
    }

    #[test]
    fn an_entry_takes_at_most_a_quarter() {
        let zone = zone(256 << 10);
        let most = 4 * 1024 - 3 * 8;
        change(&zone, &vec![b' '; most]);
        assert!(!zone.wants_snapshot());
        change(&zone, &vec![b' '; most + 1]);
        assert!(zone.wants_snapshot());
        assert_eq!(writer(&zone).check(), Ok(()));
    }
}
