//! What the API says of itself and of a zone.

use std::rc::Rc;

use peerage_core::api::error::Problem;
use peerage_core::api::openapi;
use peerage_core::api::source::SourceJson;
use peerage_core::merge::Conflict;
use peerage_core::name::UpstreamName;
use peerage_core::time::iso;
use peerage_zone::{Lead, Worker};
use serde::Serialize;

use super::{answer, build, flush};
use crate::conf::zone::Flush;
use crate::conf::{Main, Zone};
use crate::ffi::output::Answer;
use crate::ffi::version;

#[derive(Serialize)]
struct Root {
    links: Links,
    version: &'static str,
    build: &'static str,
    build_on_disk: Option<String>,
    nginx: &'static str,
    revision: Option<u64>,
    zones: Vec<ZoneLine>,
}

#[derive(Serialize)]
struct Links {
    batch: &'static str,
    events: &'static str,
    hosts: &'static str,
    openapi: &'static str,
    ready: &'static str,
    routes: &'static str,
    servers: &'static str,
    sources: &'static str,
    upstreams: &'static str,
    zones: &'static str,
}

#[derive(Serialize)]
struct ZoneLine {
    name: String,
    revision: Option<u64>,
}

/// `GET v1/`; a location that is bound to a zone knows no other.
pub(super) fn root(main: &Main, bound: Option<&Rc<Zone>>) -> Answer {
    let zones = match bound {
        Some(zone) => vec![Rc::clone(zone)],
        None => main.zones(),
    };
    let zones: Vec<ZoneLine> = zones
        .iter()
        .map(|zone| ZoneLine {
            name: zone.name.clone(),
            revision: zone.memory().map(|memory| memory.zone.revision()),
        })
        .collect();
    let revision = if let [only] = &zones[..] { only.revision } else { None };
    let answer = json(&Root {
        links: Links {
            batch: "batch",
            events: "events",
            hosts: "hosts/{ip}",
            openapi: "openapi.json",
            ready: "ready",
            routes: "routes",
            servers: "servers",
            sources: "sources",
            upstreams: "upstreams",
            zones: "zones/{zone}",
        },
        version: env!("CARGO_PKG_VERSION"),
        build: build::RUNNING,
        build_on_disk: build::on_disk(),
        nginx: version::NGINX,
        revision,
        zones,
    });
    match revision {
        Some(revision) => answer::at_revision(answer, revision),
        None => answer,
    }
}

/// `GET v1/openapi.json`
pub(super) fn document() -> Answer {
    answer::json(200, Box::new(openapi::DOCUMENT.as_bytes().to_vec()))
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    revision: u64,
    seq: u64,
    loaded: bool,
    upstreams: u64,
    servers: u64,
    routes: u64,
    bytes: Bytes,
    /// Servers with short texts that still fit, ten to an upstream, about.
    fits: u64,
    no_room: u64,
    state: Option<State<'a>>,
    sources: Vec<SourceJson>,
    /// Upstreams that no block names any more though one did.
    orphans: Vec<Orphan>,
    /// What the last load found changed on both sides.
    conflicts: Vec<Conflict>,
    workers: Vec<Process>,
}

#[derive(Serialize)]
struct Bytes {
    total: u64,
    used: u64,
    free: u64,
    reserved: u64,
    largest: u64,
    /// Of the used ones.
    routes: u64,
}

#[derive(Serialize)]
struct State<'a> {
    file: &'a str,
    /// Whether it is written at all.
    written: bool,
    /// `writes`; `follows` another nginx that writes it; `waits` to know; `reads` it at start only.
    role: &'static str,
    epoch: u64,
    durable_revision: u64,
    /// Revisions that are in force and not on the disk.
    lag: u64,
    writer: Option<u32>,
    errors: u64,
    error: Option<String>,
    error_time: Option<String>,
}

#[derive(Serialize)]
struct Orphan {
    upstream: UpstreamName,
    since: String,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    slot: u16,
}

/// `GET v1/zones/{zone}`
pub(super) fn zone(zone: &Zone) -> Result<Answer, Problem> {
    let memory = zone.memory().ok_or_else(super::no_place)?;
    let report = memory.zone.report();
    let durable = memory.zone.durable();
    let state = zone.state.as_deref().map(|file| State {
        file,
        written: zone.flush != Flush::Off,
        role: match durable.lead() {
            Lead::Free => "reads",
            Lead::Leads => "writes",
            Lead::Waiting => "waits",
            Lead::Follows => "follows",
        },
        epoch: durable.epoch(),
        durable_revision: durable.revision(),
        lag: report.revision.saturating_sub(durable.revision()),
        writer: Some(durable.lease().owner()).filter(|&pid| pid != 0),
        errors: durable.errors(),
        error: flush::error_text(durable),
        error_time: Some(durable.error_at()).filter(|&at| at != 0).map(iso),
    });
    let orphans = zone.worker().map(Worker::orphans).unwrap_or_default();
    let answer = json(&Report {
        name: &zone.name,
        revision: report.revision,
        seq: report.seq,
        loaded: memory.zone.is_loaded(),
        upstreams: report.upstreams,
        servers: report.servers,
        routes: report.routes,
        bytes: Bytes {
            total: report.total,
            used: report.used,
            free: report.free,
            reserved: report.reserve,
            largest: report.largest,
            routes: report.route_bytes,
        },
        fits: report.fits(),
        no_room: report.no_room,
        state,
        sources: zone.worker().map(super::sources::all).unwrap_or_default(),
        orphans: orphans
            .into_iter()
            .map(|(upstream, at)| Orphan { upstream, since: iso(at) })
            .take(SHOWN)
            .collect(),
        conflicts: zone.conflicts().into_iter().take(SHOWN).collect(),
        workers: report.workers.iter().map(|&(pid, slot)| Process { pid, slot }).collect(),
    });
    Ok(answer::at_revision(answer, report.revision))
}

fn json<T: Serialize>(value: &T) -> Answer {
    let mut body = Vec::with_capacity(512);
    // A vector takes everything, and these types can always be written.
    let _ = serde_json::to_writer(&mut body, value);
    answer::json(200, Box::new(body))
}

/// Orphans and conflicts at most.
const SHOWN: usize = 1000;
