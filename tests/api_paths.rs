//! Paths at random: the API reads each as nginx reads it, and answers none with a 5xx.
//! (CASES 23, CONTRACT 4.)

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }";

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const SEGMENTS: [&str; 34] = [
    "v1",
    "upstreams",
    "app",
    "servers",
    "10.9.9.1:8080",
    "id:1",
    "down",
    "up",
    "zones",
    "main",
    "flush",
    ".",
    "..",
    "...",
    "",
    "",
    "%2e",
    "%2E%2e",
    "%2F",
    "%2f..",
    "%25",
    "%2525",
    "%23",
    "%3F",
    "%3f",
    "%41",
    "a%20b",
    "[::1]:80",
    "unix:%2Frun%2Fa",
    "caf%C3%A9",
    "%FF",
    ";",
    "~",
    "x",
];

fn path(dice: &mut Dice) -> String {
    let mut path = String::from(dice.one(&[
        "/api",
        "/api/v1/upstreams",
        "/%61pi",
        "//api",
        "/api/v1",
        "/x/../api",
    ]));
    for _ in 0..dice.roll(9) {
        path += dice.one(&["/", "/", "/", "//", "%2F"]);
        for _ in 0..=dice.roll(2) {
            path += dice.one(&SEGMENTS);
        }
    }
    if dice.roll(8) == 0 {
        // One byte anywhere, printable or not.
        let at = dice.roll(path.len());
        let byte = format!("%{:02X}", dice.roll(256));
        path.insert_str(at, &byte);
    }
    path + dice.one(&[
        "",
        "",
        "",
        "?",
        "?limit=1",
        "?fields=servers&limit=%31",
        "?a=%",
        "?zone=main",
        "?zone=x",
    ])
}

/// The path as nginx reads it and as the API reads it never differ, whatever is sent.
fn random_paths(merge_slashes: &str, seed: u64) {
    let conf = Nginx::builder().http(format!(
        "{APP} merge_slashes {merge_slashes};
         server {{ listen {{api}}; location /api {{ peerage_api write=operate; }} location / {{ return 204; }} }}"
    ));
    let nginx = conf.start();
    let worker = nginx.worker_pids();
    let mut dice = Dice(seed);
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let mut seen = std::collections::BTreeMap::<u16, usize>::new();
    for _ in 0..scale(20_000, 500_000) {
        let path = path(&mut dice);
        let request = Request::new(
            dice.one(&["GET", "GET", "GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS"]),
            &path,
        );
        conn.begin(&request).unwrap();
        let mut reply = conn.head().unwrap_or_else(|error| panic!("{path}: {error}"));
        let head = request.bytes().starts_with(b"HEAD");
        if !head {
            conn.body_of(&mut reply).unwrap();
        }
        *seen.entry(reply.status).or_default() += 1;
        assert!(reply.status < 500, "{path}: {} {}", reply.status, reply.text());
        assert!(!reply.text().contains("not what nginx reads"), "{path}: read in two ways");
        if reply.header("content-type") == Some("application/json") && !head {
            reply.json();
        }
        if reply.header("connection") == Some("close") {
            conn = Conn::open(nginx.addr("api")).unwrap();
        }
    }
    for status in [200, 204, 400, 403, 404, 405] {
        assert!(seen.get(&status).is_some_and(|n| *n > 20), "the dice miss {status}: {seen:?}");
    }
    assert_eq!(nginx.worker_pids(), worker);
}

#[test]
fn random_paths_are_read_as_nginx_reads_them() {
    random_paths("on", 0x9e37_79b9_7f4a_7c15);
}

#[test]
fn random_paths_are_read_as_nginx_reads_them_without_merge_slashes() {
    random_paths("off", 0x2545_f491_4f6c_dd1d);
}
