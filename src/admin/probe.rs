//! `POST …/check`: asks a server at once, and answers with what came of it.
//!
//! The worker that has the request asks, whoever probes the server otherwise, and the result counts
//! as any other.

use std::cell::RefCell;
use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::name::UpstreamName;
use peerage_core::upstream::ServerSel;
use peerage_zone::Worker;

use super::{answer, read};
use crate::conf::Zone;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};
use crate::health::{self, Peer};
use crate::net::error::Error;
use crate::net::executor::{self, Handle};

/// A server that is being asked, at all its addresses.
pub(super) struct Probe {
    zone: Rc<Zone>,
    name: UpstreamName,
    sel: ServerSel,
    /// They end with the request.
    probes: Vec<Handle>,
    /// Why one could not be asked.
    failed: Rc<RefCell<Option<Error>>>,
}

impl Probe {
    pub(super) fn new(zone: Rc<Zone>, name: UpstreamName, sel: ServerSel) -> Result<Self, Problem> {
        let worker = zone.worker().ok_or_else(super::no_place)?;
        let (upstream, _) = worker.read_wanted(&name).ok_or_else(|| read::no_upstream(&name))?;
        let server = upstream.find(&sel).ok_or_else(|| read::no_server(&name, &sel))?;
        let Some(peers) = health::peers_of(worker, &name, server.id) else {
            let detail = format!("upstream \"{name}\" has no check");
            return Err(Problem::new(Code::NoCheck, detail));
        };
        let failed = Rc::default();
        let probes = peers.into_iter().map(|peer| {
            let failed = Rc::clone(&failed);
            executor::spawn(ask(worker, peer, failed))
        });
        let probes = probes.collect();
        Ok(Self { zone, name, sel, probes, failed })
    }
}

async fn ask(worker: &'static Worker, peer: Peer, failed: Rc<RefCell<Option<Error>>>) {
    match peer.target.probe(None).await.outcome {
        Ok(outcome) => {
            health::take(worker, &peer, outcome);
        }
        Err(error) => {
            failed.replace(Some(error));
        }
    }
}

impl Task for Probe {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        if self.probes.iter().any(|probe| !probe.is_over()) {
            return Turn::Wait(LOOK_MS);
        }
        if let Some(error) = self.failed.take() {
            let detail = format!("server \"{}\" could not be asked: {error}", self.sel);
            return Turn::Answer(answer::problem(&Problem::new(Code::NotProbed, detail)));
        }
        let answer = read::check(&self.zone, &self.name, &self.sel);
        Turn::Answer(answer.unwrap_or_else(|problem| answer::problem(&problem)))
    }
}

/// Between two looks whether they are over.
const LOOK_MS: u64 = 3;
