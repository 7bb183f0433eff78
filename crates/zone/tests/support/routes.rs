//! Short words for what tests do to routes.

use peerage_core::body::{End, Field};
use peerage_core::change::Actor;
use peerage_core::route::change::{RouteBody, RouteChange};
use peerage_core::route::{Route, RouteKey, Status};
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;
use peerage_zone::{
    Env, ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteCursor, RouteDone, RouteOp, RoutePage,
};

use super::{World, upstream};

pub(crate) fn key(text: &str) -> RouteKey {
    RouteKey::parse(text).expect("a good key")
}

pub(crate) fn to(name: &str) -> RouteBody {
    RouteBody { upstream: Some(upstream(name)), ..RouteBody::default() }
}

/// A route to an upstream, whether it is there or not.
pub(crate) fn put(name: &str, app: &str) -> RouteOp {
    RouteOp { key: key(name), change: RouteChange::Put { body: to(app), force: true } }
}

pub(crate) fn patch(name: &str, body: RouteBody) -> RouteOp {
    RouteOp { key: key(name), change: RouteChange::Patch { body, force: false } }
}

pub(crate) fn delete(name: &str) -> RouteOp {
    RouteOp { key: key(name), change: RouteChange::Delete }
}

pub(crate) fn status(word: &str) -> RouteBody {
    let status = Status::parse(word).expect("a good word");
    RouteBody { status: Field::Given(status), ..RouteBody::default() }
}

pub(crate) fn ttl(ms: u64) -> RouteBody {
    RouteBody { end: Field::Given(End::After(ms)), ..RouteBody::default() }
}

impl World {
    pub(crate) fn route_env(&self) -> Env<'_> {
        Env {
            clock: &self.clock,
            actor: Actor::new("test", "127.0.0.1"),
            origin: Origin::Api,
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: true,
        }
    }

    pub(crate) fn try_routes(&self, ops: &[RouteOp]) -> RouteAttempt {
        self.worker.put_routes(ops, &self.route_env(), &RouteChecks::NONE)
    }

    /// Changes that must succeed.
    pub(crate) fn routes(&self, ops: &[RouteOp]) -> RouteDone {
        match self.try_routes(ops) {
            RouteAttempt::Done(done) => done,
            other => panic!("{ops:?}: {other:?}"),
        }
    }

    /// So many routes, by number, to so many apps.
    pub(crate) fn fill(&self, n: usize, apps: usize) {
        let ops: Vec<_> =
            (0..n).map(|i| put(&format!("tenant-{i}"), &format!("app-{}", i % apps))).collect();
        ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(self.routes(ops)));
    }

    /// What a request sees: the app and the status.
    pub(crate) fn look(&self, key: &str) -> Option<(String, Status)> {
        let mut app = Vec::new();
        let status = self.worker.route(key.as_bytes(), &mut app)?;
        Some((String::from_utf8(app).expect("a name is text"), status))
    }

    pub(crate) fn page(&self, app: Option<&str>, after: Option<&str>, limit: usize) -> Vec<Route> {
        let mut page = RoutePage::new(app.map(upstream), after.map(key), limit);
        while page.go_on(&self.worker, 7) {}
        page.end(&self.worker)
    }

    /// All routes by a walk, in the order of keys.
    pub(crate) fn all_routes(&self) -> Vec<Route> {
        let (mut cursor, mut all) = (RouteCursor::default(), Vec::new());
        loop {
            let (routes, _) = self.worker.walk_routes(&mut cursor, 50);
            if routes.is_empty() {
                break;
            }
            all.extend(routes);
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Frees all that was replaced, and ends what a round does a little at a time.
    pub(crate) fn rounds(&self) {
        for _ in 0..200 {
            self.worker.sweep(&|_, _| true, &self.clock);
        }
    }
}
