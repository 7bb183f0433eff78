//! Real processes on one mapping: killed and stopped at every point, and at random.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use peerage_shm::{
    AtomicU64, Config, Held, Ordering::Acquire, Ordering::Relaxed, Ref, Region, Shared, Slot,
    Trace, Writer, count, points,
};

// --- A world: a table of eight records, each with a companion ------------------------------------

const RECORDS: usize = 8;
const TABLE: u32 = 3;
const RECORD: u32 = 2;
const COMPANION: u32 = 1;
const LIMIT: u32 = 6;

/// Words at the start of the mapping that belong to the tests.
const CONTROL: usize = 512;
const LOCK: usize = 0;
const NEXT_START: usize = 1;
/// Progress of each child under churn.
const PROGRESS: usize = 16;
/// How often each point was visited.
const VISITS: usize = 64;
const REGION_BYTES: usize = 96 << 10;

#[derive(Clone, Copy)]
struct World {
    shared: Shared,
    control: &'static [AtomicU64],
}

struct Reachable;

impl Trace for Reachable {
    fn trace(&self, shared: &Shared, mark: &mut dyn FnMut(Ref, u32)) {
        let table = Ref::from_raw(shared.root(0).load(Acquire) as u32);
        if table.is_none() {
            return;
        }
        mark(table, TABLE);
        for record in records(shared, table) {
            mark(record, RECORD);
            mark(companion(shared, record), COMPANION);
        }
    }

    fn companion(&self, shared: &Shared, record: Ref) -> Option<(Ref, u32)> {
        Some((companion(shared, record), COMPANION))
    }
}

fn words(shared: &Shared, at: Ref, n: u32) -> &'static [AtomicU64] {
    shared.region().words(at, n as usize * 4).expect("a block")
}

fn stamp(kind: u32, at: Ref) -> u64 {
    u64::from(kind) << 48 | 0xabcd << 32 | u64::from(at.raw())
}

fn records(shared: &Shared, table: Ref) -> Vec<Ref> {
    let words = &words(shared, table, TABLE)[1..=RECORDS];
    words.iter().map(|word| Ref::from_raw(word.load(Relaxed) as u32)).collect()
}

fn companion(shared: &Shared, record: Ref) -> Ref {
    Ref::from_raw(words(shared, record, RECORD)[1].load(Relaxed) as u32)
}

fn in_flight(shared: &Shared, record: Ref) -> u32 {
    count(words(shared, record, RECORD)[0].load(Acquire))
}

/// The block is still what it was when it was found.
fn assert_intact(shared: &Shared, record: Ref) {
    assert_eq!(words(shared, record, RECORD)[2].load(Relaxed), stamp(RECORD, record));
    let companion = companion(shared, record);
    assert_eq!(words(shared, companion, COMPANION)[0].load(Relaxed), stamp(COMPANION, companion));
}

/// Inside a section.
fn current_table(shared: &Shared) -> Ref {
    let table = Ref::from_raw(shared.root(0).load(Acquire) as u32);
    assert_eq!(words(shared, table, TABLE)[0].load(Relaxed), stamp(TABLE, table));
    table
}

fn new_record(writer: &mut Writer<'_>) -> Option<Ref> {
    let companion = writer.alloc(COMPANION)?;
    let Some(record) = writer.alloc(RECORD) else {
        writer.free(companion, COMPANION);
        return None;
    };
    let shared = *writer.shared();
    words(&shared, companion, COMPANION)[0].store(stamp(COMPANION, companion), Relaxed);
    let record_words = words(&shared, record, RECORD);
    record_words[0].store(0, Relaxed);
    record_words[1].store(u64::from(companion.raw()), Relaxed);
    record_words[2].store(stamp(RECORD, record), Relaxed);
    Some(record)
}

fn new_table(writer: &mut Writer<'_>, records: &[Ref]) -> Option<Ref> {
    let table = writer.alloc(TABLE)?;
    let words = words(writer.shared(), table, TABLE);
    words[0].store(stamp(TABLE, table), Relaxed);
    for (word, record) in words[1..].iter().zip(records) {
        word.store(u64::from(record.raw()), Relaxed);
    }
    Some(table)
}

/// Replaces record `i` by a new one.
fn change(writer: &mut Writer<'_>, i: usize) -> Option<()> {
    let shared = *writer.shared();
    let old = current_table(&shared);
    let mut all = records(&shared, old);
    let record = new_record(writer)?;
    let gone = std::mem::replace(&mut all[i], record);
    let give_back = |writer: &mut Writer<'_>| {
        writer.free(companion(&shared, record), COMPANION);
        writer.free(record, RECORD);
    };
    let Some(table) = new_table(writer, &all) else {
        give_back(writer);
        return None;
    };
    let Some(limbo) = writer.limbo(2) else {
        writer.free(table, TABLE);
        give_back(writer);
        return None;
    };
    writer.publish(shared.root(0), u64::from(table.raw()));
    writer.retire(limbo, &[(old, TABLE)], &[gone]);
    Some(())
}

impl World {
    fn new() -> Self {
        let bytes = CONTROL * 8 + REGION_BYTES;
        // SAFETY: a new anonymous mapping; nothing is there before.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: mapped above for ever, page-aligned, and accessed as atomic words only.
        let all = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8) };
        let (control, region) = all.split_at(CONTROL);
        let config = Config { build: 1, slots: 10, list_capacity: 12, record_granules: RECORD };
        let shared = Shared::format(Region::new(region), &control[LOCK], config).expect("it fits");
        let world = Self { shared, control };
        let mut writer = shared.try_write(pid(), &Reachable).expect("nobody else writes");
        let records: Vec<Ref> =
            (0..RECORDS).map(|_| new_record(&mut writer).expect("there is room")).collect();
        let table = new_table(&mut writer, &records).expect("there is room");
        writer.publish(shared.root(0), u64::from(table.raw()));
        drop(writer);
        world
    }

    fn claim(&self) -> Slot {
        let start = self.control[NEXT_START].fetch_add(1, SeqCst);
        loop {
            if let Some(slot) = self.shared.claim(pid(), start) {
                return slot;
            }
            std::thread::yield_now();
        }
    }

    fn visits(&self, point: &str) -> u64 {
        self.control[VISITS + point_index(point)].load(SeqCst)
    }

    /// What nginx's master does when it has reaped a worker.
    fn force_unlock(&self, dead: i32) {
        let _ = self.control[LOCK].compare_exchange(dead as u64, 0, SeqCst, SeqCst);
    }

    /// Everybody but `me` is dead or gone: all that remains must be what is reachable.
    fn settle(&self, me: &Slot, mine: Vec<Held>) {
        self.shared.sweep(me, &alive);
        for record in self.now() {
            let by_me = mine.iter().filter(|held| held.record() == record).count() as u32;
            assert_eq!(in_flight(&self.shared, record), by_me, "{record:?}");
        }
        for held in mine {
            assert_intact(&self.shared, held.record());
            me.release(held);
        }
        for record in self.now() {
            assert_eq!(in_flight(&self.shared, record), 0);
        }
        // One for a dead writer's rebuilding, the next after the grace period.
        let writer = (0..3).find_map(|_| self.shared.try_write(pid(), &Reachable).ok());
        let mut writer = writer.expect("nobody else writes, nobody reads");
        writer.check().expect("what is given out is what is reachable");
        drop(writer);
        let mut slots = 0;
        self.shared.each_slot(|_, _| slots += 1);
        assert_eq!(slots, 1);
    }

    fn now(&self) -> Vec<Ref> {
        records(&self.shared, current_table(&self.shared))
    }
}

fn alive(pid: u32, _: u64) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid as i32, 0) == 0 }
}

fn pid() -> u32 {
    std::process::id()
}

// --- Children ------------------------------------------------------------------------------------

/// In a child: the point at which to raise the signal, the visits left, the signal.
static POINT: AtomicUsize = AtomicUsize::new(usize::MAX);
static LEFT: AtomicU32 = AtomicU32::new(0);
static SIGNAL: AtomicU32 = AtomicU32::new(0);
/// In a child: where to count visits.
static COUNTS: Mutex<Option<&'static [AtomicU64]>> = Mutex::new(None);

fn point_index(name: &str) -> usize {
    points::ALL.iter().position(|&point| point == name).expect("points::ALL is complete")
}

fn at_point(name: &str) {
    let Some(counts) = *COUNTS.lock().unwrap_or_else(PoisonError::into_inner) else { return };
    let i = point_index(name);
    counts[VISITS + i].fetch_add(1, SeqCst);
    if POINT.load(SeqCst) == i && LEFT.fetch_sub(1, SeqCst) == 1 {
        // SAFETY: raises a signal with its default disposition.
        unsafe { libc::raise(SIGNAL.load(SeqCst) as i32) };
    }
}

/// Where a child raises which signal: the point, the visit, the signal.
type Fate = Option<(&'static str, u32, i32)>;

fn spawn(world: &World, fate: Fate, act: impl FnOnce()) -> i32 {
    // SAFETY: the tests run one at a time, so no lock but the allocator's, which survives a fork,
    // is held by another thread; the child leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child != 0 {
        return child;
    }
    // SAFETY: no memory is concerned: an orphan dies, and one that hangs too.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::alarm(50) };
    if let Some((point, visit, signal)) = fate {
        POINT.store(point_index(point), SeqCst);
        LEFT.store(visit, SeqCst);
        SIGNAL.store(signal as u32, SeqCst);
    }
    *COUNTS.lock().unwrap_or_else(PoisonError::into_inner) = Some(world.control);
    let end = catch_unwind(AssertUnwindSafe(act));
    // SAFETY: ends the process without running what belongs to the parent.
    unsafe { libc::_exit(i32::from(end.is_err())) }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Exited(i32),
    Killed(i32),
    Stopped,
}

fn wait(child: i32) -> End {
    let mut status = 0;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) };
    assert_eq!(waited, child);
    if libc::WIFSTOPPED(status) {
        End::Stopped
    } else if libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

fn signal(child: i32, signal: i32) {
    // SAFETY: to a child of ours that was not yet reaped.
    assert_eq!(unsafe { libc::kill(child, signal) }, 0);
}

/// Waits until it holds; what never holds fails the test.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// One test at a time: a fork copies whatever the other threads hold.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    points::set(at_point);
    guard
}

// --- What a process does -------------------------------------------------------------------------

fn acquire(slot: &Slot, i: usize) -> Option<Held> {
    let shared = slot.shared();
    let _section = slot.enter();
    let record = records(shared, current_table(shared))[i];
    let held = slot.acquire(record, LIMIT).ok()?;
    assert_intact(shared, record);
    let now = in_flight(shared, record);
    assert!((1..=LIMIT).contains(&now), "{now} references");
    Some(held)
}

fn release(slot: &Slot, held: Held) {
    assert_intact(slot.shared(), held.record());
    slot.release(held);
}

fn write(slot: &Slot, i: usize) -> bool {
    let Ok(mut writer) = slot.shared().try_write(pid(), &Reachable) else { return false };
    change(&mut writer, i);
    writer.collect();
    true
}

/// Visits every point, in a world in which others died before.
fn tour(world: &World) {
    let slot = world.claim();
    for i in (0..RECORDS).chain(0..RECORDS) {
        if let Some(held) = acquire(&slot, i) {
            release(&slot, held);
        }
    }
    let held: Vec<Held> = (0..4).filter_map(|i| acquire(&slot, i)).collect();
    world.shared.sweep(&slot, &alive);
    for i in 0..RECORDS {
        write(&slot, i);
        if let Ok(mut writer) = world.shared.try_write(pid(), &Reachable) {
            writer.add_slots(u16::from(i == 4), 4);
        }
        world.shared.sweep(&slot, &alive);
    }
    for held in held {
        release(&slot, held);
    }
    write(&slot, 0);
    assert!(slot.leave_for_good());
}

/// A world with a slot of this process, which holds a reference to each record; with a process
/// that died between its step and the end of it, and with a writer that died inside.
fn stage() -> (World, Slot, Vec<Held>) {
    let world = World::new();
    let me = world.claim();
    let mine: Vec<Held> = (0..RECORDS).filter_map(|i| acquire(&me, i)).collect();
    assert_eq!(mine.len(), RECORDS);
    let killed = |point, visit, act: &dyn Fn(&Slot)| {
        let fate = Some((point, visit, libc::SIGKILL));
        let child = spawn(&world, fate, || act(&world.claim()));
        assert_eq!(wait(child), End::Killed(libc::SIGKILL));
        world.force_unlock(child);
    };
    killed("acquire.counted", 3, &|slot| {
        for i in [5, 6, 7] {
            let _ = acquire(slot, i);
        }
    });
    killed("limbo.linked", 2, &|slot| {
        let _ = acquire(slot, 6);
        write(slot, 5);
        write(slot, 6);
    });
    (world, me, mine)
}

// --- Stories -------------------------------------------------------------------------------------

#[test]
fn a_kill_at_any_point_leaves_all_exact() {
    let _alone = alone();
    for &point in points::ALL {
        let mut deaths = 0;
        for visit in [1, 2, 3, 7] {
            let (world, me, mine) = stage();
            let fate = Some((point, visit, libc::SIGKILL));
            let child = spawn(&world, fate, || tour(&world));
            match wait(child) {
                End::Killed(libc::SIGKILL) => deaths += 1,
                end => assert_eq!(end, End::Exited(0), "{point} {visit}"),
            }
            world.force_unlock(child);
            // A second one finds what the first one left, and is not hindered by it.
            let child = spawn(&world, None, || tour(&world));
            assert_eq!(wait(child), End::Exited(0), "{point} {visit}");
            world.settle(&me, mine);
        }
        assert!(deaths > 0, "{point} was never visited");
    }
}

#[test]
fn a_process_stopped_at_any_point_hinders_nobody() {
    let _alone = alone();
    for &point in points::ALL {
        let (world, me, mine) = stage();
        let child = spawn(&world, Some((point, 1, libc::SIGSTOP)), || tour(&world));
        assert_eq!(wait(child), End::Stopped, "{point} was never visited");
        assert!(world.visits(point) > 0);
        for i in (0..RECORDS).cycle().take(200) {
            let held = acquire(&me, i).expect("traffic goes on");
            release(&me, held);
        }
        world.shared.sweep(&me, &alive);
        let inside = world.shared.writer() == child as u32;
        let writes = write(&me, 3);
        assert!(!(inside && writes), "{point}: two writers");
        if point == "section.entered" {
            assert!(!world.shared.passed(world.shared.advance()));
        }
        signal(child, libc::SIGCONT);
        assert_eq!(wait(child), End::Exited(0), "{point}");
        world.settle(&me, mine);
    }
}

/// Takes all the memory there is and writes over it.
fn scribble(world: &World) -> Vec<Ref> {
    let mut writer = world.shared.try_write(pid(), &Reachable).expect("nobody else writes");
    writer.collect();
    let taken: Vec<Ref> = std::iter::from_fn(|| writer.alloc_reserved(1)).collect();
    for &at in &taken {
        words(&world.shared, at, 1).iter().for_each(|word| word.store(u64::MAX, Relaxed));
    }
    for &at in &taken {
        writer.free(at, 1);
    }
    taken
}

#[test]
fn what_a_stopped_reader_sees_is_not_reused() {
    let _alone = alone();
    let world = World::new();
    let me = world.claim();
    let child = spawn(&world, None, || {
        let slot = world.claim();
        let section = slot.enter();
        let table = current_table(&world.shared);
        // SAFETY: stops this process until the parent continues it.
        unsafe { libc::raise(libc::SIGSTOP) };
        assert_eq!(words(&world.shared, table, TABLE)[0].load(Relaxed), stamp(TABLE, table));
        for record in records(&world.shared, table) {
            assert_intact(&world.shared, record);
        }
        drop(section);
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGSTOP) };
        assert!(slot.leave_for_good());
    });
    assert_eq!(wait(child), End::Stopped);
    let seen = current_table(&world.shared);
    for i in 0..RECORDS {
        assert!(write(&me, i));
    }
    let epoch = world.shared.advance();
    assert!(!world.shared.passed(epoch));
    let taken = scribble(&world);
    assert!(!taken.is_empty() && !taken.contains(&seen), "the stopped reader's table is reused");
    assert!(!world.shared.passed(epoch));

    signal(child, libc::SIGCONT);
    assert_eq!(wait(child), End::Stopped, "the reader saw what was there before");
    assert!(world.shared.passed(epoch));
    assert!(scribble(&world).contains(&seen));
    signal(child, libc::SIGCONT);
    assert_eq!(wait(child), End::Exited(0));
    world.settle(&me, Vec::new());
}

/// Dead inside a section, it holds nothing back once it is swept.
#[test]
fn a_killed_reader_holds_nothing_back() {
    let _alone = alone();
    let world = World::new();
    let me = world.claim();
    let fate = Some(("section.entered", 1, libc::SIGKILL));
    let child = spawn(&world, fate, || {
        let _ = acquire(&world.claim(), 0);
    });
    assert_eq!(wait(child), End::Killed(libc::SIGKILL));
    let epoch = world.shared.advance();
    assert!(!world.shared.passed(epoch));
    assert_eq!(world.shared.sweep(&me, &alive).slots, 1);
    assert!(world.shared.passed(epoch));
    world.settle(&me, Vec::new());
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn churn(world: &World, seed: u64, progress: &AtomicU64) {
    let slot = world.claim();
    let mut random = Random(seed);
    let mut held: Vec<Held> = Vec::new();
    loop {
        match random.below(16) {
            0..8 => held.extend(acquire(&slot, random.below(RECORDS))),
            8..14 if !held.is_empty() => {
                let one = held.swap_remove(random.below(held.len()));
                release(&slot, one);
            }
            14 => {
                write(&slot, random.below(RECORDS));
            }
            15 => {
                world.shared.sweep(&slot, &alive);
            }
            _ => {}
        }
        progress.fetch_add(1, SeqCst);
    }
}

#[test]
fn two_hundred_kills_under_churn_leave_all_exact() {
    let _alone = alone();
    const ROUNDS: usize = 10;
    const KILLS: usize = 20;
    let mut random = Random(0x1234_5678_9abc_def1);
    for _ in 0..ROUNDS {
        let world = World::new();
        let me = world.claim();
        let mut start = |i: usize| {
            let progress = &world.control[PROGRESS + i];
            progress.store(0, SeqCst);
            let seed = random.below(usize::MAX) as u64 | 1;
            spawn(&world, None, || churn(&world, seed, progress))
        };
        let mut children: Vec<i32> = (0..4).map(&mut start).collect();
        let kill = |child: i32| {
            signal(child, libc::SIGKILL);
            assert_eq!(wait(child), End::Killed(libc::SIGKILL));
            world.force_unlock(child);
        };
        for kills in 0..KILLS {
            let i = kills * 7 % 4;
            let enough = (kills * kills * 131 % 2_000) as u64;
            let progress = &world.control[PROGRESS + i];
            until("a child gets on", || progress.load(SeqCst) > enough);
            kill(children[i]);
            // The parent and the other three sweep at the same time.
            world.shared.sweep(&me, &alive);
            children[i] = start(i);
        }
        for child in children {
            kill(child);
        }
        world.settle(&me, Vec::new());
    }
}
