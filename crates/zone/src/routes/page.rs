//! Routes in the order of their keys, a page at a time, and all of them in a walk.

use std::collections::BinaryHeap;

use peerage_core::name::UpstreamName;
use peerage_core::route::{Route, RouteKey};
use peerage_shm::{Ref, point};

use super::node_at;
use crate::layout::{Kind, Node};
use crate::worker::Worker;

/// Where a walk over all routes stands: it holds while the table becomes another size.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteCursor {
    position: u64,
}

/// A page of a listing, on its way: every route is looked at for it.
#[derive(Debug)]
pub struct RoutePage {
    after: Option<RouteKey>,
    upstream: Option<UpstreamName>,
    limit: usize,
    cursor: RouteCursor,
    heap: BinaryHeap<Vec<u8>>,
}

impl RoutePage {
    /// The first `limit` routes after a key, of an upstream or of all.
    pub const fn new(
        upstream: Option<UpstreamName>,
        after: Option<RouteKey>,
        limit: usize,
    ) -> Self {
        let cursor = RouteCursor { position: 0 };
        Self { after, upstream, limit, cursor, heap: BinaryHeap::new() }
    }

    /// Looks at so many buckets more; false at the end.
    pub fn go_on(&mut self, worker: &Worker, buckets: usize) -> bool {
        let Self { after, upstream, limit, cursor, heap } = self;
        let after = after.as_ref().map(|after| after.as_str().as_bytes());
        let mut key = Vec::new();
        let app = |worker: &Worker| {
            let name = upstream.as_ref()?;
            let app = worker.zone().app_node(name.as_str());
            Some(app.map_or(Ref::NONE, |app| app.place(worker.region())))
        };
        worker.step_routes(cursor, buckets, app, |node, app: &Option<Ref>| {
            if app.is_some_and(|app| app != node.app()) {
                return;
            }
            key.clear();
            node.read_name(worker.region(), &mut key);
            let wanted = after.is_none_or(|after| &key[..] > after)
                && (heap.len() < *limit || heap.peek().is_some_and(|top| key < *top));
            if wanted {
                heap.push(key.clone());
            }
            if heap.len() > *limit {
                heap.pop();
            }
        })
    }

    /// The routes of the page as they are now.
    pub fn end(self, worker: &Worker) -> Vec<Route> {
        let keys = self.heap.into_sorted_vec().into_iter();
        let keys = keys.filter_map(|key| RouteKey::try_from(String::from_utf8(key).ok()?).ok());
        let routes = keys.filter_map(|key| worker.read_route(&key));
        let upstream = self.upstream;
        routes.filter(|route| upstream.as_ref().is_none_or(|u| route.upstream == *u)).collect()
    }
}

impl Worker {
    /// Some of the routes not walked yet, in no order, about `max`; none at the end.
    ///
    /// Also the zone's revision before: no change up to it is missing in them. Routes that are
    /// there all the time are met once, others at most once.
    pub fn walk_routes(&self, cursor: &mut RouteCursor, max: usize) -> (Vec<Route>, u64) {
        let revision = self.zone().revision();
        let mut routes = Vec::new();
        while routes.len() < max {
            let more = self.step_routes(
                cursor,
                1,
                |_| (),
                |node, ()| {
                    routes.extend(self.zone().load_route(node));
                },
            );
            if !more {
                break;
            }
        }
        (routes, revision)
    }

    /// Shows the routes of the next buckets inside one read section; false at the end.
    pub(crate) fn step_routes<T>(
        &self,
        cursor: &mut RouteCursor,
        buckets: usize,
        begin: impl FnOnce(&Self) -> T,
        mut seen: impl FnMut(Node, &T),
    ) -> bool {
        let _section = self.enter();
        let Some(table) = self.zone().routes_table() else { return false };
        let context = begin(self);
        for _ in 0..buckets {
            let i = table.index_at(cursor.position);
            if i >= table.len() {
                return false;
            }
            // In the middle of a bucket, where the table has become smaller.
            let part = cursor.position > table.position(i);
            let mut at = table.first(i);
            while let Some(node) = node_at(self.zone(), at) {
                at = node.next(table.side());
                let is_new =
                    || !part || u64::from(self.zone().hash_of(node).position()) >= cursor.position;
                if node.kind() == Kind::Route && is_new() {
                    seen(node, &context);
                }
            }
            cursor.position = table.position(i + 1);
        }
        point!("walk.stepped");
        true
    }
}
