//! Where a tenant's app is: in the zone, else in the one of the store's apps.

use peerage_core::name::has_upper;
use peerage_core::route::decide::Changed;
use peerage_zone::cache::{AppPlace, Cache};
use peerage_zone::{AppName, FoundUp, Sought, Worker};

use super::clock;
use super::recent::{Recent, Upstreams};
use super::store::is_fresh;
use crate::conf::{Route, Store};

/// Where an app is.
pub(super) enum Home {
    /// In the zone.
    Zone,
    /// In the zone of the store's apps, and fresh.
    Store(&'static Worker, FoundUp),
}

/// What this process remembers of an app.
#[derive(Clone, Copy)]
pub(super) enum Noted {
    /// It is in the zone.
    Zone,
    /// It was in the zone of the store's apps; and where the store's word on it is.
    Store(&'static Worker, FoundUp, AppPlace),
}

/// Finds an app, as far as that needs no waiting; its name is put in lower case, as the names of
/// upstreams are.
#[inline]
pub(super) fn of_app(
    route: &Route,
    store: &Store,
    cache: &Cache,
    worker: &Worker,
    app: &mut AppName,
    len: usize,
) -> Option<Home> {
    match store.desk().and_then(|desk| desk.recent.find(Upstreams::of(worker), app, len)) {
        Some(Noted::Zone) => return Some(Home::Zone),
        Some(Noted::Store(apps, upstream, place)) => {
            let (now, (at, tracked)) = (clock::now(), place.asked());
            let seen = (at, Changed::No, tracked);
            if cache.holds(&place, now)
                && upstream.lives()
                && is_fresh(route, cache, bytes(app, len), now, seen)
            {
                return Some(Home::Store(apps, upstream));
            }
        }
        None => {}
    }
    look_for(route, store, cache, worker, app, len)
}

/// The same of one that is not remembered, or not as it was.
#[inline(never)]
fn look_for(
    route: &Route,
    store: &Store,
    cache: &Cache,
    worker: &Worker,
    app: &mut AppName,
    len: usize,
) -> Option<Home> {
    let folds = app.get(..len.div_ceil(8))?.iter().any(has_upper);
    let mut given = None;
    if folds {
        given = Some(bytes(app, len).to_vec());
        app.as_flattened_mut().get_mut(..len)?.make_ascii_lowercase();
    }
    let app = &*app;
    // Read first: whatever comes or goes later moves it.
    let among = Upstreams::of(worker);
    let recent = store.desk().map(|desk| &desk.recent);
    let recent = recent.filter(|_| !folds && Recent::<Noted>::takes(among, len));
    let name = bytes(app, len);
    let sought = Sought::new(name);
    if worker.sought(&sought).is_some() {
        if let Some(recent) = recent {
            recent.keep(among, app, len, Noted::Zone);
        }
        return Some(Home::Zone);
    }
    let (given, now) = (given.as_deref().unwrap_or(name), clock::now());
    let seen = cache.app_seen(given, now)?;
    if !is_fresh(route, cache, given, now, (seen.at, seen.changed, seen.tracked)) {
        return None;
    }
    let apps = store.apps.worker()?;
    let upstream = apps.sought(&sought)?;
    if let Some(recent) = recent
        && let Some(place) = cache.app_place(given)
    {
        recent.keep(among, app, len, Noted::Store(apps, upstream, place));
    }
    Some(Home::Store(apps, upstream))
}

/// The bytes of a name.
fn bytes(app: &AppName, len: usize) -> &[u8] {
    app.as_flattened().get(..len).unwrap_or_default()
}
