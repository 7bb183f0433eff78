//! A word that guards others: any process may write those, and any may read them, whole or not at
//! all.
//!
//! Whoever writes claims the word by an exchange, and has its pid in it until it publishes. Nobody
//! waits: what another is writing is not there for a reader, and not to be had for a writer. What
//! its writer died over is claimed by the next one, who writes all of it.
//!
//! What is published is **marked** at first, that is, it may be out of date, and is confirmed by a
//! second step, which fails where anything has marked it again meanwhile. So an announcement that
//! something is out of date cannot fall between the two: [`overtake`] comes before the look for
//! what is to be marked, as publishing comes before the look whether one was overtaken. One of the
//! two sees the other's step. A writer that dies between its steps leaves a mark behind.
//!
//! Ordering: the guarded words are read and written relaxed. A reader that sees any of a writer's
//! stores has, by the fences behind the claim and before the second look, the claim before its
//! second look, and so finds another version; and it sees all that was published with the version
//! that it found first. Every step alters the number in the word, so that no state of it returns.
//!
//! A process is one thread; what is being written under its own pid is left by one that had this
//! pid before. That the dead are told from the living is the caller's word: a writer that is taken
//! for dead while it lives may write into what others publish.

use crate::sync::{AtomicU64, Ordering, fence, order};

/// What a word said: a step's number, the pid of who writes, marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version(u64);

const WRITING: u64 = 1;
const MARKED: u64 = 2;
const PID: u32 = 2;
/// Pids have 22 bits at most.
const PID_MASK: u64 = (1 << 24) - 1;
const STEP: u32 = 26;

impl Version {
    /// The version now.
    #[inline]
    pub fn of(word: &AtomicU64) -> Self {
        Self(word.load(Ordering::Acquire))
    }

    /// Whether what it guards can be read: nobody writes it, or died over it.
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.0 & WRITING == 0
    }

    /// Whether what it guards may be out of date.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.0 & MARKED != 0
    }

    /// Whether what was read since [`Self::of`] is whole.
    #[inline]
    pub fn is_still(self, word: &AtomicU64) -> bool {
        fence(Ordering::Acquire);
        word.load(Ordering::Relaxed) == self.0
    }

    /// Claims what has this version, to write it; `None` where somebody who lives does, or did
    /// meanwhile.
    pub fn claim<'a>(
        self,
        word: &'a AtomicU64,
        pid: u32,
        alive: &dyn Fn(u32) -> bool,
    ) -> Option<Claim<'a>> {
        let writer = (self.0 >> PID & PID_MASK) as u32;
        if !self.is_whole() && writer != pid && alive(writer) {
            return None;
        }
        let mine = self.next(u64::from(pid) << PID | WRITING);
        word.compare_exchange(self.0, mine.0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Whoever sees what is written from here on sees the claim.
        fence(Ordering::Release);
        Some(Claim { word, mine, was_whole: self.is_whole() })
    }

    /// Marks what has this version; false where it has another one by now.
    pub fn mark(self, word: &AtomicU64) -> bool {
        let marked = self.next(MARKED);
        word.compare_exchange(self.0, marked.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the mark away from what was published as this version, if that is still so and
    /// nothing has overtaken it.
    pub fn confirm(self, word: &AtomicU64, overtaken: impl FnOnce() -> bool) -> bool {
        order();
        let plain = self.next(0);
        !overtaken()
            && word.compare_exchange(self.0, plain.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    const fn next(self, rest: u64) -> Self {
        Self(((self.0 >> STEP) + 1) << STEP | rest)
    }
}

/// Announces that something is out of date, before the look for it.
pub fn overtake(generation: &AtomicU64) {
    generation.fetch_add(1, Ordering::SeqCst);
    order();
}

/// The right to write what a word guards. Dropped, it stays as if its holder had died.
#[derive(Debug)]
pub struct Claim<'a> {
    word: &'a AtomicU64,
    mine: Version,
    was_whole: bool,
}

impl Claim<'_> {
    /// Whether what was there before is whole, and may stay.
    pub const fn was_whole(&self) -> bool {
        self.was_whole
    }

    /// Gives what was written to be read, marked.
    pub fn publish(self) -> Option<Version> {
        let next = self.mine.next(MARKED);
        // SeqCst, for `order` of who confirms.
        let took =
            self.word.compare_exchange(self.mine.0, next.0, Ordering::SeqCst, Ordering::Relaxed);
        took.ok().map(|_| next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DEAD: &dyn Fn(u32) -> bool = &|_| false;
    const ALIVE: &dyn Fn(u32) -> bool = &|_| true;

    #[test]
    fn what_is_published_is_marked_until_it_is_confirmed() {
        let word = AtomicU64::new(0);
        let first = Version::of(&word);
        let claim = first.claim(&word, 7, ALIVE).expect("nobody writes");
        assert!(claim.was_whole() && !Version::of(&word).is_whole());
        assert!(!first.is_still(&word));
        let published = claim.publish().expect("nobody took it over");
        assert!(published.is_marked() && published.is_still(&word));
        assert!(!published.confirm(&word, || true) && published.is_still(&word));
        assert!(published.confirm(&word, || false));
        let plain = Version::of(&word);
        assert!(plain.is_whole() && !plain.is_marked());
        assert!(plain.mark(&word) && !plain.mark(&word));
        // Marked again in between, it stays so.
        let marked = Version::of(&word);
        assert!(marked.is_marked() && marked.mark(&word));
        assert!(!marked.confirm(&word, || false) && Version::of(&word).is_marked());
    }

    #[test]
    fn only_what_its_writer_died_over_is_taken_over() {
        let word = AtomicU64::new(0);
        let dead = Version::of(&word).claim(&word, 7, ALIVE).expect("nobody writes");
        let writing = Version::of(&word);
        let asked = std::cell::Cell::new(0);
        let lives = |pid| {
            asked.set(pid);
            true
        };
        assert!(writing.claim(&word, 8, &lives).is_none());
        assert_eq!(asked.get(), 7);
        let next = writing.claim(&word, 8, DEAD).expect("its writer is dead");
        assert!(!next.was_whole());
        assert!(writing.claim(&word, 9, DEAD).is_none(), "it has another version by now");
        assert!(dead.publish().is_none());
        assert!(next.publish().is_some());
        // Its own pid in it is not its own work.
        assert!(Version::of(&word).claim(&word, 7, ALIVE).is_some(), "nobody writes");
        assert!(Version::of(&word).claim(&word, 7, ALIVE).is_some());
    }
}
