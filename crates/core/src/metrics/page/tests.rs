//! Pages whole, and in pieces.

use super::*;
use crate::metrics::{ProbeCount, ServerSample, SourceSample, StateFile, StoreSample};

const BUILD: Build = Build { version: "0.1.0", build: "abc", nginx: "1.22.1" };

fn server() -> ServerSample {
    ServerSample {
        state: State::Down,
        admin_since: Some(1_795_986_307_250),
        active: 2,
        max_conns: 10,
        weight: 3,
        requests: 7,
        fails: 1,
        unavail: 0,
        checks: Some(ProbeCount { passed: 5, failed: 2 }),
        selected: 1_795_986_308_000,
        sent: 500,
        received: 9000,
    }
}

fn source(i: usize) -> SourceSample {
    let source = format!("consul/dc1:app-{i}");
    SourceSample { source, up: false, age_ms: Some(12_500), held: 3 }
}

fn zone(name: &str, upstreams: usize, servers: usize) -> ZoneSample {
    let mut times = [0; 13];
    (times[0], times[3], times[12]) = (4, 2, 1);
    let upstream = |i: usize| {
        let mut upstream = UpstreamSample::new(format!("app-{i}"), servers);
        upstream.eligible = 1;
        (upstream.times, upstream.times_ms) = (times, 20_063);
        for i in 0..servers {
            let (sample, responses) = (server(), [(5, 1), (200, 4), (404, 1)]);
            upstream.push(&format!("10.0.0.1:{i}"), sample, responses);
        }
        upstream
    };
    ZoneSample {
        zone: name.to_owned(),
        revision: 812,
        bytes: [("total", 5), ("used", 4), ("free", 3), ("reserved", 2), ("largest", 1)],
        no_room: 3,
        checks_late: 2,
        routes: 9,
        lookups: Some([5, 0, 0, 3, 0, 2, 0, 0]),
        state: Some(StateFile { lag_ms: 1_500, errors: 6 }),
        sources: (0..upstreams).map(source).collect(),
        upstreams: (0..upstreams).map(upstream).collect(),
    }
}

fn page(format: Format, servers: bool, zones: Vec<ZoneSample>) -> String {
    let store = StoreSample {
        store: "routes".to_owned(),
        up: true,
        questions: 7,
        failures: std::array::from_fn(|i| i as u64),
        cached: [(5, 1), (4, 0), (3, 2)],
        ..StoreSample::default()
    };
    let mut page = Page::new(format, servers, BUILD, zones, vec![store]);
    let mut out = Vec::new();
    let mut before = 0;
    while page.piece(&mut out) {
        assert!(out.len() - before < 8 << 10, "a piece is small");
        before = out.len();
    }
    assert!(page.zones.is_empty(), "its memory is given back");
    String::from_utf8(out).unwrap()
}

#[test]
fn a_page_says_everything_once_with_its_names() {
    let text = page(Format::Text, true, vec![zone("main", 1, 1)]);
    let of = |start: &str| -> Vec<&str> {
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.strip_prefix(start).unwrap()).collect()
    };
    assert_eq!(of("peerage_build_info"), [r#"{version="0.1.0",build="abc",nginx="1.22.1"} 1"#]);
    assert_eq!(of("# TYPE peerage_build"), ["_info gauge"]);
    assert_eq!(of("peerage_revision"), [r#"{zone="main"} 812"#]);
    assert_eq!(of("peerage_state_lag_seconds"), [r#"{zone="main"} 1.500"#]);
    let up = r#"{zone="main",upstream="app-0""#;
    let times = of("peerage_upstream_response_time_seconds_bucket");
    let bounds: Vec<&str> = times.iter().filter_map(|line| line.split('"').nth(5)).collect();
    assert_eq!(bounds, BOUNDS);
    let counts: Vec<&str> = times.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(counts, ["4", "4", "4", "6", "6", "6", "6", "6", "6", "6", "6", "6", "7"]);
    assert_eq!(of("peerage_upstream_response_time_seconds_sum"), [format!("{up}}} 20.063")]);
    assert_eq!(of("peerage_upstream_response_time_seconds_count"), [format!("{up}}} 7")]);
    let server = format!(r#"{up},server="10.0.0.1:0""#);
    let state = |s: &str, n: u8| format!(r#"{server},state="{s}"}} {n}"#);
    let states = [("up", 0), ("draining", 0), ("down", 1)];
    let others = [("unavail", 0), ("checking", 0), ("unhealthy", 0)];
    let states: Vec<String> = states.iter().chain(&others).map(|&(s, n)| state(s, n)).collect();
    assert_eq!(of("peerage_upstream_server_state"), states);
    assert_eq!(
        of("peerage_upstream_server_responses_total"),
        [("5xx", 1), ("200", 4), ("404", 1)].map(|(c, n)| format!(r#"{server},code="{c}"}} {n}"#))
    );
    assert_eq!(
        of("peerage_upstream_server_health_checks_total"),
        [("passed", 5), ("failed", 2)].map(|(r, n)| format!(r#"{server},result="{r}"}} {n}"#))
    );
    assert_eq!(
        of("peerage_upstream_server_admin_since_seconds"),
        [format!("{server}}} 1795986307.250")]
    );
    let source = r#"{zone="main",source="consul/dc1:app-0"}"#;
    assert_eq!(of("peerage_source_up"), [format!("{source} 0")]);
    assert_eq!(of("peerage_source_age_seconds"), [format!("{source} 12.500")]);
    assert_eq!(of("peerage_source_held"), [format!("{source} 3")]);
    assert_eq!(of("# TYPE peerage_upstream_server_sent_bytes"), ["_total counter"]);
    assert_eq!(of("# UNIT"), [""; 0]);
    assert_eq!(of("# EOF"), [""; 0]);
}

#[test]
fn openmetrics_names_families_without_endings_and_ends() {
    let text = page(Format::OpenMetrics, true, vec![zone("main", 1, 1)]);
    for line in [
        "# TYPE peerage_build info",
        "# TYPE peerage_upstream_server_sent_bytes counter",
        "# UNIT peerage_upstream_server_sent_bytes bytes",
        "# TYPE peerage_upstream_response_time_seconds histogram",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
    assert!(text.ends_with("\n# EOF\n"));
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let plain = page(Format::Text, true, vec![zone("main", 1, 1)]);
    assert_eq!(samples(&text), samples(&plain), "series are the same");
}

#[test]
fn families_stand_together_over_zones_and_pieces() {
    let zones = || vec![zone("a", 3, 100), zone("b", 70, 1), zone("c", 0, 0)];
    let text = page(Format::Text, true, zones());
    let mut seen: Vec<&str> = Vec::new();
    let mut samples = 0;
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(!seen.contains(&name), "{name} twice");
            seen.push(name);
        } else if !line.starts_with('#') {
            let name = seen.last().unwrap();
            assert!(line.starts_with(name), "{line} under {name}");
            samples += usize::from(line.starts_with("peerage_upstream_server_requests_total"));
        }
    }
    assert_eq!((seen.len(), samples), (FAMILIES.len(), 370));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let all = lines.len();
    lines.dedup();
    assert_eq!(lines.len(), all, "no sample twice");

    let without = page(Format::Text, false, zones());
    assert!(!without.contains("server"), "{without}");
    assert!(without.contains("peerage_upstream_eligible{zone=\"b\",upstream=\"app-69\"} 1\n"));
}

#[test]
fn what_a_zone_does_not_have_is_left_out() {
    let mut zone = zone("main", 1, 0);
    zone.state = None;
    zone.sources = vec![SourceSample { age_ms: None, ..source(0) }];
    let sample = ServerSample { admin_since: None, selected: 0, checks: None, ..server() };
    zone.upstreams[0].push("10.0.0.1:1", sample, []);
    let text = page(Format::Text, true, vec![zone]);
    for name in [
        "state_lag_seconds",
        "state_errors_total",
        "source_age",
        "server_admin_since",
        "server_selected",
        "health_checks",
    ] {
        assert!(!text.lines().any(|l| !l.starts_with('#') && l.contains(name)), "{name}");
    }
}
