//! What ends by itself: admin states that were given a time, and orphans.

use peerage_core::change::Change;
use peerage_core::name::UpstreamName;

use crate::batch::{BatchAttempt, Checks, Op};
use crate::change::{Attempt, Env};
use crate::choice::Clock;
use crate::ends::{self, Look};
use crate::layout::Table;
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
        let Some(look) = self.look(ends::TTL, clock.msec, clock) else { return Vec::new() };
        let mut changed = self.end(look, clock.msec, Table::until, &change, clock);
        changed.extend(self.expire_hosts(look, clock));
        look.end();
        changed
    }

    /// Ends host states that are due; the names of upstreams that they covered.
    fn expire_hosts(&self, look: Look, clock: &Clock) -> Vec<UpstreamName> {
        let first = self.hosts().next_expiry().unwrap_or(u64::MAX);
        if first > clock.msec {
            look.saw(first);
            return Vec::new();
        }
        let env = Env::of_time(clock);
        match self.batch(&[Op::ExpireHosts(clock.msec)], &env, &Checks::NONE) {
            BatchAttempt::Done(batch) => {
                let left = self.hosts().next_expiry().unwrap_or(u64::MAX);
                look.saw(left);
                batch.touched.into_iter().map(|touched| touched.name).collect()
            }
            _ => {
                // Again at the next call.
                look.saw(clock.msec);
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
        let Some(look) = self.look(ends::ORPHANS, since, clock) else { return Vec::new() };
        let gone = self.end(look, since, Table::orphaned, &change, clock);
        look.end();
        gone
    }

    /// Upstreams that no block names any more though one did, with the time since when (unix ms),
    /// by name.
    pub fn orphans(&self) -> Vec<(UpstreamName, u64)> {
        if self.zone().ends(ends::ORPHANS).is_never() {
            return Vec::new();
        }
        let mut orphans = Vec::new();
        self.each_time(Table::orphaned, |name, at| orphans.extend(name.map(|name| (name, at))));
        orphans.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        orphans
    }

    /// Applies `change` to upstreams whose time has come.
    fn end(
        &self,
        look: Look,
        now: u64,
        time: fn(Table) -> u64,
        change: &Change,
        clock: &Clock,
    ) -> Vec<UpstreamName> {
        let mut due = Vec::new();
        self.each_time(time, |name, at| {
            if at <= now {
                due.extend(name);
            } else {
                look.saw(at);
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
                    look.saw(now);
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
