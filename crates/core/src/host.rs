//! What the operator wants of whole machines: a layer over the servers' own admin states.
//!
//! A host's state covers every server on its address, in every upstream of the zone, those that
//! come later too. `up` ends only the host's own state; what is set on a server stays.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::addr::ServerAddr;
use crate::body::VerbOpts;
use crate::change::admin::set_admin;
use crate::change::{ChangeError, Context};
use crate::field::{self, FieldError};
use crate::server::{Admin, AdminState, Server};

/// Admin states of hosts, by address; a host that is up has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<IpAddr, Admin>")]
pub struct Hosts(BTreeMap<IpAddr, Admin>);

/// `up`, `drain` or `down` of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVerb {
    /// Its address.
    pub ip: IpAddr,
    /// What is wanted.
    pub verb: AdminState,
    /// How.
    pub opts: VerbOpts,
    /// Whether it may have no server.
    pub missing_ok: bool,
}

impl TryFrom<BTreeMap<IpAddr, Admin>> for Hosts {
    type Error = FieldError;
    fn try_from(all: BTreeMap<IpAddr, Admin>) -> Result<Self, FieldError> {
        let mut hosts = Self::default();
        for (ip, admin) in all {
            admin.check()?;
            hosts.set(ip, admin);
        }
        Ok(hosts)
    }
}

impl Hosts {
    /// The state of a host; `None` = up.
    pub fn get(&self, ip: IpAddr) -> Option<&Admin> {
        self.0.get(&ip.to_canonical())
    }

    /// Every host that is not up.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Admin)> {
        self.0.iter().map(|(&ip, admin)| (ip, admin))
    }

    /// Puts a state in, as the state file has it.
    pub fn set(&mut self, ip: IpAddr, admin: Admin) {
        match admin.state {
            AdminState::Up => self.0.remove(&ip.to_canonical()),
            AdminState::Drain | AdminState::Down => self.0.insert(ip.to_canonical(), admin),
        };
    }

    /// Whether every host is up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The state that covers a server; a name is covered once all its addresses are.
    pub fn covering(&self, server: &Server) -> Option<&Admin> {
        if self.0.is_empty() {
            return None;
        }
        let mut states = ips(server).map(|ip| self.get(ip));
        let first = states.next()??;
        states.all(|state| state.is_some()).then_some(first)
    }

    /// When the next state ends, unix ms.
    pub fn next_expiry(&self) -> Option<u64> {
        self.0.values().filter_map(|admin| admin.until).min()
    }

    /// Applies a verb; `None` where nothing changes. `servers` are on the host.
    pub fn apply(
        &self,
        change: &HostVerb,
        servers: usize,
        ctx: &Context<'_>,
    ) -> Result<Option<Self>, ChangeError> {
        let HostVerb { ip, verb, opts, missing_ok } = change;
        let ip = ip.to_canonical();
        let up = Admin::default();
        let stands = self.get(ip).unwrap_or(&up);
        if servers == 0 && stands.state == AdminState::Up && !missing_ok {
            return Err(ChangeError::NoHost(ip));
        }
        if let Some(reason) = &opts.if_reason
            && stands.state != AdminState::Up
            && !field::is_kept(&stands.reason, reason)
        {
            return Err(ChangeError::HostIfReason {
                host: ip,
                state: stands.state,
                reason: stands.reason.clone(),
                by: stands.by.clone(),
            });
        }
        let wanted = match verb {
            AdminState::Up => up.clone(),
            _ => set_admin(stands, *verb, opts.reason.as_deref().unwrap_or(""), opts.times(), ctx),
        };
        if wanted == *stands {
            return Ok(None);
        }
        let mut next = self.clone();
        next.set(ip, wanted);
        Ok(Some(next))
    }

    /// Ends what a `ttl` has limited; the hosts that it ended, and what is left.
    pub fn expire(&self, now: u64) -> (Vec<IpAddr>, Self) {
        let mut next = self.clone();
        let over = |admin: &Admin| admin.until.is_some_and(|until| until <= now);
        let ended = self.iter().filter(|(_, admin)| over(admin)).map(|(ip, _)| ip).collect();
        next.0.retain(|_, admin| !over(admin));
        (ended, next)
    }
}

/// The addresses of a server's machine.
pub fn ips(server: &Server) -> impl Iterator<Item = IpAddr> {
    let own = match &server.addr {
        ServerAddr::Inet(addr) => Some(addr.ip()),
        ServerAddr::Unix(_) | ServerAddr::Name { .. } => None,
    };
    own.into_iter().chain(server.addrs.iter().map(|addr| addr.ip()))
}

/// Whether a server is on a host.
pub fn is_on(server: &Server, ip: IpAddr) -> bool {
    ips(server).any(|other| other.to_canonical() == ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Actor;
    use crate::server::Origin;
    use crate::upstream::Defaults;

    fn with<T>(now: u64, act: impl FnOnce(&Context<'_>) -> T) -> T {
        act(&Context {
            now,
            actor: Actor::new("ann", "10.1.1.1"),
            fresh_id: &mut || 1,
            eligible: &|_| true,
            origin: Origin::Api,
            named_by_block: false,
            keyed: Defaults::default(),
            resolves: false,
        })
    }

    fn verb(verb: AdminState, opts: VerbOpts) -> HostVerb {
        HostVerb { ip: "10.0.0.1".parse().unwrap(), verb, opts, missing_ok: false }
    }

    #[test]
    fn a_host_goes_down_once_and_up_ends_it() {
        let hosts = Hosts::default();
        let down = verb(AdminState::Down, VerbOpts::default());
        assert!(matches!(with(5, |c| hosts.apply(&down, 0, c)), Err(ChangeError::NoHost(_))));
        let hosts = with(5, |c| hosts.apply(&down, 1, c)).unwrap().unwrap();
        assert_eq!(hosts.get(down.ip).unwrap().by, "ann");
        assert_eq!(with(6, |c| hosts.apply(&down, 1, c)).unwrap(), None);
        let up = verb(AdminState::Up, VerbOpts::default());
        assert!(with(7, |c| hosts.apply(&up, 0, c)).unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_name_is_covered_once_all_its_addresses_are() {
        let name = crate::declare::DeclaredServer::parse("app.example", &[]).unwrap();
        let mut server = Server {
            id: 1,
            addr: name.addr,
            given: None,
            origin: Origin::Api,
            params: name.params,
            admin: Admin::default(),
            declared: None,
            source: None,
            resolve: true,
            addrs: Vec::new(),
        };
        let mut hosts = Hosts::default();
        for ip in ["10.0.0.1", "10.0.0.2"] {
            server.addrs.push(format!("{ip}:80").parse().unwrap());
            assert_eq!(hosts.covering(&server), None);
            let down = Admin { state: AdminState::Down, ..Admin::default() };
            hosts.set(ip.parse().unwrap(), down);
            assert!(hosts.covering(&server).is_some());
            server.addrs.push("10.0.0.9:80".parse().unwrap());
            assert_eq!(hosts.covering(&server), None);
            server.addrs.pop();
        }
        server.addrs.clear();
        assert_eq!(hosts.covering(&server), None);
    }

    #[test]
    fn a_tool_does_not_end_what_an_operator_set_and_a_ttl_ends_by_itself() {
        let opts = VerbOpts { reason: Some("disk".into()), ttl: Some(100), ..VerbOpts::default() };
        let down = verb(AdminState::Down, opts);
        let hosts = with(5, |c| Hosts::default().apply(&down, 1, c)).unwrap().unwrap();
        let opts = VerbOpts { if_reason: Some("deploy".into()), ..VerbOpts::default() };
        let refused = with(6, |c| hosts.apply(&verb(AdminState::Up, opts), 1, c));
        assert!(matches!(refused, Err(ChangeError::HostIfReason { .. })));
        assert_eq!(hosts.next_expiry(), Some(105));
        assert!(hosts.expire(104).0.is_empty());
        assert!(hosts.expire(105).1.is_empty());
    }
}
