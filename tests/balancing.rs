//! Balancing beside stock nginx: the same traffic through both, in one nginx with one worker.

mod support;

use support::*;

/// Which servers were tried for a request, and what came of it.
fn ask(nginx: &Nginx, path: &str) -> (u16, String, String) {
    let reply = nginx.get(path);
    let tried = reply.header("x-tried").unwrap_or_default().to_string();
    (reply.status, reply.backend().to_string(), tried)
}

/// `n` requests to each, in turn; every one goes the way that stock nginx's goes.
#[track_caller]
fn alike(nginx: &Nginx, n: usize) -> Vec<String> {
    let mut names = Vec::new();
    for i in 0..n {
        let stock = ask(nginx, "/stock");
        assert_eq!(ask(nginx, "/ours"), stock, "request {i} after {names:?}");
        names.push(stock.1);
    }
    names
}

fn share(names: &[String], name: &str) -> usize {
    names.iter().filter(|n| *n == name).count()
}

#[test]
fn weights_5_3_1_give_stock_nginx_order_request_by_request() {
    let b = Backend::several(3);
    let nginx = twins("server {b1} weight=5; server {b2} weight=3; server {b3};", &b).start();
    let names = alike(&nginx, scale(1000, 10_000));
    assert!(share(&names, "b1").abs_diff(names.len() * 5 / 9) <= 1);
}

#[test]
fn sixty_four_servers_of_all_weights_are_served_in_stock_nginx_order() {
    let b: Vec<Backend> = (1..=64).map(|i| Backend::on(&format!("b{i}"), [127, 0, 3, i])).collect();
    let line = |i: usize| format!("server {{b{i}}} weight={}; ", 1 + i * 7 % 5);
    let nginx = twins(&(1..=64).map(line).collect::<String>(), &b).start();
    let names = alike(&nginx, scale(400, 4000));
    assert!((1..=64).all(|i| share(&names, &format!("b{i}")) > 0));
}

#[test]
fn backups_take_over_in_stock_nginx_order_while_primaries_fail() {
    let b = Backend::several(4);
    let servers = "server {b1} weight=2 max_fails=2 fail_timeout=4s;
         server {b2} max_fails=3 fail_timeout=4s;
         server {b3} weight=2 backup fail_timeout=4s; server {b4} backup fail_timeout=4s;";
    let nginx = twins(servers, &b).start();
    let names = alike(&nginx, 300);
    assert_eq!((share(&names, "b3"), share(&names, "b4")), (0, 0));
    b[0].mode(Mode::Status(500));
    assert!(share(&alike(&nginx, 20), "b2") > 0);
    b[1].mode(Mode::CloseAfter(ms(0)));
    assert!(share(&alike(&nginx, 40), "b3") > 20);
    b[0].mode(Mode::Serve);
    b[1].mode(Mode::Serve);
    let_pass(secs(6));
    let names = alike(&nginx, 300);
    assert!(share(&names, "b1").abs_diff(200) <= 4, "they win their weight back");
}

#[test]
fn backups_serve_in_stock_nginx_order_while_primaries_are_down() {
    let b = Backend::several(4);
    let servers = "server {b1} down; server {b2} weight=2 down;
         server {b3} weight=5 backup; server {b4} weight=3 backup;";
    let nginx = twins(servers, &b).start();
    assert_eq!(share(&alike(&nginx, 160), "b3"), 100);
}

#[test]
fn refused_and_failing_servers_lose_weight_as_in_stock_nginx() {
    let mut b = Backend::several(3);
    let servers = "server {b1} weight=6 max_fails=3 fail_timeout=60s;
         server {b2} weight=4 max_fails=0; server {b3} weight=2 max_fails=2 fail_timeout=60s;";
    let nginx = twins(servers, &b).start();
    alike(&nginx, 30);
    b[0].stop();
    alike(&nginx, 2);
    b[0].start();
    let names = alike(&nginx, 60);
    assert!(share(&names, "b1") > 0, "one failure bars nobody");
    b[1].mode(Mode::Status(500));
    alike(&nginx, 40);
    b[1].mode(Mode::Serve);
    b[2].stop();
    let names = alike(&nginx, 60);
    assert_eq!(share(&names, "b3"), 0);
}

#[test]
fn max_conns_passes_requests_on_as_stock_nginx_does() {
    let b = Backend::several(4);
    let servers = "server {b1} weight=5 max_conns=3; server {b2} weight=3 max_conns=2;
         server {b3} max_conns=1; server {b4} backup max_conns=1;";
    let nginx = twins(servers, &b).start();
    let fill = |path: &str| {
        let mut conns = Vec::new();
        let mut order = Vec::new();
        for _ in 0..7 {
            let before: Vec<usize> = b.iter().map(Backend::held).collect();
            let mut conn = Conn::open(nginx.web()).unwrap();
            conn.begin(&Request::get(path)).unwrap();
            order.push(eventually(secs(10), || {
                (0..4).find(|&i| b[i].held() > before[i]).map(|i| b[i].name())
            }));
            conns.push(conn);
        }
        assert_eq!(nginx.get(path).status, 502, "nobody has room");
        assert_eq!(order[6], "b4");
        b.iter().for_each(Backend::release);
        conns.iter_mut().for_each(|conn| assert_eq!(conn.reply().unwrap().status, 200));
        order
    };
    for _ in 0..5 {
        let stock = fill("/stock/hold");
        assert_eq!(fill("/ours/hold"), stock);
        alike(&nginx, 7);
    }
}

#[test]
fn a_single_server_is_tried_again_and_never_barred_as_in_stock_nginx() {
    let b = Backend::several(1);
    let nginx = twins("server {b1} max_fails=1 fail_timeout=60s; keepalive 4;", &b)
        .http_more("proxy_http_version 1.1; proxy_set_header Connection '';")
        .start();
    alike(&nginx, 5);
    b[0].close_connections();
    alike(&nginx, 5);
    b[0].mode(Mode::Status(500));
    alike(&nginx, 3);
    b[0].mode(Mode::Serve);
    let names = alike(&nginx, 3);
    assert_eq!(share(&names, "b1"), 3);
}
