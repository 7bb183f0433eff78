//! Servers that follow a Consul: the real one where there is one, and a fake of the same rules.

mod support;

use std::time::Instant;

use support::*;

/// One suite, two servers.
fn with_each(story: impl Fn(&mut dyn Registry)) {
    story(&mut FakeConsul::new());
    match RealConsul::new() {
        Some(mut real) => story(&mut real),
        None => eprintln!("no real Consul: PEERAGE_CONSUL is not set"),
    }
}

fn follower(consul: &dyn Registry, service: &str) -> Conf {
    Nginx::builder()
        .workers(4)
        .http(format!(
            "peerage_zone main 2m state={{prefix}}/main.json;
             peerage_consul dc1 server={};
             upstream app {{ peerage main; peerage_service web consul=dc1 {service}; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
            consul.url()
        ))
        .with_api("write=on")
}

/// Two instances of "web".
fn two(consul: &dyn Registry) -> [Backend; 2] {
    [1, 2].map(|i| {
        let backend = Backend::new(&format!("b{i}"));
        consul.register("web", &format!("web-{i}"), backend.socket_addr(), &[]);
        backend
    })
}

/// Each worker has its share of these.
#[track_caller]
fn flows(nginx: &Nginx, to: &[&str]) {
    eventually(secs(5), || {
        let report = hit(nginx.web(), "/", 24);
        let each = 24 / to.len() as u64;
        to.iter().all(|name| report.backend(name).abs_diff(each) <= each / 2)
            && to.iter().map(|name| report.backend(name)).sum::<u64>() == 24
    });
}

#[test]
fn servers_come_and_go_with_the_registry() {
    with_each(|consul| {
        let [b1, b2, b3] = [1, 2, 3].map(|i| Backend::new(&format!("b{i}")));
        consul.register("web", "web-1", b1.socket_addr(), &[]);
        consul.register("web", "web-2", b2.socket_addr(), &[]);
        let nginx = follower(consul, "").start();
        flows(&nginx, &["b1", "b2"]);
        assert_eq!(source(&nginx)["state"], "up", "{}", source(&nginx));
        consul.register("web", "web-3", b3.socket_addr(), &[]);
        flows(&nginx, &["b1", "b2", "b3"]);
        consul.check("web", "web-3", Checked::Critical);
        flows(&nginx, &["b1", "b2"]);
        let seen = nginx.api().server("app", &b3);
        assert_eq!(
            (&seen["state"], &seen["why"]["code"]),
            (&json!("unhealthy"), &json!("source_down")),
            "{seen}"
        );
        consul.check("web", "web-3", Checked::Passing);
        flows(&nginx, &["b1", "b2", "b3"]);
        consul.maintenance("web", "web-2", true);
        flows(&nginx, &["b1", "b3"]);
        assert_eq!(nginx.api().server("app", &b2)["state"], "draining");
        consul.maintenance("web", "web-2", false);
        flows(&nginx, &["b1", "b2", "b3"]);
        consul.weights("web", "web-1", b1.socket_addr(), 4);
        eventually(secs(3), || nginx.api().server("app", &b1)["weight"] == 4);
        let report = hit(nginx.web(), "/", 60);
        assert_eq!((report.backend("b1"), report.backend("b2")), (40, 10));
        consul.weights("web", "web-1", b1.socket_addr(), 1);
        flows(&nginx, &["b1", "b2", "b3"]);
        consul.deregister("web", "web-3");
        flows(&nginx, &["b1", "b2"]);
        // It drains, and goes once it is idle.
        eventually(secs(20), || servers(&nginx).len() == 2);
    });
}

#[test]
fn what_an_operator_wants_outlives_every_answer() {
    with_each(|consul| {
        let [b1, _b2] = two(consul);
        let nginx = follower(consul, "").start();
        flows(&nginx, &["b1", "b2"]);
        nginx.api().verb("app", &b1, "down?reason=disk");
        for critical in [Checked::Critical, Checked::Passing, Checked::Warning, Checked::Passing] {
            consul.check("web", "web-1", critical);
            consul.check("web", "web-2", critical);
            let_pass(ms(100));
            assert_eq!(nginx.api().server("app", &b1)["state"], "down");
            assert_eq!(hit(nginx.web(), "/", 8).backend("b1"), 0);
        }
        // It owns its servers: they can be taken down, not removed.
        let (status, problem) = nginx.api().delete(&format!("upstreams/app/servers/{b1}"));
        assert_eq!(
            (status, &problem["type"]),
            (409, &json!("urn:peerage:owned-by-source")),
            "{problem}"
        );
        nginx.api().verb("app", &b1, "up");
        flows(&nginx, &["b1", "b2"]);
    });
}

#[test]
fn a_registry_that_dies_comes_back_empty_and_forgets_takes_no_server_along() {
    with_each(|consul| {
        let [b1, b2] = two(consul);
        let mut nginx = follower(consul, "").allow("exited on signal 9").start();
        flows(&nginx, &["b1", "b2"]);
        let load = Load::to(nginx.web()).threads(2).rate(200).start();
        consul.stop();
        eventually(secs(20), || source(&nginx)["state"] == "stale");
        assert!(source(&nginx)["last_error"].is_object(), "{}", source(&nginx));
        let_pass(scale(secs(2), secs(60)));
        // nginx begins with the set of its file while there is no registry.
        assert_eq!(servers(&nginx).len(), 2);
        consul.start(false);
        eventually(secs(60), || source(&nginx)["state"] == "up");
        let_pass(secs(4));
        assert_eq!(servers(&nginx).len(), 2, "an empty answer is held");
        let report = load.stop();
        report.all_ok();
        let held = source(&nginx)["held"].clone();
        assert_eq!(held["why"]["code"], "empty", "{held}");
        consul.register("web", "web-1", b1.socket_addr(), &[]);
        consul.register("web", "web-2", b2.socket_addr(), &[]);
        eventually(secs(10), || source(&nginx)["held"].is_null());
        flows(&nginx, &["b1", "b2"]);
        consul.stop();
        nginx.restart();
        flows(&nginx, &["b1", "b2"]);
    });
}

#[test]
fn an_operator_decides_about_what_is_held() {
    with_each(|consul| {
        let all = Backend::several(4);
        for (i, b) in all.iter().enumerate() {
            consul.register("web", &format!("web-{i}"), b.socket_addr(), &[]);
        }
        let nginx = follower(consul, "empty_hold=1h").start();
        flows(&nginx, &["b1", "b2", "b3", "b4"]);
        // It has lost all at once.
        consul.stop();
        consul.start(false);
        eventually(secs(60), || source(&nginx)["held"]["why"]["code"] == "empty");
        flows(&nginx, &["b1", "b2", "b3", "b4"]);
        let (status, answer) = nginx.api().post("sources/consul/dc1:web/discard");
        assert_eq!(
            (status, &answer["source"]["held"]["why"]["code"]),
            (200, &json!("discarded")),
            "{answer}"
        );
        let_pass(secs(3));
        assert_eq!(servers(&nginx).len(), 4);
        let (status, answer) = nginx.api().post("sources/consul/dc1:web/apply");
        assert_eq!(status, 200, "{answer}");
        eventually(secs(20), || servers(&nginx).is_empty());
        let (status, problem) = nginx.api().post("sources/consul/dc1:web/apply");
        assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:nothing-held")));
        let (status, _) = nginx.api().post("sources/consul/dc1:none/apply");
        assert_eq!(status, 404);
    });
}

#[test]
fn a_change_is_routed_by_within_a_moment() {
    with_each(|consul| {
        let [b1, _b2] = two(consul);
        let nginx = follower(consul, "").start();
        flows(&nginx, &["b1", "b2"]);
        consul.weights("web", "web-1", b1.socket_addr(), 3);
        let weight = || nginx.api().server("app", &b1)["weight"].as_u64();
        eventually(secs(5), || weight() == Some(3));
        let served = || hit(nginx.web(), "/", 4).backend("b1") > 0;
        let mut times = Vec::new();
        for i in 0..scale(16, 100) {
            match i % 8 {
                0 => consul.check("web", "web-1", Checked::Critical),
                2 => consul.maintenance("web", "web-1", true),
                3 => consul.maintenance("web", "web-1", false),
                4 => consul.check("web", "web-1", Checked::Warning),
                6 => consul.deregister("web", "web-1"),
                7 => {
                    consul.register("web", "web-1", b1.socket_addr(), &[]);
                    consul.weights("web", "web-1", b1.socket_addr(), 3);
                }
                _ => consul.check("web", "web-1", Checked::Passing),
            }
            let begun = Instant::now();
            eventually(secs(5), || match i % 8 {
                0 | 2 | 6 => !served(),
                4 => weight() == Some(1),
                _ => served() && weight() == Some(3),
            });
            times.push(begun.elapsed());
            // A registry is read four times a second at most.
            let_pass(ms(600));
        }
        times.sort();
        let (n, median, last) = (times.len(), times[times.len() / 2], times.last());
        println!("{n} changes: median {median:?}, longest {last:?}");
    });
}

#[test]
fn one_worker_watches_and_another_one_when_it_dies_or_stops() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let mut nginx = follower(&consul, "").workers(8).allow("exited on signal 9").start();
    let watcher = |nginx: &Nginx| source(nginx)["watcher"].as_u64().unwrap_or(0) as u32;
    flows(&nginx, &["b1"]);
    eventually(secs(3), || consul.waiting() == 1);
    let first = watcher(&nginx);
    signal(first, Signal::KILL);
    eventually(secs(3), || watcher(&nginx) != first && consul.waiting() == 1);
    for _ in 0..scale(3, 10) {
        nginx.reload();
        eventually(secs(3), || {
            consul.waiting() == 1 && nginx.worker_pids().contains(&watcher(&nginx))
        });
    }
    let second = watcher(&nginx);
    signal(second, Signal::STOP);
    eventually(secs(3), || watcher(&nginx) != second);
    let b2 = Backend::new("b2");
    consul.register("web", "web-2", b2.socket_addr());
    flows(&nginx, &["b1", "b2"]);
    consul.deregister("web", "web-2");
    flows(&nginx, &["b1"]);
    signal(second, Signal::CONT);
    // What it was told while it was stopped counts for nothing, and its query ends.
    eventually(secs(3), || consul.waiting() == 1);
    flows(&nginx, &["b1"]);
    let last = consul.asked().len();
    holds_for(secs(3), || consul.asked().len() <= last + 1);
}

#[test]
fn whatever_a_registry_does_the_servers_stay_and_it_is_read_a_few_times_a_second() {
    let mut consul = FakeConsul::new();
    let [b1, b2] = [1, 2].map(|i| Backend::new(&format!("b{i}")));
    consul.register("web", "web-1", b1.socket_addr());
    consul.register("web", "web-2", b2.socket_addr());
    let nginx = follower(&consul, "").start();
    flows(&nginx, &["b1", "b2"]);
    for trouble in [
        Trouble::Empty(1),
        Trouble::Index(1),
        Trouble::NoIndex,
        Trouble::AtOnce,
        Trouble::Hang,
        Trouble::Slow(ms(2)),
        Trouble::Truncated,
        Trouble::Reset,
        Trouble::Huge(10 << 20),
        Trouble::Body("<html>".into()),
        Trouble::Body("{}".into()),
        Trouble::NoLeader,
        Trouble::Leaderless,
        Trouble::Token("secret".into()),
        Trouble::Filtered,
    ] {
        consul.forget_asked();
        consul.trouble(trouble.clone());
        let_pass(ms(1_500));
        let asked = consul.asked().len();
        assert!(asked <= 12, "{trouble:?}: {asked}");
        let report = hit(nginx.web(), "/", 8);
        report.all_ok();
        assert_eq!((report.backend("b1"), report.backend("b2")), (4, 4), "{trouble:?}");
        consul.trouble(Trouble::None);
        consul.register("web", "web-2", b2.socket_addr());
        eventually(secs(40), || {
            source(&nginx)["state"] == "up" && source(&nginx)["held"].is_null()
        });
    }
    consul.stop();
    assert_eq!(servers(&nginx).len(), 2);
}

#[test]
fn a_token_is_read_from_its_file_and_again_when_it_is_refused() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    consul.trouble(Trouble::Token("second".into()));
    let conf = Nginx::builder().http(format!(
        "peerage_zone main 2m;
         peerage_consul dc1 server={} token_file={{prefix}}/token dc=far ns=team;
         upstream app {{ peerage main;
             peerage_service web consul=dc1 tag=v2 \"filter=Node == n1\" near=_agent; }}
         server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
        consul.url()
    ));
    let nginx = conf.file("token", "first\n").with_api("write=on").start();
    eventually(secs(3), || {
        consul.asked().iter().any(|asked| asked.token.as_deref() == Some("first"))
    });
    std::fs::write(nginx.path("token"), "second\n").unwrap();
    eventually(secs(40), || {
        consul.asked().iter().any(|asked| asked.token.as_deref() == Some("second"))
    });
    let asked = consul.asked().into_iter().next().unwrap();
    for (name, value) in [
        ("dc", "far"),
        ("ns", "team"),
        ("tag", "v2"),
        ("near", "_agent"),
        ("filter", "Node%20%3D%3D%20n1"),
    ] {
        assert_eq!(asked.param(name), Some(value), "{}", asked.target);
    }
    assert!(!asked.target.contains("first"));
    let name = "sources/consul/dc1:web,tag=v2";
    eventually(secs(5), || nginx.api().get(name).1["state"] == "up");
}

#[test]
fn services_with_a_tag_have_upstreams_of_their_own() {
    with_each(|consul| {
        let backends = Backend::several(3);
        let nginx = Nginx::builder()
            .workers(2)
            .http(format!(
                "peerage_zone main 4m state={{prefix}}/main.json;
                 peerage_consul dc1 server={};
                 upstream services {{ peerage main name=$arg_u match=svc-*;
                     peerage_service tag:lb consul=dc1; }}
                 server {{ listen {{web}}; location / {{ proxy_pass http://services; }} }}",
                consul.url()
            ))
            .with_api("write=on")
            .start();
        let names = || {
            let all = nginx.api().get("upstreams").1;
            all.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        for (i, b) in backends.iter().enumerate() {
            let tags: &[&str] = if i == 2 { &["other"] } else { &["lb"] };
            consul.register(&format!("svc-{i}"), &format!("id-{i}"), b.socket_addr(), tags);
        }
        consul.register("unfit", "unfit-1", backends[0].socket_addr(), &["lb"]);
        eventually(secs(10), || names() == ["svc-0", "svc-1"]);
        eventually(secs(5), || hit(nginx.web(), "/?u=svc-1", 4).backend("b2") == 4);
        consul.deregister("svc-1", "id-1");
        // Held, confirmed or not by then, it drains and goes with its upstream in the end.
        nginx.api().post("sources/consul/dc1:svc-1,tag=lb/apply");
        eventually(secs(90), || {
            nginx.api().post("sources/consul/dc1:svc-1,tag=lb/apply");
            names() == ["svc-0"]
        });
        consul.register("svc-1", "id-1", backends[1].socket_addr(), &["lb"]);
        eventually(secs(10), || names() == ["svc-0", "svc-1"]);
    });
}

#[test]
fn a_source_that_the_configuration_names_no_more_leaves_its_servers_to_drain() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let mut nginx = follower(&consul, "").start();
    flows(&nginx, &["b1"]);
    let b9 = Backend::new("b9");
    nginx.change(|conf| {
        conf.http(format!(
            "peerage_zone main 2m state={{prefix}}/main.json;
             upstream app {{ peerage main; server {b9}; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        ))
        .with_api("write=on")
    });
    nginx.reload();
    flows(&nginx, &["b9"]);
    eventually(secs(20), || servers(&nginx) == [b9.addr()]);
    eventually(secs(5), || consul.waiting() == 0);
}

#[test]
fn the_example_follows_two_services() {
    let consul = FakeConsul::new();
    let [b1, b2] = [1, 2].map(|i| Backend::new(&format!("b{i}")));
    consul.register("web", "web-1", b1.socket_addr());
    consul.register("billing", "billing-1", b2.socket_addr());
    consul.tags("billing", "billing-1", &["lb"]);
    let example = include_str!("../examples/consul.conf")
        .replace("/var/lib/nginx/peerage", "{prefix}")
        .replace("http://127.0.0.1:8500", &consul.url())
        .replace("uri=/health ", "")
        .replace("listen 80", "listen {web}")
        .replace("127.0.0.1:8081", "{api}");
    let nginx = Nginx::builder().http(example).start();
    flows(&nginx, &["b1"]);
    eventually(secs(5), || {
        let reply = Request::get("/").header("Host", "billing.internal").send(nginx.web()).unwrap();
        reply.backend() == "b2"
    });
    assert_eq!(nginx.api().get("sources").1.as_object().unwrap().len(), 3);
}

#[test]
fn a_thousand_services_need_no_more_configuration() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    let n = scale(60, 1_000);
    for i in 0..n {
        consul.register(&format!("svc-{i}"), &format!("id-{i}"), b1.socket_addr());
        consul.tags(&format!("svc-{i}"), &format!("id-{i}"), &["lb"]);
    }
    let nginx = Nginx::builder()
        .workers(2)
        .events("worker_connections 4096;")
        .http(format!(
            "peerage_zone main 16m state={{prefix}}/main.json;
             peerage_consul dc1 server={};
             upstream services {{ peerage main name=$arg_u; peerage_service tag:lb consul=dc1; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://services; }} }}",
            consul.url()
        ))
        .with_api("write=on")
        .start();
    let upstreams = || nginx.api().get("zones/main").1["upstreams"].as_u64().unwrap_or(0);
    eventually(secs(scale(20, 120)), || upstreams() == n as u64);
    eventually(secs(10), || consul.waiting() == n + 1);
    hit(nginx.web(), &format!("/?u=svc-{}", n - 1), 4).all_ok();
    // Watching costs next to nothing.
    let workers = nginx.worker_pids();
    let before: u64 = workers.iter().map(|&pid| cpu_ticks(pid)).sum();
    let_pass(secs(3));
    let ticks = workers.iter().map(|&pid| cpu_ticks(pid)).sum::<u64>() - before;
    assert!(ticks <= scale(6, 30), "{ticks} ticks of 10 ms in 3 s");
    consul.register(&format!("svc-{n}"), "id-new", b1.socket_addr());
    consul.tags(&format!("svc-{n}"), "id-new", &["lb"]);
    eventually(secs(10), || upstreams() == n as u64 + 1);
}

#[test]
fn a_consul_over_tls_is_verified_and_shown_a_certificate() {
    let b1 = Backend::new("b1");
    let consul = FakeConsul::new();
    consul.register("web", "web-1", b1.socket_addr());
    let dir = tempfile::tempdir().unwrap();
    let [server, client] =
        ["server.dc1.consul", "nginx.test"].map(|name| Certificate::make(dir.path(), &[name]));
    let front = Nginx::stock()
        .http(format!(
            "server {{ listen {{web}} ssl; ssl_certificate {}; ssl_certificate_key {};
                ssl_client_certificate {}; ssl_verify_client on; ssl_verify_depth 1;
                location / {{ proxy_pass {}; proxy_read_timeout 600s; proxy_buffering off; }} }}",
            server.pem.display(),
            server.key.display(),
            client.pem.display(),
            consul.url()
        ))
        .start();
    let conf = |ca: &Certificate, name: &str| {
        Nginx::builder()
            .http(format!(
                "peerage_zone main 2m;
                 peerage_consul dc1 server=https://{} ca={} cert={} key={} tls_name={name};
                 upstream app {{ peerage main; peerage_service web consul=dc1; }}
                 server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
                front.web(),
                ca.pem.display(),
                client.pem.display(),
                client.key.display(),
            ))
            .with_api("write=on")
            .start()
    };
    let nginx = conf(&server, "server.dc1.consul");
    flows(&nginx, &["b1"]);
    for (ca, name) in [(&client, "server.dc1.consul"), (&server, "server.dc2.consul")] {
        let nginx = conf(ca, name);
        eventually(secs(5), || source(&nginx)["state"] == "stale");
        assert!(servers(&nginx).is_empty());
    }
}

#[test]
fn several_addresses_are_tried_in_turn() {
    let (mut one, mut two) = (FakeConsul::new(), FakeConsul::new());
    let b1 = Backend::new("b1");
    for consul in [&one, &two] {
        consul.register("web", "web-1", b1.socket_addr());
    }
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 2m;
             peerage_consul dc1 server={} server={};
             upstream app {{ peerage main; peerage_service web consul=dc1; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
            one.url(),
            two.url()
        ))
        .with_api("write=on")
        .start();
    flows(&nginx, &["b1"]);
    eventually(secs(3), || one.waiting() == 1);
    one.stop();
    eventually(secs(5), || two.waiting() == 1);
    one.start();
    two.stop();
    eventually(secs(40), || one.waiting() == 1);
    assert_eq!(servers(&nginx).len(), 1);
}
