//! What a zone can reach: the allocator's truth after a writer died.

use peerage_core::host::Hosts;
use peerage_core::record;
use peerage_shm::{Ref, Shared, Trace};

use crate::address::Address;
use crate::batch::settle;
use crate::board::Board;
use crate::hosts;
use crate::layout::{Blob, Entry, Peer, Shut, Table, Up, get, granules, high, low, root, set};
use crate::routes::trace_routes;
use crate::shut::wanted;
use crate::size::second_table;
use crate::zone::Zone;

/// Walks everything reachable from the root of a zone.
pub(crate) struct Reachable(pub(crate) Zone);

impl Trace for Reachable {
    fn trace(&self, _: &Shared, mark: &mut dyn FnMut(Ref, u32)) {
        let zone = &self.0;
        let buckets = get(zone.root(root::BUCKETS));
        if high(buckets) != 0 {
            mark(Ref::from_raw(high(buckets)), granules(low(buckets) as usize + 1));
        }
        zone.unlink_ended();
        // A batch is in force as a whole or not at all.
        let chains = (0..).map_while(|i| zone.bucket_at(i));
        let ups: Vec<Up> = chains.flatten().collect();
        settle(zone, ups);
        zone.pass_over();
        zone.upstreams().end();
        zone.names().generation().end();
        zone.checks().end();
        zone.look_for_ends();
        let hosts = Blob::from_word(get(zone.root(root::HOSTS)));
        if !hosts.at.is_none() {
            mark(hosts.at, hosts::granules(hosts));
        }
        let down = zone.stored_hosts().hosts;
        let (events, granules) = zone.events_block();
        if granules != 0 {
            mark(events, granules);
        }
        let (journal, granules) = zone.journal_block();
        if granules != 0 {
            mark(journal, granules);
        }
        let (shut, granules) = zone.shut_block();
        if granules != 0 {
            mark(shut, granules);
        }
        for board in zone.boards() {
            mark(board.at, Board::GRANULES);
        }
        let (mut upstreams, mut servers, mut tables) = (0, 0, 0);
        let chains = (0..).map_while(|i| zone.bucket_at(i));
        for up in chains.flatten() {
            upstreams += 1;
            mark(up.place(zone.region()), Up::granules(up.name_len()));
            let Some(table) = up.table(zone) else { continue };
            servers += u64::from(table.servers());
            let (entries, primaries) = (table.entries().len(), table.primaries());
            tables += second_table(entries, table.method(), table.part().words(primaries));
            mark(table.at, Table::granules(table.entries().len()));
            mark_table(zone, table, mark);
            shut_table(zone, table, &down);
        }
        trace_routes(zone, mark);
        // A writer that died may have counted or not.
        set(zone.root(root::UPSTREAMS), upstreams);
        set(zone.root(root::SERVERS), servers);
        set(zone.root(root::TABLES), tables);
        // After the marks: who is sent to look for himself finds them.
        zone.forget_shut();
    }

    fn companion(&self, shared: &Shared, record: Ref) -> Option<(Ref, u32)> {
        let (address, granules) = Peer::at(shared.region(), record)?.address().block();
        (granules != 0).then_some((address, granules))
    }
}

/// Marks peers that are taken out: a writer that died may have put that in force and no more.
fn shut_table(zone: &Zone, table: Table, hosts: &Hosts) {
    for entry in table.entries().iter().map(Entry::read) {
        let Some(peer) = Peer::at(zone.region(), entry.peer) else { continue };
        let shut = match entry.open {
            true => Shut::Open,
            false => {
                let server = record::decode_server(&entry.cold().read(zone.region()));
                let address = Address::at(zone.region(), peer.address());
                let host = address.and_then(|address| hosts.get(address.ip()?));
                server.map_or(Shut::Open, |server| wanted(&server, host).0)
            }
        };
        if peer.shut(peer.uid()) != shut {
            peer.set_shut(shut);
        }
    }
}

fn mark_table(zone: &Zone, table: Table, mark: &mut dyn FnMut(Ref, u32)) {
    if table.cold().len != 0 {
        mark(table.cold().at, table.cold().granules());
    }
    if table.texts().len != 0 {
        mark(table.texts().at, table.texts().granules());
    }
    let part = table.part();
    if !part.at.is_none() {
        mark(part.at, part.granules(table.primaries()));
    }
    let mut last = Ref::NONE;
    for entry in table.entries().iter().map(Entry::read) {
        // Peers of one server share its cold part, and stand together.
        if entry.cold != last {
            mark(entry.cold, entry.cold().granules());
            last = entry.cold;
        }
        if let Some(peer) = Peer::at(zone.region(), entry.peer) {
            mark(peer.at, Peer::GRANULES);
            let (address, granules) = peer.address().block();
            mark(address, granules);
        }
    }
}
