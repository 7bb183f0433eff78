//! Names that are resolved at run time: one worker of the whole nginx asks for them.

mod support;

use std::fs;
use std::sync::Arc;

use support::*;

const APP: &str = "peerage_zone main 2m state={prefix}/main.json;
    resolver {dns} ipv6=off; resolver_timeout 1s;
    upstream app { peerage main; peerage_server app.test:{port}; keepalive 8; }
    server { listen {web}; location / { proxy_pass http://app; } }";

/// A name server and two backends, at the addresses that the name has in turn.
fn site() -> (Dns, [Backend; 2], Conf) {
    let port = Arc::new(Port::reserve());
    let backends = [2, 3].map(|n| Backend::beside(&n.to_string(), [127, 0, 0, n], &port));
    let dns = Dns::new();
    dns.set("app.test", &["127.0.0.2"], 1);
    let conf = Nginx::builder().http(APP).with_api("write=on").set("dns", &dns);
    (dns, backends, conf.set("port", port.number()))
}

/// Waits until the name has been asked for so many times more; how many processes did.
#[track_caller]
fn asked(dns: &Dns, more: u64, limit: Duration) -> usize {
    dns.askers();
    let before = dns.asked("app.test");
    eventually(limit, || dns.asked("app.test") >= before + more);
    dns.askers()
}

#[track_caller]
fn flows(nginx: &Nginx, name: &str) {
    eventually(secs(10), || hit(nginx.web(), "/", 16).backend(name) == 16);
}

/// The worker that asks: it alone has a socket to the name server.
#[track_caller]
fn asking(nginx: &Nginx) -> u32 {
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let inodes = table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(9));
    let sockets: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let has_one = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut to = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        to.any(|to| sockets.iter().any(|socket| *socket == to.to_string_lossy()))
    };
    let asking: Vec<u32> = nginx.worker_pids().into_iter().filter(has_one).collect();
    let [one] = asking[..] else { panic!("{asking:?} ask") };
    one
}

#[test]
fn one_of_eight_workers_asks_and_another_one_when_it_dies_or_stops() {
    let (dns, _backends, conf) = site();
    let nginx = conf.workers(8).allow("exited on signal 9").start();
    flows(&nginx, "2");
    assert_eq!(asked(&dns, 3, secs(8)), 1);
    let first = asking(&nginx);
    signal(first, Signal::KILL);
    asked(&dns, 1, secs(2));
    eventually(secs(5), || nginx.worker_pids().len() == 8);
    assert_eq!(asked(&dns, 2, secs(6)), 1);

    let second = asking(&nginx);
    assert_ne!(second, first);
    signal(second, Signal::STOP);
    asked(&dns, 1, secs(2));
    dns.set("app.test", &["127.0.0.3"], 1);
    flows(&nginx, "3");
    signal(second, Signal::CONT);
    // What it may have been told before is not put in force any more.
    holds_for(ms(1_500), || hit(nginx.web(), "/", 16).backend("3") == 16);
    assert_eq!(asked(&dns, 3, secs(8)), 1);
}

#[test]
fn the_duty_goes_on_with_a_reload_and_peers_keep_what_they_have_counted() {
    let (dns, backends, conf) = site();
    let mut nginx = conf.workers(4).start();
    flows(&nginx, "2");
    let server = |nginx: &Nginx| nginx.api().upstream("app")["servers"][0].clone();
    let requests = |nginx: &Nginx| server(nginx)["counters"]["requests"].as_u64().unwrap();
    let before = server(&nginx);
    let counted = eventually(secs(5), || {
        let counted = requests(&nginx);
        (counted == backends[0].requests()).then_some(counted)
    });
    for _ in 0..2 {
        nginx.reload();
        assert_eq!((requests(&nginx), &server(&nginx)["id"]), (counted, &before["id"]));
        asked(&dns, 1, secs(2));
        eventually(secs(5), || nginx.leaving_pids().is_empty());
        assert_eq!(asked(&dns, 2, secs(6)), 1);
    }
    dns.set("app.test", &["127.0.0.2", "127.0.0.3"], 1);
    eventually(secs(4), || nginx.get("/").backend() == "3");
    assert!(requests(&nginx) > counted, "the address that stays has its counts");

    // An old worker that has something to do yet leaves the asking to the new ones.
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get("/hold")).unwrap();
    eventually(secs(5), || backends.iter().any(|backend| backend.held() == 1));
    nginx.hup();
    eventually(secs(5), || !nginx.leaving_pids().is_empty());
    asked(&dns, 1, secs(2));
    assert_eq!(asked(&dns, 3, secs(8)), 1);
    assert!(nginx.worker_pids().contains(&asking(&nginx)));
    backends.iter().for_each(Backend::release);
    assert_eq!(conn.reply().unwrap().status, 200);
}

#[test]
fn a_zone_that_a_reload_gave_another_size_is_resolved_on() {
    let (dns, _backends, conf) = site();
    let mut nginx = conf.workers(2).start();
    flows(&nginx, "2");
    // An old worker stays, with the zone of before.
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get("/hold")).unwrap();
    nginx.change(|c| c.http(APP.replace("main 2m", "main 3m")));
    assert!(nginx.get("/").backend() == "2", "it keeps its address");
    dns.set("app.test", &["127.0.0.3"], 1);
    flows(&nginx, "3");
    assert_eq!(asked(&dns, 2, secs(6)), 1);
}

#[test]
fn names_stay_as_they_are_where_the_resolver_has_gone() {
    let (dns, backends, conf) = site();
    let own = APP.replace("peerage_server app.test:{port};", "");
    let mut nginx = conf.clone().http(own.clone()).with_api("write=on").workers(2).start();
    let name = format!("app.test:{}", backends[0].socket_addr().port());
    nginx.api().ok("PUT", &format!("upstreams/app/servers/{name}"), Some(&json!({})));
    flows(&nginx, "2");
    nginx.change(|conf| {
        let without = own.replace("resolver {dns} ipv6=off;", "");
        conf.http(without).with_api("write=on")
    });
    nginx.reload();
    eventually(secs(5), || nginx.leaving_pids().is_empty());
    dns.askers();
    hit(nginx.web(), "/", 20).all_ok();
    let line = "no resolver defined to resolve \"app.test\", zone \"main\"";
    assert_eq!(nginx.error_log().matches(line).count(), 1);
    assert_eq!(nginx.api().put("upstreams/app/servers/x.test", &json!({})).0, 422);
    holds_for(ms(2_200), || dns.askers() == 0);
}

#[test]
fn a_single_process_asks_too() {
    let (dns, _backends, conf) = site();
    let nginx = conf.single().start();
    flows(&nginx, "2");
    dns.set("app.test", &["127.0.0.3"], 1);
    flows(&nginx, "3");
    assert_eq!(asked(&dns, 2, secs(6)), 1);
    // After a reload without a master nginx serves nothing any more, and what it asked for before
    // is nobody's.
    dns.say("app.test", Say::Nothing);
    asked(&dns, 1, secs(4));
    signal(nginx.master_pid(), Signal::HUP);
    eventually(secs(5), || nginx.error_log().contains("reconfiguring"));
    dns.askers();
    holds_for(secs(7), || dns.askers() == 0);
}

#[test]
fn while_two_nginx_run_the_one_that_writes_the_file_asks() {
    let (dns, _backends, conf) = site();
    let nginx = conf.workers(2).daemon().start();
    flows(&nginx, "2");
    let (old, new) = nginx.upgrade();
    eventually(secs(5), || nginx.workers_of(new).len() == 2);
    asked(&dns, 1, secs(4));
    assert_eq!(asked(&dns, 3, secs(8)), 1);
    dns.set("app.test", &["127.0.0.3"], 1);
    flows(&nginx, "3");
    signal(old, Signal::QUIT);
    nginx.gone(old);
    asked(&dns, 1, secs(8));
    dns.set("app.test", &["127.0.0.2"], 1);
    flows(&nginx, "2");
}
