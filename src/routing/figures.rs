//! What metrics say of a store.

use peerage_core::metrics::StoreSample;

use super::clock;
use crate::conf::Store;

/// A store as it is now.
pub(crate) fn sample(store: &Store) -> Option<StoreSample> {
    let (cache, now) = (store.cache()?, clock::now());
    let figures = cache.figures();
    let kinds = [figures.tenants, figures.apps, figures.negatives];
    Some(StoreSample {
        store: store.name().to_owned(),
        up: cache.is_up(),
        tracked: cache.is_tracked(now),
        questions: figures.asked,
        failures: figures.failed,
        cached: kinds.map(|kind| (kind.entries, kind.evicted)),
    })
}
