//! Servers, peers and upstreams as objects, in the interface's order of members.

use std::collections::HashSet;

use crate::plus::fields::{Fields, Object, key};
use crate::server::{Admin, AdminState, Limits, Server};
use crate::state::{Live, reason, state};
use crate::time::iso_millis;
use crate::upstream::Upstream;

/// A server as it is configured.
pub fn server(out: &mut Vec<u8>, server: &Server, limits: &Limits) {
    let mut object = Object::open(out, &Fields::All);
    object.member("id", &server.id);
    object.member("server", &server.addr.to_string());
    object.member("weight", &limits.weight);
    object.member("max_conns", &limits.max_conns);
    object.member("max_fails", &limits.max_fails);
    object.member("fail_timeout", &limits.fail_timeout.to_string());
    object.member("slow_start", &limits.slow_start.to_string());
    object.member("route", &server.params.route);
    object.member("backup", &server.params.backup);
    object.member("down", &(server.admin.state == AdminState::Down));
    object.some("drain", (server.admin.state == AdminState::Drain).then_some(true));
    object.close();
}

/// Some of an upstream's servers, from one on, as entries of a list; how many there were.
pub fn servers(out: &mut Vec<u8>, upstream: &Upstream, from: usize, most: usize) -> usize {
    let some = upstream.servers.iter().enumerate().skip(from).take(most);
    some.fold(0, |n, (at, one)| {
        if at > 0 {
            out.push(b',');
        }
        server(out, one, &upstream.limits(one));
        n + 1
    })
}

/// A peer with all that is shown of it: a server at one of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Its server.
    pub server: &'a Server,
    /// What holds for it.
    pub limits: Limits,
    /// The address as it is shown, see [`Shown`].
    pub address: &'a str,
    /// What is live.
    pub live: &'a Live,
    /// What stands on its machine.
    pub host: Option<&'a Admin>,
}

/// Which addresses a listing of an upstream's peers has shown: who reads it tells peers apart by
/// them, but names may share an address with each other and with a server that is one.
#[derive(Debug, Default)]
pub struct Shown(HashSet<Box<str>>);

impl Shown {
    /// How the next peer's address is shown; `address` is `None` where it is the server's own.
    ///
    /// One that was shown before has its server beside it.
    pub fn next(&mut self, server: &Server, address: Option<&str>) -> String {
        let own = server.addr.to_string();
        let address = address.unwrap_or(&own);
        match self.0.insert(address.into()) {
            true => address.to_owned(),
            false => format!("{address} ({own})"),
        }
    }
}

/// An upstream up to its first peer.
pub fn upstream_open(out: &mut Vec<u8>, fields: &Fields) {
    out.push(b'{');
    if fields.has(PEERS) {
        key(out, PEERS, true);
        out.push(b'[');
    }
}

/// What follows the last peer of an upstream.
pub fn upstream_close(out: &mut Vec<u8>, fields: &Fields, zone: &str) {
    let has_peers = fields.has(PEERS);
    if has_peers {
        out.push(b']');
    }
    if fields.has("zone") {
        key(out, "zone", !has_peers);
        // A vector takes everything.
        let _ = serde_json::to_writer(&mut *out, zone);
    }
    out.push(b'}');
}

/// A peer of an upstream.
pub fn peer(out: &mut Vec<u8>, peer: &Peer<'_>) {
    let Peer { server, limits, address, live, host } = peer;
    let counters = &live.counters;
    let host = host.map_or(AdminState::Up, |host| host.state);
    let state = state(reason(server.wanted(), host, limits, &live.facts));
    let addr = server.addr.to_string();
    let mut object = Object::open(out, &Fields::All);
    object.member("id", &server.id);
    object.member("server", address);
    object.member("name", server.given.as_deref().unwrap_or(&addr));
    object.member("backup", &server.params.backup);
    object.member("weight", &limits.weight);
    object.member("state", state.as_str());
    object.member("active", &counters.active);
    object.some("max_conns", Some(limits.max_conns).filter(|&n| n != 0));
    object.member("requests", &counters.requests);
    object.some("header_time", Some(counters.header_time).filter(|&ms| ms != 0));
    object.some("response_time", Some(counters.response_time).filter(|&ms| ms != 0));
    object.member("responses", &counters.responses());
    object.member("sent", &counters.sent);
    object.member("received", &counters.received);
    object.member("fails", &counters.fails);
    object.member("unavail", &counters.unavail);
    object.member("health_checks", &counters.health_checks);
    object.member("downtime", &counters.downtime);
    object.some("downstart", counters.downstart.map(iso_millis));
    object.some("selected", Some(counters.selected).filter(|&at| at != 0).map(iso_millis));
    object.close();
}

const PEERS: &str = "peers";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::ServerAddr;
    use crate::check::results::HealthChecks;
    use crate::counters::Counters;
    use crate::name::UpstreamName;
    use crate::server::{Origin, Params};
    use crate::state::Facts;

    fn a_server(state: AdminState) -> Server {
        Server {
            id: 7,
            addr: ServerAddr::parse("10.0.0.1:8080").unwrap(),
            given: Some("10.0.0.1:08080".into()),
            origin: Origin::Api,
            params: Params { backup: true, ..Params::default() },
            admin: Admin { state, ..Admin::default() },
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_server_has_its_members_in_order() {
        let limits = Limits { fail_timeout: crate::units::Secs(21), ..Limits::BUILT_IN };
        let up = r#"{"id":7,"server":"10.0.0.1:8080","weight":1,"max_conns":0,"max_fails":1,"fail_timeout":"21s","slow_start":"0s","route":"","backup":true,"down":false}"#;
        let got = |state| text(|out| server(out, &a_server(state), &limits));
        assert_eq!(got(AdminState::Up), up);
        assert_eq!(got(AdminState::Down), up.replace("\"down\":false", "\"down\":true"));
        assert_eq!(got(AdminState::Drain), up.replace("false}", "false,\"drain\":true}"));
    }

    #[test]
    fn lists_have_commas_between_pieces() {
        let mut app = Upstream::new(UpstreamName::parse("app").unwrap(), Origin::Api);
        app.servers = vec![a_server(AdminState::Up); 3];
        let list = text(|out| {
            assert_eq!(servers(out, &app, 0, 2), 2);
            assert_eq!(servers(out, &app, 2, 2), 1);
            assert_eq!(servers(out, &app, 3, 2), 0);
        });
        let list: serde_json::Value = serde_json::from_str(&format!("[{list}]")).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_peer_shows_what_is_not_set_only_where_it_must() {
        let mut live = Live::default();
        let server = a_server(AdminState::Up);
        let shown = |live: &Live, limits, address: Option<&str>, host: Option<&Admin>| {
            let address = &Shown::default().next(&server, address);
            let peer_of = Peer { server: &server, limits, address, live, host };
            text(|out| peer(out, &peer_of))
        };
        let bare = r#"{"id":7,"server":"10.0.0.1:8080","name":"10.0.0.1:08080","backup":true,"weight":1,"state":"up","active":0,"requests":0,"responses":{"1xx":0,"2xx":0,"3xx":0,"4xx":0,"5xx":0,"codes":{},"total":0},"sent":0,"received":0,"fails":0,"unavail":0,"health_checks":{"checks":0,"fails":0,"unhealthy":0},"downtime":0}"#;
        assert_eq!(shown(&live, Limits::BUILT_IN, None, None), bare);
        live.facts = Facts { failed: true, ..Facts::default() };
        live.counters = Counters {
            active: 1,
            requests: 3,
            responses: [0, 2, 0, 0, 1],
            codes: vec![(200, 2), (502, 1)],
            header_time: 5,
            response_time: 6,
            selected: 1_795_986_307_123,
            health_checks: HealthChecks {
                checks: 9,
                fails: 2,
                unhealthy: 1,
                last_passed: Some(true),
            },
            downtime: 10,
            downstart: Some(1_795_986_307_000),
            ..Counters::default()
        };
        let limits = Limits { max_conns: 9, ..Limits::BUILT_IN };
        let full = r#"{"id":7,"server":"[::1]:80","name":"10.0.0.1:08080","backup":true,"weight":1,"state":"unavail","active":1,"max_conns":9,"requests":3,"header_time":5,"response_time":6,"responses":{"1xx":0,"2xx":2,"3xx":0,"4xx":0,"5xx":1,"codes":{"200":2,"502":1},"total":3},"sent":0,"received":0,"fails":0,"unavail":0,"health_checks":{"checks":9,"fails":2,"unhealthy":1,"last_passed":true},"downtime":10,"downstart":"2026-11-29T21:05:07.000Z","selected":"2026-11-29T21:05:07.123Z"}"#;
        assert_eq!(shown(&live, limits, Some("[::1]:80"), None), full);
        let host = Admin { state: AdminState::Down, ..Admin::default() };
        assert!(shown(&live, limits, None, Some(&host)).contains(r#""state":"down""#));
    }

    #[test]
    fn no_two_peers_are_shown_with_one_address() {
        let mut server = a_server(AdminState::Up);
        let mut shown = Shown::default();
        assert_eq!(shown.next(&server, None), "10.0.0.1:8080");
        server.addr = ServerAddr::parse("a.test:8080").unwrap();
        assert_eq!(shown.next(&server, Some("10.0.0.1:8080")), "10.0.0.1:8080 (a.test:8080)");
        assert_eq!(shown.next(&server, Some("10.0.0.2:8080")), "10.0.0.2:8080");
        server.addr = ServerAddr::parse("b.test:8080").unwrap();
        assert_eq!(shown.next(&server, Some("10.0.0.1:8080")), "10.0.0.1:8080 (b.test:8080)");
        assert_eq!(shown.next(&server, Some("10.0.0.2:8080")), "10.0.0.2:8080 (b.test:8080)");
        server.addr = ServerAddr::parse("c.test:8080").unwrap();
        assert_eq!(shown.next(&server, None), "c.test:8080");
    }

    #[test]
    fn an_upstream_has_what_was_asked_for() {
        let table = [
            (Fields::All, r#"{"peers":[],"zone":"main"}"#),
            (Fields::parse("zone"), r#"{"zone":"main"}"#),
            (Fields::parse("peers"), r#"{"peers":[]}"#),
            (Fields::parse(""), "{}"),
            (Fields::parse("keepalive"), "{}"),
        ];
        for (fields, wanted) in table {
            let got = text(|out| {
                upstream_open(out, &fields);
                upstream_close(out, &fields, "main");
            });
            assert_eq!(got, wanted, "{fields:?}");
        }
    }
}
