//! Routes that were given a time.

use peerage_core::route::RouteKey;
use peerage_core::route::change::RouteChange;

use super::{ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteCursor, RouteOp};
use crate::change::Env;
use crate::choice::Clock;
use crate::ends;
use crate::worker::Worker;

/// Buckets looked at inside one read section.
const STEP: usize = 1024;

impl Worker {
    /// Removes routes whose time is over; how many. Costs one comparison while none is.
    pub(crate) fn expire_routes(&self, clock: &Clock) -> usize {
        let Some(look) = self.look(ends::ROUTES, clock.msec, clock) else { return 0 };
        let mut due: Vec<RouteKey> = Vec::new();
        let mut cursor = RouteCursor::default();
        while self.step_routes(
            &mut cursor,
            STEP,
            |_| (),
            |node, ()| {
                let route = if node.has_end() { self.zone().load_route(node) } else { None };
                match route.as_ref().and_then(|route| route.until) {
                    Some(until) if until <= clock.msec => due.extend(route.map(|route| route.key)),
                    Some(until) => look.saw(until),
                    None => {}
                }
            },
        ) {}
        let env = Env::of_time(clock);
        let mut ended = 0;
        for keys in due.chunks(ROUTES_AT_ONCE) {
            let change = RouteChange::Expire { now: clock.msec };
            let op = |key: &RouteKey| RouteOp { key: key.clone(), change: change.clone() };
            let ops: Vec<RouteOp> = keys.iter().map(op).collect();
            match self.put_routes(&ops, &env, &RouteChecks::NONE) {
                RouteAttempt::Done(_) => ended += keys.len(),
                // Again at the next call.
                _ => look.saw(clock.msec),
            }
        }
        look.end();
        ended
    }
}
