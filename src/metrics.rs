//! `peerage_metrics`: what is counted, for Prometheus.
//!
//! A scrape reads the zones first, upstream by upstream, and keeps what it found, since a family
//! of metrics has samples of all of them. Then the page is made while the client takes it.

use std::mem;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use peerage_core::api::error::{Code, Problem};
use peerage_core::consul::status::Health;
use peerage_core::metrics::{
    Build, Format, Page, SourceSample, StateFile, StoreSample, ZoneSample,
};
use peerage_core::name::UpstreamName;
use peerage_zone::{Cursor, Extent, Lead, SeenSource, Tallied, Tally, Worker};

use crate::admin::{self, answer, build};
use crate::conf::zone::{Flush, Memory};
use crate::conf::{Main, Zone};
use crate::ffi::conf;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};
use crate::ffi::{process, timer, version};
use crate::routing;

/// Answers a request for the page; the value goes back to nginx.
pub(crate) fn handle(r: Request<'_>) -> isize {
    task::run(r, Body::Discard, |_, _| Box::new(Scrape))
}

struct Scrape;

impl Task for Scrape {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        Turn::Answer(page(r).unwrap_or_else(|problem| answer::problem(&problem)))
    }
}

fn page(r: Request<'_>) -> Result<Answer, Problem> {
    if !matches!(r.method(), b"GET" | b"HEAD") {
        let mut problem = Problem::new(Code::MethodNotAllowed, "metrics are only read");
        problem.allow = Some("GET, HEAD");
        return Err(problem);
    }
    let servers = conf::loc(r).metrics().is_none_or(|metrics| metrics.servers);
    let format = Format::accepted(r.header("Accept"));
    let main = conf::main(r);
    let zones = main.all_zones();
    // Its counters stand still, or behind what was read of them before: Prometheus would take what
    // the new zone says next for a new beginning.
    if zones.iter().any(|z| z.memory().is_some_and(|memory| memory.zone.is_moved())) {
        return Err(admin::moving());
    }
    let zones = zones.iter().map(|zone| Visit::new(zone, main)).collect::<Option<Vec<_>>>();
    let mut zones = zones.ok_or_else(admin::no_place)?;
    zones.reverse();
    let extent = if servers { Extent::Servers } else { Extent::Upstream };
    let stores = main.stores().iter().filter_map(|store| routing::sample(store)).collect();
    let gathering = Gathering { zones, extent, done: Vec::new() };
    Ok(Answer {
        status: 200,
        content_type: format.content_type(),
        headers: vec![
            ("Cache-Control", "no-store".to_owned()),
            // What a cache keeps for one client is not for the next.
            ("Vary", "Accept".to_owned()),
        ],
        body: Box::new(Text { format, servers, stores, stage: Stage::Gathering(gathering) }),
    })
}

/// The page's text: gathered, then written.
struct Text {
    format: Format,
    servers: bool,
    stores: Vec<StoreSample>,
    stage: Stage,
}

enum Stage {
    Gathering(Gathering),
    Writing(Page),
}

impl Producer for Text {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        match &mut self.stage {
            Stage::Gathering(gathering) => {
                if let Some(zones) = gathering.piece() {
                    let stores = mem::take(&mut self.stores);
                    let page = Page::new(self.format, self.servers, BUILD, zones, stores);
                    self.stage = Stage::Writing(page);
                }
                Step::More
            }
            Stage::Writing(page) => {
                if page.piece(out) {
                    Step::More
                } else {
                    Step::End
                }
            }
        }
    }
}

/// The zones being read.
struct Gathering {
    /// Those to come, the next one last.
    zones: Vec<Visit>,
    extent: Extent,
    done: Vec<ZoneSample>,
}

impl Gathering {
    /// Reads on; gives all at the end.
    fn piece(&mut self) -> Option<Vec<ZoneSample>> {
        let Some(visit) = self.zones.last_mut() else {
            return Some(mem::take(&mut self.done));
        };
        if !visit.piece(self.extent) {
            self.done.extend(self.zones.pop().map(|visit| visit.sample));
        }
        None
    }
}

/// A zone being read.
struct Visit {
    worker: &'static Worker,
    cursor: Cursor,
    names: Vec<UpstreamName>,
    /// The upstream being read.
    tally: Option<Tally>,
    sample: ZoneSample,
}

impl Visit {
    fn new(zone: &Rc<Zone>, main: &Main) -> Option<Self> {
        let sample = sample(zone, zone.memory()?, main.routes_by(zone));
        Some(Self {
            worker: zone.worker()?,
            cursor: Cursor::default(),
            names: Vec::new(),
            tally: None,
            sample,
        })
    }

    /// Reads on; false where nothing is left.
    fn piece(&mut self, extent: Extent) -> bool {
        if let Some(tally) = &mut self.tally {
            match self.worker.tally_on(tally, &process::clock()) {
                Tallied::More => return true,
                Tallied::Whole(upstream) => self.sample.upstreams.push(*upstream),
                Tallied::Gone => {}
            }
            self.tally = None;
            return true;
        }
        if self.names.is_empty() {
            self.names = self.worker.walk(&mut self.cursor, NAMES);
        }
        let Some(name) = self.names.pop() else { return false };
        self.tally = self.worker.tally(&name, extent);
        true
    }
}

/// What is said of a zone itself.
fn sample(zone: &Zone, memory: Memory, routed: bool) -> ZoneSample {
    let report = memory.zone.report();
    let durable = memory.zone.durable();
    // What another nginx writes, it tells.
    let writes = zone.state.is_some()
        && zone.flush != Flush::Off
        && matches!(durable.lead(), Lead::Leads | Lead::Waiting);
    ZoneSample {
        zone: zone.name.clone(),
        revision: report.revision,
        bytes: [
            ("total", report.total),
            ("used", report.used),
            ("free", report.free),
            ("reserved", report.reserve),
            ("largest", report.largest),
        ],
        no_room: report.no_room,
        checks_late: memory.zone.checks_late().load(Ordering::Relaxed),
        routes: report.routes,
        lookups: routed.then(|| memory.zone.lookups()),
        state: writes
            .then(|| StateFile { lag_ms: durable.lag(timer::now()), errors: durable.errors() }),
        sources: zone.worker().map(sources).unwrap_or_default(),
        upstreams: Vec::new(),
    }
}

fn sources(worker: &Worker) -> Vec<SourceSample> {
    let now = process::clock().msec;
    let sample = |seen: SeenSource| SourceSample {
        source: format!("consul/{}", seen.name),
        up: seen.status.health == Health::Up,
        age_ms: seen.status.age(now),
        held: seen.held.map_or(0, |held| held.servers),
    };
    worker.sources().into_iter().map(sample).collect()
}

const BUILD: Build =
    Build { version: env!("CARGO_PKG_VERSION"), build: build::RUNNING, nginx: version::NGINX };
/// Names taken from a zone at a time.
const NAMES: usize = 64;
