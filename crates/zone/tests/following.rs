//! A zone that follows another is as that one is, whatever happens there.

mod support;

use std::collections::BTreeMap;

use peerage_core::body::{UpstreamBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::declare::DeclaredUpstream;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::server::AdminState;
use peerage_core::upstream::Upstream;
use peerage_zone::Lead;
use peerage_zone::journal::Reader;
use proptest::prelude::*;
use support::file::*;
use support::{World, sel, server};

#[derive(Clone, Debug)]
enum Step {
    Put { upstream: u8, servers: Vec<u8> },
    Delete(u8),
    Weight { upstream: u8, server: u8, weight: u16 },
    Admin { upstream: u8, server: u8, verb: AdminState, ttl: bool },
    Host { ip: u8, verb: AdminState },
    Declare { upstream: u8, servers: Vec<u8> },
    Tick,
    Adopt,
    Request(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let verb = prop_oneof![Just(AdminState::Up), Just(AdminState::Down), Just(AdminState::Drain)];
    let (name, port) = (0..4_u8, 0..6_u8);
    let servers = || proptest::collection::vec(0..6_u8, 0..5);
    prop_oneof![
        3 => (name.clone(), servers()).prop_map(|(upstream, servers)| Step::Put { upstream, servers }),
        1 => name.clone().prop_map(Step::Delete),
        2 => (name.clone(), port.clone(), 1..9_u16)
            .prop_map(|(upstream, server, weight)| Step::Weight { upstream, server, weight }),
        3 => (name.clone(), port, verb.clone(), any::<bool>())
            .prop_map(|(upstream, server, verb, ttl)| Step::Admin { upstream, server, verb, ttl }),
        1 => (0..3_u8, verb).prop_map(|(ip, verb)| Step::Host { ip, verb }),
        1 => (name.clone(), servers())
            .prop_map(|(upstream, servers)| Step::Declare { upstream, servers }),
        1 => Just(Step::Tick),
        3 => Just(Step::Adopt),
        4 => name.prop_map(Step::Request),
    ]
}

fn addr(server: u8) -> String {
    format!("10.0.0.{}:8{}", server % 3, server)
}

/// A server comes once.
fn addrs(servers: &[u8]) -> Vec<String> {
    let mut servers = servers.to_vec();
    let mut seen = Vec::new();
    servers.retain(|server| {
        !seen.contains(server) && {
            seen.push(*server);
            true
        }
    });
    servers.into_iter().map(addr).collect()
}

fn name(upstream: u8) -> String {
    format!("u{upstream}")
}

/// Does a step on the zone that leads.
fn lead(world: &mut World, blocks: &mut Blocks, step: &Step) {
    match step {
        Step::Put { upstream, servers } => {
            let servers = addrs(servers).iter().map(|addr| server(addr, 1)).collect();
            let body = UpstreamBody { servers: Some(servers), ..UpstreamBody::default() };
            world.change(&name(*upstream), &Change::PutUpstream { body });
        }
        Step::Delete(upstream) => {
            world.change(&name(*upstream), &Change::DeleteUpstream { force: true });
        }
        Step::Weight { upstream, server: place, weight } => {
            let body = server(&addr(*place), *weight);
            let sel = sel(&addr(*place));
            world.change(&name(*upstream), &Change::PutServer { sel, body });
        }
        Step::Admin { upstream, server, verb, ttl } => {
            let ttl = ttl.then_some(3_000).filter(|_| *verb != AdminState::Up);
            let opts = VerbOpts { ttl, ..VerbOpts::default() };
            let change = Change::Admin { sel: sel(&addr(*server)), verb: *verb, opts };
            world.change(&name(*upstream), &change);
        }
        Step::Host { ip, verb } => host(world, &format!("10.0.0.{ip}"), *verb),
        Step::Declare { upstream, servers } => {
            let block = block(*upstream, servers);
            blocks.insert(block.name.clone(), block);
            if servers.is_empty() {
                blocks.pop_first();
            }
            let all: Vec<DeclaredUpstream> = blocks.values().cloned().collect();
            world.zone.as_master(1).merge(&all, &world.clock, &mut || false);
        }
        Step::Tick => {
            world.tick(2);
            world.worker.expire(&world.clock);
        }
        Step::Adopt | Step::Request(_) => {}
    }
}

fn block(upstream: u8, servers: &[u8]) -> DeclaredUpstream {
    let addrs = addrs(servers);
    declared(&name(upstream), &addrs.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What the journal told, one revision after the other.
fn read_all(reader: &mut Reader, revision: u64) {
    let mut last = reader.last();
    while let Some(entry) = reader.next_entry().unwrap() {
        assert_eq!(entry.revision, last + 1);
        last = entry.revision;
    }
    assert_eq!(last, revision);
}

/// Requests by address of the servers of an upstream.
fn requests(world: &World, name: &UpstreamName) -> BTreeMap<String, u64> {
    let Some(seen) = world.worker.read(name, &world.clock) else { return BTreeMap::new() };
    let servers = seen.upstream.servers.iter().zip(&seen.live);
    servers.map(|(s, live)| (s.addr.to_string(), live.counters.requests)).collect()
}

/// An upstream without what each zone gives itself.
fn content(upstream: &Upstream) -> Upstream {
    let mut content = upstream.clone();
    content.orphaned_at = content.orphaned_at.map(|_| 0);
    for server in &mut content.servers {
        server.id = 0;
        server.admin.since = 0;
    }
    content
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_follower_is_what_the_leader_is(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut a, mut b) = (World::new(1 << 20), follower());
        let (mut blocks, none) = (Blocks::new(), Blocks::new());
        let (mut reader, mut last) = (a.zone.journal().now(), File::default());
        for step in steps.iter().chain([&Step::Adopt]) {
            lead(&mut a, &mut blocks, step);
            b.clock = a.clock;
            read_all(&mut reader, a.zone.revision());
            match step {
                Step::Request(upstream) => {
                    if let Ok((_, choice)) = b.pick(&name(*upstream)) {
                        b.done(choice, false);
                    }
                }
                Step::Adopt => {
                    // Declared images go as they are: nothing is merged without blocks of B's own.
                    let file = plain(&File::of(&a));
                    let names: Vec<_> = b.worker.names(None, 100);
                    let before: Vec<_> = names.iter().map(|name| requests(&b, name)).collect();
                    adopt(&b, &last, &file, &none);
                    let now = File::of(&b);
                    prop_assert_eq!(wanted(&now), wanted(&file));
                    prop_assert_eq!(&now.hosts, &file.hosts);
                    prop_assert_eq!(now.revision, file.revision);
                    prop_assert!(now.next_id >= file.next_id);
                    for (name, before) in names.iter().zip(before) {
                        let now = requests(&b, name);
                        for (addr, n) in before {
                            prop_assert!(now.get(&addr).is_none_or(|&now| now == n));
                        }
                    }
                    last = file;
                }
                _ => {}
            }
        }
        b.worker.sweep(&|_, _| true, &b.clock);
        b.zone.durable().set_lead(Lead::Leads);
        prop_assert!(!b.zone.wants_snapshot());
    }

    #[test]
    fn a_follower_merges_its_own_configuration(
        steps in proptest::collection::vec(step(), 1..40),
        own in proptest::collection::vec((0..4_u8, proptest::collection::vec(0..6_u8, 0..4)), 0..4),
    ) {
        let (mut a, b) = (World::new(1 << 20), follower());
        let own: Vec<_> = own.iter().map(|(upstream, servers)| block(*upstream, servers)).collect();
        let own: Blocks = own.into_iter().map(|block| (block.name.clone(), block)).collect();
        let mut blocks = Blocks::new();
        for step in steps.iter().chain([&Step::Adopt]) {
            lead(&mut a, &mut blocks, step);
            if !matches!(step, Step::Adopt) {
                continue;
            }
            let file = File::of(&a);
            // As the master does it on top of a file.
            let model = World::new(1 << 20);
            adopt(&model, &File::default(), &File { upstreams: BTreeMap::new(), ..file.clone() }, &Blocks::new());
            let loaded = peerage_core::snapshot::Loaded {
                header: None,
                hosts: Hosts::default(),
                upstreams: file.upstreams.values().cloned().collect(),
                damage: None,
                ..Default::default()
            };
            model.zone.as_master(1).load(&loaded, &a.clock);
            let all: Vec<DeclaredUpstream> = own.values().cloned().collect();
            model.zone.as_master(1).merge(&all, &a.clock, &mut || false);
            let names: Vec<UpstreamName> = b.worker.names(None, 100);
            let mut names: Vec<&UpstreamName> =
                names.iter().chain(file.upstreams.keys()).chain(own.keys()).collect();
            names.sort_unstable();
            names.dedup();
            adopt_these(&b, &file, &names, &own);
            let (is, shall) = (File::of(&b), File::of(&model));
            let content = |file: &File| wanted(file).into_iter().map(content).collect::<Vec<_>>();
            prop_assert_eq!(content(&is), content(&shall));
            prop_assert!(adopt_these(&b, &file, &names, &own).changed.is_empty());
            for (is, of_file) in wanted(&is).iter().filter_map(|u| Some((u, &file.upstreams.get(&u.name)?.0))) {
                for server in &is.servers {
                    let file = of_file.servers.iter().find(|s| s.addr == server.addr);
                    prop_assert!(file.is_none_or(|file| file.id == server.id));
                }
            }
        }
    }
}

/// A file of a master without blocks: nothing in it is declared.
fn plain(file: &File) -> File {
    let mut file = file.clone();
    for (upstream, _) in file.upstreams.values_mut() {
        upstream.declared = None;
    }
    file
}
