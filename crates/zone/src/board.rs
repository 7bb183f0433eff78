//! A board for each source that is watched: whose duty it is, how it stands, what is held, and what
//! an operator wishes of it.
//!
//! One process has the duty by the lease on the board, and writes the rest; every process reads it.
//! Boards are of one size, stand in a chain from the root, and are never given back: one whose
//! source is forgotten is used again for another. So a process that was stopped over that writes
//! where boards are, at worst a lease that ends; whoever writes looks first whether the board is
//! still its source's. What takes more than a word is read between two looks at a number that is
//! odd while it is written.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use peerage_core::consul::guard::{Held, Why};
use peerage_core::consul::status::{Health, Status};
use peerage_shm::{AtomicU64, Ref, Region};

use crate::layout::{get, granules, high, low, pack, root, set, words_of};
use crate::lease::Lease;
use crate::worker::Worker;
use crate::zone::Zone;

/// The longest name of a source, in bytes.
const MAX_NAME: usize = peerage_core::source::MAX_NAME;
/// What is kept of the text of an error, in bytes.
const MAX_ERROR: usize = 160;

/// A source with its board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    at: Ref,
    uid: u32,
}

/// Why a source has no board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Boardless {
    /// Somebody else writes: to be tried again a little later.
    #[error("another writer holds the zone")]
    Busy,
    /// It does not fit.
    #[error("the zone is full")]
    NoRoom,
}

/// What an operator wishes of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to go.
    Apply,
    /// It is to stay.
    Discard,
}

/// What is on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSource {
    /// Of which source: `dc1:web`.
    pub name: String,
    /// Pid of the process that watches it, 0 = nobody does.
    pub watcher: u32,
    /// How it stands.
    pub status: Status,
    /// What is held.
    pub held: Option<SeenHeld>,
}

/// What is held of a source, in short: which servers, their own records say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenHeld {
    /// Why.
    pub why: Why,
    /// Since when, unix ms.
    pub since: u64,
    /// When it is decided, unix ms.
    pub until: Option<u64>,
    /// How many servers.
    pub servers: u32,
}

/// One board.
#[derive(Clone, Copy)]
pub(crate) struct Board {
    pub(crate) at: Ref,
    w: &'static [AtomicU64; Self::WORDS],
}

impl Board {
    const WORDS: usize = Self::NAME + words_of(MAX_NAME);
    /// Granules of a board.
    pub(crate) const GRANULES: u32 = granules(Self::WORDS);
    /// The next board of the chain; written before the board is linked.
    const NEXT: usize = 0;
    /// Number of its source. Under the lock.
    const UID: usize = 1;
    const OWNER: usize = 2;
    const UNTIL: usize = 3;
    /// What is wished: a number that goes up, and above two bits which. By anybody.
    const WISH: usize = 4;
    /// The last wish that was looked at, with what came of it. By the watcher.
    const DONE: usize = 5;
    /// Odd while what follows is written.
    const SEQ: usize = 6;
    const HEALTH: usize = 7;
    const SINCE: usize = 8;
    const INDEX: usize = 9;
    const SUCCESS: usize = 10;
    const ERROR_AT: usize = 11;
    const ANSWERS: usize = 12;
    const FAILURES: usize = 13;
    /// Entries skipped, servers held.
    const COUNTS: usize = 14;
    const WHY: usize = 15;
    const WHY_OF: usize = 16;
    const HELD_SINCE: usize = 17;
    const HELD_UNTIL: usize = 18;
    /// Bytes of the texts: of the error and of the name, 0 = the board is free.
    const LENS: usize = 19;
    const ERROR: usize = 20;
    const NAME: usize = Self::ERROR + words_of(MAX_ERROR);

    fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { at, w: region.array(at)? })
    }

    fn next(self) -> Ref {
        Ref::from_raw(low(get(&self.w[Self::NEXT])))
    }

    fn uid(self) -> u32 {
        low(self.w[Self::UID].load(Acquire))
    }

    fn lease(self) -> Lease {
        Lease::on(&self.w[Self::OWNER], &self.w[Self::UNTIL])
    }

    fn name(self) -> String {
        let len = low(get(&self.w[Self::LENS])) as usize;
        self.text(Self::NAME, len.min(MAX_NAME))
    }

    /// Whether it is that source's; the empty name is nobody's.
    fn is_of(self, name: &str) -> bool {
        let len = low(get(&self.w[Self::LENS])) as usize;
        let mut words = self.w[Self::NAME..].iter();
        len == name.len()
            && name.as_bytes().chunks(8).all(|chunk| {
                let word = words.next().map_or(0, get);
                word.to_ne_bytes().starts_with(chunk)
            })
    }

    fn text(self, from: usize, len: usize) -> String {
        let words = self.w[from..].iter().take(words_of(len));
        let bytes: Vec<u8> = words.flat_map(|word| get(word).to_ne_bytes()).take(len).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn put(self, at: usize, text: &str) {
        for (word, chunk) in self.w[at..].iter().zip(text.as_bytes().chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            set(word, u64::from_ne_bytes(eight));
        }
    }

    /// Writes what readers are to see as a whole.
    fn write(self, write: impl FnOnce()) {
        // A writer that died in between left it odd.
        let seq = get(&self.w[Self::SEQ]) | 1;
        self.w[Self::SEQ].store(seq, Relaxed);
        fence(SeqCst);
        write();
        self.w[Self::SEQ].store(seq + 1, Release);
    }

    /// Gives the board to a source, or to nobody. Under the lock.
    fn give(self, uid: u32, name: &str) {
        self.w[Self::UID].store(u64::from(uid), Release);
        self.write(|| {
            for word in &self.w[Self::HEALTH..] {
                set(word, 0);
            }
            self.put(Self::NAME, name);
            set(&self.w[Self::LENS], pack(0, name.len() as u32));
        });
        self.w[Self::DONE].store(self.w[Self::WISH].load(Acquire), Release);
        self.w[Self::OWNER].store(0, Release);
        self.w[Self::UNTIL].store(0, Release);
    }

    /// What is on it; `None`: it is free.
    fn see(self) -> Option<SeenSource> {
        for _ in 0..TRIES {
            let seq = self.w[Self::SEQ].load(Acquire);
            let seen = self.read();
            fence(Acquire);
            if seq.is_multiple_of(2) && get(&self.w[Self::SEQ]) == seq {
                return seen;
            }
        }
        // Who writes it was stopped over that.
        self.read()
    }

    fn read(self) -> Option<SeenSource> {
        let number = |i: usize| get(&self.w[i]);
        let name = Some(self.name()).filter(|name| !name.is_empty())?;
        let error = self.text(Self::ERROR, (high(number(Self::LENS)) as usize).min(MAX_ERROR));
        let status = Status {
            health: match number(Self::HEALTH) {
                1 => Health::Up,
                2 => Health::Stale,
                _ => Health::Waiting,
            },
            since: number(Self::SINCE),
            index: number(Self::INDEX),
            last_success: Some(number(Self::SUCCESS)).filter(|&at| at != 0),
            last_error: Some((error, number(Self::ERROR_AT))).filter(|&(_, at)| at != 0),
            answers: number(Self::ANSWERS),
            failures: number(Self::FAILURES),
            skipped: high(number(Self::COUNTS)),
        };
        let of = number(Self::WHY_OF);
        let held = why(number(Self::WHY), of).map(|why| SeenHeld {
            why,
            since: number(Self::HELD_SINCE),
            until: Some(number(Self::HELD_UNTIL)).filter(|&at| at != 0),
            servers: low(number(Self::COUNTS)),
        });
        Some(SeenSource { name, watcher: self.lease().owner(), status, held })
    }
}

/// Looks at a board that is being written.
const TRIES: u32 = 100;

fn why(code: u64, of: u64) -> Option<Why> {
    Some(match code {
        1 => Why::Removal { removed: high(of) as usize, of: low(of) as usize },
        2 => Why::TooFew { left: high(of) as usize, min: low(of) },
        3 => Why::Empty,
        4 => Why::Denied,
        5 => Why::Discarded,
        _ => return None,
    })
}

fn why_words(why: Option<Why>) -> (u64, u64) {
    match why {
        None => (0, 0),
        Some(Why::Removal { removed, of }) => (1, pack(removed as u32, of as u32)),
        Some(Why::TooFew { left, min }) => (2, pack(left as u32, min)),
        Some(Why::Empty) => (3, 0),
        Some(Why::Denied) => (4, 0),
        Some(Why::Discarded) => (5, 0),
    }
}

/// The first bytes of a text that are a text.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

impl Zone {
    /// Every board, the free ones too. They are never given back.
    pub(crate) fn boards(&self) -> impl Iterator<Item = Board> {
        let zone = *self;
        let first = Ref::from_raw(low(self.root(root::SOURCES).load(Acquire)));
        let at = move |at: Ref| Board::at(zone.region(), at).filter(|_| !at.is_none());
        std::iter::successors(at(first), move |board| at(board.next()))
    }
}

impl Worker {
    /// The board of a source, given to it where it has none. The name has at most `source::MAX_NAME`
    /// bytes.
    pub fn source(&self, name: &str) -> Result<Source, Boardless> {
        debug_assert!((1..=MAX_NAME).contains(&name.len()));
        if let Some(source) = self.find_source(name) {
            return Ok(source);
        }
        let master = self.zone().as_master(self.pid());
        let made = master.locked(&mut || false, |writer| {
            if let Some(source) = self.find_source(name) {
                return Some(source);
            }
            let uid = self.zone().fresh_uid();
            let free = self.zone().boards().find(|board| board.is_of(""));
            let board = match free {
                Some(board) => board,
                None => {
                    let board = Board::at(self.region(), writer.alloc(Board::GRANULES)?)?;
                    let first = low(get(self.zone().root(root::SOURCES)));
                    board.w.iter().for_each(|word| set(word, 0));
                    set(&board.w[Board::NEXT], u64::from(first));
                    board
                }
            };
            board.give(uid, name);
            if free.is_none() {
                writer.publish(self.zone().root(root::SOURCES), u64::from(board.at.raw()));
            }
            Some(Source { at: board.at, uid })
        });
        made.ok_or(Boardless::Busy)?.ok_or(Boardless::NoRoom)
    }

    /// The board of a source, where it has one.
    pub fn find_source(&self, name: &str) -> Option<Source> {
        let board = self.zone().boards().find(|board| board.is_of(name))?;
        Some(Source { at: board.at, uid: board.uid() })
    }

    /// Takes the board from a source that is watched no more; false where somebody else writes.
    pub fn forget_source(&self, source: Source) -> bool {
        let master = self.zone().as_master(self.pid());
        let forget = || {
            if let Some(board) = self.board(source) {
                board.give(self.zone().fresh_uid(), "");
            }
        };
        master.locked(&mut || false, |_| forget()).is_some()
    }

    /// Whose duty the source is. `None`: it is forgotten.
    pub fn source_lease(&self, source: Source) -> Option<Lease> {
        self.board(source).map(Board::lease)
    }

    /// What is on every board, in the order of names.
    pub fn sources(&self) -> Vec<SeenSource> {
        let mut all: Vec<SeenSource> = self.zone().boards().filter_map(Board::see).collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// What is on one board. `None`: the source is forgotten.
    pub fn seen_source(&self, source: Source) -> Option<SeenSource> {
        self.board(source)?.see()
    }

    /// The watcher says how its source stands, and what is held.
    pub fn note_source(&self, source: Source, status: &Status, held: Option<&Held>) {
        let Some(board) = self.board(source) else { return };
        let put = |i: usize, value: u64| set(&board.w[i], value);
        let (error, error_at) = match &status.last_error {
            Some((text, at)) => (cut(text, MAX_ERROR), (*at).max(1)),
            None => ("", 0),
        };
        let (why, of) = why_words(held.map(|held| held.why));
        let servers = held.map_or(0, |held| held.servers.len() as u32);
        board.write(|| {
            put(
                Board::HEALTH,
                match status.health {
                    Health::Waiting => 0,
                    Health::Up => 1,
                    Health::Stale => 2,
                },
            );
            put(Board::SINCE, status.since);
            put(Board::INDEX, status.index);
            put(Board::SUCCESS, status.last_success.unwrap_or(0));
            put(Board::ERROR_AT, error_at);
            put(Board::ANSWERS, status.answers);
            put(Board::FAILURES, status.failures);
            put(Board::COUNTS, pack(status.skipped, servers));
            put(Board::WHY, why);
            put(Board::WHY_OF, of);
            put(Board::HELD_SINCE, held.map_or(0, |held| held.since));
            put(Board::HELD_UNTIL, held.and_then(|held| held.until).unwrap_or(0));
            board.put(Board::ERROR, error);
            let name = low(get(&board.w[Board::LENS]));
            put(Board::LENS, pack(error.len() as u32, name));
        });
    }

    /// An operator wishes something of what is held: a number by which to ask what came of it.
    pub fn wish(&self, source: Source, wish: Wish) -> Option<u64> {
        let board = self.board(source)?;
        let code = match wish {
            Wish::Apply => 1,
            Wish::Discard => 2,
        };
        let next = |word: u64| Some(((word >> 2) + 1) << 2 | code);
        let before = board.w[Board::WISH].fetch_update(AcqRel, Acquire, next);
        before.ok().map(|word| (word >> 2) + 1)
    }

    /// What is wished and was not looked at, for the watcher; of several the last one.
    pub fn wished(&self, source: Source) -> Option<(Wish, u64)> {
        let board = self.board(source)?;
        let word = board.w[Board::WISH].load(Acquire);
        let is_new = word >> 2 != board.w[Board::DONE].load(Acquire) >> 2;
        match word & 3 {
            1 if is_new => Some((Wish::Apply, word >> 2)),
            2 if is_new => Some((Wish::Discard, word >> 2)),
            _ => None,
        }
    }

    /// The watcher has done what that number wishes, or found nothing held.
    pub fn fulfil(&self, source: Source, number: u64, was_held: bool) {
        if let Some(board) = self.board(source) {
            board.w[Board::DONE].store(number << 2 | u64::from(was_held), Release);
        }
    }

    /// Whether anything was held when that wish was looked at; `None`: nobody has looked yet.
    pub fn fulfilled(&self, source: Source, number: u64) -> Option<bool> {
        let done = self.board(source)?.w[Board::DONE].load(Acquire);
        (done >> 2 >= number).then_some(done & 1 != 0)
    }

    fn board(&self, source: Source) -> Option<Board> {
        Board::at(self.region(), source.at).filter(|board| board.uid() == source.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    fn status() -> Status {
        Status {
            health: Health::Stale,
            since: 5,
            index: 812,
            last_success: Some(4),
            last_error: Some(("é".repeat(100), 6)),
            answers: 7,
            failures: 8,
            skipped: 9,
        }
    }

    #[test]
    fn what_a_watcher_notes_every_process_reads() {
        let zone = trial::zone(256 << 10);
        let (watcher, other) = (
            zone.worker(1, 1, &trial::FORMAT).unwrap(),
            zone.worker(2, 1, &trial::FORMAT).unwrap(),
        );
        let web = watcher.source("dc1:web").unwrap();
        assert_eq!(other.source("dc1:web"), Ok(web));
        let held = Held {
            why: Why::Removal { removed: 3, of: 4 },
            since: 10,
            until: Some(2_010),
            servers: vec![peerage_core::addr::ServerAddr::parse("10.0.0.1").unwrap(); 3],
        };
        watcher.note_source(web, &status(), Some(&held));
        watcher.source_lease(web).unwrap().take(0, 1);
        watcher.source("dc1:api").unwrap();
        let all = other.sources();
        let names: Vec<&str> = all.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["dc1:api", "dc1:web"]);
        let seen = &all[1];
        let last_error = Some(("é".repeat(80), 6));
        assert_eq!(seen.status, Status { last_error, ..status() });
        assert_eq!(seen.watcher, 1);
        let why = held.why;
        assert_eq!(seen.held, Some(SeenHeld { why, since: 10, until: Some(2_010), servers: 3 }));
        watcher.note_source(web, &Status::default(), None);
        assert_eq!(
            (&other.sources()[1].status, other.sources()[1].held),
            (&Status::default(), None)
        );
    }

    #[test]
    fn boards_of_forgotten_sources_are_used_again() {
        let zone = trial::zone(256 << 10);
        let worker = zone.worker(1, 1, &trial::FORMAT).unwrap();
        let first = worker.source("dc1:svc-0").unwrap();
        let used = zone.report().used;
        assert!(worker.forget_source(first));
        for n in 1..1_000 {
            let source = worker.source(&format!("dc1:svc-{n}")).unwrap();
            worker.note_source(source, &status(), None);
            assert!(worker.forget_source(source));
        }
        assert_eq!((zone.report().used, worker.sources()), (used, vec![]));
        // Who still thinks that it is his source's says nothing.
        let next = worker.source("dc1:next").unwrap();
        worker.note_source(first, &status(), None);
        assert_eq!(
            (worker.source_lease(first).is_none(), worker.wish(first, Wish::Apply)),
            (true, None)
        );
        assert_eq!(worker.sources()[0].status, Status::default());
        assert!(worker.wished(next).is_none());
    }

    #[test]
    fn a_wish_is_fulfilled_once() {
        let zone = trial::zone(256 << 10);
        let worker = zone.worker(1, 1, &trial::FORMAT).unwrap();
        let web = worker.source("dc1:web").unwrap();
        assert_eq!(worker.wished(web), None);
        let first = worker.wish(web, Wish::Apply).unwrap();
        let second = worker.wish(web, Wish::Discard).unwrap();
        assert_eq!(worker.fulfilled(web, first), None);
        assert_eq!(worker.wished(web), Some((Wish::Discard, second)), "the last one counts");
        worker.fulfil(web, second, true);
        assert_eq!((worker.wished(web), worker.fulfilled(web, first)), (None, Some(true)));
        assert_eq!(worker.fulfilled(web, second), Some(true));
    }

    #[test]
    fn boards_survive_a_writer_that_died() {
        let zone = trial::zone(256 << 10);
        let worker = zone.worker(1, 1, &trial::FORMAT).unwrap();
        let web = worker.source("dc1:web").unwrap();
        worker.note_source(web, &status(), None);
        let mut left = Vec::new();
        peerage_shm::Trace::trace(
            &crate::trace::Reachable(zone),
            zone.shared(),
            &mut |at, granules| left.push((at, granules)),
        );
        assert!(left.contains(&(web.at, Board::GRANULES)));
    }
}
