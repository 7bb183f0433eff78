//! What metrics say of an upstream, read a piece at a time: however many servers it has, no piece
//! takes long.
//!
//! The table may change between two pieces. Then reading begins anew and passes over servers that
//! it has: each server that is there all the time is met once, others at most once; and so is an
//! address that one server has after another, for a page has one line for it.

use std::collections::{BTreeMap, HashSet};

use peerage_core::addr::ServerAddr;
use peerage_core::check::results::HealthChecks;
use peerage_core::host::Hosts;
use peerage_core::metrics::{ProbeCount, ServerSample, UpstreamSample};
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::server::{AdminState, Limits, Server};
use peerage_core::state::{Facts, reason, state};

use crate::along::Along;
use crate::choice::{Clock, FoundUp};
use crate::done::codes;
use crate::layout::{Entry, Table, Up, get};
use crate::live::{facts, health_checks};
use crate::stored::StoredServer;
use crate::worker::Worker;

/// Whether servers are asked for, or only how many of them take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Each server.
    Servers,
    /// The upstream alone.
    Upstream,
}

/// An upstream that is being read.
pub struct Tally {
    found: FoundUp,
    extent: Extent,
    along: Along,
    /// Servers that were met, by id.
    met: HashSet<u64>,
    /// And their addresses, where they are read.
    addresses: HashSet<ServerAddr>,
    /// How often it began anew.
    turns: u32,
    sample: UpstreamSample,
}

/// How far reading has come.
#[derive(Debug)]
pub enum Tallied {
    /// There is more.
    More,
    /// That was all.
    Whole(Box<UpstreamSample>),
    /// The upstream has gone.
    Gone,
}

impl Worker {
    /// Begins to read an upstream.
    pub fn tally(&self, name: &UpstreamName, extent: Extent) -> Option<Tally> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        let table = up.table(self.zone())?;
        let servers = if extent == Extent::Servers { table.servers() } else { 0 };
        let sample = UpstreamSample::new(name.to_string(), servers as usize);
        let found = FoundUp::new(up);
        Some(Tally {
            found,
            extent,
            along: Along::default(),
            met: HashSet::new(),
            addresses: HashSet::new(),
            turns: 0,
            sample,
        })
    }

    /// Reads on.
    pub fn tally_on(&self, tally: &mut Tally, clock: &Clock) -> Tallied {
        let _section = self.enter();
        let Some((up, table)) =
            tally.found.again().and_then(|up| Some((up, up.table(self.zone())?)))
        else {
            return Tallied::Gone;
        };
        tally.turns += u32::from(tally.along.look(table));
        let mut known = self.known_hosts.borrow_mut();
        let hosts = known.look(self.zone());
        let entries = table.entries();
        let end = entries.len().min(tally.along.next + LOOKED_AT);
        let mut read = 0;
        // One that changes faster than it can be read is shown as far as it was.
        while tally.along.next < end && read < READ && tally.turns < TURNS {
            let rest = entries.get(tally.along.next..).unwrap_or_default();
            let Some(server) = first(rest) else { break };
            tally.along.next += server.entries.len();
            read += usize::from(self.meet(tally, &server, table, hosts, clock));
        }
        if tally.along.next < entries.len() && tally.turns < TURNS {
            return Tallied::More;
        }
        times(up, &mut tally.sample);
        Tallied::Whole(Box::new(std::mem::take(&mut tally.sample)))
    }

    /// Looks at a server; whether it was a new one.
    fn meet(
        &self,
        tally: &mut Tally,
        server: &StoredServer,
        table: Table,
        hosts: &Hosts,
        clock: &Clock,
    ) -> bool {
        // One without an address has no peer that knows its id.
        let peer = server.peers(self.region()).next();
        if peer.is_some_and(|peer| tally.met.contains(&peer.server_id())) {
            return false;
        }
        let facts = facts(self.region(), table.method(), &server.entries, clock);
        let Facts { failed, full, bar, .. } = facts;
        let is_open = server.entries.iter().any(|entry| entry.open);
        let eligible = is_open && !failed && !full && bar.is_none();
        let id = if tally.extent == Extent::Servers {
            let Ok(wanted) = record::decode_server(&server.cold.read(self.region())) else {
                // Only another build's memory could cause it.
                return true;
            };
            let is_known = tally.met.contains(&wanted.id);
            if is_known || !tally.addresses.insert(wanted.addr.clone()) {
                return true;
            }
            let checked = table.health().checked;
            self.sample(&mut tally.sample, (server, checked), &wanted, &facts, hosts);
            Some(wanted.id)
        } else {
            peer.map(|peer| peer.server_id())
        };
        tally.met.extend(id);
        tally.sample.eligible += u32::from(eligible);
        true
    }

    /// Adds a server to a sample.
    fn sample(
        &self,
        out: &mut UpstreamSample,
        (stored, checked): (&StoredServer, bool),
        server: &Server,
        facts: &Facts,
        hosts: &Hosts,
    ) {
        let entry = stored.entries.first().copied().unwrap_or_default();
        let (own, host) = (&server.admin, hosts.covering(server));
        let of_host = host.map_or(AdminState::Up, |host| host.state);
        let decides = if own.state >= of_host { Some(own) } else { host };
        let not_up = decides.filter(|admin| admin.state != AdminState::Up && admin.since != 0);
        let limits =
            Limits { weight: entry.weight, max_conns: entry.max_conns, ..Limits::BUILT_IN };
        let mut sample = ServerSample {
            state: state(reason(server.wanted(), of_host, &limits, facts)),
            admin_since: not_up.map(|admin| admin.since),
            active: 0,
            max_conns: entry.max_conns,
            weight: entry.weight,
            requests: 0,
            fails: 0,
            unavail: 0,
            checks: checked.then(ProbeCount::default),
            selected: 0,
            sent: 0,
            received: 0,
        };
        let mut responses = BTreeMap::<u16, u64>::new();
        for peer in stored.peers(self.region()) {
            sample.active += u64::from(peer.active());
            sample.fails += get(peer.fails());
            sample.unavail += get(peer.unavail());
            sample.selected = sample.selected.max(get(peer.selected()));
            if let Some(count) = &mut sample.checks {
                let HealthChecks { checks, fails, .. } = health_checks(peer);
                count.passed += checks.saturating_sub(fails);
                count.failed += fails;
            }
            sample.sent += get(peer.sent());
            sample.received += get(peer.received());
            sample.requests += get(peer.unanswered());
            let others = (1..).zip(peer.classes()).map(|(class, count)| (class, get(count)));
            for (code, count) in others.filter(|&(_, n)| n > 0).chain(codes(peer.codes())) {
                *responses.entry(code).or_default() += count;
                sample.requests += count;
            }
        }
        out.push(&server.addr.to_string(), sample, responses);
    }
}

/// The server whose entries come first.
fn first(entries: &[[peerage_shm::AtomicU64; Entry::WORDS]]) -> Option<StoredServer> {
    let mut entries = entries.iter().map(Entry::read).peekable();
    let first = entries.next()?;
    let mut all = vec![first];
    while let Some(more) = entries.next_if(|entry| entry.order == first.order) {
        all.push(more);
    }
    Some(StoredServer { cold: first.cold(), entries: all })
}

fn times(up: Up, sample: &mut UpstreamSample) {
    if let Some((sum, counts)) = up.histogram().split_last() {
        sample.times_ms = get(sum);
        for (count, word) in sample.times.iter_mut().zip(counts) {
            *count = get(word);
        }
    }
}

/// Entries looked at in one piece, and servers read.
const LOOKED_AT: usize = 1024;
const READ: usize = 64;
/// How often an upstream that changes meanwhile is read anew.
const TURNS: u32 = 1000;
