//! What changes of many routes take in all, before the first is done.

use std::collections::BTreeSet;

use peerage_core::name::UpstreamName;

use super::buckets::{Buckets, bits_for};
use super::commit::{app_granules, route_granules};
use super::put::RouteDone;
use crate::layout::{get, root};
use crate::size::GRANULE;
use crate::worker::Worker;

/// Adds up what dry runs would do, so that a large number of changes is begun only where all fit.
#[derive(Clone, Debug, Default)]
pub struct RouteSum {
    granules: u64,
    records: usize,
    apps: BTreeSet<UpstreamName>,
}

impl RouteSum {
    /// Adds what a dry run would do.
    pub fn add(&mut self, worker: &Worker, done: &RouteDone) {
        for touched in &done.touched {
            let Some(after) = &touched.after else { continue };
            let before = touched.before.as_ref().map_or(0, route_granules);
            self.granules += route_granules(after).saturating_sub(before);
            self.records += usize::from(touched.is_created());
            let name = &after.upstream;
            if !self.apps.contains(name) && worker.routes_of(name) == 0 {
                self.granules += app_granules(name);
                self.records += 1;
                self.apps.insert(name.clone());
            }
        }
    }

    /// Bytes that it needs and that there are, where it does not fit now.
    pub fn lacks(&self, worker: &Worker) -> Option<(u64, u64)> {
        let zone = worker.zone();
        let records = zone.route_counts().all() + self.records;
        let table = {
            let _section = worker.enter();
            zone.routes_table().map_or(0, Buckets::granules)
        };
        let next = u64::from(Buckets::granules_of(bits_for(records)));
        let grown = if next > u64::from(table) { next } else { 0 };
        let need = (self.granules + grown) * GRANULE;
        let report = zone.report();
        let share = zone.routes_share().saturating_sub(get(zone.root(root::ROUTES_GRANULES)));
        let free = report.free.saturating_sub(report.reserve).min(share * GRANULE);
        (need > free).then_some((need, free))
    }
}
