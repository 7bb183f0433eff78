//! The cache of a store among real processes, which are killed and stopped at random moments.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use peerage_core::route::Status;
use peerage_shm::{AtomicU64, Region};
use peerage_zone::cache::{Cache, Kind, Put, Who};

const BYTES: usize = 192 << 10;
const CONTROL: usize = 64;
const NOW: u64 = 1 << 38;
const KEYS: u64 = 900;
const WRITERS: usize = 4;
const READERS: usize = 2;

fn mapping(bytes: usize) -> &'static [AtomicU64] {
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
    unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8) }
}

fn alive(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid as i32, 0) == 0 }
}

fn me() -> Who<'static> {
    Who { pid: std::process::id(), alive: &alive }
}

fn spawn(act: impl FnOnce()) -> i32 {
    // SAFETY: no other thread of this process holds a lock but the allocator's, which survives a
    // fork; the child leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child != 0 {
        return child;
    }
    // SAFETY: no memory is concerned: an orphan dies, and one that hangs too.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::alarm(60) };
    let end = catch_unwind(AssertUnwindSafe(act));
    // SAFETY: ends the process without running what belongs to the parent.
    unsafe { libc::_exit(i32::from(end.is_err())) }
}

fn signal(child: i32, signal: i32) {
    // SAFETY: to a child of ours that was not yet reaped.
    assert_eq!(unsafe { libc::kill(child, signal) }, 0);
}

/// What it ended with: the signal, or nothing and its code.
fn wait(child: i32) -> (Option<i32>, i32) {
    let mut status = 0;
    // SAFETY: `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    (signal, libc::WEXITSTATUS(status))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

/// What agrees with itself: the name of the app says whose it is and which write, and the status is
/// a sum of both. Short and long ones.
fn app_of(key: u64, write: u64) -> String {
    format!("app-{key}-{write}-").repeat(1 + (write % 4) as usize * 2)
}

fn sum_of(key: &str, app: &str) -> String {
    let bytes = key.bytes().chain(app.bytes());
    format!("s{:x}", bytes.fold(7, |sum: u64, byte| mix(sum ^ u64::from(byte))))
}

fn value_of(write: u64) -> String {
    let body = format!("{write}-").repeat(1 + (write % 40) as usize);
    format!("{body}{:x}", body.bytes().fold(7, |sum: u64, byte| mix(sum ^ u64::from(byte))))
}

fn writes(cache: &Cache, seed: u64, progress: &AtomicU64) {
    let who = me();
    for n in 0_u64.. {
        let random = mix(seed.wrapping_add(n));
        let (key, write, now) = (random % KEYS, random >> 40, NOW + n);
        let name = format!("tenant-{key}");
        let read = cache.begin(Kind::Tenant, name.as_bytes(), now);
        let flight = cache.claim(Kind::Tenant, name.as_bytes(), now, 1 << 30, &who);
        match random >> 20 & 15 {
            0 => cache.put_absent(Kind::Tenant, name.as_bytes(), read, now, &who),
            1 => cache.invalidate(Kind::Tenant, name.as_bytes()),
            2..5 => {
                let name = format!("app-{}", key % 50);
                let read = cache.begin(Kind::App, name.as_bytes(), now);
                cache.put_app(name.as_bytes(), value_of(write).as_bytes(), read, now, &who);
            }
            _ => {
                let app = app_of(key, write);
                let status = Status::parse(&sum_of(&name, &app)).expect("a word");
                cache.put_tenant(name.as_bytes(), Some(&app), &status, read, now, &who);
            }
        }
        flight.into_iter().for_each(|flight| cache.land(flight));
        progress.fetch_add(1, SeqCst);
    }
}

/// Looks at a tenant and an app; what is there is whole.
fn look(cache: &Cache, n: u64) -> bool {
    let (key, mut name) = (format!("tenant-{}", n % KEYS), [[0; 8]; 32]);
    let found = cache.tenant(key.as_bytes(), NOW, &mut name);
    if let Some(seen) = &found {
        let app = std::str::from_utf8(&name.as_flattened()[..seen.app_len]).expect("a text");
        assert!(app.starts_with(&format!("app-{}-", n % KEYS)), "{key}: {app}");
        assert_eq!(seen.status.as_str(), sum_of(&key, app), "{key}: {app}");
    }
    let mut value = Vec::new();
    if cache.app(format!("app-{}", n % 50).as_bytes(), NOW, &mut value).is_some() {
        let value = std::str::from_utf8(&value).expect("a text");
        let write = value.split('-').next().and_then(|n| n.parse().ok()).expect("a number");
        assert_eq!(value, value_of(write));
    }
    found.is_some()
}

fn reads(cache: &Cache, seed: u64, progress: &AtomicU64) {
    for n in 0_u64.. {
        if look(cache, mix(seed.wrapping_add(n))) {
            progress.fetch_add(1, SeqCst);
        }
    }
}

#[test]
fn two_hundred_kills_and_stops_leave_whole_what_is_read() {
    let control = mapping(CONTROL * 8);
    let cache = Cache::format(Region::new(mapping(BYTES)), 1, [11, 13]).expect("it fits");
    let start = |i: usize, seed: u64| {
        control[i].store(0, SeqCst);
        spawn(|| {
            if i < WRITERS {
                writes(&cache, seed, &control[i])
            } else {
                reads(&cache, seed, &control[i])
            }
        })
    };
    let mut children: Vec<i32> = (0..WRITERS + READERS).map(|i| start(i, i as u64 * 99)).collect();
    for turn in 0..200_u64 {
        let random = mix(turn + 1_000);
        let i = random as usize % children.len();
        let enough = 1 + (random >> 8) % 3_000;
        until("it gets on", || control[i].load(SeqCst) > enough);
        let (child, other) = (children[i], (i + 1) % children.len());
        if turn % 4 == 0 {
            // Stopped wherever it is, it hinders nobody.
            signal(child, libc::SIGSTOP);
            let before = control[other].load(SeqCst);
            until("another gets on", || control[other].load(SeqCst) > before + 200);
            signal(child, libc::SIGCONT);
            continue;
        }
        signal(child, libc::SIGKILL);
        assert_eq!(wait(child).0, Some(libc::SIGKILL), "a reader found something torn");
        children[i] = start(i, random);
    }
    for child in children {
        signal(child, libc::SIGKILL);
        assert_eq!(wait(child).0, Some(libc::SIGKILL), "a reader found something torn");
    }
    // All that they died over is to be had again.
    let who = me();
    for key in 0..KEYS {
        let (name, app) = (format!("tenant-{key}"), app_of(key, 4));
        let read = cache.begin(Kind::Tenant, name.as_bytes(), NOW << 1);
        let status = Status::parse(&sum_of(&name, &app)).expect("a word");
        let put = cache.put_tenant(name.as_bytes(), Some(&app), &status, read, NOW << 1, &who);
        assert_eq!(put, Put::Stored);
        assert!(look(&cache, key));
        // Whether who asks is alive is looked at now and then.
        let mut polls = (NOW + (1 << 24)..).step_by(8).take(10);
        let flight =
            polls.find_map(|now| cache.claim(Kind::Tenant, name.as_bytes(), now, 1 << 40, &who));
        cache.land(flight.expect("who had it is dead"));
    }
}
