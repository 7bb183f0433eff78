//! A zone in small: upstreams by name, hosts, a clock, ids; and what holds of them always.

use std::collections::{BTreeMap, BTreeSet};

use peerage_core::addr::ServerAddr;
use peerage_core::api::batch::Op;
use peerage_core::api::error::Problem;
use peerage_core::api::render::{self, Servers, Shown};
use peerage_core::change::{Actor, Applied, Change, Context, apply};
use peerage_core::field;
use peerage_core::host::{self, Hosts};
use peerage_core::name::UpstreamName;
use peerage_core::server::{Admin, AdminState, Origin, Params, Server};
use peerage_core::state::Live;
use peerage_core::units::Secs;
use peerage_core::upstream::{Defaults, Upstream};

/// A zone without anything around it.
pub struct World {
    /// What it has.
    pub upstreams: BTreeMap<UpstreamName, Upstream>,
    /// What stands on machines.
    pub hosts: Hosts,
    /// Unix ms.
    pub now: u64,
    next_id: u64,
}

impl Default for World {
    fn default() -> Self {
        Self::at(1_795_986_307_000)
    }
}

impl World {
    /// An empty one at a time.
    pub fn at(now: u64) -> Self {
        let (upstreams, hosts) = Default::default();
        Self { upstreams, hosts, now, next_id: 1 }
    }

    /// Does it; tells whether something changed.
    pub fn apply(&mut self, op: &Op) -> Result<bool, Problem> {
        let block = |name| self.upstreams.get(name).is_some_and(|one| one.declared.is_some());
        let named_by_block = matches!(op, Op::Upstream { name, .. } if block(name));
        let next_id = &mut self.next_id;
        let mut ctx = Context {
            now: self.now,
            actor: Actor::new("fuzz", "10.1.1.1"),
            fresh_id: &mut || {
                *next_id += 1;
                *next_id - 1
            },
            eligible: &|server| server.admin.state == AdminState::Up,
            origin: Origin::Api,
            named_by_block,
            keyed: Defaults::default(),
            resolves: true,
        };
        let Op::Upstream { name, change } = op else {
            let Op::Host(verb) = op else { unreachable!() };
            let all = self.upstreams.values().flat_map(|upstream| &upstream.servers);
            let on = all.filter(|server| host::is_on(server, verb.ip)).count();
            let next = self.hosts.apply(verb, on, &ctx)?;
            return Ok(next.map(|next| self.hosts = next).is_some());
        };
        match apply(self.upstreams.get(name), name, change, &mut ctx)? {
            Applied::Same => return Ok(false),
            Applied::Set(next) => drop(self.upstreams.insert(name.clone(), next)),
            Applied::Gone => drop(self.upstreams.remove(name)),
        }
        Ok(true)
    }

    /// Lets time pass; what had an end then is over.
    pub fn pass(&mut self, ms: u64) {
        self.now += ms;
        let change = Change::ExpireTtl { now: self.now };
        for name in self.upstreams.keys().cloned().collect::<Vec<_>>() {
            self.put(&name, change.clone()).expect("an end is no error");
        }
        self.hosts = self.hosts.expire(self.now).1;
    }

    /// Changes an upstream.
    pub fn put(&mut self, name: &UpstreamName, change: Change) -> Result<bool, Problem> {
        self.apply(&Op::Upstream { name: name.clone(), change })
    }
}

/// The listing of an upstream.
pub fn listing(upstream: &Upstream) -> Vec<u8> {
    let live = vec![Live::default(); upstream.servers.len()];
    let shown = Shown { zone: "main", revision: 812, upstream, live: &live, hosts: &[] };
    let mut out = Vec::new();
    render::upstream(&mut out, &shown, Servers::With);
    out
}

/// What holds of every upstream, whoever said it.
pub fn check(upstream: &Upstream) {
    let Upstream { name, settings, declared, servers, removed, .. } = upstream;
    assert_eq!(UpstreamName::parse(name.as_str()).as_ref(), Ok(name));
    [Some(settings), declared.as_ref()].iter().flatten().for_each(|one| limits(&one.defaults));
    let addrs: BTreeSet<&ServerAddr> = servers.iter().map(|server| &server.addr).collect();
    let ids: BTreeSet<u64> = servers.iter().map(|server| server.id).collect();
    assert_eq!((addrs.len(), ids.len()), (servers.len(), servers.len()), "{servers:?}");
    for (addr, declared) in removed {
        assert_eq!(ServerAddr::parse(&addr.to_string()).as_ref(), Ok(addr));
        check_params(&declared.params);
    }
    servers.iter().for_each(check_server);
}

/// The same of a server.
pub fn check_server(server: &Server) {
    let Server { addr, given, params: own, admin, declared, .. } = server;
    assert_eq!(ServerAddr::parse(&addr.to_string()).as_ref(), Ok(addr));
    if let Some(given) = given {
        assert_eq!(ServerAddr::parse(given).as_ref(), Ok(addr));
    }
    [Some(own), declared.as_ref().map(|one| &one.params)]
        .into_iter()
        .flatten()
        .for_each(check_params);
    check_admin(admin);
}

/// The same of what stands on a server or a host.
pub fn check_admin(admin: &Admin) {
    assert_eq!(field::reason(&admin.reason), Ok(&*admin.reason));
    assert!(
        admin.state != AdminState::Up || (admin.until, admin.close) == (None, None),
        "{admin:?}"
    );
}

/// The same of parameters.
pub fn check_params(params: &Params) {
    let &Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = params;
    limits(&Defaults { weight, max_conns, max_fails, fail_timeout, slow_start });
    assert_eq!(field::route(&params.route), Ok(&*params.route));
    assert!(params.labels.len() <= field::MAX_LABELS);
    for (key, value) in &params.labels {
        assert_eq!((field::label_key(key), field::label_value(value)), (Ok(&**key), Ok(&**value)));
    }
}

fn limits(defaults: &Defaults) {
    let Defaults { weight: _, max_conns, max_fails, fail_timeout, slow_start } = *defaults;
    assert!(max_conns.is_none_or(|n| n <= field::MAX_CONNS), "{defaults:?}");
    assert!(max_fails.is_none_or(|n| n <= u32::from(u16::MAX)), "{defaults:?}");
    assert!(fail_timeout.is_none_or(|time| time.0 <= Secs::MAX), "{defaults:?}");
    assert!(slow_start.is_none_or(|time| time.0 <= Secs::MAX), "{defaults:?}");
}
