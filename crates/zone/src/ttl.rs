//! What ends by itself: admin states that were given a time, and orphans.

use std::sync::atomic::Ordering::SeqCst;

use peerage_core::change::Change;
use peerage_core::name::UpstreamName;

use crate::batch::{BatchAttempt, Checks, Op};
use crate::change::{Attempt, Env};
use crate::choice::Clock;
use crate::layout::{Table, root};
use crate::worker::Worker;

impl Worker {
    /// Ends admin states that are due; the names of upstreams that changed.
    ///
    /// To be called every half second; costs one comparison while nothing is due.
    pub fn expire(&self, clock: &Clock) -> Vec<UpstreamName> {
        if self.barred().is_some() {
            return Vec::new();
        }
        let change = Change::ExpireTtl { now: clock.msec };
        self.expire_routes(clock);
        let due = self.zone().root(root::NEXT_TTL).load(SeqCst) <= clock.msec;
        let mut changed = self.end(root::NEXT_TTL, clock.msec, Table::until, &change, clock);
        if due {
            changed.extend(self.expire_hosts(clock));
        }
        changed
    }

    /// Ends host states that are due; the names of upstreams that they covered.
    fn expire_hosts(&self, clock: &Clock) -> Vec<UpstreamName> {
        let next = self.zone().root(root::NEXT_TTL);
        let first = self.hosts().next_expiry().unwrap_or(u64::MAX);
        if first > clock.msec {
            next.fetch_min(first, SeqCst);
            return Vec::new();
        }
        let env = Env::of_time(clock);
        match self.batch(&[Op::ExpireHosts(clock.msec)], &env, &Checks::NONE) {
            BatchAttempt::Done(batch) => {
                let left = self.hosts().next_expiry().unwrap_or(u64::MAX);
                next.fetch_min(left, SeqCst);
                batch.touched.into_iter().map(|touched| touched.name).collect()
            }
            _ => {
                // Again at the next call.
                next.fetch_min(clock.msec, SeqCst);
                Vec::new()
            }
        }
    }

    /// Removes upstreams that no block names any more since that time (unix ms) or longer, and
    /// gives their names. As cheap as [`Worker::expire`].
    pub fn expire_orphans(&self, since: u64, clock: &Clock) -> Vec<UpstreamName> {
        if self.barred().is_some() {
            return Vec::new();
        }
        let change = Change::ExpireOrphan { since };
        self.end(root::ORPHANS, since, Table::orphaned, &change, clock)
    }

    /// Upstreams that no block names any more though one did, with the time since when (unix ms),
    /// by name.
    pub fn orphans(&self) -> Vec<(UpstreamName, u64)> {
        if self.zone().root(root::ORPHANS).load(SeqCst) == u64::MAX {
            return Vec::new();
        }
        let mut orphans = Vec::new();
        self.each_time(Table::orphaned, |name, at| orphans.extend(name.map(|name| (name, at))));
        orphans.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        orphans
    }

    /// Applies `change` to upstreams whose time has come; `first` is the root's word of the
    /// earliest such time.
    fn end(
        &self,
        first: usize,
        now: u64,
        time: fn(Table) -> u64,
        change: &Change,
        clock: &Clock,
    ) -> Vec<UpstreamName> {
        let first = self.zone().root(first);
        if first.load(SeqCst) > now {
            return Vec::new();
        }
        // Whoever looks at all tables says anew when to look again; writers meanwhile lower it.
        first.store(u64::MAX, SeqCst);
        let mut due = Vec::new();
        self.each_time(time, |name, at| {
            if at <= now {
                due.extend(name);
            } else {
                first.fetch_min(at, SeqCst);
            }
        });
        due.retain(|name| {
            let env = Env::of_time(clock);
            match self.change(name, change, &env) {
                Attempt::Done { changed, .. } => changed,
                Attempt::Busy
                | Attempt::NotWriter
                | Attempt::NoRoom { .. }
                | Attempt::Refused(_)
                | Attempt::Unmet(_) => {
                    // Again at the next call.
                    first.fetch_min(now, SeqCst);
                    false
                }
            }
        });
        due
    }

    /// Shows the upstreams that have such a time.
    fn each_time(&self, time: fn(Table) -> u64, mut seen: impl FnMut(Option<UpstreamName>, u64)) {
        let mut bucket = 0;
        loop {
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else { break };
            for up in chain {
                let at = up.table(self.zone()).map_or(u64::MAX, time);
                if at != u64::MAX {
                    let name = String::from_utf8(up.name(self.region())).ok();
                    seen(name.and_then(|name| UpstreamName::parse(&name).ok()), at);
                }
            }
            bucket += 1;
        }
    }
}
