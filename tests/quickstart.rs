//! The scripts as a newcomer runs them: a rolling release of three servers under load, and tenants
//! that are kept in a Redis.

mod support;

use std::process::Command;

use support::*;

#[test]
fn quickstart_replaces_three_servers_under_load_without_a_failed_request() {
    Nginx::builder(); // says what to do where the module is not built
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart.sh");
    let out = Command::new(script).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}\n{errors}");
    let number = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    assert_eq!(number("failed "), 0, "{text}");
    assert!(number("rate ") >= 200, "{text}");
    assert!(number("answer v1 ") > 0 && number("answer v2 ") > 0, "{text}");
    assert_eq!(text.matches(": back").count(), 3, "{text}");
}

#[test]
fn tenants_of_a_redis_are_routed_moved_and_served_without_it() {
    Nginx::builder(); // as above
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tenants.sh");
    let out = Command::new(script).output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    assert!(out.status.success() && text.contains("all as it should be"), "{text}\n{errors}");
}
