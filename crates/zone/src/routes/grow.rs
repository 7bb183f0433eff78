//! How the table becomes another size, a little at a time. All of it under the lock.

use peerage_shm::{Ordering, Ref, Writer, point};

use super::buckets::{Buckets, bits_for};
use super::{Hashed, node_at};
use crate::layout::{Kind, Node, get, root, set};
use crate::zone::Zone;

/// Buckets that are moved at least, whenever somebody writes.
const STEP: usize = 64;
/// Buckets that are moved besides for each record that comes: a table is moved before it is twice
/// as full as it shall be.
const STEP_EACH: usize = 4;
/// Buckets that a round moves.
const ROUND: usize = 1024;
/// A table is made smaller when it is this much too large.
const SLACK: usize = 8;

impl Zone {
    /// The next table, as far as it is filled, and how many buckets of the one in force it has.
    fn next_table(&self) -> Option<(Buckets, usize)> {
        let next = Buckets::of(self.region(), get(self.root(root::ROUTES_NEXT)))?;
        Some((next, get(self.root(root::ROUTES_MOVED)) as usize))
    }

    /// Granules of the next table.
    pub(crate) fn next_table_block(&self) -> Option<(Ref, u32)> {
        self.next_table().map(|(next, _)| (next.at(), next.granules()))
    }

    /// Makes a record part of the table: one store.
    pub(crate) fn link_node(&self, node: Node, hash: Hashed) {
        let region = self.region();
        let Some(table) = self.routes_table() else { return };
        let insert = |table: Buckets| {
            let i = table.index(hash);
            node.set_next(table.side(), table.first(i));
            table.set_first(i, node.place(region));
        };
        insert(table);
        if let Some(next) = self.next_with(table, hash) {
            insert(next);
        }
    }

    /// Takes a record out, or puts another of the same key in its place: one store.
    pub(crate) fn unlink_node(&self, node: Node, hash: Hashed, instead: Option<Node>) {
        let Some(table) = self.routes_table() else { return };
        self.unlink_from(table, node, hash, instead);
        if let Some(next) = self.next_with(table, hash) {
            self.unlink_from(next, node, hash, instead);
        }
    }

    /// The next table, where it has the records of that bucket already.
    fn next_with(&self, table: Buckets, hash: Hashed) -> Option<Buckets> {
        let (next, moved) = self.next_table()?;
        (table.index(hash) < moved).then_some(next)
    }

    fn unlink_from(&self, table: Buckets, node: Node, hash: Hashed, instead: Option<Node>) {
        let (region, side, i) = (self.region(), table.side(), table.index(hash));
        let place = node.place(region);
        if let Some(instead) = instead {
            instead.set_next(side, node.next(side));
        }
        let after = instead.map_or_else(|| node.next(side), |instead| instead.place(region));
        let mut at = table.first(i);
        if at == place {
            table.set_first(i, after);
            return;
        }
        while let Some(before) = node_at(self, at) {
            at = before.next(side);
            if at == place {
                before.set_next(side, after);
                return;
            }
        }
    }

    /// Goes on with the change of size for the sake of so many records that come, or begins one.
    pub(crate) fn tend_routes(&self, writer: &mut Writer<'_>, coming: usize) {
        self.begin_table(writer, coming);
        self.move_buckets(writer, STEP + STEP_EACH * coming);
    }

    /// The same in a round.
    pub(crate) fn tend_routes_in_round(&self, writer: &mut Writer<'_>) {
        self.begin_table(writer, 0);
        self.move_buckets(writer, ROUND);
    }

    /// Goes on to the end, where nobody reads yet.
    pub(crate) fn settle_routes(&self, writer: &mut Writer<'_>) {
        writer.collect();
        self.begin_table(writer, 0);
        self.move_buckets(writer, usize::MAX);
        writer.collect();
    }

    fn begin_table(&self, writer: &mut Writer<'_>, coming: usize) {
        let Some(table) = self.routes_table() else { return };
        let records = self.route_counts().all() + coming;
        let small = records > table.len();
        let large = records * SLACK < table.len() && bits_for(records) < table.bits();
        // The links that it would use may still be read: then it is begun with a later change.
        if !(small || large) || self.next_table().is_some() || writer.awaits_readers() {
            return;
        }
        let bits = bits_for(records);
        let granules = Buckets::granules_of(bits);
        let used = get(self.root(root::ROUTES_GRANULES)) + u64::from(granules);
        if used > self.routes_share() {
            return;
        }
        // Without room for it chains become longer; nothing else.
        let Some(at) = writer.alloc(granules) else { return };
        point!("routes.begun");
        set(self.root(root::ROUTES_GRANULES), used);
        set(self.root(root::ROUTES_MOVED), 0);
        set(self.root(root::ROUTES_NEXT), Buckets::word_of(at, bits, table.side().other()));
    }

    /// Moves up to `n` buckets, and puts the next table in force when it has them all.
    fn move_buckets(&self, writer: &mut Writer<'_>, n: usize) {
        let (Some(table), Some((next, moved))) = (self.routes_table(), self.next_table()) else {
            return;
        };
        let end = moved.saturating_add(n).min(table.len());
        let mut name = Vec::new();
        for i in moved..end {
            // Their buckets are empty where none of this table's has come to them.
            let from = next.index_at(table.position(i).next_multiple_of(1 << (32 - next.bits())));
            let to = next.index_at(table.position(i + 1) - 1) + 1;
            (from..to).for_each(|j| next.set_first(j, Ref::NONE));
            let mut at = table.first(i);
            while let Some(node) = node_at(self, at) {
                at = node.next(table.side());
                name.clear();
                node.read_name(self.region(), &mut name);
                let j = next.index(self.hashed(node.kind(), &name));
                node.set_next(next.side(), next.first(j));
                next.set_first(j, node.place(self.region()));
            }
            set(self.root(root::ROUTES_MOVED), i as u64 + 1);
        }
        point!("routes.moved");
        if end == table.len() {
            // Without room to remember the old one it is done with a later change.
            let Some(limbo) = writer.limbo(1) else { return };
            writer.publish(self.root(root::ROUTES), next.word());
            point!("routes.switched");
            self.root(root::ROUTES_NEXT).store(0, Ordering::Relaxed);
            let used = self.root(root::ROUTES_GRANULES);
            set(used, get(used).saturating_sub(table.granules().into()));
            writer.retire(limbo, &[(table.at(), table.granules())], &[]);
        }
    }

    /// Gives the table up where it holds nothing; what is to be retired then.
    pub(crate) fn end_table(&self, writer: &Writer<'_>) -> Vec<(Ref, u32)> {
        if self.route_counts().all() > 0 {
            return Vec::new();
        }
        let table = self.routes_table().map(|table| (table.at(), table.granules()));
        let blocks = table.into_iter().chain(self.next_table_block()).collect();
        writer.publish(self.root(root::ROUTES), 0);
        set(self.root(root::ROUTES_NEXT), 0);
        set(self.root(root::ROUTES_GRANULES), 0);
        blocks
    }

    /// Granules that routes may take: half a zone.
    pub(crate) fn routes_share(&self) -> u64 {
        (self.region().bytes() / 64) as u64
    }

    /// The hash of what a record is found by.
    pub(crate) fn hash_of(&self, node: Node) -> Hashed {
        self.hashed(node.kind(), &node.name(self.region()))
    }

    /// The record of an app.
    pub(crate) fn app_node(&self, name: &str) -> Option<Node> {
        self.node(Kind::App, name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use peerage_core::change::Actor;
    use peerage_core::name::UpstreamName;
    use peerage_core::route::RouteKey;
    use peerage_core::route::change::{RouteBody, RouteChange};
    use peerage_core::server::Origin;
    use peerage_core::upstream::Defaults;

    use super::*;
    use crate::change::Env;
    use crate::choice::Clock;
    use crate::routes::{ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteOp};
    use crate::trial::{self, FORMAT};
    use crate::worker::Worker;

    fn fill(worker: &Worker, keys: std::ops::Range<usize>) {
        let env = Env {
            clock: &Clock { secs: 1, msec: 1_000 },
            actor: Actor::new("test", "127.0.0.1"),
            origin: Origin::Api,
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: false,
        };
        let op = |i: usize| {
            let upstream = UpstreamName::parse("app").ok();
            let body = RouteBody { upstream, ..RouteBody::default() };
            let key = RouteKey::parse(&format!("t{i}")).expect("a good key");
            RouteOp { key, change: RouteChange::Put { body, force: true } }
        };
        let ops: Vec<RouteOp> = keys.map(op).collect();
        for ops in ops.chunks(ROUTES_AT_ONCE) {
            let came = worker.put_routes(ops, &env, &RouteChecks::NONE);
            assert!(matches!(came, RouteAttempt::Done(_)), "{came:?}");
        }
    }

    /// Keys in the chains of a table.
    fn met(zone: &Zone, table: Buckets) -> usize {
        let mut met = 0;
        for i in 0..table.len() {
            let mut at = table.first(i);
            while let Some(node) = node_at(zone, at) {
                at = node.next(table.side());
                met += usize::from(node.kind() == Kind::Route);
            }
        }
        met
    }

    #[test]
    fn who_reads_the_old_table_finds_in_it_what_it_had() {
        let zone = trial::zone(4 << 20);
        let worker = zone.worker(1, 1, &FORMAT).expect("a slot");
        fill(&worker, 0..500);
        let reader = zone.worker(2, 1, &FORMAT).expect("a slot");
        let section = reader.enter();
        let old = zone.routes_table().expect("it is there");
        fill(&worker, 500..4_000);
        let now = zone.routes_table().expect("it is there");
        assert!(now.word() != old.word() && zone.next_table().is_none(), "one step, no more");
        // Until it was moved, what came was put into it too.
        let kept = met(&zone, old);
        assert!((500..4_000).contains(&kept), "{kept}");
        assert_eq!(met(&zone, now), 4_000);
        drop(section);
        for _ in 0..20 {
            let mut writer = trial::writer(&zone);
            writer.collect();
            zone.tend_routes_in_round(&mut writer);
        }
        let last = zone.routes_table().expect("it is there");
        assert_eq!((last.bits(), met(&zone, last)), (12, 4_000));
        assert_eq!(trial::writer(&zone).check(), Ok(()));
    }

    #[test]
    fn keys_lie_evenly_in_every_size() {
        let zone = trial::zone(4 << 20);
        let worker = zone.worker(1, 1, &FORMAT).expect("a slot");
        fill(&worker, 0..4_000);
        let mut writer = trial::writer(&zone);
        zone.settle_routes(&mut writer);
        drop(writer);
        let table = zone.routes_table().expect("it is there");
        let longest = (0..table.len())
            .map(|i| {
                let next = |at: &Ref| Some(node_at(&zone, *at)?.next(table.side()));
                std::iter::successors(Some(table.first(i)), next).count() - 1
            })
            .max();
        assert!(longest < Some(12), "{longest:?}");
    }
}
