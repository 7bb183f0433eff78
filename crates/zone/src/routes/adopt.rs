//! Routes that another master wrote into the state file, taken over.

use std::collections::BTreeSet;

use peerage_core::change::Actor;
use peerage_core::event;
use peerage_core::route::{Route, RouteKey};

use super::ROUTES_AT_ONCE;
use super::commit::{RouteBatch, RoutePlan};
use crate::choice::Clock;
use crate::commit::{Revision, Unfit};
use crate::worker::Worker;

/// What came of adopting routes.
#[derive(Debug, Default)]
pub struct AdoptedRoutes {
    /// Routes that changed.
    pub changed: usize,
    /// Routes that did not fit.
    pub no_room: Vec<RouteKey>,
    /// How many of the first were done; the rest is left, since somebody else writes.
    pub done: usize,
}

impl Worker {
    /// Makes routes what the file says, whichever revision it has; `None`: it has none.
    ///
    /// `wait` is called while somebody else holds the lock, and says whether to go on.
    pub fn adopt_routes(
        &self,
        images: &[(&RouteKey, Option<&Route>)],
        revision: u64,
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> AdoptedRoutes {
        let mut adopted = AdoptedRoutes::default();
        for portion in images.chunks(ROUTES_AT_ONCE) {
            match self.adopt_portion(portion, revision, clock, wait) {
                Some(Ok(changed)) => adopted.changed += changed,
                // Those that fit, where not all do.
                Some(Err(())) => {
                    for one in portion {
                        match self.adopt_portion(std::slice::from_ref(one), revision, clock, wait) {
                            Some(Ok(changed)) => adopted.changed += changed,
                            Some(Err(())) => adopted.no_room.push(one.0.clone()),
                            None => return adopted,
                        }
                    }
                }
                None => return adopted,
            }
            adopted.done += portion.len();
        }
        adopted
    }

    /// How many changed, or that they do not fit; nothing where somebody else writes.
    fn adopt_portion(
        &self,
        images: &[(&RouteKey, Option<&Route>)],
        revision: u64,
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> Option<Result<usize, ()>> {
        loop {
            let befores: Vec<Option<Route>> =
                images.iter().map(|(key, _)| self.read_route(key)).collect();
            let ends = images.iter().zip(&befores);
            let changed = ends.filter(|((_, after), before)| before.as_ref() != *after);
            let plans: Vec<RoutePlan<'_>> = changed
                .map(|((key, after), before)| RoutePlan {
                    key,
                    before: before.as_ref(),
                    after: *after,
                })
                .collect();
            if plans.is_empty() {
                return Some(Ok(0));
            }
            let file = Actor::new("file", "");
            let told = plans.iter().filter_map(|p| event::of_route(p.before, p.after, &file));
            let batch = RouteBatch {
                needed: &BTreeSet::new(),
                expected: 0,
                now: clock.msec,
                events: told.map(|event| event.to_bytes()).collect(),
                revision: Revision::Known(revision),
                plans,
            };
            let committed = self.zone().as_master(self.pid()).locked(wait, |writer| {
                writer.collect();
                self.zone().commit_routes(writer, &batch)
            });
            match committed? {
                Ok(committed) => {
                    self.say(committed.said);
                    return Some(Ok(batch.plans.len()));
                }
                Err(Unfit::Stale) => {}
                Err(Unfit::NoRoom { .. }) => return Some(Err(())),
            }
        }
    }
}
