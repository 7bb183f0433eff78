//! The state file's place: changed at a reload, taken from another zone, and left tidy.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::*;

fn conf(conf: Conf, zones: &str) -> Conf {
    let block =
        |zone: &str| format!("upstream of_{zone} {{ peerage {zone} name=$arg_u match=k*; }}");
    let zones_used: Vec<&str> = ["x", "y"]
        .into_iter()
        .filter(|zone| zones.contains(&format!("peerage_zone {zone} ")))
        .collect();
    let blocks: String = zones_used.iter().map(|zone| block(zone)).collect();
    conf.http(format!(
        "{zones} {blocks} server {{ listen {{web}}; location / {{ proxy_pass http://{{back}}; }} }}"
    ))
    .with_api("write=on")
}

fn names(nginx: &Nginx, zone: &str) -> BTreeSet<String> {
    let all = nginx.api().ok("GET", &format!("upstreams?limit=1000&zone={zone}"), None);
    all.as_object().unwrap().keys().cloned().collect()
}

fn put(nginx: &Nginx, zone: &str, name: &str) {
    let path = format!("upstreams/{name}?zone={zone}");
    // While a zone finds out who writes, changes wait, or are told to.
    eventually(secs(20), || nginx.api().put(&path, &json!({"servers": []})).0 == 201);
}

#[test]
fn what_was_acknowledged_is_in_the_file_of_now_though_its_path_went_and_came() {
    let back = Backend::new("back");
    let zone = |file: &str| format!("peerage_zone x 4m state={{prefix}}/{file}.json flush=always;");
    let mut nginx = conf(Nginx::builder().workers(2).set("back", &back), &zone("a")).start();
    nginx.allow("exited on signal 9");
    for _ in 0..scale(2, 20) {
        let stop = AtomicBool::new(false);
        let api = nginx.api();
        let done = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut done = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("k{n}");
                    let put = api.request(
                        "PUT",
                        &format!("upstreams/{name}"),
                        Some(&json!({"servers": []})),
                    );
                    if put.send(api.addr()).is_ok_and(|reply| matches!(reply.status, 200 | 201)) {
                        done.push(name);
                    }
                    let_pass(ms(4));
                }
                done
            });
            for file in ["b", "a"] {
                let_pass(ms(300));
                nginx.change(|c| conf(c, &zone(file)));
                nginx.reload();
            }
            let_pass(ms(300));
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        nginx.kill();
        nginx.start();
        let there = names(&nginx, "x");
        let missing: Vec<_> = done.iter().filter(|name| !there.contains(*name)).collect();
        assert!(done.len() > 20 && missing.is_empty(), "{} done, missing {missing:?}", done.len());
        let ops: Vec<Value> =
            there.iter().map(|name| json!({"op": "delete", "upstream": name})).collect();
        nginx.api().ok("POST", "batch", Some(&json!({"changes": ops})));
    }
}

#[test]
fn zones_that_swap_their_files_keep_what_is_theirs() {
    let back = Backend::new("back");
    let zones = |x: &str, y: &str| {
        format!(
            "peerage_zone x 2m state={{prefix}}/{x}.json; peerage_zone y 2m state={{prefix}}/{y}.json;"
        )
    };
    let mut nginx = conf(Nginx::builder().workers(2).set("back", &back), &zones("a", "b")).start();
    put(&nginx, "x", "kx");
    put(&nginx, "y", "ky");
    // Old workers stay, on both files.
    let mut held: Vec<Conn> = (0..8).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    held.iter_mut().for_each(|conn| conn.begin(&Request::get("/hold")).unwrap());
    eventually(secs(10), || back.held() == 8);
    nginx.change(|c| conf(c, &zones("b", "a")));
    nginx.reload();
    put(&nginx, "x", "kx2");
    put(&nginx, "y", "ky2");
    let of = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(names(&nginx, "x"), of(&["kx", "kx2"]));
    assert_eq!(names(&nginx, "y"), of(&["ky", "ky2"]));
    back.release();
    held.iter_mut().for_each(|conn| assert_eq!(conn.reply().unwrap().status, 200));
    nginx.settled(2);
    nginx.restart();
    assert_eq!(names(&nginx, "x"), of(&["kx", "kx2"]));
    assert_eq!(names(&nginx, "y"), of(&["ky", "ky2"]));
}

#[test]
fn zone_that_is_stopped_right_after_it_was_given_another_file_is_in_it() {
    let back = Backend::new("back");
    let zone = |file: &str| format!("peerage_zone x 2m state={{prefix}}/{file}.json flush=10m;");
    // What lies there is another zone's.
    let mut other = conf(Nginx::builder().set("back", &back), &zone("b")).start();
    put(&other, "x", "kother");
    other.stop();
    let mut nginx = conf(Nginx::builder().set("back", &back), &zone("a")).start();
    for file in files(other.prefix(), "b.json") {
        fs::copy(&file, nginx.path(&file.file_name().unwrap().to_string_lossy())).unwrap();
    }
    put(&nginx, "x", "kx");
    nginx.change(|c| conf(c, &zone("b")));
    nginx.hup();
    eventually(secs(10), || nginx.error_log().contains("reconfiguring"));
    nginx.stop();
    nginx.start();
    // Either it was given the other file and is in it, or it was stopped before that.
    assert_eq!(names(&nginx, "x"), ["kx".to_owned()].into());
}

#[test]
fn journals_do_not_pile_up_over_reloads() {
    let back = Backend::new("back");
    let zone = "peerage_zone x 2m state={prefix}/a.json;";
    let mut nginx = conf(Nginx::builder().workers(2).set("back", &back), zone).start();
    for n in 0..24 {
        nginx.reload();
        put(&nginx, "x", &format!("k{n}"));
        nginx.api().ok("POST", "zones/x/flush", None);
    }
    eventually(secs(10), || files(nginx.prefix(), "a.json.journal-").len() <= 18);
    nginx.restart();
    assert_eq!(names(&nginx, "x").len(), 24);
}
