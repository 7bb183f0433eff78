//! The three-way merge at a load: stories of edits, then properties against a naive model.

mod support;

use std::collections::{BTreeMap, HashSet};

use peerage_core::addr::ServerAddr;
use peerage_core::change::Change;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::server::{AdminState, Origin, Params};
use peerage_core::units::Secs;
use peerage_core::upstream::Method;
use proptest::prelude::*;
use support::{World, any_addr, any_block, any_params, any_state, any_upstream, block};

#[test]
fn first_contact_takes_the_file_as_it_is() {
    let mut world = World::new();
    let lines = ["10.0.0.1:80 weight=3", "10.0.0.2:80 down", "10.0.0.3:80 drain"];
    assert_eq!(world.merge(Some(&block(&lines))), (true, vec![]));
    let app = world.app.as_ref().unwrap();
    assert_eq!(app.origin, Origin::Config);
    assert!(app.servers.iter().all(|server| server.origin == Origin::Config));
    assert_eq!(world.server("10.0.0.1:80").params.weight, Some(3));
    let admin = &world.server("10.0.0.2:80").admin;
    assert_eq!((admin.state, admin.by.as_str()), (AdminState::Down, "config"));
    assert_eq!(world.server("10.0.0.3:80").admin.state, AdminState::Drain);
    world.now += 1000;
    assert_eq!(world.merge(Some(&block(&lines))), (false, vec![]));
}

#[test]
fn the_file_changes_what_it_changed_and_run_time_keeps_the_rest() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 weight=3 max_fails=2"])));
    world.call("PATCH /v1/upstreams/app/servers/id:1", r#"{"max_conns":7,"max_fails":5}"#);
    let edited = block(&["10.0.0.1:80 weight=4 max_fails=2"]);
    assert_eq!(world.merge(Some(&edited)), (true, vec![]));
    let params = &world.server("10.0.0.1:80").params;
    assert_eq!((params.weight, params.max_conns, params.max_fails), (Some(4), Some(7), Some(5)));
    // Taking a parameter out of the line is an edit too.
    world.merge(Some(&block(&["10.0.0.1:80 max_fails=2"])));
    assert_eq!(world.server("10.0.0.1:80").params.weight, None);
}

#[test]
fn a_field_changed_on_both_sides_is_the_files_and_listed() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 weight=3", "10.0.0.2:80"])));
    world.call("PATCH /v1/upstreams/app/servers/id:1", r#"{"weight":9}"#);
    world.verb("10.0.0.2:80", "drain");
    let edited = block(&["10.0.0.1:80 weight=4", "10.0.0.2:80 down"]);
    let (changed, conflicts) = world.merge(Some(&edited));
    assert!(changed);
    let said: Vec<_> =
        conflicts.iter().map(|c| (c.field, c.file.as_str(), c.runtime.as_str())).collect();
    assert_eq!(said, [("weight", "4", "9"), ("admin", "down", "drain")]);
    assert_eq!(conflicts[0].server, Some(support::addr("10.0.0.1:80")));
    assert_eq!(world.server("10.0.0.1:80").params.weight, Some(4));
    assert_eq!(world.server("10.0.0.2:80").admin.by, "config");
    assert_eq!(world.merge(Some(&edited)), (false, vec![]));
}

#[test]
fn both_sides_changed_to_the_same_is_no_conflict() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 weight=3"])));
    world.call("PATCH /v1/upstreams/app/servers/id:1", r#"{"weight":4}"#);
    assert_eq!(world.merge(Some(&block(&["10.0.0.1:80 weight=4"]))).1, vec![]);
}

#[test]
fn a_server_removed_at_run_time_stays_removed_until_its_own_line_changes() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80"])));
    world.call("DELETE /v1/upstreams/app/servers/10.0.0.2:80", "");
    assert!(!world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80"]))).0);
    // Another line changes: it still stays removed.
    world.merge(Some(&block(&["10.0.0.1:80 weight=2", "10.0.0.2:80", "10.0.0.3:80"])));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.3:80"]);
    world.merge(Some(&block(&["10.0.0.1:80 weight=2", "10.0.0.2:80 weight=2", "10.0.0.3:80"])));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.3:80", "10.0.0.2:80"]);
    assert_eq!(world.server("10.0.0.2:80").id, 4);
    assert_eq!(world.app.as_ref().unwrap().removed, []);
}

#[test]
fn a_removed_line_that_comes_back_later_adds_its_server() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80"])));
    world.call("DELETE /v1/upstreams/app/servers/10.0.0.2:80", "");
    world.merge(Some(&block(&["10.0.0.1:80"])));
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80"])));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.2:80"]);
}

#[test]
fn a_server_removed_and_put_back_at_run_time_is_the_configurations_again() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 weight=3"])));
    world.call("PUT /v1/upstreams/app", r#"{"servers":[]}"#);
    assert_eq!(world.app.as_ref().unwrap().removed.len(), 1);
    world.call("PUT /v1/upstreams/app", r#"{"servers":[{"server":"10.0.0.1:80","weight":5}]}"#);
    let server = world.server("10.0.0.1:80");
    assert_eq!((server.id, &server.origin), (2, &Origin::Config));
    assert!(!world.merge(Some(&block(&["10.0.0.1:80 weight=3"]))).0);
    assert_eq!(world.server("10.0.0.1:80").params.weight, Some(5));
}

#[test]
fn a_server_gone_from_the_file_goes_and_one_of_the_api_stays() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80"])));
    world.call("PUT /v1/upstreams/app/servers/10.0.0.9:80", "{}");
    world.merge(Some(&block(&["10.0.0.1:80"])));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.9:80"]);
}

#[test]
fn a_server_of_the_api_that_the_file_now_names_is_declared_and_keeps_id_and_admin() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80"])));
    world.call("PUT /v1/upstreams/app/servers/10.0.0.9:80", r#"{"max_conns":3}"#);
    world.verb("10.0.0.9:80", "drain?reason=x");
    let before = world.server("10.0.0.9:80").clone();
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.9:80 weight=2 down"])));
    let after = world.server("10.0.0.9:80");
    assert_eq!(
        (after.id, &after.admin, &after.origin),
        (before.id, &before.admin, &Origin::Config)
    );
    assert_eq!((after.params.weight, after.params.max_conns), (Some(2), Some(3)));
}

#[test]
fn the_flag_down_acts_only_when_it_changes_itself() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 down", "10.0.0.2:80", "10.0.0.3:80 down"])));
    world.verb("10.0.0.1:80", "up");
    world.verb("10.0.0.2:80", "down?reason=operator");
    // Lines change, flags do not: the operator's will stands.
    world.merge(Some(&block(&[
        "10.0.0.1:80 down weight=2",
        "10.0.0.2:80 weight=2",
        "10.0.0.3:80 down",
    ])));
    assert_eq!(world.server("10.0.0.1:80").admin.state, AdminState::Up);
    assert_eq!(world.server("10.0.0.2:80").admin.reason, "operator");
    // The flag comes and goes at a server that an operator has down: his will stands.
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80 down", "10.0.0.3:80 down"])));
    assert_eq!(world.server("10.0.0.2:80").admin.reason, "operator");
    world.merge(Some(&block(&["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"])));
    assert_eq!(world.server("10.0.0.2:80").admin.reason, "operator");
    assert_eq!(world.server("10.0.0.3:80").admin.state, AdminState::Up, "by config, so it ends");
}

#[test]
fn a_user_called_config_is_an_operator() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 down"])));
    world.by = "config".into();
    world.verb("10.0.0.1:80", "down?reason=mine");
    world.merge(Some(&block(&["10.0.0.1:80"])));
    assert_eq!(world.server("10.0.0.1:80").admin.state, AdminState::Down);
}

#[test]
fn a_block_removed_takes_its_servers_and_leaves_an_orphan() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80"])));
    world.call("PUT /v1/upstreams/app/servers/10.0.0.9:80", "{}");
    assert!(world.merge(None).0);
    assert_eq!(world.addrs(), ["10.0.0.9:80"]);
    assert_eq!(world.app.as_ref().unwrap().orphaned_at, Some(world.now));
    world.now += 1000;
    assert_eq!(world.merge(None), (false, vec![]));
    assert!(world.merge(Some(&block(&["10.0.0.1:80"]))).0);
    assert_eq!(world.app.as_ref().unwrap().orphaned_at, None);
    assert_eq!(world.addrs(), ["10.0.0.9:80", "10.0.0.1:80"]);
    world.call("DELETE /v1/upstreams/app/servers/10.0.0.9:80", "");
    assert!(world.merge(None).0);
    assert_eq!(world.app, None, "nothing of run time was left");
}

#[test]
fn an_orphan_that_is_stated_anew_belongs_to_the_api() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80"])));
    world.call("PUT /v1/upstreams/app/servers/10.0.0.9:80", "{}");
    world.merge(None);
    world.call("PUT /v1/upstreams/app", r#"{"servers":[{"server":"10.0.0.9:80"}]}"#);
    let app = world.app.as_ref().unwrap();
    assert_eq!((app.orphaned_at, &app.origin), (None, &Origin::Api));
}

#[test]
fn an_orphan_goes_when_its_time_is_over_and_nothing_else_does() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80"])));
    world.call("PUT /v1/upstreams/app/servers/10.0.0.9:80", "{}");
    let since = world.now;
    assert!(!world.apply(&Change::ExpireOrphan { since }).unwrap());
    world.merge(None);
    assert!(!world.apply(&Change::ExpireOrphan { since: since - 1 }).unwrap());
    assert!(world.apply(&Change::ExpireOrphan { since }).unwrap());
    assert_eq!(world.app, None);
    assert!(!world.apply(&Change::ExpireOrphan { since }).unwrap());
}

#[test]
fn an_upstream_of_the_api_outlives_a_block_that_named_it() {
    let mut world = World::with(1);
    world.merge(Some(&block(&["10.0.0.8:80"])));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.8:80"]);
    world.merge(None);
    assert_eq!(world.addrs(), ["10.0.0.1:80"]);
    assert_eq!(world.app.as_ref().unwrap().orphaned_at, None);
}

#[test]
fn settings_merge_field_by_field() {
    let mut world = World::new();
    let mut block = block(&["10.0.0.1:80"]);
    block.settings.defaults.weight = Some(2);
    world.merge(Some(&block));
    world.call("PATCH /v1/upstreams/app", r#"{"defaults":{"weight":3,"max_fails":4}}"#);
    block.settings.defaults.fail_timeout = Some(Secs(5));
    assert_eq!(world.merge(Some(&block)).1, vec![]);
    block.settings.defaults.weight = Some(6);
    block.settings.method = Some(Method::RoundRobin);
    let (_, conflicts) = world.merge(Some(&block));
    assert_eq!(conflicts.len(), 1);
    assert_eq!((conflicts[0].field, &conflicts[0].server), ("defaults.weight", &None));
    let defaults = world.app.as_ref().unwrap().settings.defaults;
    assert_eq!((defaults.weight, defaults.max_fails), (Some(6), Some(4)));
    assert_eq!(defaults.fail_timeout, Some(Secs(5)));
}

#[test]
fn answers_of_a_name_in_another_order_change_nothing() {
    let mut world = World::new();
    let mut block = block(&["app.example:80"]);
    let (a, b) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
    block.servers[0].resolve = false;
    block.servers[0].addrs = vec![a, b];
    world.merge(Some(&block));
    block.servers[0].addrs = vec![b, a];
    assert!(!world.merge(Some(&block)).0);
    block.servers[0].addrs = vec![b];
    assert!(world.merge(Some(&block)).0);
    // A name of the configuration can be stated where it is.
    let put = r#"{"servers":[{"server":"app.example:80","weight":2}]}"#;
    assert!(world.call("PUT /v1/upstreams/app", put));
    assert_eq!(world.server("app.example:80").addrs, [b]);
}

#[test]
fn a_load_keeps_what_a_name_was_resolved_to() {
    let mut world = World::new();
    let block = block(&["app.example:80 resolve"]);
    world.merge(Some(&block));
    assert!(world.resolve("app.example", &["10.0.0.2", "10.0.0.1"]));
    let addrs = world.server("app.example:80").addrs.clone();
    assert!(!world.merge(Some(&block)).0);
    assert_eq!(world.server("app.example:80").addrs, addrs);
    // A plain line's are those of the load, and no answer changes them.
    let mut plain = block.clone();
    plain.servers[0].resolve = false;
    plain.servers[0].addrs = vec!["10.0.0.9:80".parse().unwrap()];
    assert!(world.merge(Some(&plain)).0);
    assert!(!world.resolve("app.example", &["10.0.0.1"]));
    assert_eq!(world.server("app.example:80").addrs, plain.servers[0].addrs);
    // Until it is resolved at run time again: then they are the last that is known.
    assert!(world.merge(Some(&block)).0);
    assert_eq!(world.server("app.example:80").addrs, plain.servers[0].addrs);
    assert!(world.resolve("app.example", &["10.0.0.1"]));
}

/// Parameters as texts by field: what the naive model merges.
fn fields(params: &Params) -> BTreeMap<&'static str, String> {
    let Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = params;
    BTreeMap::from([
        ("weight", format!("{weight:?}")),
        ("max_conns", format!("{max_conns:?}")),
        ("max_fails", format!("{max_fails:?}")),
        ("fail_timeout", format!("{fail_timeout:?}")),
        ("slow_start", format!("{slow_start:?}")),
        ("backup", format!("{:?}", params.backup)),
        ("route", params.route.clone()),
        ("labels", format!("{:?}", params.labels)),
    ])
}

fn one(addr: &ServerAddr, params: Params, admin: AdminState) -> DeclaredUpstream {
    let line = DeclaredServer::new(&addr.to_string()).unwrap();
    let line = DeclaredServer { given: None, params, admin, ..line };
    let mut block = block(&[]);
    block.servers.push(line);
    block
}

proptest! {
    #[test]
    fn merging_the_same_declaration_twice_changes_nothing(
        current in prop::option::of(any_upstream()),
        declared in prop::option::of(any_block()),
    ) {
        let mut world = World::new();
        world.next_id = 100;
        world.app = current;
        world.merge(declared.as_ref());
        world.now += 1000;
        prop_assert_eq!(world.merge(declared.as_ref()), (false, vec![]));
    }

    #[test]
    fn every_field_merges_as_in_the_naive_model(
        addr in any_addr(),
        (base, mine, file) in (any_params(), any_params(), any_params()),
        (base_admin, file_admin) in (any_state(), any_state()),
    ) {
        let mut world = World::new();
        world.merge(Some(&one(&addr, base.clone(), base_admin)));
        world.app.as_mut().unwrap().servers[0].params = mine.clone();
        let (_, conflicts) = world.merge(Some(&one(&addr, file.clone(), file_admin)));
        let (base, mine, file) = (fields(&base), fields(&mine), fields(&file));
        let mut lost = HashSet::new();
        let mut expected = BTreeMap::new();
        for (&field, value) in &file {
            let changed = *value != base[field];
            expected.insert(field, if changed { value.clone() } else { mine[field].clone() });
            if changed && mine[field] != base[field] && mine[field] != *value {
                lost.insert(field);
            }
        }
        let server = &world.app.as_ref().unwrap().servers[0];
        prop_assert_eq!(fields(&server.params), expected);
        let said: HashSet<&str> = conflicts.iter().map(|conflict| conflict.field).collect();
        prop_assert_eq!(said, lost);
        prop_assert_eq!(server.admin.state, file_admin, "nobody but the file touched it");
    }

    #[test]
    fn which_servers_there_are_after_a_load_agrees_with_sets(
        first in any_block(),
        second in any_block(),
        added in prop::collection::hash_set(any_addr(), 0..4),
        removed in prop::collection::hash_set(any_addr(), 0..4),
    ) {
        let mut world = World::new();
        world.merge(Some(&first));
        let path = |addr: &ServerAddr| {
            format!("/v1/upstreams/app/servers/{}", addr.to_string().replace('/', "%2F"))
        };
        let line = |block: &DeclaredUpstream, addr: &ServerAddr| {
            block.servers.iter().find(|line| line.addr == *addr).map(DeclaredServer::declared)
        };
        for addr in &removed {
            let _ = world.try_call(&format!("DELETE {}", path(addr)), "");
        }
        for addr in &added {
            world.call(&format!("PUT {}", path(addr)), "{}");
        }
        world.merge(Some(&second));
        let all = first.servers.iter().chain(&second.servers).map(|line| line.addr.clone());
        let all: HashSet<ServerAddr> = all.chain(added.iter().cloned()).collect();
        let expected: HashSet<ServerAddr> = all.into_iter().filter(|addr| {
            match (line(&first, addr), line(&second, addr)) {
                (None, None) => added.contains(addr),
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(was), Some(is)) => was != is || added.contains(addr) || !removed.contains(addr),
            }
        }).collect();
        let servers = &world.app.as_ref().unwrap().servers;
        let have: HashSet<ServerAddr> = servers.iter().map(|server| server.addr.clone()).collect();
        prop_assert_eq!(have.len(), servers.len(), "no address twice");
        prop_assert_eq!(have, expected);
        let ids: HashSet<u64> = servers.iter().map(|server| server.id).collect();
        prop_assert_eq!(ids.len(), servers.len(), "no id twice");
    }
}
