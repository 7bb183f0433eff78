//! The cache of a store: what is put is read, within its bounds, and no longer than it holds.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Barrier;

use peerage_core::route::Status;
use peerage_core::route::decide::{Changed, Down};
use peerage_core::route::limiter::Rate;
use peerage_core::route::saved::Saved;
use peerage_shm::{AtomicU64, Ordering::Relaxed};
use peerage_zone::cache::{Cache, Cursor, Kind, Put, Read, TooSmall, Who};
use peerage_zone::{AppName, Region};
use proptest::prelude::*;

const BUILD: u64 = 7;
const NOW: u64 = 1 << 38;
const ME: Who<'_> = Who { pid: 100, alive: &|_| true };
const ROOM: AppName = [[0; 8]; 32];

fn region(bytes: usize, fill: u64) -> Region {
    let words: Box<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(fill)).collect();
    Region::new(Box::leak(words))
}

fn cache(bytes: usize) -> Cache {
    Cache::format(region(bytes, 0), BUILD, [3, 5]).expect("it fits")
}

fn status(word: &str) -> Status {
    Status::parse(word).unwrap()
}

fn begin(cache: &Cache, key: &str) -> Read {
    cache.begin(Kind::Tenant, key.as_bytes(), NOW)
}

fn put_at(cache: &Cache, key: &str, app: &str, word: &str, at: u64) -> Put {
    let read = cache.begin(Kind::Tenant, key.as_bytes(), at);
    let app = Some(app).filter(|app| !app.is_empty());
    cache.put_tenant(key.as_bytes(), app, &status(word), read, at, &ME)
}

fn put(cache: &Cache, key: &str, app: &str) {
    assert_eq!(put_at(cache, key, app, "active", NOW), Put::Stored, "{key}");
}

fn put_app(cache: &Cache, name: &str, value: &str) -> Put {
    let read = cache.begin(Kind::App, name.as_bytes(), NOW);
    cache.put_app(name.as_bytes(), value.as_bytes(), read, NOW, &ME)
}

/// App and status.
fn tenant(cache: &Cache, key: &str) -> Option<(String, String)> {
    let mut app = ROOM;
    let seen = cache.tenant(key.as_bytes(), NOW, &mut app)?;
    let name = app.as_flattened()[..seen.app_len].to_vec();
    Some((String::from_utf8(name).unwrap(), seen.status.to_string()))
}

fn app(cache: &Cache, name: &str) -> Option<String> {
    let mut value = b"what was there".to_vec();
    let seen = cache.app(name.as_bytes(), NOW, &mut value)?;
    assert_eq!(cache.app_seen(name.as_bytes(), NOW), Some(seen));
    Some(String::from_utf8(value).unwrap())
}

fn is_marked(cache: &Cache, key: &str) -> bool {
    cache.tenant(key.as_bytes(), NOW, &mut ROOM.clone()).expect("it is there").changed
        != Changed::No
}

fn absent(cache: &Cache, key: &str) -> Option<bool> {
    Some(cache.absent(Kind::Tenant, key.as_bytes())?.changed != Changed::No)
}

fn put_absent(cache: &Cache, key: &str) {
    cache.put_absent(Kind::Tenant, key.as_bytes(), begin(cache, key), NOW, &ME);
}

#[test]
fn what_is_put_is_read_at_every_length() {
    let cache = cache(8 << 20);
    let long = |n: usize, letter: &str| letter.repeat(n);
    for key in [1, 7, 8, 9, 16, 39, 40, 41, 72, 255] {
        for name in [0, 1, 8, 40, 48, 255] {
            let (key, name) = (long(key, "k"), long(name, "n"));
            for word in ["active", "suspended", "moved", &long(32, "s")] {
                assert_eq!(put_at(&cache, &key, &name, word, NOW), Put::Stored);
                assert_eq!(tenant(&cache, &key), Some((name.clone(), word.to_owned())));
            }
        }
    }
    assert_eq!(cache.figures().tenants.entries, 10, "each once, whatever its length was before");
    for (name, value) in [(1, 0), (8, 8), (40, 160), (40, 170), (255, 7_937), (1, 8_191)] {
        let (name, value) = (long(name, "n"), long(value, "v"));
        assert_eq!(put_app(&cache, &name, &value), Put::Stored);
        assert_eq!(app(&cache, &name), Some(value));
    }
    assert_eq!(put_app(&cache, "n", &long(8_192, "v")), Put::TooLong);
    assert_eq!(app(&cache, "n").map(|value| value.len()), Some(8_191), "the last that was not");
    let key = long(256, "k");
    assert_eq!(put_at(&cache, &key, "a", "active", NOW), Put::TooLong);
    assert_eq!(put_at(&cache, "", "a", "active", NOW), Put::TooLong);
    assert_eq!(put_at(&cache, "a", &key, "active", NOW), Put::TooLong);
    assert_eq!((tenant(&cache, &key), tenant(&cache, "n"), app(&cache, "k")), (None, None, None));
}

#[test]
fn a_digest_tells_one_value_from_another() {
    let cache = cache(1 << 20);
    let digest = |value: &str| {
        put_app(&cache, "a", value);
        cache.app_seen(b"a", NOW).expect("it is there").digest
    };
    let first = digest("10.0.0.1:80");
    assert_ne!(first, digest("10.0.0.2:80"));
    assert_eq!(first, digest("10.0.0.1:80"));
}

#[test]
fn a_region_is_what_it_was_made_for() {
    assert!(matches!(Cache::format(region((192 << 10) - 8, 0), BUILD, [1, 2]), Err(TooSmall)));
    let region = region(192 << 10, 0x5a5a_5a5a_5a5a_5a5b);
    assert!(Cache::attach(region, BUILD).is_none());
    let made = Cache::format(region, BUILD, [1, 2]).expect("it fits");
    assert_eq!(made.figures().tenants.entries, 0);
    put(&made, "acme", "orders");
    assert_eq!(put_app(&made, "orders", &"v".repeat(8_000)), Put::Stored);
    let other = Cache::attach(region, BUILD).expect("it is there");
    assert_eq!(tenant(&other, "acme"), Some(("orders".to_owned(), "active".to_owned())));
    assert!(Cache::attach(region, BUILD + 1).is_none());
    let whole = region.words(peerage_shm::Ref::from_raw(2), 1024).expect("it has them");
    assert!(Cache::attach(Region::new(whole), BUILD).is_none());
    let again = Cache::format(region, BUILD, [1, 2]).expect("it fits");
    assert_eq!(tenant(&again, "acme"), None);
}

#[test]
fn what_is_told_to_have_changed_between_question_and_answer_is_marked() {
    let cache = cache(1 << 20);
    let act = |key: &str, between: &dyn Fn()| {
        let read = begin(&cache, key);
        between();
        cache.put_tenant(key.as_bytes(), Some("a"), &Status::Active, read, NOW, &ME);
        let positive = is_marked(&cache, key);
        let read = begin(&cache, key);
        between();
        cache.put_absent(Kind::Tenant, key.as_bytes(), read, NOW, &ME);
        assert_eq!(tenant(&cache, key), None);
        (positive, absent(&cache, key))
    };
    assert_eq!(act("a", &|| ()), (false, Some(false)));
    assert_eq!(act("b", &|| cache.invalidate(Kind::Tenant, b"b")), (true, Some(true)));
    assert_eq!(act("c", &|| cache.mark_all()), (true, Some(true)));
    assert_eq!(act("d", &|| cache.invalidate(Kind::App, b"d")), (false, Some(false)));
}

#[test]
fn what_is_cached_is_marked_by_what_is_told_and_by_nothing_else() {
    let cache = cache(1 << 20);
    let keys: Vec<String> = (0..1_000).map(|i| format!("tenant-{i}")).collect();
    keys.iter().for_each(|key| put(&cache, key, "app"));
    put_absent(&cache, "guess");
    put_app(&cache, "tenant-7", "10.0.0.1");
    cache.invalidate(Kind::Tenant, b"tenant-7");
    cache.invalidate(Kind::Tenant, b"guess");
    let marked: Vec<_> = keys.iter().filter(|key| is_marked(&cache, key)).collect();
    assert_eq!(marked, ["tenant-7"]);
    assert_eq!(absent(&cache, "guess"), Some(true));
    assert_eq!(cache.app_seen(b"tenant-7", NOW).expect("it is there").changed, Changed::No);
    put(&cache, "tenant-7", "app");
    assert!(!is_marked(&cache, "tenant-7"));
    cache.mark_all();
    assert!(keys.iter().all(|key| is_marked(&cache, key)));
    assert!(cache.app_seen(b"tenant-7", NOW).expect("it is there").changed != Changed::No);
    put(&cache, "tenant-8", "app");
    assert!(!is_marked(&cache, "tenant-8"));
}

/// Whatever happens to a place, who knows it knows what happened.
#[test]
fn a_place_of_an_app_holds_until_something_is_said_of_it() {
    let cache = cache(1 << 20);
    assert!(cache.app_place(b"app").is_none());
    for name in ["app", &"long".repeat(60)] {
        let place = || cache.app_place(name.as_bytes()).expect("it is there");
        put_app(&cache, name, "10.0.0.1");
        let first = place();
        assert_eq!(first.asked(), (NOW, false));
        put_app(&cache, "other", "10.0.0.2");
        cache.invalidate(Kind::Tenant, name.as_bytes());
        assert!(cache.holds(&first, NOW) && cache.holds(&place(), NOW));
        // The same anew is something new.
        put_app(&cache, name, "10.0.0.1");
        assert!(!cache.holds(&first, NOW));
        let second = place();
        cache.invalidate(Kind::App, name.as_bytes());
        assert!(!cache.holds(&second, NOW) && cache.app_place(name.as_bytes()).is_none());
        put_app(&cache, name, "10.0.0.1");
        let third = place();
        cache.mark_all();
        assert!(!cache.holds(&third, NOW) && cache.app_place(name.as_bytes()).is_none());
    }
    // Another one in its place.
    put_app(&cache, "app", "10.0.0.1");
    let place = cache.app_place(b"app").expect("it is there");
    for i in 0..20_000 {
        put_app(&cache, &format!("app-{i}"), "10.0.0.1");
    }
    assert!(app(&cache, "app").is_none() && !cache.holds(&place, NOW));
}

/// Who has the place of an app has it in use.
#[test]
fn an_app_whose_place_is_used_is_not_pushed_out() {
    let cache = cache(1 << 20);
    put_app(&cache, "app", "10.0.0.1");
    let place = cache.app_place(b"app").expect("it is there");
    for i in 0..20_000 {
        let now = NOW + 2_000 * i;
        let name = format!("app-{i}");
        let read = cache.begin(Kind::App, name.as_bytes(), now);
        cache.put_app(name.as_bytes(), b"10.0.0.1", read, now, &ME);
        assert!(cache.holds(&place, now + 1_500), "{i}");
    }
}

#[test]
fn what_was_asked_for_later_stays() {
    let cache = cache(1 << 20);
    let early = cache.begin(Kind::Tenant, b"a", NOW);
    let stored = put_at(&cache, "a", "later", "active", NOW + 5);
    assert_eq!(stored, Put::Stored);
    cache.put_tenant(b"a", Some("early"), &Status::Active, early, NOW + 9, &ME);
    assert_eq!(tenant(&cache, "a").map(|seen| seen.0), Some("later".to_owned()));
    cache.put_absent(Kind::Tenant, b"a", early, NOW + 9, &ME);
    assert!(tenant(&cache, "a").is_some());
    // Unless that may have changed.
    cache.invalidate(Kind::Tenant, b"a");
    let early = cache.begin(Kind::Tenant, b"a", NOW);
    cache.put_tenant(b"a", Some("early"), &Status::Active, early, NOW + 9, &ME);
    assert_eq!(tenant(&cache, "a").map(|seen| seen.0), Some("early".to_owned()));
    // Nor is what is not there forgotten for an older answer.
    cache.put_absent(Kind::Tenant, b"b", cache.begin(Kind::Tenant, b"b", NOW + 5), NOW, &ME);
    put(&cache, "b", "early");
    assert!(absent(&cache, "b").is_some());
    assert_eq!(put_at(&cache, "b", "later", "active", NOW + 6), Put::Stored);
    assert_eq!(absent(&cache, "b"), None);
}

#[test]
fn an_app_that_is_no_more_keeps_its_last_servers() {
    let cache = cache(1 << 20);
    put_app(&cache, "a", "10.0.0.1");
    cache.put_absent(Kind::App, b"a", cache.begin(Kind::App, b"a", NOW), NOW, &ME);
    assert_eq!(app(&cache, "a").as_deref(), Some("10.0.0.1"));
    assert!(cache.absent(Kind::App, b"a").is_some());
    assert_eq!(absent(&cache, "a"), None, "a tenant of that name is another matter");
    put_app(&cache, "a", "10.0.0.1");
    assert!(cache.absent(Kind::App, b"a").is_none());
}

#[test]
fn tracked_is_what_was_read_while_somebody_listened() {
    let cache = cache(1 << 20);
    let tracked = |key: &str, read: Read, now| {
        cache.put_tenant(key.as_bytes(), Some("a"), &Status::Active, read, now, &ME);
        cache.tenant(key.as_bytes(), NOW, &mut ROOM.clone()).expect("it is there").tracked
    };
    let before = cache.begin(Kind::Tenant, b"a", NOW);
    assert!(!cache.is_tracked(NOW));
    cache.track(NOW + 10);
    assert!(cache.is_tracked(NOW) && !cache.is_tracked(NOW + 10));
    let within = cache.begin(Kind::Tenant, b"a", NOW);
    assert!(!tracked("a", before, NOW));
    assert!(tracked("b", within, NOW + 9));
    assert!(!tracked("c", within, NOW + 10));
}

#[test]
fn guessed_names_push_no_tenant_out() {
    let cache = cache(1 << 20);
    let keys: Vec<String> = (0..1_000).map(|i| format!("tenant-{i}")).collect();
    keys.iter().for_each(|key| put(&cache, key, "app"));
    put_app(&cache, "app", "10.0.0.1:8080");
    for i in 0..20_000 {
        let key = format!("guess-{i}");
        let read = cache.begin(Kind::Tenant, key.as_bytes(), NOW + i);
        cache.put_absent(Kind::Tenant, key.as_bytes(), read, NOW + i, &ME);
    }
    assert!(keys.iter().all(|key| tenant(&cache, key).is_some()));
    assert!(app(&cache, "app").is_some());
    let figures = cache.figures();
    assert_eq!((figures.tenants.entries, figures.tenants.evicted), (1_000, 0));
    assert_eq!(figures.negatives.entries, figures.negatives.capacity);
    assert_eq!(figures.negatives.evicted, 20_000 - figures.negatives.capacity);
    let known = (0..20_000).filter(|i| absent(&cache, &format!("guess-{i}")).is_some()).count();
    assert_eq!(known as u64, figures.negatives.entries, "those that came last");
    assert!((19_900..20_000).all(|i| absent(&cache, &format!("guess-{i}")).is_some()));
}

#[test]
fn a_million_tenants_leave_the_latest() {
    let cache = cache(4 << 20);
    let n = 1_000_000;
    for i in 0..n {
        let at = NOW + i * 2_000;
        assert_eq!(put_at(&cache, &format!("tenant-{i}"), "app", "active", at), Put::Stored);
        // One of them is used all the time.
        assert!(cache.tenant(b"tenant-0", at, &mut ROOM.clone()).is_some(), "{i}");
    }
    let figures = cache.figures().tenants;
    assert_eq!(figures.entries + figures.evicted, n);
    assert!(figures.entries <= figures.capacity);
    let there = (0..n).filter(|i| tenant(&cache, &format!("tenant-{i}")).is_some()).count() as u64;
    assert_eq!(there, figures.entries);
    // A set has its own latest ones: nearly all of half the room.
    let latest = n - figures.capacity / 2..n;
    let kept = latest.clone().filter(|i| tenant(&cache, &format!("tenant-{i}")).is_some()).count();
    assert!(kept as u64 > (latest.end - latest.start) * 85 / 100, "{kept} of {latest:?}");
}

#[test]
fn a_hundred_thousand_tenants_fit_where_there_are_places_for_more() {
    let cache = cache(32 << 20);
    let keys: Vec<String> = (0..100_000).map(|i| format!("tenant-{i}")).collect();
    keys.iter().for_each(|key| put(&cache, key, "app"));
    let figures = cache.figures().tenants;
    assert_eq!((figures.entries, figures.evicted), (100_000, 0));
    assert!(keys.iter().all(|key| tenant(&cache, key).is_some()));
    // The fuller it is, the more of them find both their sets full.
    let (short, mut n) = (figures.capacity - 3_232, figures.entries);
    for (percent, lost) in [(80, 0.0), (90, 0.000_5), (95, 0.006)] {
        while n < short * percent / 100 {
            put(&cache, &format!("tenant-{n}"), "app");
            n += 1;
        }
        let evicted = cache.figures().tenants.evicted as f64;
        assert!(evicted <= lost * n as f64, "{evicted} of {n}, {percent} % of {short}");
    }
}

#[test]
fn one_of_many_asks() {
    let cache = cache(1 << 20);
    let barrier = Barrier::new(8);
    for round in 0..200_u64 {
        let key = round.to_string();
        let flights = std::thread::scope(|scope| {
            let (barrier, key) = (&barrier, &key);
            let ask = move |pid| {
                barrier.wait();
                let who = Who { pid, alive: &|_| true };
                cache.claim(Kind::Tenant, key.as_bytes(), NOW, 1_000, &who)
            };
            let asking: Vec<_> = (1..=8).map(|pid| scope.spawn(move || ask(pid))).collect();
            let flights = asking.into_iter().filter_map(|one| one.join().expect("it asked"));
            flights.collect::<Vec<_>>()
        });
        assert_eq!(flights.len(), 1, "{key}");
        flights.into_iter().for_each(|flight| cache.land(flight));
    }
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let cache = cache(1 << 20);
    let claim = |key: &str| cache.claim(Kind::Tenant, key.as_bytes(), NOW, 1_000, &ME);
    // Of so many, in 4,096 words, some would share one.
    let keys: Vec<String> = (0..500).map(|i| format!("tenant-{i}")).collect();
    let flights: Vec<_> = keys.iter().filter_map(|key| claim(key)).collect();
    assert_eq!(flights.len(), keys.len());
    assert!(keys.iter().all(|key| claim(key).is_none()), "each is asked for");
    flights.into_iter().for_each(|flight| cache.land(flight));
    let again: Vec<_> = keys.iter().filter_map(|key| claim(key)).collect();
    assert_eq!(again.len(), keys.len());
    again.into_iter().for_each(|flight| cache.land(flight));
}

#[test]
fn a_flight_ends_with_its_owner_and_with_its_time() {
    let cache = cache(1 << 20);
    let claim = |pid, alive, now| {
        cache.claim(Kind::Tenant, b"a", now, 200, &Who { pid, alive: &move |_| alive })
    };
    let first = claim(1, true, NOW).expect("nobody asks");
    assert!(claim(2, true, NOW).is_none());
    assert!(claim(1, false, NOW).is_none(), "its own");
    assert!(claim(2, true, NOW - 5).is_none(), "by a clock that was looked at before");
    let long = NOW + (3 << 24);
    cache.land(claim(2, true, long).expect("of half a day ago, which its bits do not tell"));
    let first = {
        cache.land(first);
        claim(1, true, NOW).expect("nobody asks")
    };
    assert!(claim(2, true, NOW + 199).is_none());
    assert!(cache.claim(Kind::App, b"a", NOW, 200, &ME).is_some(), "another question");
    let second = claim(2, true, NOW + 200).expect("its time is over");
    cache.land(first);
    assert!(claim(3, true, NOW + 200).is_none(), "it was taken over");
    assert!(claim(3, false, NOW + 249).is_none(), "nobody looks so soon");
    let third = claim(3, false, NOW + 250).expect("its owner is dead");
    cache.land(second);
    assert!(claim(4, true, NOW + 250).is_none());
    cache.land(third);
    assert!(claim(4, true, NOW + 250).is_some());
}

#[test]
fn whoever_waits_looks_now_and_then_whether_the_one_who_asks_is_alive() {
    let cache = cache(1 << 20);
    let _asks = cache.claim(Kind::Tenant, b"a", NOW, 2_000, &ME).expect("nobody asks");
    for begins in 0..60 {
        let looks = Cell::new(0);
        let alive = |_| {
            looks.set(looks.get() + 1);
            true
        };
        let who = Who { pid: 2, alive: &alive };
        // As a question waits for another one's: 1, 2, 4 ms, and 8 from then on.
        let (mut now, mut pause) = (begins, 1);
        while now < 2_000 {
            assert!(cache.claim(Kind::Tenant, b"a", NOW + now, 2_000, &who).is_none());
            (now, pause) = (now + pause, 8.min(2 * pause));
        }
        assert!((39..=39 + 39 / 2).contains(&looks.get()), "{} from {begins} on", looks.get());
    }
    // And it is dead at once.
    let dead = Who { pid: 2, alive: &|_| false };
    let mut polls = (NOW + 60..).step_by(8);
    let taken = polls.find(|&now| cache.claim(Kind::Tenant, b"a", now, 2_000, &dead).is_some());
    assert!(taken.is_some_and(|now| now <= NOW + 110), "{taken:?}");
}

#[test]
fn a_limit_of_one_rate_is_none_of_another() {
    let (all, passed) = (cache(1 << 20), |cache: &Cache, rate| {
        (0..300).filter(|_| cache.may_miss(rate, NOW)).count()
    });
    for rate in ["200r/s", "1r/s", "6r/m", "60r/m", "10r/s", "30r/s"] {
        let rate = Rate::parse(rate).unwrap();
        assert_eq!(passed(&all, rate), passed(&cache(1 << 20), rate), "{rate:?}");
    }
    // Those that have no place any more share one, and are limited all the same.
    for n in 31..60 {
        let rate = Rate::parse(&format!("{n}r/s")).unwrap();
        assert!(passed(&all, rate) <= n);
    }
}

#[test]
fn the_store_is_not_asked_while_it_fails_nor_for_too_many_guesses() {
    let cache = cache(1 << 20);
    for _ in 0..5 {
        assert!(cache.may_ask(NOW) && !cache.is_open(NOW));
        cache.failed(Down::Timeout, NOW);
    }
    assert!(cache.is_open(NOW) && !cache.may_ask(NOW + 999));
    assert!(!cache.is_open(NOW + 1_000) && !cache.is_up(), "until it has answered");
    assert!(cache.may_ask(NOW + 1_000) && !cache.may_ask(NOW + 1_000));
    cache.answered();
    assert!(!cache.is_open(NOW) && cache.is_up());
    let figures = cache.figures();
    assert_eq!((figures.asked, figures.failed.iter().sum::<u64>()), (6, 5));
    let timeout = Down::ALL.iter().position(|&why| why == Down::Timeout).unwrap();
    assert_eq!(figures.failed[timeout], 5);
    let rate = Rate::parse("50r/s").unwrap();
    assert_eq!((0..100).filter(|_| cache.may_miss(rate, NOW)).count(), 50);
    assert!(!cache.may_miss(rate, NOW + 19) && cache.may_miss(rate, NOW + 20));
}

fn walk(cache: &Cache, at_most: usize) -> Vec<Saved<'static>> {
    let (mut cursor, mut all, mut steps) = (Cursor::default(), Vec::new(), 0);
    loop {
        let mut n = 0;
        let more = cache.walk(&mut cursor, at_most, &mut |saved| {
            n += 1;
            all.push(owned(&saved));
        });
        assert!(n <= at_most.max(16), "{n}");
        steps += 1;
        if !more {
            assert!(steps > 4);
            return all;
        }
    }
}

#[test]
fn a_walk_of_apps_meets_them_alone() {
    let cache = cache(1 << 20);
    for i in 0..300 {
        put(&cache, &format!("tenant-{i}"), "app");
        put_app(&cache, &format!("App-{i}"), &"10.0.0.1:80,".repeat(1 + 20 * (i % 2)));
    }
    let (mut cursor, mut names) = (Cursor::of_apps(), Vec::new());
    while cache.walk(&mut cursor, 16, &mut |saved| match saved {
        Saved::App { name, at, .. } => names.push((name.into_owned(), at)),
        Saved::Tenant { .. } => panic!("{saved:?}"),
    }) {}
    names.sort();
    let mut expected: Vec<_> = (0..300).map(|i| (format!("App-{i}"), NOW)).collect();
    expected.retain(|(name, _)| app(&cache, name).is_some());
    expected.sort();
    assert!(names == expected && names.len() > 150, "{}", names.len());
}

fn owned(saved: &Saved<'_>) -> Saved<'static> {
    match saved {
        Saved::Tenant { key, app, status, at } => Saved::Tenant {
            key: key.to_string().into(),
            app: app.as_ref().map(|app| app.to_string().into()),
            status: status.clone(),
            at: *at,
        },
        Saved::App { name, value, at } => {
            Saved::App { name: name.to_string().into(), value: value.to_string().into(), at: *at }
        }
    }
}

#[test]
fn what_is_saved_is_loaded_marked() {
    let first = cache(1 << 20);
    let changed = first.changed();
    for i in 0..500 {
        put(&first, &format!("tenant-{i}"), &format!("app-{}", i % 9));
    }
    put_at(&first, &"long".repeat(60), "app", "trial-ended", NOW);
    put_at(&first, "held", "", "suspended", NOW);
    put_app(&first, "app", &"10.0.0.1:8080,".repeat(100));
    put_app(&first, "App-2", "10.0.0.2");
    assert_eq!(first.changed() - changed, 504);
    let read = first.begin(Kind::Tenant, b"caf\xe9", NOW);
    first.put_tenant(b"caf\xe9", Some("a"), &Status::Active, read, NOW, &ME);
    let saved = walk(&first, 100);
    assert_eq!(saved.len(), 504, "all but what is no text");
    assert_eq!(walk(&first, 1), saved);

    let second = cache(2 << 20);
    put_at(&second, "tenant-7", "newer", "active", NOW + 1);
    let later = NOW + 100_000;
    for one in &saved {
        assert_eq!(second.load(one, later, &ME), Put::Stored);
    }
    assert_eq!(second.changed(), 1);
    let seen = second.tenant(b"tenant-3", NOW, &mut ROOM.clone()).expect("it was loaded");
    assert_eq!((seen.at, seen.changed, seen.tracked), (NOW, Changed::Yes, false));
    assert_eq!(tenant(&second, "held"), Some((String::new(), "suspended".to_owned())));
    assert_eq!(tenant(&second, "tenant-7").map(|seen| seen.0), Some("newer".to_owned()));
    // What is there is not marked by what was saved of it.
    saved.iter().for_each(|one| assert_eq!(first.load(one, later, &ME), Put::Stored));
    assert!(!is_marked(&first, "tenant-3"));
    let sorted = |mut all: Vec<Saved<'static>>| {
        all.sort_by_key(|one| format!("{one:?}"));
        all.retain(|one| !format!("{one:?}").contains("\"tenant-7\""));
        all
    };
    assert_eq!(sorted(walk(&second, 64)), sorted(saved));
}

#[test]
fn what_is_loaded_takes_no_room_of_what_was_used_later() {
    let cache = cache(192 << 10);
    let capacity = cache.figures().tenants.capacity;
    for i in 0..capacity * 4 {
        put(&cache, &format!("tenant-{i}"), "app");
    }
    let (entries, evicted) = (cache.figures().tenants.entries, cache.figures().tenants.evicted);
    for i in 0..1_000 {
        let saved = Saved::Tenant {
            key: format!("old-{i}").into(),
            app: Some("app".into()),
            status: Status::Active,
            at: NOW - 10_000,
        };
        cache.load(&saved, NOW, &ME);
    }
    let figures = cache.figures().tenants;
    assert_eq!((figures.entries, figures.evicted), (entries, evicted));
}

/// What was put of a key, in all orders of lengths, is what is read or nothing; in a small region
/// nothing may be the answer.
#[derive(Clone, Debug)]
enum Act {
    Put(u8, u8, u8),
    Absent(u8),
    Invalidate(u8),
    MarkAll,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| Act::Put(a, b, c)),
        3 => any::<u8>().prop_map(Act::Absent),
        3 => any::<u8>().prop_map(Act::Invalidate),
        1 => Just(Act::MarkAll),
    ]
}

fn name(n: u8) -> String {
    format!("{n}-").repeat(1 + usize::from(n % 5) * 12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_says_what_a_map_says(acts in prop::collection::vec(act(), 1..300), small: bool) {
        // Where there is room for all, nothing is missing.
        let cache = cache(if small { 192 << 10 } else { 8 << 20 });
        // The app and the status, or nothing; whether it is marked.
        let mut map: HashMap<String, (Option<(String, String)>, bool)> = HashMap::new();
        for (i, act) in acts.iter().enumerate() {
            let now = NOW + i as u64;
            match *act {
                Act::Put(key, app, word) => {
                    let word = ["active", "suspended", "moved"][usize::from(word % 3)];
                    put_at(&cache, &name(key), &name(app), word, now);
                    map.insert(name(key), (Some((name(app), word.to_owned())), false));
                }
                Act::Absent(key) => {
                    let key = name(key);
                    let read = cache.begin(Kind::Tenant, key.as_bytes(), now);
                    cache.put_absent(Kind::Tenant, key.as_bytes(), read, now, &ME);
                    map.insert(key, (None, false));
                }
                Act::Invalidate(key) => {
                    cache.invalidate(Kind::Tenant, name(key).as_bytes());
                    map.entry(name(key)).and_modify(|entry| entry.1 = true);
                }
                Act::MarkAll => {
                    cache.mark_all();
                    map.values_mut().for_each(|entry| entry.1 = true);
                }
            }
        }
        for n in 0..=255 {
            let key = name(n);
            let positive = tenant(&cache, &key).map(|seen| (Some(seen), is_marked(&cache, &key)));
            let negative = absent(&cache, &key).map(|marked| (None, marked));
            prop_assert!(positive.is_none() || negative.is_none());
            let found = positive.or(negative);
            if found.is_some() || !small {
                prop_assert_eq!(found.as_ref(), map.get(&key), "{}", key);
            }
        }
    }
}

/// Threads are not processes, but see each other's steps as those do: what is read is whole.
#[test]
fn what_is_read_under_the_writers_hands_is_whole() {
    let cache = cache(192 << 10);
    let end = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for pid in 1..=3_u32 {
            let end = &end;
            scope.spawn(move || {
                let who = Who { pid, alive: &|_| true };
                for i in 0..60_000_u64 {
                    let key = format!("key-{}", i % 7);
                    let app = format!("app-{}-{pid}", i % 7).repeat(1 + (i % 3) as usize);
                    let read = cache.begin(Kind::Tenant, key.as_bytes(), NOW + i);
                    let word = Status::parse(&format!("s{}-{}", i % 7, app.len())).unwrap();
                    cache.put_tenant(key.as_bytes(), Some(&app), &word, read, NOW + i, &who);
                    if i % 11 == 0 {
                        cache.invalidate(Kind::Tenant, key.as_bytes());
                    }
                }
                end.fetch_add(1, Relaxed);
            });
        }
        let mut hits = 0;
        while end.load(Relaxed) < 3 {
            for n in 0..7 {
                let Some((app, word)) = tenant(&cache, &format!("key-{n}")) else { continue };
                hits += 1;
                assert!(app.starts_with(&format!("app-{n}-")), "{n}: {app}");
                assert_eq!(word, format!("s{n}-{}", app.len()));
            }
        }
        assert!(hits > 0);
    });
    for n in 0..7 {
        assert!(tenant(&cache, &format!("key-{n}")).is_some());
    }
    assert_eq!(cache.figures().tenants.entries, 7, "each once");
}

/// `cargo test --release -p peerage-zone --test cache -- --ignored --nocapture`
#[test]
#[ignore = "a figure, not a judgement"]
fn a_hit_in_nanoseconds() {
    let cache = cache(32 << 20);
    let n = 100_000;
    let keys: Vec<String> = (0..n).map(|i| format!("tenant-{i}")).collect();
    keys.iter().for_each(|key| put(&cache, key, "orders-v2"));
    let keys: Vec<String> = keys.into_iter().filter(|key| tenant(&cache, key).is_some()).collect();
    println!("{} of {n} tenants are there", keys.len());
    put_app(&cache, "orders-v2", "10.0.0.1:8080");
    let mut app = ROOM;
    let mut figure = |what: &str, keys: &[&String]| {
        let begun = std::time::Instant::now();
        let rounds = 2_000_000 / keys.len();
        for _ in 0..rounds {
            for key in keys {
                let seen = cache.tenant(key.as_bytes(), NOW, &mut app).expect("it is there");
                let name = &app.as_flattened()[..seen.app_len];
                std::hint::black_box(cache.app_seen(name, NOW).expect("it is there"));
            }
        }
        let each = begun.elapsed().as_nanos() as f64 / (rounds * keys.len()) as f64;
        println!("{what}: {each:.1} ns for a tenant and its app");
    };
    figure("one tenant", &[&keys[7]]);
    let far: Vec<&String> = (0..keys.len()).map(|i| &keys[i * 7_919 % keys.len()]).collect();
    figure("all tenants", &far);
}
