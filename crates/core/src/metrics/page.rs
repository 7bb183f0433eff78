//! The page, piece by piece: families in their order, and each through all zones.

use super::accept::Format;
use super::family::{FAMILIES, Family, Of, Value};
use super::sample::{Build, ProbeCount, STORED, Shown, StoreSample, UpstreamSample, ZoneSample};
use super::text::{self, Line};
use crate::counters::BUCKETS_MS;
use crate::route::decide;
use crate::state::State;

/// A page that is being written.
pub struct Page {
    format: Format,
    servers: bool,
    build: Build,
    zones: Vec<ZoneSample>,
    stores: Vec<StoreSample>,
    at: Place,
}

/// What comes next: a source, or a server of an upstream, of a zone, in a family.
#[derive(Clone, Copy, Default)]
struct Place {
    family: usize,
    zone: usize,
    source: usize,
    upstream: usize,
    server: usize,
    /// The family has said what it is.
    begun: bool,
}

impl Page {
    /// A page of these zones and stores, with families about servers or without.
    pub fn new(
        format: Format,
        servers: bool,
        build: Build,
        zones: Vec<ZoneSample>,
        stores: Vec<StoreSample>,
    ) -> Self {
        Self { format, servers, build, zones, stores, at: Place::default() }
    }

    /// Appends the next piece, of a few KB; false where it was the last.
    pub fn piece(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(family) = FAMILIES.get(self.at.family) else {
            return self.end(out);
        };
        if !self.at.begun {
            if family.is_of_servers() && !self.servers {
                self.at.family += 1;
                return true;
            }
            text::metadata(out, family, self.format);
            self.at.begun = true;
        }
        if !self.samples(out, family) {
            self.at = Place { family: self.at.family + 1, ..Place::default() };
        }
        true
    }

    /// Ends the page, and gives back the memory behind it bit by bit: with many upstreams that
    /// takes its time.
    fn end(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.at.begun && self.format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        self.at.begun = true;
        let Some(zone) = self.zones.last_mut() else { return false };
        zone.upstreams.truncate(zone.upstreams.len().saturating_sub(PIECE));
        if zone.upstreams.is_empty() {
            self.zones.pop();
        }
        true
    }

    /// Some samples of a family; false where there are no more.
    fn samples(&mut self, out: &mut Vec<u8>, family: &Family) -> bool {
        if let Of::Build = family.of {
            let Build { version, build, nginx } = self.build;
            let line = Line::new(out, family.name, "_info").label("version", version);
            line.label("build", build).label("nginx", nginx).value(Value::Int(1));
            return false;
        }
        if let Of::Store(_) | Of::Failures | Of::Cached(_) = family.of {
            self.stores.iter().for_each(|store| of_store(out, family, store));
            return false;
        }
        let Some(zone) = self.zones.get(self.at.zone) else { return false };
        if let Of::Source(read) = family.of {
            let sources = zone.sources.iter().skip(self.at.source).take(PIECE);
            for source in sources {
                if let Some(value) = read(source) {
                    let line = line(out, family).label("zone", &zone.zone);
                    line.label("source", &source.source).value(value);
                }
                self.at.source += 1;
            }
            if self.at.source == zone.sources.len() {
                self.at = Place { zone: self.at.zone + 1, source: 0, ..self.at };
            }
            return true;
        }
        if of_zone(out, family, zone) {
            self.at.zone += 1;
            return true;
        }
        let (begun, mut left) = (out.len(), PIECE);
        while let Some(upstream) = zone.upstreams.get(self.at.upstream) {
            if left == 0 || out.len() - begun > PIECE_BYTES {
                return true;
            }
            left -= 1;
            let (zone, name) = (("zone", &*zone.zone), ("upstream", &*upstream.upstream));
            if !of_upstream(out, family, &text::labels(&[zone, name]), upstream)
                && let Some(shown) = upstream.server(self.at.server)
            {
                let labels = text::labels(&[zone, name, ("server", shown.server)]);
                of_server(out, family, &labels, &shown);
                self.at.server += 1;
                continue;
            }
            self.at.upstream += 1;
            self.at.server = 0;
        }
        self.at = Place { zone: self.at.zone + 1, upstream: 0, server: 0, ..self.at };
        true
    }
}

/// The samples of a zone itself; false where the family has none.
fn of_zone(out: &mut Vec<u8>, family: &Family, zone: &ZoneSample) -> bool {
    match family.of {
        Of::Zone(read) => {
            if let Some(value) = read(zone) {
                line(out, family).label("zone", &zone.zone).value(value);
            }
        }
        Of::Bytes => {
            for (kind, bytes) in zone.bytes {
                let line = line(out, family).label("zone", &zone.zone);
                line.label("kind", kind).value(Value::Int(bytes));
            }
        }
        Of::Lookups => {
            for (shown, count) in decide::Shown::ALL.iter().zip(zone.lookups.iter().flatten()) {
                let line = line(out, family).label("zone", &zone.zone);
                line.label("status", shown.as_str()).value(Value::Int(*count));
            }
        }
        _ => return false,
    }
    true
}

/// The samples of a store.
fn of_store(out: &mut Vec<u8>, family: &Family, store: &StoreSample) {
    match family.of {
        Of::Store(read) => line(out, family).label("store", &store.store).value(read(store)),
        Of::Failures => {
            for (why, count) in decide::Down::ALL.iter().zip(store.failures) {
                let line = line(out, family).label("store", &store.store);
                line.label("reason", why.as_str()).value(Value::Int(count));
            }
        }
        Of::Cached(read) => {
            for (kind, counts) in STORED.iter().zip(store.cached) {
                let line = line(out, family).label("store", &store.store);
                line.label("kind", kind).value(Value::Int(read(counts)));
            }
        }
        _ => {}
    }
}

/// The samples of an upstream itself; false where the family has none.
fn of_upstream(out: &mut Vec<u8>, family: &Family, labels: &[u8], up: &UpstreamSample) -> bool {
    match family.of {
        Of::Upstream(read) => line(out, family).labels(labels).value(read(up)),
        Of::Times => times(out, family.name, labels, up),
        _ => return false,
    }
    true
}

fn times(out: &mut Vec<u8>, name: &str, labels: &[u8], upstream: &UpstreamSample) {
    let mut sum = 0;
    for (bound, count) in BOUNDS.into_iter().zip(upstream.times) {
        sum += count;
        let line = Line::new(out, name, "_bucket").labels(labels).label("le", bound);
        line.value(Value::Int(sum));
    }
    Line::new(out, name, "_sum").labels(labels).value(Value::Millis(upstream.times_ms));
    Line::new(out, name, "_count").labels(labels).value(Value::Int(sum));
}

fn of_server(out: &mut Vec<u8>, family: &Family, labels: &[u8], shown: &Shown<'_>) {
    match family.of {
        Of::Server(read) => {
            if let Some(value) = read(shown.sample) {
                line(out, family).labels(labels).value(value);
            }
        }
        Of::Responses => {
            for &(code, count) in shown.responses {
                let text = if code < 10 { format!("{code}xx") } else { code.to_string() };
                line(out, family).labels(labels).label("code", &text).value(Value::Int(count));
            }
        }
        Of::States => {
            for state in State::ALL {
                let value = Value::Int((state == shown.sample.state).into());
                line(out, family).labels(labels).label("state", state.as_str()).value(value);
            }
        }
        Of::Checks => {
            for (result, count) in shown.sample.checks.iter().flat_map(ProbeCount::by_result) {
                line(out, family).labels(labels).label("result", result).value(Value::Int(count));
            }
        }
        Of::Upstream(_) | Of::Times | Of::Zone(_) | Of::Source(_) | Of::Bytes => {}
        Of::Lookups | Of::Store(_) | Of::Failures | Of::Cached(_) | Of::Build => {}
    }
}

/// A sample of a family with one name for all.
fn line<'a>(out: &'a mut Vec<u8>, family: &Family) -> Line<'a> {
    let ending = if family.kind == super::Kind::Counter { "_total" } else { "" };
    Line::new(out, family.name, ending)
}

/// The bounds of [`BUCKETS_MS`] in seconds, in the form that OpenMetrics demands; the same in both
/// formats, so that a client that changes from one to the other finds the same series.
const BOUNDS: [&str; BUCKETS_MS.len() + 1] = [
    "0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0",
    "+Inf",
];

/// Upstreams and servers looked at in one piece, and bytes after which it ends.
const PIECE: usize = 64;
const PIECE_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
