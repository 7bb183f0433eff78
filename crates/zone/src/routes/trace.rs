//! What the routes' table reaches, and its figures, after a writer died.

use peerage_shm::{Ordering, Ref};

use super::node_at;
use crate::layout::{Kind, Node, pack, root, set};
use crate::zone::Zone;

/// Shows every block of the table, and counts anew. Under the lock, before anything is given out.
pub(crate) fn trace_routes(zone: &Zone, mark: &mut dyn FnMut(Ref, u32)) {
    // A table that was begun, or is in force by now, has links that nobody else goes by.
    set(zone.root(root::ROUTES_NEXT), 0);
    set(zone.root(root::ROUTES_MOVED), 0);
    let (mut routes, mut apps, mut granules) = (0, 0, 0);
    if let Some(table) = zone.routes_table() {
        each(zone, |node| match node.kind() {
            Kind::App => node.set_routes(0),
            Kind::Route => {}
        });
        each(zone, |node| {
            if node.kind() == Kind::Route
                && let Some(app) = node_at(zone, node.app())
            {
                app.set_routes(app.routes() + 1);
            }
        });
        // One that came before its first route, or should have gone with its last.
        let mut unnamed = Vec::new();
        each(zone, |node| {
            if node.kind() == Kind::App && node.routes() == 0 {
                unnamed.push(node);
            }
        });
        for node in unnamed {
            zone.unlink_node(node, zone.hash_of(node), None);
        }
        each(zone, |node| {
            let n = node.granules(zone.region());
            mark(node.place(zone.region()), n);
            granules += u64::from(n);
            match node.kind() {
                Kind::Route => routes += 1,
                Kind::App => apps += 1,
            }
        });
        if routes == 0 {
            zone.root(root::ROUTES).store(0, Ordering::SeqCst);
        } else {
            mark(table.at(), table.granules());
            granules += u64::from(table.granules());
        }
    }
    set(zone.root(root::ROUTES_COUNT), pack(routes, apps));
    set(zone.root(root::ROUTES_GRANULES), granules);
}

/// Shows every record. Under the lock.
fn each(zone: &Zone, mut seen: impl FnMut(Node)) {
    let Some(table) = zone.routes_table() else { return };
    for i in 0..table.len() {
        let mut at = table.first(i);
        while let Some(node) = node_at(zone, at) {
            at = node.next(table.side());
            seen(node);
        }
    }
}
