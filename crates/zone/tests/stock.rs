//! The servers that requests try are those that a stock nginx tries, as `ci/record.py` recorded it.

mod support;

use std::net::IpAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::body::{Field, LimitsBody, ServerBody};
use peerage_core::server::AdminState;
use peerage_core::units::Secs;
use peerage_core::upstream::Method;
use peerage_zone::{Choice, Key, Outcome};
use serde_json::Value;
use support::World;

fn body(server: &Value) -> ServerBody {
    let text = server["server"].as_str().unwrap();
    let addr = ServerAddr::parse(text).unwrap();
    let number = |key: &str| server.get(key).map(|n| n.as_u64().unwrap());
    let limits = LimitsBody {
        weight: number("weight").map_or(Field::Absent, |n| Field::Given(n as u16)),
        max_fails: number("max_fails").map_or(Field::Absent, |n| Field::Given(n as u32)),
        fail_timeout: Field::Given(Secs(3600)),
        ..LimitsBody::default()
    };
    let given = (addr.to_string() != text).then(|| text.to_owned());
    let backup = Field::Given(server["backup"] == true);
    ServerBody { given, addr: Some(addr), limits, backup, ..ServerBody::default() }
}

/// The bytes of an address that `ip_hash` goes by.
fn bytes(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(ip) => ip.octets()[..3].to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[test]
fn every_request_tries_the_servers_that_a_stock_nginx_tries() {
    let recorded = include_str!("../../core/tests/recorded/stock.json");
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let mut requests = 0;
    for case in recorded["cases"].as_array().unwrap() {
        let (method, name) = (case["method"].as_str().unwrap(), &case["name"]);
        let servers = case["servers"].as_array().unwrap();
        let bodies: Vec<ServerBody> = servers.iter().map(body).collect();
        let addrs: Vec<String> =
            bodies.iter().map(|body| body.addr.as_ref().unwrap().to_string()).collect();
        let world = World::new(4 << 20);
        world.put_by("app", Method::parse(method).unwrap(), &bodies);
        for (server, addr) in servers.iter().zip(&addrs) {
            if server["down"] == true {
                world.admin("app", addr, AdminState::Down);
            }
        }
        for (i, expected) in case["tried"].as_array().unwrap().iter().enumerate() {
            let (text, ip) =
                (format!("key-{i}"), bytes(recorded["addresses"][i].as_str().unwrap()));
            let key = match method {
                "ip_hash" => Key::Address(&ip),
                _ => Key::Text(text.as_bytes()),
            };
            let mut choice = Choice::new();
            let mut tried = Vec::new();
            loop {
                let addr = world.try_by("app", &mut choice, key).expect("somebody is open");
                let at = addrs.iter().position(|known| *known == addr).unwrap();
                let failed = servers[at]["fails"] == true;
                let status = if failed { 500 } else { 200 };
                let outcome = Outcome { failed, status, ..Outcome::default() };
                world.worker.done(&mut choice, &outcome, || world.clock);
                tried.push(Value::from(at));
                if !failed {
                    break;
                }
            }
            assert_eq!(&Value::from(tried), expected, "{method}, {name}: request {i}");
            requests += 1;
        }
    }
    assert!(requests > 5_000, "{requests}");
}
