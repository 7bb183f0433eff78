//! What bars a peer from new requests by its health.

use crate::check::OnAllDown;
use crate::check::ejection::Ejection;
use crate::check::external::{External, Opinion};
use crate::check::reason::Reason;
use crate::check::verdict::{Side, Verdict};

/// What bars a peer, the first in the order in which reasons are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// It waits for its first pass.
    Checking,
    /// Its check failed, of the reason that is known.
    Failed(Option<Reason>),
    /// An outside checker says so.
    External,
    /// Its source says that its checks fail.
    Source,
    /// Its requests failed too often in a row.
    Ejected,
}

impl Bar {
    /// What bars a peer now, if anything does; `waits`: it takes nothing before its first pass.
    pub fn of(
        verdict: Verdict,
        waits: bool,
        external: External,
        source_down: bool,
        ejection: Ejection,
        now: u64,
    ) -> Option<Self> {
        if waits && verdict.side() == Side::Unknown {
            Some(Self::Checking)
        } else if verdict.side() == Side::Unhealthy {
            Some(Self::Failed(verdict.reason()))
        } else if external.holds(now) == Some(Opinion::Unhealthy) {
            Some(Self::External)
        } else if source_down {
            Some(Self::Source)
        } else if ejection.until(now).is_some() {
            Some(Self::Ejected)
        } else {
            None
        }
    }

    /// Whether it holds too where no other peer is left: what never passed takes nothing, and what
    /// is ejected was well not long ago.
    pub fn holds_at_last(self, on_all_down: OnAllDown) -> bool {
        match self {
            Self::Checking => true,
            Self::Failed(_) | Self::External | Self::Source => on_all_down == OnAllDown::Refuse,
            Self::Ejected => false,
        }
    }

    /// The place in the order in which reasons are told.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Checking => 0,
            Self::Failed(_) => 1,
            Self::External => 2,
            Self::Source => 3,
            Self::Ejected => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outlier::Outlier;
    use crate::check::verdict::Thresholds;

    #[test]
    fn the_first_of_the_order_is_told_and_ends_with_its_time() {
        let rules = Thresholds { fails: 1, passes: 1 };
        let mut failed = Verdict::new(1);
        failed.observe(Err(Reason::Reset), rules);
        let (new, said) = (Verdict::new(1), External::new(Opinion::Unhealthy, Some(10), 100));
        let (silent, well) = (External::default(), External::new(Opinion::Healthy, None, 100));
        let (none, out) =
            (Ejection::default(), Ejection::default().ejected(&Outlier::default(), 100));
        let table = [
            (new, true, said, true, out, Some(Bar::Checking)),
            (failed, true, said, true, out, Some(Bar::Failed(Some(Reason::Reset)))),
            (failed, false, well, false, none, Some(Bar::Failed(Some(Reason::Reset)))),
            (new, false, said, true, out, Some(Bar::External)),
            (new, false, well, true, out, Some(Bar::Source)),
            (new, false, well, false, out, Some(Bar::Ejected)),
            (new, false, silent, false, none, None),
        ];
        for (verdict, waits, external, source, ejection, bar) in table {
            assert_eq!(Bar::of(verdict, waits, external, source, ejection, 105), bar);
        }
        assert_eq!(Bar::of(new, false, said, false, none, 110), None);
        let out_until = 100 + 30_000;
        assert_eq!(Bar::of(new, false, silent, false, out, out_until - 1), Some(Bar::Ejected));
        assert_eq!(Bar::of(new, false, silent, false, out, out_until), None);
    }

    #[test]
    fn what_never_passed_is_not_used_and_what_failed_as_the_upstream_says() {
        use OnAllDown::{Refuse, Use};
        for (bar, on_use, on_refuse) in [
            (Bar::Checking, true, true),
            (Bar::Failed(None), false, true),
            (Bar::External, false, true),
            (Bar::Source, false, true),
            (Bar::Ejected, false, false),
        ] {
            assert_eq!((bar.holds_at_last(Use), bar.holds_at_last(Refuse)), (on_use, on_refuse));
        }
    }
}
