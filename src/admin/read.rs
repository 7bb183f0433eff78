//! Reading calls: listings that are made while the client takes them.
//!
//! Nothing of the zone is held between two slices: each upstream is read when its turn comes, and
//! one that went meanwhile is left out.

use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::health;
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
pub(super) fn upstream(zone: &Rc<Zone>, name: &UpstreamName) -> Result<Answer, Problem> {
    let seen = read(zone, name)?;
    let (etag, revision) = (render::etag(&seen.upstream), seen.revision);
    let whole = Whole { zone: Rc::clone(zone), seen, at: 0 };
    let mut answer = answer::at_revision(answer::json(200, Box::new(whole)), revision);
    answer.headers.push(("ETag", etag));
    Ok(answer)
}

/// `GET v1/upstreams/{u}/servers/{server}`
pub(super) fn server(zone: &Zone, name: &UpstreamName, sel: &ServerSel) -> Result<Answer, Problem> {
    let seen = read(zone, name)?;
    let at = seen.upstream.position(sel);
    let Some(line) = at.and_then(|at| shown(zone, &seen).server(at)) else {
        return Err(no_server(name, sel));
    };
    let mut body = Vec::with_capacity(1024);
    render::server(&mut body, &line);
    Ok(answer::at_revision(answer::json(200, Box::new(body)), seen.revision))
}

/// `GET v1/upstreams/{u}/servers/{server}/check`
pub(super) fn check(zone: &Zone, name: &UpstreamName, sel: &ServerSel) -> Result<Answer, Problem> {
    let seen = read(zone, name)?;
    let at = seen.upstream.position(sel);
    let Some(line) = at.and_then(|at| shown(zone, &seen).server(at)) else {
        return Err(no_server(name, sel));
    };
    let (worker, clock) = (zone.worker().ok_or_else(super::no_place)?, process::clock());
    let peers = worker.diagnose(name, line.server.id, &clock);
    let mut body = Vec::with_capacity(512);
    health::server(&mut body, name, &line, &peers, clock.msec);
    Ok(answer::at_revision(answer::json(200, Box::new(body)), seen.revision))
}

/// The answer where an upstream has no such server.
pub(super) fn no_server(name: &UpstreamName, sel: &ServerSel) -> Problem {
    let detail = format!("server \"{sel}\" not found in upstream \"{name}\"");
    Problem::new(Code::ServerNotFound, detail)
}

/// What is seen of an upstream, to be rendered.
pub(super) fn shown<'a>(zone: &'a Zone, seen: &'a Seen) -> Shown<'a> {
    let Seen { upstream, live, hosts, revision } = seen;
    Shown { zone: &zone.name, revision: *revision, upstream, live, hosts }
}

fn read(zone: &Zone, name: &UpstreamName) -> Result<Seen, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    worker.read(name, &process::clock()).ok_or_else(|| no_upstream(name))
}

/// The answer where there is no such upstream.
pub(super) fn no_upstream(name: &UpstreamName) -> Problem {
    Problem::new(Code::UpstreamNotFound, format!("upstream \"{name}\" not found"))
}

/// One upstream with its servers.
struct Whole {
    zone: Rc<Zone>,
    seen: Seen,
    /// Servers that are written; 0: nothing is.
    at: usize,
}

impl Producer for Whole {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        let shown = shown(&self.zone, &self.seen);
        if self.at == 0 {
            render::upstream_open(out, &shown);
        }
        for _ in 0..PIECE {
            let Some(line) = shown.server(self.at) else { break };
            if self.at > 0 {
                out.push(b',');
            }
            render::server(out, &line);
            self.at += 1;
        }
        if shown.server(self.at).is_some() {
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
        if self.servers {
            self.now = Some(Whole { zone: Rc::clone(&self.zone), seen, at: 0 });
        } else {
            render::upstream(out, &shown(&self.zone, &seen), Servers::Without);
        }
        Step::More
    }
}

/// Servers in one go.
pub(super) const PIECE: usize = 16;
