//! The health of one peer, as all of its words say it.

use crate::check::bar::Bar;
use crate::check::ejection::Ejection;
use crate::check::external::External;
use crate::check::results::{Counts, Last};
use crate::check::verdict::Verdict;

/// What is known of a peer's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHealth {
    /// Where it listens, as nginx writes it.
    pub address: String,
    /// What bars it now.
    pub bar: Option<Bar>,
    /// What its check says; `None`: its upstream has none.
    pub verdict: Option<Verdict>,
    /// Its probes.
    pub counts: Counts,
    /// The last of them.
    pub last: Last,
    /// What an outside checker says.
    pub external: External,
    /// What its requests say; `None`: its upstream has no rules of outliers.
    pub ejection: Option<Ejection>,
}

impl PeerHealth {
    /// Whether it passed a probe since then, unix ms, and nothing bars it. Where there is no check
    /// there is no probe to wait for.
    pub fn has_passed_since(&self, since: u64) -> bool {
        let passed = self
            .verdict
            .is_none_or(|verdict| verdict.last_passed() == Some(true) && self.last.at >= since);
        passed && self.bar.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::reason::Reason;
    use crate::check::verdict::Thresholds;

    #[test]
    fn only_a_pass_of_since_then_counts() {
        let rules = Thresholds { fails: 3, passes: 1 };
        let after = |outcome| {
            let mut verdict = Verdict::new(7);
            verdict.observe(Ok(()), rules);
            verdict.observe(outcome, rules);
            Some(verdict)
        };
        let peer = |verdict, bar| PeerHealth {
            address: "10.0.0.1:80".into(),
            bar,
            verdict,
            counts: Counts::default(),
            last: Last { at: 100, unhealthy: 0 },
            external: External::default(),
            ejection: None,
        };
        let table = [
            (None, None, 500, true),
            (after(Ok(())), None, 100, true),
            (after(Ok(())), None, 101, false),
            (after(Err(Reason::Reset)), None, 100, false),
            (Some(Verdict::new(7)), None, 100, false),
            (after(Ok(())), Some(Bar::External), 100, false),
            (None, Some(Bar::Ejected), 500, false),
        ];
        for (verdict, bar, since, has) in table {
            assert_eq!(peer(verdict, bar).has_passed_since(since), has, "{verdict:?} {bar:?}");
        }
    }
}
