//! Routes of a state file, or of a zone of another size, into a zone just laid out.

use std::collections::{BTreeSet, HashSet};

use peerage_core::route::Route;
use peerage_shm::Writer;

use super::buckets::{Buckets, bits_for};
use super::commit::{RouteBatch, RoutePlan, app_granules, route_granules};
use super::node_at;
use crate::choice::Clock;
use crate::commit::Revision;
use crate::layout::Kind;
use crate::size::GRANULE;
use crate::zone::Zone;

/// Routes that come in one go.
const PORTION: usize = 1_000;

impl Zone {
    /// Adds routes to a zone that has none; how many did not fit.
    pub(crate) fn fill_routes(
        &self,
        writer: &mut Writer<'_>,
        routes: &[(Route, u64)],
        clock: &Clock,
    ) -> usize {
        let mut left = 0;
        let expected = routes.len() + apps(routes.iter().map(|(route, _)| route)).len();
        for portion in routes.chunks(PORTION) {
            let mut put = |routes: &[(Route, u64)]| {
                let batch = RouteBatch {
                    plans: routes.iter().map(|(route, _)| coming(route)).collect(),
                    needed: &BTreeSet::new(),
                    expected,
                    now: clock.msec,
                    events: Vec::new(),
                    revision: Revision::Known(0),
                };
                writer.collect();
                self.commit_routes(writer, &batch).is_ok()
            };
            // Those that fit, where not all do.
            if !put(portion) {
                left += portion.iter().filter(|one| !put(std::slice::from_ref(*one))).count();
            }
        }
        self.settle_routes(writer);
        left
    }

    /// Every route. Inside a read section, under the lock, or after the zone's end.
    pub(crate) fn all_routes(&self) -> Vec<Route> {
        let Some(table) = self.routes_table() else { return Vec::new() };
        let mut routes = Vec::with_capacity(self.route_counts().routes as usize);
        for i in 0..table.len() {
            let mut at = table.first(i);
            while let Some(node) = node_at(self, at) {
                at = node.next(table.side());
                if node.kind() == Kind::Route {
                    routes.extend(self.load_route(node));
                }
            }
        }
        routes
    }
}

const fn coming(route: &Route) -> RoutePlan<'_> {
    RoutePlan { key: &route.key, before: None, after: Some(route) }
}

fn apps<'a>(routes: impl Iterator<Item = &'a Route>) -> HashSet<&'a str> {
    routes.map(|route| route.upstream.as_str()).collect()
}

/// Bytes that routes take in a zone that holds no others.
pub(crate) fn bytes_of<'a>(routes: impl IntoIterator<Item = &'a Route>) -> u64 {
    let (mut granules, mut records) = (0, 0);
    let mut apps = HashSet::new();
    for route in routes {
        granules += route_granules(route);
        records += 1;
        if apps.insert(&route.upstream) {
            granules += app_granules(&route.upstream);
            records += 1;
        }
    }
    if records > 0 {
        granules += u64::from(Buckets::granules_of(bits_for(records)));
    }
    granules * GRANULE
}
