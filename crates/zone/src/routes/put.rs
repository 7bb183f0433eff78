//! The door for changes of routes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use peerage_core::event;
use peerage_core::journal;
use peerage_core::name::UpstreamName;
use peerage_core::route::change::{self, RouteApplied, RouteChange, RouteContext, RouteError};
use peerage_core::route::{Route, RouteKey};

use super::commit::{RouteBatch, RoutePlan};
use crate::batch::BatchAttempt;
use crate::change::Env;
use crate::commit::{Revision, Unfit};
use crate::layout::{root, set};
use crate::trace::Reachable;
use crate::worker::Worker;

/// How many routes are to be changed at once at most: others wait for the lock about a microsecond
/// for each.
pub const ROUTES_AT_ONCE: usize = 100;
/// Times that a change is computed anew because another one came first.
const RACES: usize = 8;

/// A change of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOp {
    /// Which.
    pub key: RouteKey,
    /// What.
    pub change: RouteChange,
}

/// What must hold for routes to be changed.
pub struct RouteChecks<'a> {
    /// A route is as asked.
    pub holds: &'a dyn Fn(&RouteKey, Option<&Route>) -> bool,
    /// Asked under the lock: whether who asks for it still may.
    pub may: &'a dyn Fn() -> bool,
    /// Only tells what it would do.
    pub dry_run: bool,
}

impl RouteChecks<'_> {
    /// Nothing is asked.
    pub const NONE: Self = Self { holds: &|_, _| true, may: &|| true, dry_run: false };
}

/// What came of a change of routes.
#[derive(Debug)]
pub enum RouteAttempt {
    /// In force in every process; of a dry run: possible.
    Done(RouteDone),
    /// Somebody else writes: try again a little later.
    Busy,
    /// Another master writes the state file, see [`BatchAttempt::NotWriter`].
    NotWriter,
    /// It does not fit into the zone, or into the half of it that routes may take.
    NoRoom {
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        free: u64,
    },
    /// A change cannot be done; nothing changed.
    Refused {
        /// Which.
        op: usize,
        /// Why.
        error: RouteError,
    },
    /// A route is not as asked.
    Unmet {
        /// Which change asked for it.
        op: usize,
        /// The route as it is.
        route: Option<Box<Route>>,
    },
}

/// Changes in force.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteDone {
    /// Revision of the zone.
    pub revision: u64,
    /// Whether anything changed.
    pub changed: bool,
    /// The routes that were named, in the order of their keys, those that did not change too.
    pub touched: Vec<RouteTouched>,
}

/// A route that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTouched {
    /// Its key.
    pub key: RouteKey,
    /// As it was; `None` = there was none.
    pub before: Option<Route>,
    /// As it is; `None` = there is none.
    pub after: Option<Route>,
}

impl RouteTouched {
    /// Whether it was created: a 201.
    pub const fn is_created(&self) -> bool {
        self.before.is_none() && self.after.is_some()
    }

    /// Whether it is another one now, or gone.
    pub fn is_changed(&self) -> bool {
        self.before != self.after
    }
}

/// Changes as computed so far.
#[derive(Default)]
struct Draft {
    /// Before and after.
    work: BTreeMap<RouteKey, (Option<Route>, Option<Route>)>,
    /// Upstreams that they need.
    needed: BTreeSet<UpstreamName>,
}

impl Worker {
    /// Applies changes one after the other, all or none; [`ROUTES_AT_ONCE`] at most.
    ///
    /// All have one revision, but come in force one by one: a request may see the first of them
    /// and not yet the second.
    pub fn put_routes(
        &self,
        ops: &[RouteOp],
        env: &Env<'_>,
        checks: &RouteChecks<'_>,
    ) -> RouteAttempt {
        for _ in 0..RACES {
            if let Some(barred) = self.barred().filter(|_| !checks.dry_run) {
                return barred_as(&barred);
            }
            let draft = match self.draft_routes(ops, env, checks) {
                Ok(draft) => draft,
                Err(attempt) => return attempt,
            };
            let changed = draft.work.values().any(|(before, after)| before != after);
            if !changed || checks.dry_run {
                if self.zone().is_moved() {
                    return RouteAttempt::Busy;
                }
                return RouteAttempt::Done(draft.end(self.zone().revision()));
            }
            let batch = draft.batch(env);
            let trace = Reachable(*self.zone());
            let Ok(mut writer) = self.zone().shared().try_write(self.pid(), &trace) else {
                return RouteAttempt::Busy;
            };
            if let Some(barred) = self.barred() {
                return barred_as(&barred);
            }
            if !(checks.may)() {
                return RouteAttempt::Busy;
            }
            writer.collect();
            match self.zone().commit_routes(&mut writer, &batch) {
                // As `Worker::batch`: it may be lost with the zone.
                Ok(_) if self.zone().is_moved() => return RouteAttempt::Busy,
                Ok(committed) => {
                    drop(writer);
                    drop(batch);
                    self.say(committed.said);
                    if let Some(barred) = self.barred() {
                        return barred_as(&barred);
                    }
                    return RouteAttempt::Done(draft.end(committed.revision));
                }
                Err(Unfit::Stale) => {}
                // What the last ones replaced comes back once nobody sees it.
                Err(Unfit::NoRoom { .. }) if writer.awaits_readers() => return RouteAttempt::Busy,
                Err(Unfit::NoRoom { need, free }) => {
                    let refused = self.zone().root(root::NO_ROOM);
                    set(refused, crate::layout::get(refused) + 1);
                    return RouteAttempt::NoRoom { need, free };
                }
            }
        }
        RouteAttempt::Busy
    }

    fn draft_routes(
        &self,
        ops: &[RouteOp],
        env: &Env<'_>,
        checks: &RouteChecks<'_>,
    ) -> Result<Draft, RouteAttempt> {
        let _section = self.enter();
        let needed = RefCell::new(BTreeSet::new());
        let knows = |upstream: &UpstreamName| {
            let knows = self.zone().has_upstream(upstream);
            if knows {
                needed.borrow_mut().insert(upstream.clone());
            }
            knows
        };
        let context =
            RouteContext { now: env.clock.msec, origin: env.origin.clone(), knows: &knows };
        let mut draft = Draft::default();
        for (i, RouteOp { key, change }) in ops.iter().enumerate() {
            if !draft.work.contains_key(key) {
                let now = self.zone().route_now(key);
                if !(checks.holds)(key, now.as_ref()) {
                    return Err(RouteAttempt::Unmet { op: i, route: now.map(Box::new) });
                }
                draft.work.insert(key.clone(), (now.clone(), now));
            }
            let Some((_, now)) = draft.work.get_mut(key) else { continue };
            match change::apply(now.as_ref(), key, change, &context) {
                Ok(RouteApplied::Same) => {}
                Ok(RouteApplied::Set(next)) => *now = Some(next),
                Ok(RouteApplied::Gone) => *now = None,
                Err(error) => return Err(RouteAttempt::Refused { op: i, error }),
            }
        }
        draft.needed = needed.take();
        Ok(draft)
    }
}

impl Draft {
    fn batch(&self, env: &Env<'_>) -> RouteBatch<'_> {
        let changed = self.work.iter().filter(|(_, (before, after))| before != after);
        let plans: Vec<RoutePlan<'_>> = changed
            .map(|(key, (before, after))| RoutePlan {
                key,
                before: before.as_ref(),
                after: after.as_ref(),
            })
            .collect();
        let ends: Vec<_> = plans.iter().map(|plan| (plan.before, plan.after)).collect();
        let event = |&(before, after): &(_, _)| event::of_route(before, after, &env.actor);
        RouteBatch {
            needed: &self.needed,
            expected: 0,
            now: env.clock.msec,
            events: ends.iter().filter_map(event).map(|event| event.to_bytes()).collect(),
            revision: Revision::Next(journal::route_changes(&ends)),
            plans,
        }
    }

    fn end(self, revision: u64) -> RouteDone {
        let touched = self.work.into_iter();
        let touched: Vec<_> =
            touched.map(|(key, (before, after))| RouteTouched { key, before, after }).collect();
        RouteDone { revision, changed: touched.iter().any(RouteTouched::is_changed), touched }
    }
}

fn barred_as(barred: &BatchAttempt) -> RouteAttempt {
    match barred {
        BatchAttempt::NotWriter => RouteAttempt::NotWriter,
        _ => RouteAttempt::Busy,
    }
}
