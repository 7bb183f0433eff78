//! Names that are resolved at run time: which they are, and whose duty they are.
//!
//! One process of all that use the zone asks for them, by a lease that it renews. What the answer
//! makes of the servers is a change like any other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;

use crate::batch::Checks;
use crate::change::{Attempt, Env};
use crate::choice::Clock;
use crate::generation::Generation;
use crate::layout::{Table, root};
use crate::lease::Lease;
use crate::worker::Worker;
use crate::zone::Zone;

/// The words of a zone about its names.
#[derive(Clone, Copy)]
pub struct Names(Zone);

/// An upstream with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Which.
    pub upstream: UpstreamName,
    /// Its names, and whether a server of that name has no address yet.
    pub hosts: Vec<(Box<str>, bool)>,
}

impl Zone {
    /// The names that are resolved at run time.
    pub const fn names(&self) -> Names {
        Names(*self)
    }
}

impl Names {
    /// Another number than before once a name came or went.
    pub fn generation(self) -> Generation {
        Generation::new(self.0.root(root::NAMES))
    }

    /// Who resolves them.
    pub fn lease(self) -> Lease {
        Lease::new(&self.0, root::NAMES_OWNER, root::NAMES_LEASE)
    }
}

impl Worker {
    /// The upstreams of bucket `i` that have names to resolve; `None` past the last bucket.
    pub fn named(&self, i: usize) -> Option<Vec<Named>> {
        let _section = self.enter();
        let chain = self.zone().bucket_at(i)?;
        let mut all = Vec::new();
        for up in chain {
            if !up.table(self.zone()).is_some_and(Table::has_names) {
                continue;
            }
            let Some(stored) = self.zone().load(up) else { continue };
            let mut hosts: BTreeMap<&str, bool> = BTreeMap::new();
            for server in &stored.upstream.servers {
                if let Some((host, _)) = server.resolvable() {
                    *hosts.entry(host).or_default() |= server.addrs.is_empty();
                }
            }
            let hosts = hosts.into_iter().map(|(host, lacks)| (host.into(), lacks)).collect();
            all.push(Named { upstream: stored.upstream.name, hosts });
        }
        Some(all)
    }

    /// Gives the servers of a name in an upstream their addresses. Busy where another process has
    /// the duty: one that was stopped since it looked would bring back what is no longer so, and
    /// whoever resolves the name now thinks that his answer stands.
    pub fn resolve(
        &self,
        upstream: &UpstreamName,
        host: &str,
        ips: &[IpAddr],
        clock: &Clock,
    ) -> Attempt {
        let change = Change::Resolve { host: host.into(), ips: ips.to_vec() };
        let env = Env {
            clock,
            actor: Actor::new("resolver", ""),
            origin: Origin::Api,
            named: &|_| true,
            keyed: Defaults::default(),
            resolves: true,
        };
        let (lease, me) = (self.zone().names().lease(), self.pid());
        let checks = Checks { may: &|| [0, me].contains(&lease.owner()), ..Checks::NONE };
        self.change_by(upstream, &change, &env, &checks)
    }
}
