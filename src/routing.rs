//! `peerage_route` at work: what becomes of a request, by the route of its key.
//!
//! The zone's own routes are known at once. With a store they come before what the store says, and
//! that is cached; what is not fresh there has the request wait, see [`store`].

mod apps;
mod clock;
mod desk;
mod figures;
mod flights;
mod home;
mod malformed;
mod memory;
mod recent;
mod saved;
mod store;
mod tracking;

use std::rc::Rc;

use peerage_core::route::decide::{MISSED, Place, Shown, Verdict, of_zone};
use peerage_zone::{AppName, FoundUp, Worker};

pub(crate) use self::desk::{Desk, begin, end, give_up, has_stores, look};
pub(crate) use self::figures::sample;
pub(crate) use self::memory::{load, open};
use crate::conf::Route;

/// What a look-up came to.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// `$peerage_route_status`
    pub(crate) shown: Shown,
    /// What the request is answered with; `None`: it goes on.
    pub(crate) code: Option<u16>,
    /// The place in the zone of the store's apps, where that has the app.
    pub(crate) apps: Option<&'static Worker>,
    /// The app's upstream there, where it was looked for.
    pub(crate) upstream: Option<FoundUp>,
    /// This process has no place in the zone yet.
    busy: bool,
}

/// What is known at once.
pub(crate) enum Looked {
    /// All, and how many bytes the app's name has.
    Found(Found, usize),
    /// The store is to be asked.
    Ask,
}

impl Found {
    /// Nothing can be looked up now.
    pub(crate) fn busy() -> Self {
        Self { busy: true, ..Self::of(Verdict::Refuse(Shown::Down, 503)) }
    }

    fn of(verdict: Verdict) -> Self {
        let code = match verdict {
            Verdict::Pass(..) => None,
            Verdict::Refuse(_, code) => Some(code),
        };
        Self { shown: verdict.shown(), code, apps: None, upstream: None, busy: false }
    }

    /// The word of `$peerage_error`, where the request does not pass.
    pub(crate) fn error(&self) -> Option<&'static str> {
        if self.busy { Some("busy") } else { self.shown.error() }
    }

    /// After how many seconds it is worth another try.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        (self.code == Some(503) && self.shown == Shown::Down).then_some(1)
    }
}

/// Looks a key up, as far as that needs no waiting. Where the request may go to its app, the name is
/// put down.
#[inline]
pub(crate) fn look_up(route: &Route, key: &[u8], app: &mut AppName) -> Looked {
    let Some(worker) = route.zone().and_then(|zone| zone.worker()) else {
        return Looked::Found(Found::busy(), 0);
    };
    if let Some(store) = route.store() {
        return store::look_up(route, store, worker, key, app);
    }
    let (status, len) =
        worker.route_to(key, app).map_or((None, 0), |(status, len)| (Some(status), len));
    // A zone that has all routes always decides.
    let verdict = of_zone(status.as_ref(), Place::Alone, &route.conf.answers).unwrap_or(MISSED);
    let found = Found::of(verdict);
    worker.zone().looked_up(found.shown);
    Looked::Found(found, if found.code.is_none() { len } else { 0 })
}

/// Looks a key up with the help of the store; with the app's name where the request may go there.
pub(crate) async fn ask(route: &Rc<Route>, key: &[u8]) -> (Found, Vec<u8>) {
    let place = route.zone().and_then(|zone| zone.worker());
    let desk = route.store().and_then(|store| store.desk());
    let (Some(worker), Some(desk)) = (place, desk) else { return (Found::busy(), Vec::new()) };
    let (found, app) = store::ask(route, desk, worker, key).await;
    worker.zone().looked_up(found.shown);
    (found, app)
}
