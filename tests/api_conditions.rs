//! Writes under a condition: `If-Match` and `If-None-Match`. (CASES 9, CONTRACT 4.)

mod support;

use support::*;

fn start(workers: usize) -> Nginx {
    let conf = Nginx::builder().workers(workers).http(
        "peerage_zone main 1m;
         upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }",
    );
    conf.with_api("write=on").start()
}

const ONE: &str = "upstreams/app/servers/10.9.9.1:8080";

fn etag(api: &Api) -> String {
    let reply = api.call("GET", "upstreams/app", None);
    reply.header("etag").expect("an ETag").to_string()
}

#[test]
fn a_stale_if_match_is_412_and_changes_nothing() {
    let nginx = start(1);
    let api = nginx.api();
    let old = etag(&api);
    assert_eq!(api.post(&format!("{ONE}/down")).0, 200);
    let whole = json!({"servers": [{"server": "10.9.9.1:8080"}]});
    let before = api.upstream("app");
    let writes: [(&str, String, Option<Value>); 7] = [
        ("PUT", "upstreams/app".into(), Some(whole)),
        ("PATCH", "upstreams/app".into(), Some(json!({"defaults": {"weight": 2}}))),
        ("DELETE", "upstreams/app?force=1".into(), None),
        ("PUT", ONE.into(), Some(json!({"weight": 9}))),
        ("PATCH", ONE.into(), Some(json!({"weight": 9}))),
        ("DELETE", ONE.into(), None),
        ("POST", format!("{ONE}/up"), None),
    ];
    for tags in [old.as_str(), "\"x\"", "x", "W/\"x\", \"y\"", "", "\"*\""] {
        for (method, path, body) in &writes {
            let reply = api.with("If-Match", tags).call(method, path, body.as_ref());
            assert_eq!(reply.status, 412, "{tags} {method} {path}: {}", reply.text());
            assert_eq!(reply.json()["type"], "urn:peerage:stale");
        }
        assert_eq!(api.upstream("app"), before, "{tags}");
    }
    assert_eq!(api.with("If-Match", "*").put("upstreams/new", &json!({"servers": []})).0, 412);
    assert_eq!(api.get("upstreams/new").0, 404);
    let fits: [fn(String) -> String; 3] =
        [|tag| tag, |_| "*".into(), |tag| format!("\"x\", {tag}")];
    for (i, tags) in fits.iter().enumerate() {
        let tags = tags(etag(&api));
        let path = format!("{ONE}/down?reason={i}");
        let reply = api.with("If-Match", &tags).call("POST", &path, None);
        assert_eq!((reply.status, &reply.json()["changed"]), (200, &json!(true)), "{tags}");
    }
}

#[test]
fn a_write_is_done_unless_the_upstream_has_one_of_the_tags_of_if_none_match() {
    let nginx = start(1);
    let api = nginx.api();
    let tag = etag(&api);
    for tags in [tag.clone(), format!("\"x\", W/{tag}")] {
        let reply = api.with("If-None-Match", &tags).call("POST", &format!("{ONE}/down"), None);
        assert_eq!((reply.status, &reply.json()["etag"]), (412, &json!(tag)), "{tags}");
    }
    assert_eq!(etag(&api), tag);
    for (path, body) in [(ONE, json!({"weight": 9})), ("upstreams/new", json!({"servers": []}))] {
        let reply = api.with("If-None-Match", "\"x\"").call("PUT", path, Some(&body));
        assert!(matches!(reply.status, 200 | 201), "{path}: {}", reply.text());
    }
}

#[test]
fn create_only_where_nothing_is_leaves_what_is_there() {
    let nginx = start(1);
    let api = nginx.api();
    let create = api.with("If-None-Match", "*");
    let body = json!({"servers": [{"server": "10.9.1.1:80"}]});
    assert_eq!(create.put("upstreams/new", &body).0, 201);
    let (status, problem) = create.put("upstreams/new", &json!({"servers": []}));
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:exists")));
    assert_eq!(api.upstream("new")["servers"].as_array().unwrap().len(), 1);
    assert_eq!(create.put("upstreams/new/servers/10.9.1.2:80", &json!({})).0, 201);
    assert_eq!(create.put("upstreams/new/servers/10.9.1.2:80", &json!({"weight": 2})).0, 409);
    assert_eq!(api.server("new", "10.9.1.2:80")["weight"], 1);
}

#[test]
fn of_two_writers_with_one_etag_exactly_one_wins() {
    let nginx = start(4);
    let api = nginx.api();
    for round in 0..scale(40, 1_000) {
        let tag = etag(&api);
        let threads = [1, 2, 3, 4].map(|i| {
            let api = api.with("If-Match", &tag);
            std::thread::spawn(move || api.patch(ONE, &json!({"weight": 10 + round * 4 + i})).0)
        });
        let mut statuses = threads.map(|t| t.join().unwrap());
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412, 412, 412], "round {round}");
    }
}
