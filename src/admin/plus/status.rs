//! What nginx knows of itself.

use std::rc::Rc;

use peerage_core::plus::error::{Code, Fault};
use peerage_core::plus::fields::Fields;
use peerage_core::plus::route::{Call, VERSIONS};
use peerage_core::plus::status::{self as figure, Nginx, Slab, Status, Worker};

use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::{conf, figures, process, version};
use crate::loads;

/// Answers a call that is about no upstream.
pub(super) fn answer(
    r: Request<'_>,
    call: &Call,
    fields: &Fields,
    zone: Option<&Rc<Zone>>,
) -> Result<Answer, Fault> {
    let mut body = Vec::with_capacity(256);
    let out = &mut body;
    match call {
        // A vector takes everything, and numbers can always be written.
        Call::Versions => serde_json::to_writer(out, &VERSIONS).unwrap_or_default(),
        Call::Root => figure::words(out, figure::ROOT),
        Call::Http => figure::words(out, figure::HTTP),
        Call::Status { status, item: None } => all(r, *status, fields, zone, out),
        Call::Status { status, item: Some(item) } => {
            if !one(r, *status, item, fields, zone, out) {
                let code = status.missing().unwrap_or(Code::PathNotFound);
                return Err(Fault::new(code, format!("\"{item}\" not found")));
            }
        }
        _ => return Err(Fault::no_upstream()),
    }
    Ok(super::whole(200, body))
}

fn all(
    r: Request<'_>,
    status: Status,
    fields: &Fields,
    zone: Option<&Rc<Zone>>,
    out: &mut Vec<u8>,
) {
    match status {
        Status::Nginx => nginx(r, fields, out),
        Status::Connections => figure::connections(out, fields, figures::stub().as_ref()),
        Status::Requests => figure::requests(out, fields, figures::stub().as_ref()),
        Status::Slabs => figure::slabs(out, fields, &slabs(r)),
        Status::Workers => figure::workers(out, fields, &workers(r, zone)),
        // nginx keeps nothing of these.
        Status::Processes
        | Status::Resolvers
        | Status::Ssl
        | Status::ServerZones
        | Status::LocationZones
        | Status::Caches
        | Status::LimitConns
        | Status::LimitReqs => out.extend_from_slice(b"{}"),
    }
}

/// One of several; false: it is not there.
fn one(
    r: Request<'_>,
    status: Status,
    item: &str,
    fields: &Fields,
    zone: Option<&Rc<Zone>>,
    out: &mut Vec<u8>,
) -> bool {
    match status {
        Status::Slabs => {
            let slab = slabs(r).into_iter().find(|slab| slab.name == item);
            slab.map(|slab| slab.write(out, fields)).is_some()
        }
        Status::Workers => {
            let mut workers = workers(r, zone).into_iter();
            let worker = workers.find(|worker| worker.id.to_string() == item);
            worker.map(|worker| worker.write(out, fields)).is_some()
        }
        _ => false,
    }
}

fn nginx(r: Request<'_>, fields: &Fields, out: &mut Vec<u8>) {
    let (generation, load_timestamp) = loads::last();
    let address = String::from_utf8_lossy(r.variable("server_addr").unwrap_or_default());
    let nginx = Nginx {
        version: version::NGINX,
        build: concat!("peerage-", env!("CARGO_PKG_VERSION")),
        address: &address,
        generation,
        load_timestamp,
        timestamp: process::clock().msec,
        pid: process::pid(),
        ppid: process::parent(),
    };
    nginx.write(out, fields);
}

/// nginx's zones of shared memory. Ours take all pages of theirs at once: what is used of these is
/// theirs to say.
fn slabs(r: Request<'_>) -> Vec<Slab> {
    let mut slabs = figures::slabs();
    for zone in conf::main(r).zones() {
        let slab = slabs.iter_mut().find(|slab| slab.name == zone.name);
        let (Some(slab), Some(memory)) = (slab, zone.memory()) else { continue };
        let report = memory.zone.report();
        let pages = slab.used + slab.free;
        slab.free = (u128::from(report.free) * u128::from(pages) / u128::from(report.total.max(1)))
            .try_into()
            .unwrap_or(0);
        slab.used = pages.saturating_sub(slab.free);
    }
    slabs
}

/// The workers that use the zone, or the first one; old generations are among them.
fn workers(r: Request<'_>, zone: Option<&Rc<Zone>>) -> Vec<Worker> {
    let first = conf::main(r).zones().into_iter().next();
    let memory = zone.cloned().or(first).and_then(|zone| zone.memory());
    let own = Worker { id: process::slot() as u64, pid: process::pid() };
    let Some(memory) = memory else { return vec![own] };
    let report = memory.zone.report();
    let workers = report.workers.iter();
    let mut workers: Vec<Worker> =
        workers.map(|&(pid, slot)| Worker { id: slot.into(), pid }).collect();
    workers.sort_unstable_by_key(|worker| worker.id);
    workers
}
