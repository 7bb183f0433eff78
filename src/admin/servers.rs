//! Servers over all upstreams of a zone: `GET v1/servers`, and those of one host.
//!
//! They come in the order of their upstreams' names and of their ids, so that a page can go on
//! where the last one ended whatever has changed meanwhile.

use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::filter::{Place, ServerFilter};
use peerage_core::api::render;
use peerage_core::host::is_on;
use peerage_core::name::UpstreamName;
use peerage_core::server::{Admin, Server};
use peerage_core::state;
use peerage_zone::{Cursor, Seen, Worker};

use super::{answer, read};
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};

/// `GET v1/servers`
pub(super) fn list(
    zone: Rc<Zone>,
    filter: ServerFilter,
    after: Option<Place>,
    limit: u32,
) -> Result<Answer, Problem> {
    let scan = Scan::new(zone, Which::Filter(filter), after)?;
    let revision = scan.worker.zone().revision();
    let list = List {
        scan,
        open: Some(b"{\"servers\":[".to_vec()),
        left: limit,
        paged: true,
        first: true,
    };
    Ok(answer::at_revision(answer::json(200, Box::new(list)), revision))
}

/// `GET v1/hosts/{ip}`: it is known when something stands on it or a server is on it.
pub(super) struct Host {
    ip: IpAddr,
    admin: Option<Admin>,
    scan: Option<Scan>,
}

impl Host {
    pub(super) fn new(zone: Rc<Zone>, ip: IpAddr) -> Result<Self, Problem> {
        let scan = Scan::new(zone, Which::Host(ip), None)?;
        let admin = scan.worker.hosts().get(ip).cloned();
        Ok(Self { ip, admin, scan: Some(scan) })
    }
}

impl Task for Host {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        let Some(mut scan) = self.scan.take() else {
            let problem = Problem::new(Code::Internal, "answered already");
            return Turn::Answer(answer::problem(&problem));
        };
        let begun = std::time::Instant::now();
        while self.admin.is_none() && scan.found.is_empty() {
            if !scan.advance() {
                let detail = format!("no server is on host {}", self.ip);
                return Turn::Answer(answer::problem(&Problem::new(Code::HostNotFound, detail)));
            }
            if begun.elapsed() >= super::SLICE {
                self.scan = Some(scan);
                return Turn::Wait(1);
            }
        }
        let revision = scan.worker.zone().revision();
        let mut open = Vec::with_capacity(256);
        render::host_open(&mut open, self.ip, self.admin.as_ref());
        let list = List { scan, open: Some(open), left: u32::MAX, paged: false, first: true };
        Turn::Answer(answer::at_revision(answer::json(200, Box::new(list)), revision))
    }
}

/// Which servers a scan finds.
enum Which {
    Filter(ServerFilter),
    Host(IpAddr),
}

impl Which {
    /// What can be told without what is live.
    fn fits(&self, server: &Server) -> bool {
        match self {
            Self::Filter(filter) => filter.fits(server),
            Self::Host(ip) => is_on(server, *ip),
        }
    }
}

/// A walk over all servers of a zone, an upstream at a time.
struct Scan {
    zone: Rc<Zone>,
    worker: &'static Worker,
    which: Which,
    after: Option<Place>,
    names: IntoIter<UpstreamName>,
    /// The next names, as they are being gathered.
    next: BinaryHeap<UpstreamName>,
    cursor: Cursor,
    /// The upstream that was read last.
    seen: Option<Seen>,
    /// Places of its servers that are to be shown, the next one last.
    found: Vec<usize>,
}

impl Scan {
    fn new(zone: Rc<Zone>, which: Which, after: Option<Place>) -> Result<Self, Problem> {
        let worker = zone.worker().ok_or_else(super::no_place)?;
        let names = match &after {
            // The rest of the upstream in which the last page ended comes first.
            Some(Place { upstream, id: Some(_) }) => vec![upstream.clone()],
            _ => Vec::new(),
        };
        let names = names.into_iter();
        Ok(Self {
            zone,
            worker,
            which,
            after,
            names,
            next: BinaryHeap::new(),
            cursor: Cursor::default(),
            seen: None,
            found: Vec::new(),
        })
    }

    /// Looks at some more names for the next page of them; false when there are none.
    fn gather(&mut self) -> bool {
        let some = self.worker.walk(&mut self.cursor, GATHERED);
        if some.is_empty() {
            self.cursor = Cursor::default();
            self.names = std::mem::take(&mut self.next).into_sorted_vec().into_iter();
            return !self.names.as_slice().is_empty();
        }
        for name in some {
            if self.after.as_ref().is_some_and(|place| name <= place.upstream) {
                continue;
            }
            if self.next.len() < NAMES {
                self.next.push(name);
            } else if let Some(mut last) = self.next.peek_mut()
                && name < *last
            {
                *last = name;
            }
        }
        true
    }

    /// Looks into the next upstream; false when there is none.
    fn advance(&mut self) -> bool {
        let Some(name) = self.names.next() else { return self.gather() };
        let last = match self.after.take() {
            Some(Place { upstream, id }) if upstream == name => id,
            _ => None,
        };
        self.after = Some(Place { upstream: name.clone(), id: None });
        let fits =
            |server: &Server| last.is_none_or(|last| server.id > last) && self.which.fits(server);
        let Some((wanted, _)) = self.worker.read_wanted(&name) else { return true };
        if !wanted.servers.iter().any(fits) {
            return true;
        }
        let Some(seen) = self.worker.read(&name, &process::clock()) else { return true };
        let shown = read::shown(&self.zone, &seen);
        let mut found: Vec<usize> = (0..seen.upstream.servers.len())
            .filter(|&at| {
                let Some(line) = shown.server(at) else { return false };
                let (state, _) =
                    state::verdict(line.server, line.host, &line.limits, &line.live.facts);
                let of_state = match &self.which {
                    Which::Filter(filter) => filter.matches(line.server, state),
                    Which::Host(_) => true,
                };
                of_state && fits(line.server)
            })
            .collect();
        found.sort_unstable_by_key(|&at| std::cmp::Reverse(seen.upstream.servers[at].id));
        self.found = found;
        self.seen = Some(seen);
        true
    }
}

/// The answer: what opens it, servers, and where the next page begins.
struct List {
    scan: Scan,
    open: Option<Vec<u8>>,
    /// Servers that still fit on the page.
    left: u32,
    paged: bool,
    first: bool,
}

impl List {
    fn close(&self, out: &mut Vec<u8>, next: Option<Place>) -> Step {
        out.push(b']');
        if self.paged {
            out.extend_from_slice(b",\"next\":");
            let next = next.map(|place| place.to_string());
            // A vector takes everything.
            let _ = serde_json::to_writer(&mut *out, &next);
        }
        out.push(b'}');
        Step::End
    }
}

impl Producer for List {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if let Some(open) = self.open.take() {
            out.extend_from_slice(&open);
        } else if self.scan.found.is_empty() {
            return if self.scan.advance() { Step::More } else { self.close(out, None) };
        }
        let Some(seen) = &self.scan.seen else { return Step::More };
        let shown = read::shown(&self.scan.zone, seen);
        for _ in 0..read::PIECE {
            let Some(at) = self.scan.found.pop() else { break };
            let Some(line) = shown.server(at) else { break };
            if !self.first {
                out.push(b',');
            }
            self.first = false;
            render::listed_server(out, &seen.upstream.name, &line);
            self.left -= 1;
            if self.left == 0 {
                let place =
                    Place { upstream: seen.upstream.name.clone(), id: Some(line.server.id) };
                return self.close(out, Some(place));
            }
        }
        Step::More
    }
}

/// Names of a page of them; each costs a walk over all.
const NAMES: usize = 4000;
/// Names looked at in one go.
const GATHERED: usize = 256;
