//! What a journal's lines say, and how much they cost.

mod support;

use peerage_core::host::Hosts;
use peerage_core::journal::{self, Head};
use peerage_core::replica::Replica;
use peerage_core::server::{Admin, AdminState, Server};
use peerage_core::upstream::Upstream;
use proptest::prelude::*;
use support::{World, any_upstream, keep_unique};

fn text(before: Option<&Upstream>, after: Option<&Upstream>) -> String {
    String::from_utf8(journal::changes(&[(before, after)], None)).unwrap()
}

/// With servers 1 to n.
fn app(servers: usize) -> Upstream {
    World::with(servers).app.unwrap()
}

#[test]
fn a_change_says_what_changed_and_no_more() {
    let one = r#"{"id":1,"server":"10.0.0.1:80""#;
    let set = r#"[{"set":{"upstream":"app","origin":"api","#;
    type Row<'a> = (&'a str, Option<usize>, fn(&mut Upstream), String);
    let table: [Row<'_>; 11] = [
        ("same", Some(3), |_| {}, "[]".into()),
        (
            "one server",
            Some(3),
            |u| u.servers[0].params.weight = Some(5),
            format!(r#"[{{"upstream":"app","servers":[{one},"weight":5}}]}}]"#),
        ),
        (
            "the only server",
            Some(1),
            |u| u.servers[0].params.weight = Some(5),
            format!(r#"[{{"upstream":"app","servers":[{one},"weight":5}}]}}]"#),
        ),
        (
            "one goes",
            Some(3),
            |u| drop(u.servers.remove(1)),
            r#"[{"upstream":"app","gone":[2]}]"#.into(),
        ),
        (
            "one goes, one comes",
            Some(3),
            |u| {
                let mut new = u.servers.remove(0);
                new.id = 9;
                u.servers.push(new);
            },
            r#"[{"upstream":"app","servers":[{"id":9,"server":"10.0.0.1:80"}],"gone":[1]}]"#.into(),
        ),
        (
            "settings",
            Some(3),
            |u| u.settings.defaults.max_fails = Some(0),
            r#"[{"upstream":"app","cold":{"origin":"api","settings":{"defaults":{"max_fails":0}}}}]"#
                .into(),
        ),
        (
            "one moves to the end",
            Some(3),
            |u| u.servers.rotate_left(1),
            format!(r#"[{{"upstream":"app","servers":[{one}}}],"gone":[1]}}]"#),
        ),
        ("one moves to the front", Some(60), |u| u.servers.rotate_right(1), set.into()),
        ("all", Some(3), |u| {
            u.orphaned_at = Some(1);
            for server in &mut u.servers {
                server.params.weight = Some(2);
            }
        }, set.into()),
        ("all but one go, settings too", Some(3), |u| {
            u.orphaned_at = Some(1);
            u.servers.truncate(1);
            u.servers[0].params.weight = Some(2);
        }, set.into()),
        ("new", None, |_| {}, set.into()),
    ];
    for (story, before, change, expected) in table {
        let mut after = app(before.unwrap_or(2));
        let before = before.map(app);
        change(&mut after);
        let text = text(before.as_ref(), Some(&after));
        if expected == set {
            assert!(text.starts_with(&expected), "{story}: {text}");
        } else {
            assert_eq!(text, expected, "{story}");
        }
    }
    assert_eq!(text(Some(&app(2)), None), r#"[{"delete":"app"}]"#);
    assert_eq!(text(None, None), "[]");
}

#[test]
fn a_batch_is_one_line_and_hosts_are_told_whole() {
    let (mut before, mut after) = (app(2), app(2));
    before.name = peerage_core::name::UpstreamName::parse("old").unwrap();
    after.servers.pop();
    let mut hosts = Hosts::default();
    let admin = Admin { state: AdminState::Down, since: 7, ..Admin::default() };
    hosts.set("10.0.0.9".parse().unwrap(), admin);
    let app = app(2);
    let parts = [(Some(&before), None), (Some(&app), Some(&after))];
    let changes = journal::changes(&parts, Some(&hosts));
    let mut out = Vec::new();
    Head::new("main", 3, 2, 77, 812, 1_795_986_307_000).write(&mut out);
    journal::record(&mut out, 813, 9, &changes);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| &line[18..]).collect();
    let expected = [
        r#""data":{"format":2,"zone":"main","journal":3,"epoch":2,"instance":77,"after":812,"time":"2026-11-29T21:05:07Z"}}"#,
        r#""data":{"revision":813,"next_id":9,"changes":[{"delete":"old"},{"upstream":"app","gone":[2]},{"hosts":{"10.0.0.9":{"state":"down","since":7,"until":null,"close":null,"reason":"","by":"","from":""}}}]}}"#,
    ];
    assert_eq!(lines, expected);
}

#[test]
fn one_server_of_a_thousand_costs_one_server() {
    let mut before = app(1);
    let first = before.servers[0].clone();
    before.servers.extend((2..=1000).map(|id| Server { id, ..first.clone() }));
    let mut after = before.clone();
    after.servers[500].admin.state = AdminState::Down;
    assert!(text(Some(&before), Some(&after)).len() < 150);
    after.servers.remove(3);
    assert!(text(Some(&before), Some(&after)).len() < 150);
}

/// What `before` becomes when its change is written and read back.
fn through(before: Option<&Upstream>, after: Option<&Upstream>) -> Vec<Upstream> {
    let mut replica = Replica::default();
    let mut out = Vec::new();
    Head::new("main", 1, 1, 1, 0, 0).write(&mut out);
    journal::record(&mut out, 1, 1, &journal::changes(&[(None, before)], None));
    journal::record(&mut out, 2, 1, &journal::changes(&[(before, after)], None));
    let replayed = replica.replay_all(1, &out);
    assert_eq!((replayed.damage, replayed.consumed), (None, out.len()));
    assert_eq!(replica.revision(), 2);
    replica.into_loaded().upstreams.into_iter().map(|(upstream, _)| upstream).collect()
}

proptest! {
    #[test]
    fn a_change_makes_the_one_of_the_other(
        before in prop::option::of(any_upstream()),
        after in prop::option::of(any_upstream()),
        kept in any::<[bool; 6]>(),
        ids in Just([1, 2, 3, 4, 5, 6]).prop_shuffle(),
        plain in any::<bool>(),
    ) {
        let mut after = after;
        if let (Some(before), Some(after)) = (&before, &mut after) {
            if plain {
                *after = Upstream { servers: std::mem::take(&mut after.servers), ..before.clone() };
            }
            for (i, server) in after.servers.iter_mut().enumerate() {
                // The ids of before, some in another order and some new.
                server.id = if kept[i] { i as u64 + 1 } else { ids[i] + 6 };
                if let (true, Some(old)) = (kept[5 - i], before.servers.get(i)) {
                    *server = Server { id: server.id, ..old.clone() };
                }
            }
        }
        if let Some(after) = &mut after {
            keep_unique(&mut after.servers, &mut after.removed);
        }
        let expected: Vec<Upstream> = after.clone().into_iter().collect();
        prop_assert_eq!(through(before.as_ref(), after.as_ref()), expected);
        let parts = text(before.as_ref(), after.as_ref()).len();
        // Sizes are only guessed: a few servers with many labels may cost more than was thought.
        let whole = text(None, after.as_ref()).len();
        prop_assert!(after.is_none() || parts <= whole + 200, "{} {}", parts, whole);
    }
}
