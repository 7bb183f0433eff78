//! A whole snapshot, made in slices between other events.
//!
//! It is fuzzy: changes go on meanwhile and stand in the journal that was begun with it. It counts
//! for the revision at which it began.

use std::time::{Duration, Instant};

use peerage_core::snapshot::{Header, Writer};
use peerage_zone::{Cursor, RouteCursor};

use super::subject::Subject;
use crate::ffi::process;
use crate::ffi::timer;

/// A snapshot on its way.
pub(super) struct Checkpoint {
    /// What it counts for.
    pub(super) revision: u64,
    /// When it began, monotonic ms.
    pub(super) begun: u64,
    /// The first journal that is needed with it.
    pub(super) journal: u64,
    cursor: Cursor,
    routes: RouteCursor,
    writer: Writer,
}

impl Checkpoint {
    /// Begins; everything newer than the zone's revision now comes into the journal of that number.
    pub(super) fn begin(subject: &Subject, journal: u64, out: &mut Vec<u8>) -> Self {
        let zone = subject.zone();
        let revision = zone.revision();
        let header = Header {
            epoch: subject.durable().epoch(),
            instance: subject.durable().instance(),
            journal,
            ..Header::new(&subject.name, revision, zone.next_id(), process::clock().msec)
        };
        let mut writer = Writer::begin(out, &header);
        let (hosts, of) = subject.worker.hosts_at();
        writer.hosts(out, &hosts, of);
        let (cursor, routes) = (Cursor::default(), RouteCursor::default());
        Self { revision, begun: timer::now(), journal, cursor, routes, writer }
    }

    /// Makes what half a millisecond allows; false at the end.
    pub(super) fn slice(&mut self, subject: &Subject, out: &mut Vec<u8>) -> bool {
        let begun = Instant::now();
        loop {
            if !self.piece(subject, out) {
                return false;
            }
            if begun.elapsed() >= SLICE {
                return true;
            }
        }
    }

    /// Adds a few upstreams, or after the last of them some routes; false at the end.
    pub(super) fn piece(&mut self, subject: &Subject, out: &mut Vec<u8>) -> bool {
        let names = subject.worker.walk(&mut self.cursor, PIECE);
        for name in &names {
            // One that went meanwhile is not in the file.
            if let Some((upstream, revision)) = subject.worker.read_wanted(name) {
                self.writer.upstream(out, &upstream, revision);
            }
        }
        if !names.is_empty() {
            return true;
        }
        let (routes, revision) = subject.worker.walk_routes(&mut self.routes, ROUTES);
        self.writer.routes(out, &routes, revision);
        !routes.is_empty()
    }

    /// Ends it.
    pub(super) fn end(self, out: &mut Vec<u8>) {
        self.writer.end(out);
    }
}

/// Upstreams between two looks at the clock.
const PIECE: usize = 4;
/// Routes likewise.
const ROUTES: usize = 100;
const SLICE: Duration = Duration::from_micros(500);
