//! A small region for unit tests.

use crate::{AtomicU64, Config, Ref, Region, Shared, Trace, Writer};

pub(crate) const BYTES: usize = 64 << 10;

/// Reachable: the records, of two granules each, that the root words name.
pub(crate) struct Roots;

impl Trace for Roots {
    fn trace(&self, shared: &Shared, mark: &mut dyn FnMut(Ref, u32)) {
        for record in (0..8).map(|i| root(shared, i)).filter(|at| !at.is_none()) {
            mark(record, 2);
        }
    }

    fn companion(&self, _: &Shared, _: Ref) -> Option<(Ref, u32)> {
        None
    }
}

pub(crate) fn region(bytes: usize) -> Region {
    Region::new(Box::leak((0..bytes / 8).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>()))
}

pub(crate) fn shared() -> Shared {
    let lock = Box::leak(Box::new(AtomicU64::new(0)));
    let config = Config { build: 1, slots: 4, list_capacity: 100, record_granules: 2 };
    Shared::format(region(BYTES), lock, config).expect("it fits")
}

pub(crate) fn writer(shared: &Shared) -> Writer<'static> {
    shared.try_write(1, &Roots).expect("nobody else writes")
}

/// A new record that root word `i` names.
pub(crate) fn publish(shared: &Shared, i: usize) -> Ref {
    let mut writer = writer(shared);
    let at = writer.alloc(2).expect("there is room");
    word(shared, at).store(0, crate::Ordering::Relaxed);
    writer.publish(shared.root(i), u64::from(at.raw()));
    at
}

/// Takes record `i` out of reach and retires it.
pub(crate) fn retire(shared: &Shared, i: usize) -> crate::Epoch {
    let mut writer = writer(shared);
    let limbo = writer.limbo(1).expect("there is room");
    let record = root(shared, i);
    writer.publish(shared.root(i), 0);
    writer.retire(limbo, &[], &[record])
}

pub(crate) fn root(shared: &Shared, i: usize) -> Ref {
    Ref::from_raw(shared.root(i).load(crate::Ordering::Acquire) as u32)
}

pub(crate) fn word(shared: &Shared, at: Ref) -> &'static AtomicU64 {
    &shared.region().words(at, 1).expect("a block")[0]
}

pub(crate) fn in_flight(shared: &Shared, at: Ref) -> u32 {
    crate::count(word(shared, at).load(crate::Ordering::SeqCst))
}
