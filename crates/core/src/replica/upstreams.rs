//! Upstreams with their revision, in order and by name.

use std::collections::{BTreeMap, HashMap};

use crate::name::UpstreamName;
use crate::upstream::Upstream;

/// In the order of their first coming; one that goes and comes again is the last.
#[derive(Debug)]
pub(super) struct Upstreams {
    /// By place.
    all: BTreeMap<u64, (Upstream, u64)>,
    places: HashMap<UpstreamName, u64>,
    next: u64,
}

impl Upstreams {
    /// Upstreams whose names differ.
    pub(super) fn new(all: Vec<(Upstream, u64)>) -> Self {
        let places = (0..).zip(&all).map(|(i, (one, _))| (one.name.clone(), i)).collect();
        let next = all.len() as u64;
        Self { all: (0..).zip(all).collect(), places, next }
    }

    pub(super) fn get(&self, name: &UpstreamName) -> Option<&(Upstream, u64)> {
        self.all.get(self.places.get(name)?)
    }

    pub(super) fn get_mut(&mut self, name: &UpstreamName) -> Option<&mut (Upstream, u64)> {
        self.all.get_mut(self.places.get(name)?)
    }

    pub(super) fn set(&mut self, upstream: Upstream, revision: u64) {
        let place = *self.places.entry(upstream.name.clone()).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        self.all.insert(place, (upstream, revision));
    }

    pub(super) fn remove(&mut self, name: &UpstreamName) {
        if let Some(place) = self.places.remove(name) {
            self.all.remove(&place);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Upstream, u64)> {
        self.all.values()
    }

    pub(super) fn into_vec(self) -> Vec<(Upstream, u64)> {
        self.all.into_values().collect()
    }
}
