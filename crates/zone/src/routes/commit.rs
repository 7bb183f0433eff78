//! Putting changes of routes in force.
//!
//! As for upstreams: everything is made before, looked at again under the lock, and all that it
//! takes is taken before anything can be seen. Then each route comes in force by one store of its
//! own, one after the other; who dies in between leaves some of them in force, of which the journal
//! tells none.

use std::collections::{BTreeSet, HashMap};

use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::route::{Route, RouteKey};
use peerage_shm::{Limbo, Ordering, Ref, Writer, point};

use super::buckets::{Buckets, bits_for};
use super::node_at;
use crate::commit::{Committed, Revision, Unfit};
use crate::ends;
use crate::layout::{Kind, Node, Side, get, pack, root, set};
use crate::room::Room;
use crate::size::GRANULE;
use crate::zone::Zone;

/// What becomes of a route.
pub(crate) struct RoutePlan<'a> {
    pub(crate) key: &'a RouteKey,
    /// As it was when this was decided.
    pub(crate) before: Option<&'a Route>,
    /// `None`: it goes.
    pub(crate) after: Option<&'a Route>,
}

/// Plans that come in force at one revision; each is of another key.
pub(crate) struct RouteBatch<'a> {
    pub(crate) plans: Vec<RoutePlan<'a>>,
    /// Upstreams that must be there.
    pub(crate) needed: &'a BTreeSet<UpstreamName>,
    /// Routes and apps that are about to come in all, where that is known.
    pub(crate) expected: usize,
    /// Unix ms.
    pub(crate) now: u64,
    /// What is told of it, as JSON objects.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) revision: Revision,
}

/// What was taken and filled for a batch.
#[derive(Default)]
struct Taken<'a> {
    /// The first table.
    table: Option<Buckets>,
    /// Apps that had no route.
    apps: Vec<Node>,
    /// By key the new record, where there is one.
    routes: Vec<(&'a RouteKey, Option<Node>)>,
}

/// What a batch takes.
#[derive(Default)]
struct Sum {
    /// Granules of new records, and of a table where there is none.
    need: u64,
    /// Buckets of that table, as a power of two; 0 = there is one.
    table: u32,
    /// Granules of records that go.
    gone: u64,
    /// Blocks that may go.
    blocks: usize,
}

/// Granules of the record of a route.
pub(crate) fn route_granules(route: &Route) -> u64 {
    let rest = record::encode_route_rest(route).len();
    Node::granules_of(route.key.as_str().len(), rest).into()
}

/// Granules of the record of an app.
pub(crate) fn app_granules(name: &UpstreamName) -> u64 {
    Node::granules_of(name.as_str().len(), 0).into()
}

impl Zone {
    /// Puts plans in force, all or none.
    pub(crate) fn commit_routes(
        &self,
        writer: &mut Writer<'_>,
        batch: &RouteBatch<'_>,
    ) -> Result<Committed, Unfit> {
        let fresh = |plan: &RoutePlan<'_>| self.route_now(plan.key).as_ref() == plan.before;
        if !batch.plans.iter().all(fresh)
            || !batch.needed.iter().all(|upstream| self.has_upstream(upstream))
        {
            return Err(Unfit::Stale);
        }
        self.tend_routes(writer, batch.plans.len());
        let revision = match batch.revision {
            Revision::Next(_) => get(self.root(root::REVISION)) + 1,
            Revision::Known(revision) => revision,
        };
        let sum = self.sum_of(batch);
        let used = get(self.root(root::ROUTES_GRANULES));
        if used + sum.need > self.routes_share() + sum.gone && sum.need > sum.gone {
            let free = self.routes_share().saturating_sub(used);
            return Err(Unfit::NoRoom { need: sum.need * GRANULE, free: free * GRANULE });
        }
        let (taken, limbo) = match self.take(writer, batch, &sum, false) {
            // What makes nothing larger takes no more than what it replaces, which comes back.
            Err(Unfit::NoRoom { .. }) if sum.need <= sum.gone => {
                self.take(writer, batch, &sum, true)?
            }
            taken => taken?,
        };
        // From here on nothing fails. The time first: a round may look too early, never too late.
        let ends = batch.plans.iter().filter_map(|plan| plan.after?.until);
        if let Some(end) = ends.min() {
            self.ends(ends::ROUTES).lower(end);
        }
        let said = self.append(writer, revision, batch.now, &batch.events);
        let noted = self.note(writer, revision, &batch.revision);
        point!("journal.written");
        let mut retired = self.publish_routes(&taken, sum.need);
        if let Revision::Next(_) = batch.revision {
            self.root(root::REVISION).store(revision, Ordering::SeqCst);
        }
        point!("journal.in_force");
        self.tell(writer, noted);
        point!("journal.told");
        retired.extend(self.end_table(writer));
        let epoch = writer.retire(limbo, &retired, &[]);
        Ok(Committed { revision, epoch, said })
    }

    /// What a batch takes, with what is there now. Under the lock.
    fn sum_of(&self, batch: &RouteBatch<'_>) -> Sum {
        let mut sum = Sum::default();
        let mut apps: BTreeSet<&UpstreamName> = BTreeSet::new();
        for plan in &batch.plans {
            if let Some(before) = plan.before {
                sum.gone += route_granules(before);
                // The record, and its app with it.
                sum.blocks += 2;
            }
            if let Some(after) = plan.after {
                sum.need += route_granules(after);
                apps.insert(&after.upstream);
            }
        }
        for &name in &apps {
            if self.app_node(name.as_str()).is_none() {
                sum.need += app_granules(name);
            }
        }
        if self.routes_table().is_none() && sum.need > 0 {
            let records = batch.expected.max(batch.plans.len() + apps.len());
            sum.table = bits_for(records);
            sum.need += u64::from(Buckets::granules_of(sum.table));
        }
        // Both tables, where they go with the last route.
        sum.blocks += 2;
        sum
    }

    /// Takes and fills all that a batch needs, or nothing.
    fn take<'b>(
        &self,
        writer: &mut Writer<'_>,
        batch: &'b RouteBatch<'b>,
        sum: &Sum,
        privileged: bool,
    ) -> Result<(Taken<'b>, Limbo), Unfit> {
        let mut room = Room::new(writer, privileged, sum.need);
        let taken = self.fill_all(&mut room, &batch.plans, sum);
        let taken = taken.and_then(|taken| match room.limbo(sum.blocks) {
            Some(limbo) => Ok((taken, limbo)),
            None => Err(room.no_room()),
        });
        if taken.is_err() {
            room.give_back();
        }
        taken
    }

    fn fill_all<'b>(
        &self,
        room: &mut Room<'_, '_>,
        plans: &'b [RoutePlan<'b>],
        sum: &Sum,
    ) -> Result<Taken<'b>, Unfit> {
        let region = *self.region();
        let lost = || Unfit::NoRoom { need: 0, free: 0 };
        let mut taken = Taken::default();
        if sum.table > 0 {
            let at = room.take(Buckets::granules_of(sum.table))?;
            let word = Buckets::word_of(at, sum.table, Side::Even);
            let table = Buckets::of(&region, word).ok_or_else(lost)?;
            table.clear();
            taken.table = Some(table);
        }
        let mut apps: HashMap<&str, Ref> = HashMap::new();
        for plan in plans {
            let Some(route) = plan.after else {
                taken.routes.push((plan.key, None));
                continue;
            };
            let name = route.upstream.as_str();
            let known = apps.get(name).copied();
            let known = known.or_else(|| self.app_node(name).map(|app| app.place(&region)));
            let app = match known {
                Some(app) => app,
                None => {
                    let at = room.take(Node::granules_of(name.len(), 0))?;
                    let app = Node::at(&region, at).ok_or_else(lost)?;
                    app.fill_app(&region, name.as_bytes(), self.hashed(Kind::App, name.as_bytes()));
                    taken.apps.push(app);
                    at
                }
            };
            apps.insert(name, app);
            let (key, rest) = (route.key.as_str().as_bytes(), record::encode_route_rest(route));
            let at = room.take(Node::granules_of(key.len(), rest.len()))?;
            let node = Node::at(&region, at).ok_or_else(lost)?;
            node.fill_route(&region, route, &rest, app, self.hashed(Kind::Route, key));
            taken.routes.push((plan.key, Some(node)));
        }
        Ok(taken)
    }

    /// Makes the records part of the table; gives what that takes out of reach.
    fn publish_routes(&self, taken: &Taken<'_>, need: u64) -> Vec<(Ref, u32)> {
        let region = self.region();
        let mut counts = self.route_counts();
        if let Some(table) = taken.table {
            self.root(root::ROUTES).store(table.word(), Ordering::SeqCst);
        }
        for app in &taken.apps {
            self.link_node(*app, self.hash_of(*app));
            counts.apps += 1;
        }
        point!("apps.linked");
        for (_, new) in &taken.routes {
            if let Some(app) = new.and_then(|new| node_at(self, new.app())) {
                app.set_routes(app.routes() + 1);
                counts.routes += 1;
            }
        }
        let mut gone: Vec<Node> = Vec::new();
        for (key, new) in &taken.routes {
            let key = key.as_str().as_bytes();
            let hash = self.hashed(Kind::Route, key);
            match (self.node(Kind::Route, key), new) {
                (Some(old), new) => {
                    self.unlink_node(old, hash, *new);
                    gone.push(old);
                }
                (None, Some(new)) => self.link_node(*new, hash),
                (None, None) => {}
            }
            point!("route.published");
        }
        point!("routes.published");
        for i in 0..gone.len() {
            counts.routes -= 1;
            let Some(app) = node_at(self, gone[i].app()) else { continue };
            app.set_routes(app.routes().saturating_sub(1));
            if app.routes() == 0 {
                self.unlink_node(app, self.hash_of(app), None);
                self.remind_of_orphan(app);
                counts.apps -= 1;
                gone.push(app);
            }
        }
        set(self.root(root::ROUTES_COUNT), pack(counts.routes, counts.apps));
        let retired: Vec<_> =
            gone.into_iter().map(|node| (node.place(region), node.granules(region))).collect();
        let less: u64 = retired.iter().map(|&(_, granules)| u64::from(granules)).sum();
        let used = self.root(root::ROUTES_GRANULES);
        set(used, (get(used) + need).saturating_sub(less));
        retired
    }

    /// An orphan that was kept for its routes may end now.
    fn remind_of_orphan(&self, app: Node) {
        let up = self.find(&app.name(self.region()));
        if let Some(table) = up.and_then(|up| up.table(self)) {
            self.ends(ends::ORPHANS).lower(table.orphaned());
        }
    }
}
