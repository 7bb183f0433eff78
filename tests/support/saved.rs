//! An nginx with a state file, a few changes of every kind in it, and what it shows.

use serde_json::{Value, json};

use super::{Api, Conf, Nginx};

/// Declared by the configuration.
pub const A: &str = "127.0.0.1:1001";
/// Not declared.
pub const B: &str = "127.0.0.1:1002";

/// `parameters` come after the size of the zone.
pub fn conf(parameters: &str) -> Conf {
    Nginx::builder()
        .http(format!(
            "peerage_zone main 1m {parameters}; upstream app {{ peerage main; server {A}; }}"
        ))
        .with_api("write=on")
}

/// With a state file.
pub fn saved() -> Conf {
    conf("state={prefix}/main.json")
}

/// A few changes of every kind.
pub fn fill(api: &Api) {
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": [{"server": A}, {"server": B}]})));
    let body = json!({"weight": 7, "max_conns": 3, "labels": {"rack": "ä \"1\""}, "backup": true});
    api.ok("PATCH", &format!("upstreams/own/servers/{B}"), Some(&body));
    api.ok("POST", &format!("upstreams/own/servers/{A}/down?reason=r%201&ttl=1h"), None);
    api.ok("POST", &format!("upstreams/app/servers/{A}/drain"), None);
    for n in 1..=5 {
        let set = json!({"servers": [{"server": format!("10.0.0.{n}:80")}]});
        api.ok("PUT", &format!("upstreams/u{n}"), Some(&set));
    }
}

/// Everything but counters.
#[track_caller]
pub fn listing(api: &Api) -> Value {
    let mut all = api.ok("GET", "upstreams?fields=servers&limit=1000", None);
    for upstream in all.as_object_mut().unwrap().values_mut() {
        for server in upstream["servers"].as_array_mut().unwrap() {
            server.as_object_mut().unwrap().remove("counters");
        }
    }
    all
}

/// Waits until it is on the disk.
pub fn flush(api: &Api) -> (u16, Value) {
    api.post("zones/main/flush")
}

/// What the zone says of its file.
pub fn state(api: &Api) -> Value {
    api.ok("GET", "zones/main", None)["state"].clone()
}
