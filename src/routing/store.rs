//! Routes of a store: what is fresh is known at once, for the rest a request waits.
//!
//! The zone's own routes override the store while they stand. An app that the zone has is used as it
//! is there; the others are upstreams of the store's own zone, see [`apps`](super::apps).

use std::rc::Rc;

use peerage_core::route::decide::{
    self, Answer, Cached, Changed, Down, From, Holds, Look, MISSED, Place, Shown, Table, Verdict,
    of_zone,
};
use peerage_core::route::{Status, is_key};
use peerage_zone::cache::{Cache, Kind};
use peerage_zone::{AppName, Worker};

use super::desk::Desk;
use super::flights::Got;
use super::home::{self, Home};
use super::{Found, Looked, clock};
use crate::conf::{Route, Store};

/// Looks a key up by what is at hand.
#[inline]
pub(super) fn look_up(
    route: &Route,
    store: &Store,
    worker: &Worker,
    key: &[u8],
    app: &mut AppName,
) -> Looked {
    let answers = &route.conf.answers;
    let known = |found: Found, len| {
        worker.zone().looked_up(found.shown);
        Looked::Found(found, len)
    };
    let Some(cache) = store.cache() else { return Looked::Found(Found::busy(), 0) };
    let own = worker.zone().has_routes().then(|| worker.route_to(key, app));
    let (verdict, len) = match own.flatten() {
        Some((status, len)) => match of_zone(Some(&status), Place::Over, answers) {
            Some(verdict) => (verdict, len),
            None => return Looked::Ask,
        },
        None => match fresh(route, cache, key, app) {
            Some(fresh) => fresh,
            None if is_key(key) => return Looked::Ask,
            // Neither the zone nor the cache has what is no key.
            None => (MISSED, 0),
        },
    };
    if let Verdict::Refuse(..) = verdict {
        return known(Found::of(verdict), 0);
    }
    match home::of_app(route, store, cache, worker, app, len) {
        Some(Home::Zone) => known(Found::of(verdict), len),
        Some(Home::Store(apps, upstream)) => {
            let found = Found { apps: Some(apps), upstream: Some(upstream), ..Found::of(verdict) };
            known(found, len)
        }
        None => Looked::Ask,
    }
}

/// What is fresh of a key.
#[inline]
fn fresh(route: &Route, cache: &Cache, key: &[u8], app: &mut AppName) -> Option<(Verdict, usize)> {
    let now = clock::now();
    let seen = cache.tenant(key, now, app);
    let Some(seen) = &seen else {
        return absent(route, cache, key, now).map(|verdict| (verdict, 0));
    };
    if !is_fresh(route, cache, key, now, (seen.at, seen.changed, seen.tracked)) {
        return None;
    }
    Some(match &seen.status {
        Status::Active => (Verdict::Pass(Shown::Fresh, From::Cache), seen.app_len),
        status => (Verdict::Refuse(Shown::Suspended, route.conf.answers.code(status)), 0),
    })
}

/// What is fresh of a key that is not there.
#[cold]
fn absent(route: &Route, cache: &Cache, key: &[u8], now: u64) -> Option<Verdict> {
    let absent = cache.absent(Kind::Tenant, key)?;
    let fresh =
        absent.changed == Changed::No && now.saturating_sub(absent.at) <= route.conf.times.negative;
    fresh.then_some(MISSED)
}

/// Whether what was asked for then, and whether the store told what changes, is fresh.
#[inline]
pub(super) fn is_fresh(
    route: &Route,
    cache: &Cache,
    key: &[u8],
    now: u64,
    (at, changed, tracked): (u64, Changed, bool),
) -> bool {
    if changed != Changed::No {
        return false;
    }
    let (age, tracked) = (now.saturating_sub(at), tracked && cache.is_tracked(now));
    let times = &route.conf.times;
    // Nearly always: whatever the key.
    age <= times.surely(tracked) || age <= times.valid(tracked, random(key))
}

/// How long what is said of a key is fresh. What may have changed unheard counts as if nobody had
/// listened.
fn valid(route: &Route, cache: &Cache, key: &[u8], (tracked, changed): (bool, Changed)) -> u64 {
    let tracked = tracked && changed == Changed::No && cache.is_tracked(clock::now());
    route.conf.times.valid(tracked, random(key))
}

/// A number for each key, so that what was read together is not read again together.
#[cold]
fn random(key: &[u8]) -> u32 {
    key.iter().fold(0x9e37_79b9, |h: u32, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// Looks a key up with the help of the store.
pub(super) async fn ask(
    route: &Rc<Route>,
    desk: &Rc<Desk>,
    worker: &Worker,
    key: &[u8],
) -> (Found, Vec<u8>) {
    let nowhere = |verdict| (Found::of(verdict), Vec::new());
    let mut app = AppName::default();
    let (verdict, given) = match worker.route_to(key, &mut app) {
        Some((status, len)) => {
            let verdict = of_zone(Some(&status), Place::Over, &route.conf.answers);
            (verdict.unwrap_or(MISSED), app.as_flattened()[..len].to_vec())
        }
        None => tenant(route, desk, key).await,
    };
    let Verdict::Pass(shown, _) = verdict else { return nowhere(verdict) };
    let name = given.to_ascii_lowercase();
    if worker.is_upstream(&name) {
        return (Found::of(verdict), name);
    }
    match self::app(route, desk, &given).await {
        (Verdict::Pass(of_app, from), Some(apps)) => {
            let shown = match (shown, of_app) {
                (Shown::Fresh, of_app) => of_app,
                (Shown::Miss, Shown::Stale) => Shown::Stale,
                (shown, _) => shown,
            };
            let found = Found::of(Verdict::Pass(shown, from));
            (Found { apps: Some(apps), ..found }, name)
        }
        (verdict @ Verdict::Refuse(..), _) => nowhere(verdict),
        (Verdict::Pass(..), None) => (Found::busy(), Vec::new()),
    }
}

/// Looks at the cache; counts where the store would be asked and is known to be away.
fn looked(route: &Route, desk: &Desk, cached: Option<&Cached<'_>>, now: u64) -> Look {
    let look = decide::look(cached, now, &route.conf.times, &route.conf.answers, desk.away());
    if let Look::Done(verdict) = look
        && matches!(verdict.shown(), Shown::Stale | Shown::Down)
    {
        desk.cache.missed(Down::Open);
    }
    look
}

/// What is said of a tenant, and the app where its requests pass.
async fn tenant(route: &Route, desk: &Rc<Desk>, key: &[u8]) -> (Verdict, Vec<u8>) {
    let (conf, cache) = (&route.conf, &desk.cache);
    let mut room = AppName::default();
    let seen = cache.tenant(key, clock::now(), &mut room);
    let absent = if seen.is_none() { cache.absent(Kind::Tenant, key) } else { None };
    let cached = match (&seen, absent) {
        (Some(seen), _) => Some(Cached {
            holds: match &seen.status {
                Status::Active => Holds::Active,
                status => Holds::Held(status),
            },
            at: seen.at,
            valid: valid(route, cache, key, (seen.tracked, seen.changed)),
            changed: seen.changed,
        }),
        (None, Some(absent)) => Some(Cached {
            holds: Holds::Nothing,
            at: absent.at,
            valid: conf.times.negative,
            changed: absent.changed,
        }),
        (None, None) => None,
    };
    let kept =
        || seen.as_ref().map_or(&[][..], |seen| &room.as_flattened()[..seen.app_len]).to_vec();
    let now = clock::now();
    let nonsense = desk.is_malformed(key, conf.times.negative);
    let verdict = match looked(route, desk, cached.as_ref(), now) {
        Look::Done(verdict) => verdict,
        Look::Refresh(verdict) => {
            if !nonsense {
                desk.refresh(Kind::Tenant, key);
            }
            verdict
        }
        Look::AskUnknown | Look::Ask if nonsense => {
            let (answer, times) = (Answer::Malformed, &conf.times);
            decide::settle(Table::Keys, cached.as_ref(), answer, now, times, &conf.answers).0
        }
        // Who waits for an answer to another one's question asks none.
        Look::AskUnknown
            if !desk.is_asked(Kind::Tenant, key) && !cache.may_miss(conf.miss_limit, now) =>
        {
            MISSED
        }
        Look::AskUnknown | Look::Ask => {
            let got = desk.join(Kind::Tenant, key).await;
            let answer = got.answer();
            let now = clock::now();
            let (times, answers) = (&conf.times, &conf.answers);
            let (verdict, _) =
                decide::settle(Table::Keys, cached.as_ref(), answer, now, times, answers);
            match (verdict, &*got) {
                (Verdict::Pass(_, From::Store), Got::Tenant { app: Some(app), .. }) => {
                    return (verdict, app.clone());
                }
                _ => verdict,
            }
        }
    };
    (verdict, kept())
}

/// What is said of an app, and where it is an upstream then.
async fn app(route: &Route, desk: &Rc<Desk>, name: &[u8]) -> (Verdict, Option<&'static Worker>) {
    let (conf, cache) = (&route.conf, &desk.cache);
    let cached = cache.app_seen(name, clock::now()).map(|seen| Cached {
        holds: Holds::Active,
        at: seen.at,
        valid: valid(route, cache, name, (seen.tracked, seen.changed)),
        changed: seen.changed,
    });
    let now = clock::now();
    let verdict = match looked(route, desk, cached.as_ref(), now) {
        Look::Done(verdict) => verdict,
        Look::Refresh(verdict) => {
            desk.refresh(Kind::App, name);
            verdict
        }
        Look::AskUnknown | Look::Ask => {
            let is_absent = cache.absent(Kind::App, name).is_some_and(|absent| {
                absent.changed == Changed::No
                    && now.saturating_sub(absent.at) <= conf.times.negative
            });
            let got =
                if is_absent { Rc::new(Got::Absent) } else { desk.join(Kind::App, name).await };
            let now = clock::now();
            let (times, answers) = (&conf.times, &conf.answers);
            decide::settle(Table::Apps, cached.as_ref(), got.answer(), now, times, answers).0
        }
    };
    let Verdict::Pass(..) = verdict else { return (verdict, None) };
    // What was read from a file, or had to make room, is made an upstream again.
    (verdict, desk.upstream_of(name).await)
}
