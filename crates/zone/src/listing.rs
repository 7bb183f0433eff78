//! Names of upstreams, a page or a walk at a time.

use std::collections::BinaryHeap;

use peerage_core::name::UpstreamName;
use peerage_shm::point;

use crate::worker::Worker;

/// Buckets looked at inside one read section.
const STEP: usize = 1024;

/// Where a walk over all upstreams stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    bucket: usize,
}

impl Worker {
    /// The first `limit` names after `after`, in order.
    pub fn names(&self, after: Option<&UpstreamName>, limit: usize) -> Vec<UpstreamName> {
        let after = after.map(UpstreamName::as_str);
        let mut heap: BinaryHeap<String> = BinaryHeap::new();
        let mut cursor = Cursor::default();
        while self.step(&mut cursor, STEP, |name| {
            let wanted = after.is_none_or(|after| name > after.as_bytes())
                && (heap.len() < limit || heap.peek().is_some_and(|top| name < top.as_bytes()));
            if !wanted {
                return;
            }
            if let Ok(name) = std::str::from_utf8(name) {
                heap.push(name.to_owned());
            }
            if heap.len() > limit {
                heap.pop();
            }
        }) {}
        let names = heap.into_sorted_vec();
        names.iter().filter_map(|name| UpstreamName::parse(name).ok()).collect()
    }

    /// Some of the names not walked yet, in no order, about `max`; none at the end.
    ///
    /// Upstreams that are there all the time are met once, others at most once.
    pub fn walk(&self, cursor: &mut Cursor, max: usize) -> Vec<UpstreamName> {
        let mut names = Vec::new();
        while names.len() < max {
            let more = self.step(cursor, 1, |name| {
                let name = std::str::from_utf8(name).ok().map(UpstreamName::parse);
                names.extend(name.and_then(Result::ok));
            });
            if !more {
                break;
            }
        }
        names
    }

    /// Shows the names of the next buckets; false at the end.
    fn step(&self, cursor: &mut Cursor, buckets: usize, mut seen: impl FnMut(&[u8])) -> bool {
        let _section = self.enter();
        for _ in 0..buckets {
            let Some(chain) = self.zone().bucket_at(cursor.bucket) else { return false };
            for up in chain {
                seen(&up.name(self.region()));
            }
            cursor.bucket += 1;
        }
        point!("walk.stepped");
        true
    }
}
