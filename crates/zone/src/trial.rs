//! Zones for the tests of this crate's rooms.

use peerage_shm::{AtomicU64, Region, Writer};

use crate::trace::Reachable;
use crate::zone::{Format, Zone};

pub(crate) const FORMAT: Format = Format { build: 1, slots: 2, connections: 16 };

/// An empty zone of so many bytes.
pub(crate) fn zone(bytes: usize) -> Zone {
    let words: Box<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
    let lock = Box::leak(Box::new(AtomicU64::new(0)));
    Zone::format(Region::new(Box::leak(words)), lock, &FORMAT).expect("it fits")
}

/// Its writer.
pub(crate) fn writer(zone: &Zone) -> Writer<'static> {
    let trace = Box::leak(Box::new(Reachable(*zone)));
    zone.shared().try_write(7, trace).expect("nobody else writes")
}

/// A writer that dies: a panic is as good.
pub(crate) fn die(writer: Writer<'_>) {
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _writer = writer;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(cut.is_err());
}
