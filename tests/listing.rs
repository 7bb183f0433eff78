//! `GET v1/servers`: what is down now, over all upstreams, page by page; and `GET v1/ready`.

mod support;

use support::*;

fn start() -> Nginx {
    let conf = Nginx::builder().http("peerage_zone main 4m;");
    conf.with_api("write=on").start()
}

fn put(api: &Api, name: &str, servers: Value) {
    api.ok("PUT", &format!("upstreams/{name}"), Some(&json!({"servers": servers})));
}

/// Upstream and address of what a query lists.
fn list(api: &Api, query: &str) -> Vec<(String, String)> {
    let listed = api.ok("GET", &format!("servers?{query}"), None);
    let text = |server: &Value, name: &str| server[name].as_str().unwrap().to_owned();
    let servers = listed["servers"].as_array().unwrap();
    servers.iter().map(|server| (text(server, "upstream"), text(server, "server"))).collect()
}

#[test]
fn filters_say_state_admin_label_and_address() {
    let nginx = start();
    let api = nginx.api();
    put(
        &api,
        "b",
        json!([{"server": "10.9.0.1:80", "labels": {"rack": "a"}}, {"server": "10.9.0.2:80"}]),
    );
    put(
        &api,
        "a",
        json!([{"server": "10.9.0.2:80", "labels": {"rack": "b"}, "weight": 0},
               {"server": "[::1]:80"}, {"server": "unix:/run/a", "labels": {"rack": "a"}}]),
    );
    assert_eq!(api.verb("a", "[::1]:80", "drain").0, 200);
    assert_eq!(api.verb("b", "10.9.0.1:80", "down?reason=x").0, 200);
    assert_eq!(api.post("hosts/10.9.0.2/down?min_up=0").0, 200);
    let table: [(&str, &[(&str, &str)]); 15] = [
        (
            "",
            &[
                ("a", "10.9.0.2:80"),
                ("a", "[::1]:80"),
                ("a", "unix:/run/a"),
                ("b", "10.9.0.1:80"),
                ("b", "10.9.0.2:80"),
            ],
        ),
        ("state=down", &[("a", "10.9.0.2:80"), ("b", "10.9.0.1:80"), ("b", "10.9.0.2:80")]),
        ("state=up", &[("a", "unix:/run/a")]),
        ("state=up,draining", &[("a", "[::1]:80"), ("a", "unix:/run/a")]),
        ("state=unhealthy", &[]),
        ("admin=down", &[("b", "10.9.0.1:80")]),
        ("admin=down,drain", &[("a", "[::1]:80"), ("b", "10.9.0.1:80")]),
        ("label=rack", &[("a", "10.9.0.2:80"), ("a", "unix:/run/a"), ("b", "10.9.0.1:80")]),
        ("label=rack:a", &[("a", "unix:/run/a"), ("b", "10.9.0.1:80")]),
        ("label=rack:a&state=down", &[("b", "10.9.0.1:80")]),
        ("address=10.9.0.2", &[("a", "10.9.0.2:80"), ("b", "10.9.0.2:80")]),
        ("address=10.9.0.1:80", &[("b", "10.9.0.1:80")]),
        ("address=[::1]", &[("a", "[::1]:80")]),
        ("address=unix:%2Frun%2Fa", &[("a", "unix:/run/a")]),
        ("address=10.9.0.9", &[]),
    ];
    for (query, wanted) in table {
        let wanted: Vec<(String, String)> =
            wanted.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        assert_eq!(list(&api, query), wanted, "{query}");
    }
    let mut one = api.ok("GET", "servers?admin=down", None)["servers"][0].clone();
    assert_eq!(one.as_object_mut().unwrap().remove("upstream"), Some(json!("b")));
    assert_eq!(one, api.server("b", "10.9.0.1:80"), "a server as it is shown elsewhere");
    let text = api.call("GET", "servers?admin=down", None).text();
    assert!(text.starts_with(r#"{"servers":[{"upstream":"b","id":"#), "{text}");
    assert!(text.ends_with(r#"}],"next":null}"#), "{text}");
    for bad in ["state=on", "state=", "admin=x", "label=:a", "address=a b", "limit=0", "x=1"] {
        let (status, _) = api.get(&format!("servers?{}", bad.replace(' ', "%20")));
        assert_eq!(status, 400, "{bad}");
    }
}

#[test]
fn pages_go_on_where_the_last_one_ended_whatever_changes() {
    let nginx = start();
    let api = nginx.api();
    let servers = |n: usize| -> Value {
        (0..n).map(|i| json!({"server": format!("10.9.{}.{}:80", i / 200, i % 200)})).collect()
    };
    let mut wanted = Vec::new();
    for (i, n) in [0, 1, 50, 3, 120, 0, 40, 7].into_iter().enumerate() {
        let name = format!("u{i}");
        put(&api, &name, servers(n));
        let all = servers(n);
        let all = all.as_array().unwrap().iter();
        wanted.extend(all.map(|s| (name.clone(), s["server"].as_str().unwrap().to_owned())));
    }
    assert_eq!(list(&api, "limit=1000"), wanted);
    assert_eq!(list(&api, ""), wanted[..100]);
    assert_eq!(list(&api, "limit=1000&after=u3"), wanted[54..]);
    for limit in [1, 7, 50, 221] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        for page in 0.. {
            let listed = api.ok("GET", &format!("servers?limit={limit}{after}"), None);
            let more = listed["servers"].as_array().unwrap();
            assert!(more.len() <= limit);
            seen.extend(more.iter().map(|s| {
                let text = |name: &str| s[name].as_str().unwrap().to_owned();
                (text("upstream"), text("server"))
            }));
            let Some(next) = listed["next"].as_str() else { break };
            after = format!("&after={next}");
            if page == 1 {
                // What was shown already goes; what is shown later is not moved by it.
                let gone = format!("upstreams/u1/servers/{}", "10.9.0.0:80");
                assert!([200, 404].contains(&api.delete(&gone).0));
            }
        }
        assert_eq!(seen[seen.len() - 219..], wanted[2..][..219], "{limit}");
        api.ok("PUT", "upstreams/u1/servers/10.9.0.0:80", Some(&json!({})));
    }
}

#[test]
fn ready_says_what_is_missing() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m; peerage_zone other 1m;
             upstream app { peerage main; server 10.9.9.1:80; }
             upstream web { peerage other; server 10.9.9.1:80; }",
        )
        .with_api("write=off")
        .start();
    let api = nginx.api();
    for good in
        ["ready", "ready?require=app", "ready?require=app,web", "ready?zone=other&require=web"]
    {
        assert_eq!(api.get(good), (200, json!({"ready": true})), "{good}");
    }
    let reply = api.call("GET", "ready?require=app,nope,no.2", None);
    let problem = reply.json();
    assert_eq!((reply.status, &problem["type"]), (503, &json!("urn:peerage:not-ready")));
    assert_eq!(
        problem["reasons"],
        json!(["upstream \"nope\" not found", "upstream \"no.2\" not found"])
    );
    assert!(reply.header("retry-after").is_some());
    assert_eq!(api.get("ready?zone=other&require=app").0, 503);
    assert_eq!(api.get("ready?zone=third").0, 404);
    assert_eq!(api.get("ready?require=").0, 400);
    assert_eq!(api.post("ready").0, 405);
}
