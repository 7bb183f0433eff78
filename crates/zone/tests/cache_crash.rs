//! The cache of a store, whose writers die or stop at every point: nothing that is read is torn,
//! nobody is held up, and no announcement of a change is lost.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use peerage_core::route::Status;
use peerage_core::route::decide::Changed;
use peerage_shm::AtomicU64;
use peerage_zone::cache::{Cache, Kind, Put, Who};
use peerage_zone::{AppName, Region, points};

const NOW: u64 = 1 << 38;
const ROOM: AppName = [[0; 8]; 32];
const ALIVE: &dyn Fn(u32) -> bool = &|_| true;
const ONE_DEAD: &dyn Fn(u32) -> bool = &|pid| pid != 1;

type Act = Box<dyn FnOnce()>;

thread_local! {
    static PLAN: Cell<Option<(&'static str, Act)>> = const { Cell::new(None) };
}

/// One for all tests, which run at the same time: each has a plan of its own.
fn hook(point: &str) {
    match PLAN.take() {
        Some((at, act)) if at == point => act(),
        plan => PLAN.set(plan),
    }
}

/// Does something, and `act` once it is at a point.
fn at(point: &'static str, act: impl FnOnce() + 'static, doing: impl FnOnce()) {
    points::set(hook);
    PLAN.set(Some((point, Box::new(act))));
    doing();
    assert!(PLAN.take().is_none(), "{point} was never visited");
}

/// Does something, and takes no further step from a point on, as what is dead; or as what is
/// stopped, as long as it is said to live.
fn ends(point: &'static str, doing: impl FnOnce()) {
    let dies = || resume_unwind(Box::new(()));
    let ended = catch_unwind(AssertUnwindSafe(|| at(point, dies, doing)));
    assert!(ended.is_err());
}

fn cache() -> Cache {
    let words: Box<[AtomicU64]> = (0..24 << 10).map(|_| AtomicU64::new(0)).collect();
    Cache::format(Region::new(Box::leak(words)), 1, [3, 5]).expect("it fits")
}

fn put(cache: &Cache, key: &str, app: &str, now: u64, who: &Who<'_>) -> Put {
    let read = cache.begin(Kind::Tenant, key.as_bytes(), now);
    let word = Status::parse(&format!("of-{}", app.len())).unwrap();
    cache.put_tenant(key.as_bytes(), Some(app), &word, read, now, who)
}

fn read(cache: &Cache, key: &str) -> Option<(String, bool)> {
    let mut app = ROOM;
    let seen = cache.tenant(key.as_bytes(), NOW, &mut app)?;
    let name = std::str::from_utf8(&app.as_flattened()[..seen.app_len]).unwrap();
    assert_eq!(seen.status.as_str(), format!("of-{}", name.len()), "{key} {name}");
    Some((name.to_owned(), seen.changed != Changed::No))
}

/// Points of a put, and whether the entry is there when its writer ends at one.
const POINTS: [(&str, bool); 3] =
    [("cache.claimed", false), ("cache.written", false), ("cache.published", true)];

#[test]
fn what_a_writer_ends_over_is_not_there_or_marked_and_written_by_the_next() {
    for (point, there) in POINTS {
        for alive in [ONE_DEAD, ALIVE] {
            for (before, after) in [(None, "new"), (Some("old-name"), "new"), (Some("a"), "b")] {
                let cache = cache();
                let (one, two) = (Who { pid: 1, alive }, Who { pid: 2, alive });
                before.map(|app| put(&cache, "acme", app, NOW, &two));
                ends(point, || assert_ne!(put(&cache, "acme", after, NOW + 1, &one), Put::Busy));
                let seen = read(&cache, "acme");
                let expected = there.then(|| (after.to_owned(), true));
                assert_eq!(seen, expected, "{point} {before:?}");
                assert_eq!(put(&cache, "acme", "last", NOW + 2, &two), Put::Stored);
                let last = Some(("last".to_owned(), false));
                assert_eq!(read(&cache, "acme"), last, "{point} {before:?}");
                cache.put_absent(
                    Kind::Tenant,
                    b"acme",
                    cache.begin(Kind::Tenant, b"acme", NOW + 3),
                    NOW + 3,
                    &two,
                );
                assert_eq!(read(&cache, "acme"), None, "{point}");
            }
        }
    }
}

/// One after the other stops, in each place of each set: the rest has its places, and the dead
/// ones are had again.
#[test]
fn stopped_writers_take_their_places_and_no_more() {
    for (point, _) in POINTS {
        let cache = cache();
        let capacity = cache.figures().tenants.capacity;
        let two = Who { pid: 2, alive: ALIVE };
        for i in 0..capacity / 4 {
            let key = format!("stopped-{i}");
            let one = Who { pid: 1, alive: ALIVE };
            ends(point, || assert_ne!(put(&cache, &key, "app", NOW, &one), Put::Busy));
        }
        let all = 4 * capacity;
        let busy = (0..all)
            .filter(|i| put(&cache, &format!("tenant-{i}"), "app", NOW + i, &two) == Put::Busy);
        assert_eq!(busy.count(), 0, "{point}");
        let there = |n: u64| {
            (0..all).filter(|i| read(&cache, &format!("tenant-{i}")).is_some()).count() as u64 >= n
        };
        assert!(there(capacity / 2), "{point}");
        let two = Who { pid: 2, alive: ONE_DEAD };
        for i in 0..all {
            put(&cache, &format!("tenant-{i}"), "app", NOW + all + i, &two);
        }
        let long = 60;
        assert!(there(capacity - long), "{point}: what the dead had is in use again");
    }
}

/// Two writers at once put a key into two places, also of two sets, and one of them dies before it
/// looks for the other's.
#[test]
fn what_is_there_twice_goes_with_the_next_put_and_with_a_drop() {
    let (one, two) = (Who { pid: 1, alive: ONE_DEAD }, Who { pid: 2, alive: ONE_DEAD });
    let cache = cache();
    let capacity = cache.figures().tenants.capacity;
    (0..capacity / 2).for_each(|i| _ = put(&cache, &format!("tenant-{i}"), "app", NOW, &two));
    let entries = || cache.figures().tenants.entries;
    let (before, evicted) = (entries(), cache.figures().tenants.evicted);
    let mut twice = 0;
    for i in 0..capacity / 4 {
        let key = format!("twice-{i}");
        let other = key.clone();
        let others = move || {
            assert_eq!(put(&cache, &other, "later", NOW + 5, &two), Put::Stored);
            PLAN.set(Some(("cache.published", Box::new(|| resume_unwind(Box::new(()))))));
        };
        let doing = || at("cache.written", others, || _ = put(&cache, &key, "early", NOW, &one));
        assert!(catch_unwind(AssertUnwindSafe(doing)).is_err());
        twice += u64::from(entries() == before + 2);
        if i % 2 == 0 {
            assert_eq!(put(&cache, &key, "last", NOW + 6, &two), Put::Stored);
            assert_eq!(read(&cache, &key), Some(("last".to_owned(), false)));
            assert_eq!(entries(), before + 1, "{key}");
        }
        let dropped = cache.begin(Kind::Tenant, key.as_bytes(), NOW + 7);
        cache.put_absent(Kind::Tenant, key.as_bytes(), dropped, NOW + 7, &two);
        assert_eq!((read(&cache, &key), entries()), (None, before), "{key}");
    }
    assert!(twice > capacity / 5, "{twice}");
    assert_eq!(cache.figures().tenants.evicted, evicted);
}

#[test]
fn a_change_told_at_any_point_of_a_put_marks_it() {
    let one = Who { pid: 1, alive: ALIVE };
    for (point, _) in POINTS {
        let cache = cache();
        let tells = move || cache.invalidate(Kind::Tenant, b"acme");
        at(point, tells, || assert_eq!(put(&cache, "acme", "app", NOW, &one), Put::Stored));
        assert_eq!(read(&cache, "acme"), Some(("app".to_owned(), true)), "{point}");
        let begun = cache.begin(Kind::Tenant, b"acme", NOW);
        at("cache.absent", tells, || cache.put_absent(Kind::Tenant, b"acme", begun, NOW, &one));
        assert!(cache.absent(Kind::Tenant, b"acme").expect("it is there").changed != Changed::No);
    }
}

#[test]
fn a_stopped_writer_that_goes_on_leaves_what_came_after_it() {
    let (one, two) = (Who { pid: 1, alive: ALIVE }, Who { pid: 2, alive: ALIVE });
    for (point, _) in POINTS {
        let cache = cache();
        let others = move || {
            assert_eq!(put(&cache, "acme", &"later".repeat(20), NOW + 5, &two), Put::Stored);
            assert_eq!(put(&cache, "acme", "latest", NOW + 6, &two), Put::Stored);
        };
        at(point, others, || assert_eq!(put(&cache, "acme", "early", NOW, &one), Put::Stored));
        assert_eq!(read(&cache, "acme").map(|seen| seen.0).as_deref(), Some("latest"), "{point}");
        assert_eq!(cache.figures().tenants.entries, 1, "{point}: once");
    }
}
