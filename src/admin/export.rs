//! `GET v1/zones/{zone}/export`: the content of a zone as JSON lines, made while the client takes
//! them.
//!
//! Upstreams come in no order, and routes after them. What is created or removed meanwhile may be
//! there or not.

use std::rc::Rc;

use peerage_core::api::error::Problem;
use peerage_core::api::export;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_zone::{Cursor, RouteCursor, Worker};

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};

pub(super) fn export(zone: &Rc<Zone>) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let revision = worker.zone().revision();
    let mut head = Vec::with_capacity(128);
    export::header(&mut head, &zone.name, revision);
    let export = Export {
        worker,
        head: Some((head, worker.hosts())),
        cursor: Cursor::default(),
        names: Vec::new(),
        upstreams: 0,
        servers: 0,
        keys: RouteCursor::default(),
        routes: 0,
    };
    let mut answer = answer::json(200, Box::new(export));
    answer.content_type = "application/x-ndjson";
    Ok(answer::at_revision(answer, revision))
}

struct Export {
    worker: &'static Worker,
    head: Option<(Vec<u8>, Hosts)>,
    cursor: Cursor,
    names: Vec<UpstreamName>,
    upstreams: u64,
    servers: u64,
    keys: RouteCursor,
    routes: u64,
}

impl Export {
    /// Adds some of the routes, or the end.
    fn add_routes(&mut self, out: &mut Vec<u8>) -> Step {
        let (routes, _) = self.worker.walk_routes(&mut self.keys, NAMES);
        if routes.is_empty() {
            export::end(out, self.upstreams, self.servers, self.routes);
            return Step::End;
        }
        self.routes += routes.len() as u64;
        routes.iter().for_each(|route| export::route(out, route));
        Step::More
    }
}

impl Producer for Export {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if let Some((head, hosts)) = self.head.take() {
            out.extend_from_slice(&head);
            hosts.iter().for_each(|(ip, admin)| export::host(out, ip, admin));
            return Step::More;
        }
        let Some(name) = self.names.pop() else {
            self.names = self.worker.walk(&mut self.cursor, NAMES);
            return if self.names.is_empty() { self.add_routes(out) } else { Step::More };
        };
        if let Some((upstream, _)) = self.worker.read_wanted(&name) {
            self.upstreams += 1;
            self.servers += upstream.servers.len() as u64;
            export::upstream(out, &upstream);
        }
        Step::More
    }
}

/// Names taken from the zone at a time.
const NAMES: usize = 64;
