//! Reading calls: listings that are made while the client takes them.
//!
//! Nothing of the zone is held between two slices: each upstream is read when its turn comes, and
//! one that went meanwhile is left out.

use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render::{self, Servers, Shown};
use peerage_core::name::UpstreamName;
use peerage_core::upstream::ServerSel;
use peerage_zone::{Seen, Worker};

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::process;

/// `GET v1/upstreams`
pub(super) fn list(
    zone: Rc<Zone>,
    after: Option<UpstreamName>,
    limit: u32,
    servers: bool,
) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let revision = worker.zone().revision();
    let names = worker.names(after.as_ref(), limit as usize).into_iter();
    let list = List { zone, worker, names, servers, now: None, begun: false, first: true };
    Ok(answer::at_revision(answer::json(200, Box::new(list)), revision))
}

/// `GET v1/upstreams/{u}`
pub(super) fn upstream(zone: &Zone, name: &UpstreamName) -> Result<Answer, Problem> {
    let seen = read(zone, name)?;
    let (etag, revision) = (render::etag(&seen.upstream), seen.revision);
    let whole = Whole { zone: zone.name.clone(), seen, at: 0 };
    let mut answer = answer::at_revision(answer::json(200, Box::new(whole)), revision);
    answer.headers.push(("ETag", etag));
    Ok(answer)
}

/// `GET v1/upstreams/{u}/servers/{server}`
pub(super) fn server(zone: &Zone, name: &UpstreamName, sel: &ServerSel) -> Result<Answer, Problem> {
    let seen = read(zone, name)?;
    let at = seen.upstream.position(sel);
    let found = at.and_then(|at| Some((seen.upstream.servers.get(at)?, seen.live.get(at)?)));
    let Some((server, live)) = found else {
        let detail = format!("server \"{sel}\" not found in upstream \"{name}\"");
        return Err(Problem::new(Code::ServerNotFound, detail));
    };
    let mut body = Vec::with_capacity(1024);
    render::server(&mut body, server, &seen.upstream.limits(server), live);
    Ok(answer::at_revision(answer::json(200, Box::new(body)), seen.revision))
}

fn read(zone: &Zone, name: &UpstreamName) -> Result<Seen, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    worker.read(name, &process::clock()).ok_or_else(|| {
        Problem::new(Code::UpstreamNotFound, format!("upstream \"{name}\" not found"))
    })
}

/// One upstream with its servers.
struct Whole {
    zone: String,
    seen: Seen,
    /// Servers that are written; 0: nothing is.
    at: usize,
}

impl Whole {
    fn shown(&self) -> Shown<'_> {
        Shown {
            zone: &self.zone,
            revision: self.seen.revision,
            upstream: &self.seen.upstream,
            live: &self.seen.live,
        }
    }
}

impl Producer for Whole {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if self.at == 0 {
            render::upstream_open(out, &self.shown());
        }
        let upstream = &self.seen.upstream;
        let servers = upstream.servers.iter().zip(&self.seen.live);
        for (i, (server, live)) in servers.enumerate().skip(self.at).take(PIECE) {
            if i > 0 {
                out.push(b',');
            }
            render::server(out, server, &upstream.limits(server), live);
            self.at = i + 1;
        }
        if self.at < upstream.servers.len().min(self.seen.live.len()) {
            return Step::More;
        }
        out.extend_from_slice(render::UPSTREAM_CLOSE);
        Step::End
    }
}

/// A page of upstreams.
struct List {
    zone: Rc<Zone>,
    worker: &'static Worker,
    names: IntoIter<UpstreamName>,
    servers: bool,
    /// The upstream whose servers are being written.
    now: Option<Whole>,
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
            out.push(b'}');
            return Step::End;
        };
        let Some(seen) = self.worker.read(&name, &process::clock()) else { return Step::More };
        render::list_key(out, &name, self.first);
        self.first = false;
        let whole = Whole { zone: self.zone.name.clone(), seen, at: 0 };
        if self.servers {
            self.now = Some(whole);
        } else {
            render::upstream(out, &whole.shown(), Servers::Without);
        }
        Step::More
    }
}

/// Servers in one go.
const PIECE: usize = 16;
