//! What a configuration edited by people makes of what run time has changed: the merge of a load,
//! by reload and by stop and start alike.

mod support;

use support::*;

const ZONE: &str = "peerage_zone main 1m state={prefix}/main.json;";
const A: &str = "127.0.0.1:1001";
const B: &str = "127.0.0.1:1002";
const C: &str = "127.0.0.1:1003";

fn http(conf: Conf, blocks: &str) -> Conf {
    conf.http(format!("{ZONE}\n{blocks}")).with_api("write=on")
}

fn app(servers: &str) -> String {
    format!("upstream app {{ peerage main; {servers} }}")
}

/// How the edited configuration comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Reload,
    Restart,
}

/// Runs a story once with reloads, once with stops and starts.
fn both(blocks: &str, story: impl Fn(&mut Site)) {
    for by in [By::Reload, By::Restart] {
        let nginx = http(Nginx::builder(), blocks).start();
        story(&mut Site { api: nginx.api(), nginx, by });
    }
}

struct Site {
    nginx: Nginx,
    api: Api,
    by: By,
}

impl Site {
    /// Puts edited blocks in force.
    #[track_caller]
    fn load(&mut self, blocks: &str) {
        self.nginx.change(|conf| http(conf, blocks));
        match self.by {
            By::Reload => self.nginx.reload(),
            By::Restart => self.nginx.restart(),
        }
    }

    fn patch(&self, server: &str, body: &Value) {
        self.api.ok("PATCH", &format!("upstreams/app/servers/{server}"), Some(body));
    }

    fn delete(&self, server: &str) {
        self.api.ok("DELETE", &format!("upstreams/app/servers/{server}"), None);
    }

    fn put(&self, server: &str) {
        self.api.ok("PUT", &format!("upstreams/app/servers/{server}"), Some(&json!({})));
    }

    fn verb(&self, server: &str, verb: &str) {
        self.api.ok("POST", &format!("upstreams/app/servers/{server}/{verb}"), None);
    }

    #[track_caller]
    fn server(&self, server: &str) -> Value {
        self.api.server("app", server)
    }

    /// Servers of app with their origin, in order.
    #[track_caller]
    fn servers(&self) -> Vec<(String, String)> {
        let app = self.api.upstream("app");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let servers = app["servers"].as_array().unwrap();
        servers.iter().map(|s| (text(&s["server"]), text(&s["origin"]))).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let log = self.nginx.error_log();
        log.lines().filter(|line| line.contains("[warn]")).map(str::to_owned).collect()
    }
}

fn named(servers: &[(&str, &str)]) -> Vec<(String, String)> {
    servers.iter().map(|&(server, origin)| (server.to_owned(), origin.to_owned())).collect()
}

#[test]
fn field_changed_at_run_time_stays_until_the_file_changes_it() {
    both(&app(&format!("server {A} weight=2; server {B};")), |site| {
        let id = site.server(A)["id"].clone();
        site.patch(A, &json!({"weight": 5, "labels": {"rack": "a"}}));
        site.verb(B, "down?reason=disk");
        site.load(&app(&format!("server {A} weight=2; server {B} max_conns=7;")));
        let a = site.server(A);
        assert_eq!((&a["weight"], &a["labels"]["rack"], &a["id"]), (&json!(5), &json!("a"), &id));
        let b = site.server(B);
        assert_eq!((&b["max_conns"], &b["admin"]["state"]), (&json!(7), &json!("down")));
        assert_eq!(b["admin"]["reason"], "disk");
        assert_eq!(site.warnings(), Vec::<String>::new());

        // Nothing edited: nothing changes.
        let before = site.api.upstream("app");
        site.load(&app(&format!("server {A} weight=2; server {B} max_conns=7;")));
        assert_eq!(site.api.upstream("app"), before);
    });
}

#[test]
fn field_changed_on_both_sides_is_the_files_and_is_told() {
    both(&app(&format!("server {A} weight=2; server {B} weight=2;")), |site| {
        site.patch(A, &json!({"weight": 5}));
        site.patch(B, &json!({"weight": 4}));
        let id = site.server(A)["id"].clone();
        site.load(&app(&format!("server {A} weight=3; server {B} weight=4;")));
        assert_eq!(site.server(A)["weight"], 3);
        assert_eq!(site.server(A)["id"], id);
        assert_eq!(site.server(B)["weight"], 4); // both sides agree
        let warnings = site.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let text = format!(
            "weight of server \"{A}\" of upstream \"app\" was changed both in the configuration \
             (\"3\") and at run time (\"5\"): the configuration's holds, zone \"main\""
        );
        assert!(warnings[0].contains(&text), "{}", warnings[0]);
        let report = site.api.ok("GET", "zones/main", None);
        let conflict = &report["conflicts"][0];
        assert_eq!((&conflict["field"], &conflict["server"]), (&json!("weight"), &json!(A)));
        assert_eq!((&conflict["file"], &conflict["runtime"]), (&json!("3"), &json!("5")));
        site.load(&app(&format!("server {A} weight=3; server {B} weight=4;")));
        assert_eq!(site.api.ok("GET", "zones/main", None)["conflicts"], json!([]));
    });
}

#[test]
fn servers_come_and_go_with_their_lines_and_run_time_ones_stay() {
    both(&app(&format!("server {A}; server {B};")), |site| {
        site.put("127.0.0.1:1009");
        site.load(&app(&format!("server {A}; peerage_server {C} label=rack:b;")));
        let now = named(&[(A, "config"), ("127.0.0.1:1009", "api"), (C, "config")]);
        assert_eq!(site.servers(), now);
        assert_eq!(site.server(C)["labels"]["rack"], "b");
        // A line for what run time added: the configuration's from then on.
        site.load(&app(&format!("server {A}; server 127.0.0.1:1009 weight=6;")));
        assert_eq!(site.servers(), named(&[(A, "config"), ("127.0.0.1:1009", "config")]));
        assert_eq!(site.server("127.0.0.1:1009")["weight"], 6);
        site.load(&app(&format!("server {A};")));
        assert_eq!(site.servers(), named(&[(A, "config")]));
    });
}

#[test]
fn server_removed_at_run_time_comes_back_only_with_a_changed_line() {
    both(&app(&format!("server {A}; server {B};")), |site| {
        let id = site.server(B)["id"].clone();
        site.delete(B);
        site.load(&app(&format!("server {A}; server {B};")));
        site.load(&app(&format!("server {A} weight=2; server {B};")));
        assert_eq!(site.servers(), named(&[(A, "config")]));
        site.load(&app(&format!("server {A} weight=2; server {B} max_fails=3;")));
        assert_eq!(site.servers(), named(&[(A, "config"), (B, "config")]));
        assert_ne!(site.server(B)["id"], id);
        // Taken out of the file and put back: a new line.
        site.delete(B);
        site.load(&app(&format!("server {A} weight=2;")));
        site.load(&app(&format!("server {A} weight=2; server {B} max_fails=3;")));
        assert_eq!(site.servers(), named(&[(A, "config"), (B, "config")]));
    });
}

#[test]
fn down_in_the_file_is_the_first_admin_state_and_no_more() {
    both(&app(&format!("server {A} down; peerage_server {B} drain; server {C};")), |site| {
        let admin = |site: &Site, server| site.server(server)["admin"].clone();
        assert_eq!(admin(site, A)["state"], "down");
        assert_eq!(admin(site, A)["by"], "config");
        assert_eq!(admin(site, B)["state"], "drain");
        site.verb(A, "up");
        site.load(&app(&format!("server {A} down weight=2; peerage_server {B}; server {C} down;")));
        assert_eq!(admin(site, A)["state"], "up"); // the operator's word
        assert_eq!(admin(site, B)["state"], "up"); // the file took back its own
        assert_eq!(admin(site, C)["state"], "down");
        // Taking the word away raises nobody whom an operator has down.
        site.verb(C, "down?reason=mine");
        site.load(&app(&format!("server {A} weight=2; peerage_server {B}; server {C};")));
        assert_eq!(admin(site, C)["state"], "down");
        assert_eq!(admin(site, C)["reason"], "mine");
    });
}

#[test]
fn block_removed_takes_its_servers_and_leaves_run_time_ones_as_an_orphan() {
    both(&app(&format!("server {A}; server {B};")), |site| {
        site.put(C);
        site.verb(C, "drain");
        let id = site.server(C)["id"].clone();
        site.load("");
        assert_eq!(site.servers(), named(&[(C, "api")]));
        let report = site.api.ok("GET", "zones/main", None);
        assert_eq!(report["orphans"][0]["upstream"], "app", "{report}");
        assert!(report["orphans"][0]["since"].as_str().unwrap().ends_with('Z'), "{report}");
        // No block names it: it may be deleted; with its block it is as it was.
        site.load(&app(&format!("server {A};")));
        assert_eq!(site.servers(), named(&[(C, "api"), (A, "config")]));
        assert_eq!((&site.server(C)["id"], &site.server(C)["state"]), (&id, &json!("draining")));
        assert_eq!(site.api.ok("GET", "zones/main", None)["orphans"], json!([]));

        site.delete(C);
        site.load("");
        assert_eq!(site.api.get("upstreams/app").0, 404); // nothing of its own is left
    });
}

#[test]
fn orphan_goes_when_its_time_is_over() {
    let blocks = format!("upstream app {{ peerage main; server {A}; }}");
    let zone = |orphans: &str, blocks: &str| {
        let http = format!("peerage_zone main 1m state={{prefix}}/main.json {orphans};\n{blocks}");
        move |conf: Conf| conf.http(http).with_api("write=on")
    };
    let mut nginx = zone("orphans=2s", &blocks)(Nginx::builder()).start();
    let api = nginx.api();
    let adopt = |name: &str| {
        let path = format!("upstreams/{name}/servers/{B}");
        api.ok("PUT", &path, Some(&json!({})));
    };
    adopt("app");
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": [{"server": A}]})));
    nginx.change(zone("orphans=2s", ""));
    nginx.reload();
    api.upstream("app");
    // Over a restart its time goes on.
    nginx.restart();
    eventually(secs(10), || api.get("upstreams/app").0 == 404);
    api.upstream("own"); // no block ever named it
    assert!(nginx.error_log().contains("upstream \"app\", which no block names any more"));

    // Put again while it is an orphan, it is the API's for good.
    nginx.change(zone("orphans=2s", &blocks));
    nginx.reload();
    adopt("app");
    nginx.change(zone("orphans=2s", ""));
    nginx.reload();
    api.ok("PUT", "upstreams/app", Some(&json!({"servers": [{"server": C}]})));
    holds_for(secs(4), || api.get("upstreams/app").0 == 200);
    api.ok("DELETE", "upstreams/app", None);

    for (orphans, status) in [("orphans=off", 404), ("orphans=forever", 200)] {
        nginx.change(zone(orphans, &blocks));
        nginx.reload();
        adopt("app");
        nginx.change(zone(orphans, ""));
        nginx.reload();
        nginx.settled(1);
        assert_eq!(api.get("upstreams/app").0, status, "{orphans}");
    }
    // What waits for ever goes once the configuration says so.
    nginx.change(zone("orphans=1s", ""));
    nginx.reload();
    eventually(secs(10), || api.get("upstreams/app").0 == 404);
}

#[test]
fn two_blocks_may_declare_one_upstream_alike() {
    let backends = Backend::several(2);
    let conf = |blocks: &str| {
        let web = "server { listen {web};
            location /one { proxy_pass http://app; } location /two { proxy_pass http://twin; } }";
        let text = format!("{blocks}\n{web}");
        move |conf: Conf| http(conf, &text)
    };
    let pair = "upstream app { peerage main; server {b1}; server {b2} weight=2; }
        upstream twin { peerage main name=app; server {b1}; server {b2} weight=2; keepalive 4; }";
    let mut nginx = conf(pair)(Nginx::builder()).set("b1", &backends[0]).set("b2", &backends[1]);
    nginx = nginx.allow("is declared otherwise");
    let mut nginx = nginx.start();
    let api = nginx.api();
    assert_eq!(api.verb("app", &backends[0], "down").0, 200);
    for path in ["/one", "/two"] {
        let report = hit(nginx.web(), path, 6);
        report.all_ok();
        assert_eq!(report.backend("b2"), 6);
    }
    assert_eq!(api.get("upstreams/twin").0, 404);
    nginx.change(conf(&pair.replacen("weight=2", "weight=3", 1)));
    let error = nginx.try_reload().unwrap_err();
    assert!(error.contains("upstream \"app\" of peerage zone \"main\" is declared otherwise"));
    assert_eq!(api.upstream("app")["servers"][1]["weight"], 2);
}

#[test]
fn keyed_blocks_defaults_hold_for_upstreams_made_at_run_time() {
    let keyed = "upstream svc { peerage main name=$http_svc match=svc-*;
        peerage_defaults weight=4 max_fails=3 fail_timeout=20s; }";
    both(&format!("{keyed} {}", app(&format!("server {A};"))), |site| {
        let api = site.api.clone();
        let put =
            |name: &str, body: &Value| api.ok("PUT", &format!("upstreams/{name}"), Some(body));
        put("svc-a", &json!({"servers": [{"server": B}, {"server": C, "weight": 9}]}));
        let first = |name: &str| api.upstream(name)["servers"][0].clone();
        let a = first("svc-a");
        assert_eq!((&a["weight"], &a["max_fails"]), (&json!(4), &json!(3)));
        assert_eq!(a["fail_timeout"], "20s");
        assert_eq!(api.upstream("svc-a")["servers"][1]["weight"], 9);
        assert_eq!(api.upstream("svc-a")["defaults"]["weight"], 4);
        // What it says itself goes over them, field by field.
        put("svc-b", &json!({"defaults": {"weight": 1}, "servers": [{"server": B}]}));
        assert_eq!(first("svc-b")["weight"], 1);
        assert_eq!(first("svc-b")["max_fails"], 3);
        // The same again changes nothing, nor does its own listing.
        let again = put("svc-b", &json!({"defaults": {"weight": 1}, "servers": [{"server": B}]}));
        assert_eq!(again["changed"], false);
        assert_eq!(put("svc-a", &api.upstream("svc-a"))["changed"], false);
        // They are no business of a block that declares its upstream itself.
        put("app", &json!({"servers": [{"server": A}]}));
        assert_eq!(first("app")["weight"], 1);

        site.load(&format!(
            "{} {}",
            keyed.replace("weight=4", "weight=6"),
            app(&format!("server {A};"))
        ));
        // Upstreams that are there keep what they were made with, until they are stated anew.
        assert_eq!(first("svc-a")["weight"], 4);
        put("svc-a", &json!({"servers": [{"server": B}]}));
        assert_eq!(api.upstream("svc-a")["servers"][0]["weight"], 6);
    });
}
