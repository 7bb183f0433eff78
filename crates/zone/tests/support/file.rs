//! What a file would hold of a zone, and a zone that adopts it.

use std::collections::BTreeMap;

use peerage_core::body::VerbOpts;
use peerage_core::change::Actor;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::host::{HostVerb, Hosts};
use peerage_core::name::UpstreamName;
use peerage_core::server::{AdminState, Origin};
use peerage_core::upstream::{Defaults, Settings, Upstream};
use peerage_zone::{Adopted, Adoptee, BatchAttempt, Checks, Env, Lead, Op};

use super::{World, upstream};

/// What a file would hold.
#[derive(Clone, Default)]
pub(crate) struct File {
    pub(crate) upstreams: BTreeMap<UpstreamName, (Upstream, u64)>,
    pub(crate) hosts: Hosts,
    pub(crate) revision: u64,
    pub(crate) next_id: u64,
}

impl File {
    /// As the zone is now.
    pub(crate) fn of(world: &World) -> Self {
        let names = world.worker.names(None, 1000);
        let read = |name| Some((UpstreamName::clone(name), world.worker.read_wanted(name)?));
        Self {
            upstreams: names.iter().filter_map(read).collect(),
            hosts: world.worker.hosts(),
            revision: world.zone.revision(),
            next_id: world.zone.next_id(),
        }
    }
}

pub(crate) type Blocks = BTreeMap<UpstreamName, DeclaredUpstream>;

/// Adopts all that is not in `from`.
pub(crate) fn adopt(world: &World, from: &File, to: &File, blocks: &Blocks) -> Adopted {
    let changed = |name: &UpstreamName| {
        to.upstreams.get(name).map(|(u, _)| u) != from.upstreams.get(name).map(|(u, _)| u)
    };
    let mut names: Vec<&UpstreamName> = to.upstreams.keys().chain(blocks.keys()).collect();
    names.extend(from.upstreams.keys());
    names.sort_unstable();
    names.dedup();
    names.retain(|name| changed(name) || blocks.contains_key(name));
    adopt_these(world, to, &names, blocks)
}

pub(crate) fn adopt_these(
    world: &World,
    to: &File,
    names: &[&UpstreamName],
    blocks: &Blocks,
) -> Adopted {
    let of = |&name: &&'_ _| to.upstreams.get::<UpstreamName>(name);
    let adoptees: Vec<_> = names
        .iter()
        .map(|name| Adoptee {
            name,
            file: of(name).map(|(upstream, _)| upstream),
            revision: of(name).map_or(to.revision, |&(_, revision)| revision),
            declared: blocks.get(*name),
        })
        .collect();
    world.worker.adopt_hosts(&to.hosts, &world.clock, &mut || false).unwrap();
    let adopted = world.worker.adopt(&adoptees, &world.clock, &mut || false);
    assert_eq!(adopted.done, adoptees.len());
    assert!(world.worker.adopt_head(to.revision, to.next_id, &mut || false));
    adopted
}

pub(crate) fn wanted(file: &File) -> Vec<&Upstream> {
    file.upstreams.values().map(|(upstream, _)| upstream).collect()
}

pub(crate) fn follower() -> World {
    let world = World::new(1 << 20);
    world.zone.durable().set_lead(Lead::Follows);
    world
}

pub(crate) fn declared(name: &str, servers: &[&str]) -> DeclaredUpstream {
    DeclaredUpstream {
        name: upstream(name),
        settings: Settings::default(),
        servers: servers.iter().map(|text| DeclaredServer::new(text).unwrap()).collect(),
    }
}

pub(crate) fn host(world: &World, ip: &str, verb: AdminState) {
    let verb =
        HostVerb { ip: ip.parse().unwrap(), verb, opts: VerbOpts::default(), missing_ok: true };
    let env = Env {
        clock: &world.clock,
        actor: Actor::new("test", "127.0.0.1"),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves: false,
    };
    let done = world.worker.batch(&[Op::Host(verb)], &env, &Checks::NONE);
    assert!(matches!(done, BatchAttempt::Done(_)));
}
