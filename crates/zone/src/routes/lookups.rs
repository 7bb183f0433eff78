//! How many look-ups of requests came to what.

use peerage_core::route::decide::Shown;
use peerage_shm::Ordering;

use crate::layout::root;
use crate::zone::Zone;

/// Look-ups by what they came to, in the order of [`Shown::ALL`].
pub type Lookups = [u64; Shown::ALL.len()];

impl Zone {
    /// Counts a look-up.
    #[inline]
    pub fn looked_up(&self, shown: Shown) {
        self.root(root::LOOKUPS + shown as usize).fetch_add(1, Ordering::Relaxed);
    }

    /// Look-ups of all processes so far.
    pub fn lookups(&self) -> Lookups {
        Shown::ALL.map(|shown| self.root(root::LOOKUPS + shown as usize).load(Ordering::Relaxed))
    }

    /// Goes on from what another zone has counted.
    pub(crate) fn inherit_lookups(&self, counted: &Lookups) {
        for (i, &count) in counted.iter().enumerate() {
            self.root(root::LOOKUPS + i).fetch_add(count, Ordering::Relaxed);
        }
    }
}
