//! Upstreams, peers and servers, made while the client takes them.
//!
//! As in the listings of `v1/`, nothing of the zone is held between two slices.

use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::name::UpstreamName;
use peerage_core::plus::error::Fault;
use peerage_core::plus::fields::{Fields, key};
use peerage_core::plus::object;
use peerage_core::upstream::{ServerSel, Upstream};
use peerage_zone::{Cursor, PeerCursor, SeenPeer, Worker};

use super::super::{answer, no_place, read::PIECE};
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::process;
use crate::ffi::request::Request;

/// `GET http/upstreams`
pub(super) fn upstreams(zone: Rc<Zone>, fields: Fields) -> Result<Answer, Fault> {
    let worker = zone.worker().ok_or_else(no_place)?;
    let revision = worker.zone().revision();
    let list = List {
        zone,
        worker,
        fields: Rc::new(fields),
        cursor: Cursor::default(),
        names: Vec::new().into_iter(),
        now: None,
        begun: false,
        first: true,
    };
    Ok(answer::at_revision(answer::json(200, Box::new(list)), revision))
}

/// `GET http/upstreams/{u}`
pub(super) fn upstream(
    r: Request<'_>,
    zone: &Rc<Zone>,
    name: &UpstreamName,
    fields: Fields,
) -> Result<Answer, Fault> {
    let worker = zone.worker().ok_or_else(no_place)?;
    let group = Group::begin(zone, worker, name, &Rc::new(fields));
    let (group, revision) = group.ok_or_else(|| super::missing(r, name.as_str()))?;
    Ok(answer::at_revision(answer::json(200, Box::new(group)), revision))
}

/// `GET http/upstreams/{u}/servers`
pub(super) fn servers(
    r: Request<'_>,
    zone: &Rc<Zone>,
    name: &UpstreamName,
) -> Result<Answer, Fault> {
    let (upstream, revision) = wanted(r, zone, name)?;
    Ok(answer::at_revision(list(200, upstream), revision))
}

/// `GET http/upstreams/{u}/servers/{id}`
pub(super) fn server(
    r: Request<'_>,
    zone: &Rc<Zone>,
    name: &UpstreamName,
    id: u64,
) -> Result<Answer, Fault> {
    let (upstream, revision) = wanted(r, zone, name)?;
    let server = upstream.find(&ServerSel::Id(id)).ok_or_else(|| Fault::no_server(id))?;
    let mut body = Vec::with_capacity(256);
    object::server(&mut body, server, &upstream.limits(server));
    Ok(answer::at_revision(super::whole(200, body), revision))
}

/// The servers of an upstream as a list.
pub(super) fn list(status: u16, upstream: Upstream) -> Answer {
    answer::json(status, Box::new(Servers { upstream, at: None }))
}

fn wanted(r: Request<'_>, zone: &Zone, name: &UpstreamName) -> Result<(Upstream, u64), Fault> {
    let worker = zone.worker().ok_or_else(no_place)?;
    worker.read_wanted(name).ok_or_else(|| super::missing(r, name.as_str()))
}

/// An upstream's servers.
struct Servers {
    upstream: Upstream,
    /// How many are written, once the list is begun.
    at: Option<usize>,
}

impl Producer for Servers {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        let at = self.at.unwrap_or_else(|| {
            out.push(b'[');
            0
        });
        let at = at + object::servers(out, &self.upstream, at, PIECE);
        self.at = Some(at);
        if at < self.upstream.servers.len() {
            return Step::More;
        }
        out.push(b']');
        Step::End
    }
}

/// An upstream with its peers.
struct Group {
    zone: Rc<Zone>,
    worker: &'static Worker,
    name: UpstreamName,
    fields: Rc<Fields>,
    cursor: PeerCursor,
    /// Peers that were read, and whether there are more after them.
    next: IntoIter<SeenPeer>,
    shown: object::Shown,
    more: bool,
    begun: bool,
    first: bool,
}

impl Group {
    /// Reads the first peers; `None`: there is no such upstream.
    fn begin(
        zone: &Rc<Zone>,
        worker: &'static Worker,
        name: &UpstreamName,
        fields: &Rc<Fields>,
    ) -> Option<(Self, u64)> {
        let mut cursor = PeerCursor::default();
        let most = if fields.has("peers") { PIECE } else { 0 };
        let page = worker.peers(name, &mut cursor, most, &process::clock())?;
        let group = Self {
            zone: Rc::clone(zone),
            worker,
            name: name.clone(),
            fields: Rc::clone(fields),
            cursor,
            next: page.peers.into_iter(),
            shown: object::Shown::default(),
            more: page.more && most > 0,
            begun: false,
            first: true,
        };
        Some((group, page.revision))
    }

    /// Writes the peers that were read.
    fn write(&mut self, out: &mut Vec<u8>) {
        for peer in self.next.by_ref() {
            if !self.first {
                out.push(b',');
            }
            self.first = false;
            let address = self.shown.next(&peer.server, peer.address.as_deref());
            let line = object::Peer {
                server: &peer.server,
                limits: peer.limits,
                address: &address,
                live: &peer.live,
                host: peer.host.as_ref(),
            };
            object::peer(out, &line);
        }
    }
}

impl Producer for Group {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if !self.begun {
            self.begun = true;
            object::upstream_open(out, &self.fields);
        }
        self.write(out);
        if self.more {
            // One that went meanwhile has no more.
            let page = self.worker.peers(&self.name, &mut self.cursor, PIECE, &process::clock());
            self.more = page.as_ref().is_some_and(|page| page.more);
            self.next = page.map(|page| page.peers).unwrap_or_default().into_iter();
            return Step::More;
        }
        object::upstream_close(out, &self.fields, &self.zone.name);
        Step::End
    }
}

/// Every upstream of a zone, in no order.
struct List {
    zone: Rc<Zone>,
    worker: &'static Worker,
    fields: Rc<Fields>,
    cursor: Cursor,
    names: IntoIter<UpstreamName>,
    /// The upstream whose peers are being written.
    now: Option<Group>,
    begun: bool,
    first: bool,
}

impl Producer for List {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if !self.begun {
            self.begun = true;
            out.push(b'{');
        }
        if let Some(now) = &mut self.now {
            if now.fill(out) == Step::End {
                self.now = None;
            }
            return Step::More;
        }
        let Some(name) = self.names.next() else {
            self.names = self.worker.walk(&mut self.cursor, NAMES).into_iter();
            if self.names.as_slice().is_empty() {
                out.push(b'}');
                return Step::End;
            }
            return Step::More;
        };
        let group = Group::begin(&self.zone, self.worker, &name, &self.fields);
        let Some((group, _)) = group else { return Step::More };
        key(out, name.as_str(), self.first);
        self.first = false;
        self.now = Some(group);
        Step::More
    }
}

/// Names gathered in one go.
const NAMES: usize = 256;
