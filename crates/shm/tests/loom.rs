//! Every order of steps, as far as loom can look: grace periods, the drained proof, and exact
//! counts through the death of a process before any of its writes; words that a version guards.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst as Std};

use loom::model::Builder;
use loom::thread;
use peerage_shm::{
    AtomicU64, Config, Died, Ordering, Ordering::Acquire, Ordering::Relaxed, Ref, Refusal, Region,
    Shared, Slot, Trace, Version, count, live_for, overtake,
};

/// Words of a region: as few as hold the head and four slots.
const WORDS: usize = 176;

/// What a record's root word names is all that is reachable.
struct Root;

impl Trace for Root {
    fn trace(&self, shared: &Shared, mark: &mut dyn FnMut(Ref, u32)) {
        let at = Ref::from_raw(shared.root(0).load(Relaxed) as u32);
        if !at.is_none() {
            mark(at, 1);
        }
    }

    fn companion(&self, _: &Shared, _: Ref) -> Option<(Ref, u32)> {
        None
    }
}

/// A region that goes when the model's run is over: loom runs a model many times.
struct Memory {
    words: *mut [AtomicU64],
    lock: *mut AtomicU64,
}

impl Memory {
    fn new() -> (Self, Shared) {
        let words = Box::into_raw((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
        let lock = Box::into_raw(Box::new(AtomicU64::new(0)));
        // SAFETY: freed only by `drop`, when every thread of the run has been joined.
        let region = Region::new(unsafe { &*words });
        // SAFETY: as above.
        let word = unsafe { &*lock };
        let config = Config { build: 1, slots: 4, list_capacity: 1, record_granules: 1 };
        let shared = Shared::format(region, word, config).expect("it fits");
        (Self { words, lock }, shared)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: made by `Box::into_raw`, and nobody is left who could use it.
        drop(unsafe { Box::from_raw(self.words) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.lock) });
    }
}

/// All orders, or those with at most so many preemptions.
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(model);
}

fn word(shared: &Shared, at: Ref) -> &'static AtomicU64 {
    &shared.region().words(at, 1).expect("a block")[0]
}

/// A block of one granule, its first word set, and published in the root.
fn publish_new(shared: &Shared, value: u64) -> Ref {
    let mut writer = shared.try_write(1, &Root).expect("nobody else writes");
    let at = writer.alloc(1).expect("there is room");
    word(shared, at).store(value, Relaxed);
    writer.publish(shared.root(0), u64::from(at.raw()));
    at
}

fn root(shared: &Shared) -> Ref {
    Ref::from_raw(shared.root(0).load(Acquire) as u32)
}

/// Acts as a process that dies before its write number `n`.
fn mortal(n: u32, act: impl FnOnce()) -> bool {
    live_for(Some(n));
    let end = catch_unwind(AssertUnwindSafe(act));
    live_for(None);
    match end {
        Ok(()) => false,
        Err(why) if why.is::<Died>() => true,
        Err(why) => resume_unwind(why),
    }
}

// --- Publication and grace --------------------------------------------------------------------

const OLD: u64 = 10;
const NEW: u64 = 20;
const REUSED: u64 = 666;

fn replace_while_read(read: fn(&Slot) -> u64) -> bool {
    static WAS_REUSED: AtomicBool = AtomicBool::new(false);
    WAS_REUSED.store(false, Std);
    explore(None, move || {
        let (_memory, shared) = Memory::new();
        let old = publish_new(&shared, OLD);
        let slot = shared.claim(2, 0).expect("a slot");
        let reader = thread::spawn(move || {
            let seen = read(&slot);
            assert!(seen == OLD || seen == NEW, "reused under the reader: {seen}");
        });
        let mut writer = shared.try_write(1, &Root).expect("nobody else writes");
        let new = writer.alloc(1).expect("there is room");
        word(&shared, new).store(NEW, Relaxed);
        let limbo = writer.limbo(1).expect("there is room");
        writer.publish(shared.root(0), u64::from(new.raw()));
        writer.retire(limbo, &[(old, 1)], &[]);
        writer.collect();
        // First fit: the old block's place, if it is free.
        let third = writer.alloc(1).expect("there is room");
        word(&shared, third).store(REUSED, Relaxed);
        if third == old {
            WAS_REUSED.store(true, Std);
        }
        drop(writer);
        reader.join().expect("the reader");
    });
    WAS_REUSED.load(Std)
}

fn read_root(slot: &Slot) -> u64 {
    let shared = slot.shared();
    word(shared, root(shared)).load(Relaxed)
}

#[test]
fn what_a_reader_sees_is_not_reused() {
    let reused = replace_while_read(|slot| {
        let _section = slot.enter();
        read_root(slot)
    });
    assert!(reused, "the model never came so far");
}

#[test]
#[should_panic(expected = "reused under the reader")]
fn without_a_section_it_is_reused() {
    replace_while_read(read_root);
}

// --- Drained is a proof -----------------------------------------------------------------------

static DRAINED: AtomicBool = AtomicBool::new(false);
static WAS_DRAINED: AtomicBool = AtomicBool::new(false);

fn drain_while_acquiring(begin: fn(&Slot)) {
    explore(None, move || {
        DRAINED.store(false, Std);
        let (_memory, shared) = Memory::new();
        let record = publish_new(&shared, 0);
        let slot = shared.claim(2, 0).expect("a slot");
        let reader = thread::spawn(move || begin(&slot));
        let writer = shared.try_write(1, &Root).expect("nobody else writes");
        writer.publish(shared.root(0), 0);
        let epoch = shared.advance();
        drop(writer);
        if shared.passed(epoch) && count(word(&shared, record).load(Acquire)) == 0 {
            DRAINED.store(true, Std);
            WAS_DRAINED.store(true, Std);
        }
        reader.join().expect("the reader");
    });
}

fn acquire_and_release(slot: &Slot, record: Ref) {
    let held = slot.acquire(record, 0).expect("there is no limit");
    assert!(!DRAINED.load(Std), "a request began on a drained peer");
    slot.release(held);
}

#[test]
fn nothing_begins_on_a_drained_peer() {
    drain_while_acquiring(|slot| {
        let section = slot.enter();
        let record = root(slot.shared());
        if !record.is_none() {
            let held = slot.acquire(record, 0).expect("there is no limit");
            assert!(!DRAINED.load(Std), "a request began on a drained peer");
            drop(section);
            assert!(!DRAINED.load(Std), "drained while a request is open");
            slot.release(held);
        }
    });
    assert!(WAS_DRAINED.load(Std), "the model never came so far");
}

#[test]
#[should_panic(expected = "a request began on a drained peer")]
fn acquired_outside_the_section_it_does() {
    drain_while_acquiring(|slot| {
        let record = {
            let _section = slot.enter();
            root(slot.shared())
        };
        if !record.is_none() {
            acquire_and_release(slot, record);
        }
    });
}

// --- In flight, through death -----------------------------------------------------------------

const MORTAL: u32 = 30;

fn only_mortal_is_dead(pid: u32, _: u64) -> bool {
    pid != MORTAL
}

/// A live process that takes a reference and keeps it if `keep`.
fn live(slot: &Slot, record: Ref, limit: u32, keep: bool) -> u32 {
    match slot.acquire(record, limit) {
        Ok(held) => {
            let now = count(word(slot.shared(), record).load(Acquire));
            assert!(limit == 0 || now <= limit, "{now} references, {limit} allowed");
            if keep {
                return 1;
            }
            slot.release(held);
            0
        }
        Err(refusal) => {
            assert_eq!(refusal, Refusal::Full);
            0
        }
    }
}

/// One process goes on while another dies before each of its writes in turn.
fn a_process_dies(limit: u32, keep: bool) {
    // Acquire and release take up to five writes each, a lost race one or two more.
    for n in 0..13 {
        explore(Some(3), move || {
            let (_memory, shared) = Memory::new();
            let record = publish_new(&shared, 0);
            let one = shared.claim(10, 0).expect("a slot");
            let other = shared.claim(MORTAL, 0).expect("a slot");
            let sweeper = shared.claim(20, 0).expect("a slot");
            let alive = thread::spawn(move || live(&one, record, limit, keep));
            let dying = thread::spawn(move || {
                mortal(n, || {
                    live(&other, record, limit, false);
                });
            });
            dying.join().expect("died as planned");
            let swept = shared.sweep(&sweeper, &only_mortal_is_dead);
            assert_eq!(swept.slots, 1);
            let kept = alive.join().expect("the live one");
            assert_eq!(count(word(&shared, record).load(Acquire)), kept);
        });
    }
}

#[test]
fn a_death_leaves_the_count_exact() {
    a_process_dies(0, true);
}

#[test]
fn a_death_leaves_the_count_exact_at_the_limit() {
    a_process_dies(1, false);
}

/// Two go on, one of which sweeps.
#[test]
fn a_death_among_three_leaves_the_count_exact() {
    for n in 0..8 {
        explore(Some(2), move || {
            let (_memory, shared) = Memory::new();
            let record = publish_new(&shared, 0);
            let one = shared.claim(10, 0).expect("a slot");
            let other = shared.claim(MORTAL, 0).expect("a slot");
            let sweeper = shared.claim(20, 0).expect("a slot");
            let alive = thread::spawn(move || live(&one, record, 0, true));
            let dying = thread::spawn(move || {
                mortal(n, || {
                    let _ = other.acquire(record, 0);
                });
            });
            let kept = live(&sweeper, record, 0, true);
            dying.join().expect("died as planned");
            let swept = shared.sweep(&sweeper, &only_mortal_is_dead);
            assert_eq!(swept.slots, 1);
            let kept = kept + alive.join().expect("the live one");
            assert_eq!(count(word(&shared, record).load(Acquire)), kept);
        });
    }
}

/// The sweeper dies too, before its write number `n`, and a second one takes over.
#[test]
fn a_sweeper_may_die_as_well() {
    static DEATHS: AtomicU32 = AtomicU32::new(0);
    // What the first one left: an intent, an entry before and after its step, an end.
    for (first, n) in (1..5).flat_map(|first| (0..18).map(move |n| (first, n))) {
        explore(None, move || {
            let (_memory, shared) = Memory::new();
            let record = publish_new(&shared, 0);
            let one = shared.claim(10, 0).expect("a slot");
            let dead = shared.claim(MORTAL, 0).expect("a slot");
            let dying = shared.claim(MORTAL + 1, 0).expect("a slot");
            let sweeper = shared.claim(20, 0).expect("a slot");
            // Another tag to begin with, so that all paths are taken.
            assert_eq!(live(&sweeper, record, 0, false), 0);
            mortal(first, || {
                let _ = dead.acquire(record, 0);
            });
            let alive = thread::spawn(move || live(&one, record, 0, true));
            let sweeping = thread::spawn(move || {
                let died = mortal(n, || {
                    dying.shared().sweep(&dying, &only_mortal_is_dead);
                });
                DEATHS.fetch_add(u32::from(died), Std);
            });
            sweeping.join().expect("died as planned");
            let swept = shared.sweep(&sweeper, &|pid, _| pid < MORTAL);
            assert!(swept.slots >= 1);
            let kept = alive.join().expect("the live one");
            assert_eq!(count(word(&shared, record).load(Acquire)), kept);
        });
    }
    assert!(DEATHS.load(Std) > 0);
}

/// And whoever takes the slot after them keeps what it has.
#[test]
fn two_sweepers_take_back_once() {
    for first in 1..5 {
        explore(Some(3), move || {
            let (_memory, shared) = Memory::new();
            let record = publish_new(&shared, 0);
            let keeper = shared.claim(10, 0).expect("a slot");
            let dead = shared.claim(MORTAL, 0).expect("a slot");
            let one = shared.claim(20, 0).expect("a slot");
            let other = shared.claim(21, 0).expect("a slot");
            assert_eq!(live(&keeper, record, 0, true), 1);
            mortal(first, || {
                let _ = dead.acquire(record, 0);
            });
            let sweeping = thread::spawn(move || {
                let swept = shared.sweep(&one, &only_mortal_is_dead).slots;
                // All four were taken: it is the one just freed.
                let next = shared.claim(11, 0);
                (swept, next.map_or(0, |next| live(&next, record, 0, true)))
            });
            let here = shared.sweep(&other, &only_mortal_is_dead).slots;
            let (there, kept) = sweeping.join().expect("a sweeper");
            assert_eq!(here + there, 1);
            assert_eq!(count(word(&shared, record).load(Acquire)), 1 + kept);
        });
    }
}

// --- Words that a version guards ----------------------------------------------------------------

/// A version, two words that are equal, and a generation.
#[derive(Clone)]
struct Guarded(Arc<[AtomicU64; 4]>);

impl Guarded {
    fn new() -> Self {
        Self(Arc::new([0; 4].map(AtomicU64::new)))
    }

    fn version(&self) -> Version {
        Version::of(&self.0[0])
    }

    fn write(&self, pid: u32, value: u64, dead: u32) -> Option<Version> {
        let claim = self.version().claim(&self.0[0], pid, &|pid| pid != dead)?;
        self.0[1].store(value, Relaxed);
        self.0[2].store(value, Relaxed);
        claim.publish()
    }

    fn read(&self) -> Option<u64> {
        let version = self.version();
        let pair = [1, 2].map(|i| self.0[i].load(Relaxed));
        if !version.is_whole() || !version.is_still(&self.0[0]) {
            return None;
        }
        assert_eq!(pair[0], pair[1], "torn");
        Some(pair[0])
    }
}

const NOBODY: u32 = 0;

#[test]
fn what_two_write_is_read_whole() {
    explore(None, || {
        let words = Guarded::new();
        let writers = [1, 2].map(|pid| {
            let words = words.clone();
            thread::spawn(move || words.write(pid, pid.into(), NOBODY).is_some())
        });
        words.read();
        let wrote = writers.map(|writer| writer.join().expect("a writer"));
        assert!(wrote.contains(&true));
        let last = words.read().expect("nobody writes");
        assert!(last != 0 && wrote[last as usize - 1]);
    });
}

#[test]
fn what_a_dead_writer_left_is_not_read_and_written_anew() {
    for n in 0..4 {
        explore(None, move || {
            let words = Guarded::new();
            let dying = words.clone();
            let reading = words.clone();
            let reader = thread::spawn(move || reading.read());
            let died = thread::spawn(move || mortal(n, || drop(dying.write(MORTAL, 7, NOBODY))));
            assert!(died.join().expect("died as planned"));
            assert_eq!(words.read().is_some(), n == 0);
            assert!(words.write(1, 8, MORTAL).is_some());
            assert_eq!(words.read(), Some(8));
            assert_ne!(reader.join().expect("a reader"), Some(7));
        });
    }
}

/// Who tells that something has changed looks for what is to be marked; who put it looks whether
/// it was told.
#[test]
fn a_change_that_is_told_while_it_is_put_marks_it() {
    static CONFIRMED: AtomicBool = AtomicBool::new(false);
    explore(None, || {
        let words = Guarded::new();
        let telling = words.clone();
        let before = words.0[3].load(Relaxed);
        let teller = thread::spawn(move || {
            overtake(&telling.0[3]);
            loop {
                let found = telling.version();
                if !found.is_whole() || found.mark(&telling.0[0]) {
                    return;
                }
            }
        });
        let version = words.write(1, 7, NOBODY).or_else(|| words.write(1, 7, NOBODY));
        let version = version.expect("a mark comes once");
        if version.confirm(&words.0[0], || words.0[3].load(Ordering::SeqCst) != before) {
            CONFIRMED.store(true, Std);
        }
        teller.join().expect("a teller");
        assert!(words.version().is_marked());
    });
    assert!(CONFIRMED.load(Std), "the model never came so far");
}
