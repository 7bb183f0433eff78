//! What is written for Prometheus and Grafana names metrics that there are, and the directive's
//! page tells of all of them.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use peerage_core::metrics::{FAMILIES, Family, Kind};
use support::*;

#[test]
fn the_page_of_directives_tells_of_every_metric() {
    let page = read("docs/directives.md");
    let (_, section) = page.split_once("\n## peerage_metrics\n").expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let row = |family: &Family| {
        let name = match family.kind {
            Kind::Histogram => family.name.to_owned(),
            _ => family.sample_names().remove(0),
        };
        let labels: Vec<String> =
            family.all_labels().iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} |", family.kind.as_str(), labels.join(", "))
    };
    let told: Vec<&str> = section.lines().filter(|line| line.starts_with("| `peerage_")).collect();
    assert_eq!(told.len(), FAMILIES.len());
    for (family, line) in FAMILIES.iter().zip(told) {
        assert!(line.starts_with(&row(family)), "not {}: {line}", row(family));
    }
}

#[test]
fn rules_and_dashboard_name_metrics_and_labels_that_there_are() {
    let known: BTreeSet<String> = FAMILIES.iter().flat_map(Family::sample_names).collect();
    for file in ["examples/alerts.yml", "examples/alerts_test.yml", "examples/grafana.json"] {
        let text = read(file);
        let named = names(&text);
        assert!(named.len() > 3, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    // Labels that are matched, in both, and that nothing of Prometheus's own is called.
    for expr in queries() {
        for (at, _) in expr.match_indices('{') {
            let name: String = expr[..at].chars().rev().take_while(|&c| is_word(c)).collect();
            let name: String = name.chars().rev().collect();
            let family = FAMILIES.iter().find(|f| f.sample_names().contains(&name)).expect(&name);
            let inside = expr[at + 1..].split('}').next().unwrap();
            for matched in inside.split(',') {
                let label = matched.split(['=', '!']).next().unwrap();
                assert!(family.all_labels().contains(&label), "{label} of {name}: {expr}");
            }
        }
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_takes() {
    let board: Value = serde_json::from_str(&read("examples/grafana.json")).expect("JSON");
    assert!(board["schemaVersion"].as_u64() >= Some(30) && board["title"].is_string());
    let variables: BTreeSet<&str> = board["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "upstream", "zone"]));
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for cell in (place("y")..place("y") + place("h"))
            .flat_map(|y| (place("x")..place("x") + place("w")).map(move |x| (x, y)))
        {
            assert!(cell.0 < 24 && taken.insert(cell), "{} lies on another", panel["title"]);
        }
    }
}

#[test]
fn prometheus_takes_the_queries_of_the_dashboard() {
    let rule = |(i, expr): (usize, String)| format!("  - {{record: 'q{i}', expr: {expr:?}}}\n");
    let rules: String = queries().into_iter().enumerate().map(rule).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yml");
    fs::write(&file, format!("groups:\n- name: all\n  rules:\n{rules}")).unwrap();
    let mut check = Command::new(promtool().join("promtool"));
    let said = said_of(check.args(["check", "rules"]).arg(&file), b"");
    assert!(said.contains("SUCCESS"), "{said}\n{rules}");
}

/// The queries of the dashboard and the conditions of the rules, variables filled in.
fn queries() -> Vec<String> {
    let board: Value = serde_json::from_str(&read("examples/grafana.json")).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut all: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().into()).collect();
    assert!(all.len() > 15, "{} queries", all.len());
    for expr in &mut all {
        for (variable, value) in [("$__rate_interval", "5m"), ("$zone", ".*"), ("$upstream", ".+")]
        {
            *expr = expr.replace(variable, value);
        }
        assert!(!expr.contains('$'), "{expr}");
    }
    all
}

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c| !is_word(c)).filter(|word| word.starts_with("peerage_"));
    words
        .filter(|word| !["peerage_metrics", "peerage_zone"].contains(word))
        .map(str::to_owned)
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
