//! Servers that follow a Consul where something odd happens to the configuration, the zone, or the
//! process that watches.

mod support;

use std::net::SocketAddr;

use support::*;

fn follower(consul: &FakeConsul, service: &str) -> Conf {
    conf(
        consul,
        "2m state={prefix}/main.json",
        &format!("peerage_service web consul=dc1 {service};"),
    )
}

fn conf(consul: &FakeConsul, zone: &str, upstream: &str) -> Conf {
    Nginx::builder().workers(2).http(text(consul, zone, upstream)).with_api("write=on")
}

fn text(consul: &FakeConsul, zone: &str, upstream: &str) -> String {
    format!(
        "peerage_zone main {zone};
         peerage_consul dc1 server={};
         upstream app {{ peerage main; {upstream} }}
         server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
        consul.url()
    )
}

/// An address on which nobody listens.
fn addr(i: usize) -> SocketAddr {
    SocketAddr::from(([127, 1, (i >> 8) as u8, i as u8], 9))
}

#[test]
fn a_watcher_that_was_stopped_with_nobody_to_take_its_place_goes_on() {
    let consul = FakeConsul::new();
    let [b1, b2] = [1, 2].map(|i| Backend::new(&format!("b{i}")));
    consul.register("web", "web-1", b1.socket_addr());
    let nginx = follower(&consul, "").workers(1).start();
    eventually(secs(5), || servers(&nginx).len() == 1 && consul.waiting() == 1);
    let worker = nginx.worker_pids()[0];
    signal(worker, Signal::STOP);
    consul.register("web", "web-2", b2.socket_addr());
    let_pass(secs(3));
    signal(worker, Signal::CONT);
    eventually(secs(5), || servers(&nginx).len() == 2);
    consul.deregister("web", "web-2");
    eventually(secs(20), || servers(&nginx).len() == 1);
}

#[test]
fn what_is_known_of_a_source_outlives_a_reload_while_it_is_away() {
    let mut consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let mut nginx = follower(&consul, "").start();
    eventually(secs(5), || servers(&nginx).len() == 1 && consul.waiting() == 1);
    let before = source(&nginx);
    consul.stop();
    eventually(secs(5), || source(&nginx)["state"] == "stale");
    let failures = source(&nginx)["failures"].as_u64().unwrap();
    nginx.reload();
    eventually(secs(5), || {
        let seen = source(&nginx);
        let watcher = seen["watcher"].as_u64().unwrap_or(0) as u32;
        nginx.worker_pids().contains(&watcher) && seen["failures"].as_u64().unwrap() > failures
    });
    let after = source(&nginx);
    assert_eq!(after["index"], before["index"], "{after}");
    assert_eq!(after["last_success"], before["last_success"], "{after}");
    assert!(after["age_seconds"].is_number(), "{after}");
}

#[test]
fn a_server_that_two_services_name_stays_while_one_does() {
    let consul = FakeConsul::new();
    let [b1, b2] = [1, 2].map(|i| Backend::new(&format!("b{i}")));
    for service in ["web", "www"] {
        consul.register(service, "a", b1.socket_addr());
    }
    consul.register("web", "b", b2.socket_addr());
    let upstream = "peerage_service web consul=dc1; peerage_service www consul=dc1;";
    let nginx = conf(&consul, "2m", upstream).start();
    eventually(secs(5), || servers(&nginx).len() == 2 && consul.waiting() == 2);
    let origin = nginx.api().server("app", &b1)["origin"].as_str().unwrap().to_owned();
    let owner = origin.rsplit(':').next().unwrap().to_owned();
    if owner == "www" {
        consul.register("www", "c", b2.socket_addr());
    }
    consul.deregister(&owner, "a");
    eventually(secs(3), || nginx.api().server("app", &b1)["origin"] != origin.as_str());
    holds_for(secs(1), || nginx.api().server("app", &b1)["state"] == "up");
}

#[test]
fn a_server_that_is_deleted_as_the_apis_is_the_sources_where_that_names_it() {
    let consul = FakeConsul::new();
    let [b1, b2] = [1, 2].map(|i| Backend::new(&format!("b{i}")));
    let nginx = conf(&consul, "2m", "peerage_service web consul=dc1;").start();
    nginx.api().ok("PUT", &format!("upstreams/app/servers/{b1}"), Some(&json!({})));
    consul.register("web", "a", b1.socket_addr());
    consul.register("web", "b", b2.socket_addr());
    eventually(secs(5), || servers(&nginx).len() == 2 && consul.waiting() == 1);
    let (status, _) = nginx.api().delete(&format!("upstreams/app/servers/{b1}"));
    assert_eq!(status, 200);
    eventually(secs(3), || servers(&nginx).len() == 2);
}

#[test]
fn a_set_that_did_not_fit_does_not_keep_it_from_reading_on() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let nginx = conf(&consul, "256k", "peerage_service web consul=dc1;").allow("is full").start();
    eventually(secs(5), || servers(&nginx).len() == 1 && consul.waiting() == 1);
    for i in 0..2_000 {
        consul.register("web", &format!("more-{i}"), addr(i));
    }
    eventually(secs(10), || nginx.error_log().contains("is full"));
    for i in 0..2_000 {
        consul.deregister("web", &format!("more-{i}"));
    }
    let b2 = Backend::new("b2");
    consul.register("web", "web-2", b2.socket_addr());
    eventually(secs(20), || servers(&nginx).contains(&b2.addr()));
}

#[test]
fn sources_that_nobody_follows_any_more_are_shown_no_longer() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let text = |keyed: &str| {
        format!(
            "peerage_zone main 2m;
             peerage_consul dc1 server={};
             upstream app {{ peerage main; peerage_service web consul=dc1; }}
             {keyed}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}",
            consul.url()
        )
    };
    let keyed = "upstream none { peerage main; peerage_service none consul=dc1; }
         upstream services { peerage main name=$arg_u; peerage_service tag:lb consul=dc1; }";
    let mut nginx = Nginx::builder().http(text(keyed)).with_api("write=on").start();
    let names = |nginx: &Nginx| {
        let all = nginx.api().get("sources").1;
        all.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let all = ["consul/dc1:none", "consul/dc1:tag:lb", "consul/dc1:web"];
    eventually(secs(5), || names(&nginx) == all && consul.waiting() == 3);
    nginx.change(|conf| conf.http(text("")).with_api("write=on"));
    nginx.reload();
    eventually(secs(10), || names(&nginx) == ["consul/dc1:web"]);
}

#[test]
fn another_source_in_the_configuration_takes_no_server_before_it_has_answered() {
    let mut consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.register("web", "web-1", b1.socket_addr());
    let mut nginx = follower(&consul, "").start();
    eventually(secs(5), || servers(&nginx).len() == 1 && consul.waiting() == 1);
    consul.stop();
    let other =
        text(&consul, "2m state={prefix}/main.json", "peerage_service web consul=dc1 tag=v2;");
    nginx.change(|conf| conf.http(other).with_api("write=on"));
    nginx.reload();
    holds_for(secs(3), || hit(nginx.web(), "/", 4).failed() == 0);
    consul.tags("web", "web-1", &["v2"]);
    consul.start();
    eventually(secs(40), || nginx.api().server("app", &b1)["origin"] == "consul:dc1:web,tag=v2");
    hit(nginx.web(), "/", 4).all_ok();
}

#[test]
fn what_an_operator_has_discarded_stays_over_a_reload() {
    let consul = FakeConsul::new();
    let all = Backend::several(4);
    for (i, b) in all.iter().enumerate() {
        consul.register("web", &format!("web-{i}"), b.socket_addr());
    }
    let mut nginx = follower(&consul, "").start();
    eventually(secs(5), || servers(&nginx).len() == 4 && consul.waiting() == 1);
    consul.forget();
    eventually(secs(5), || source(&nginx)["held"]["why"]["code"] == "empty");
    assert_eq!(nginx.api().post("sources/consul/dc1:web/discard").0, 200);
    consul.register("web", "web-0", all[0].socket_addr());
    eventually(secs(5), || nginx.api().server("app", &all[0])["source"]["held"] == false);
    nginx.reload();
    eventually(secs(5), || source(&nginx)["held"]["why"]["code"] == "discarded");
    let_pass(secs(4));
    for b in &all {
        assert_eq!(nginx.api().server("app", b)["state"], "up", "{b}");
    }
}

#[test]
fn it_is_not_ready_before_a_source_has_answered() {
    let mut consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    consul.stop();
    let mut nginx = follower(&consul, "").start();
    let ready = |nginx: &Nginx| nginx.api().get("ready").0;
    eventually(secs(5), || ready(&nginx) == 503);
    consul.start();
    consul.register("web", "web-1", b1.socket_addr());
    eventually(secs(20), || ready(&nginx) == 200 && servers(&nginx).len() == 1);
    eventually(secs(5), || nginx.api().post("zones/main/flush").0 == 200);
    consul.stop();
    nginx.restart();
    eventually(secs(5), || source(&nginx)["state"] == "stale");
    assert_eq!(ready(&nginx), 200, "it has its servers from before");
}

#[test]
fn a_thousand_services_are_begun_with_in_short_turns() {
    let consul = FakeConsul::new();
    let b1 = Backend::new("b1");
    for i in 0..1_000 {
        consul.register(&format!("svc-{i}"), &format!("id-{i}"), b1.socket_addr());
        consul.tags(&format!("svc-{i}"), &format!("id-{i}"), &["lb"]);
    }
    let conf = Nginx::builder()
        .workers(1)
        .events("worker_connections 4096;")
        .http(format!(
            "peerage_zone main 16m;
             peerage_consul dc1 server={};
             upstream services {{ peerage main name=$arg_u; peerage_service tag:lb consul=dc1; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://services; }} }}",
            consul.url()
        ))
        .with_api("write=on");
    let (conf, turns) = Turns::of(conf);
    let (mut nginx, longest, count) = turns.during(|| {
        let nginx = conf.start();
        let upstreams = || nginx.api().get("zones/main").1["upstreams"].as_u64().unwrap_or(0);
        eventually(secs(120), || upstreams() == 1_000 && consul.waiting() == 1_001);
        nginx
    });
    println!("1,000 services: longest turn {longest:?} of {count}");
    assert!(longest < ms(40), "{longest:?}");
    nginx.stop();
}
