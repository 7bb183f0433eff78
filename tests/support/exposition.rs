//! A strict reader of both formats of metrics: what their specifications forbid fails the story.

use std::collections::{BTreeMap, BTreeSet};

use super::http::{Reply, Request};

/// A page of metrics, read whole.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
    samples: BTreeMap<String, (BTreeMap<String, String>, String)>,
}

#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: String,
    help: bool,
    unit: bool,
    begun: bool,
}

/// What Prometheus says it takes.
pub const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,\
    application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// Asks for the page as Prometheus does, or without a word.
pub fn scrape(addr: std::net::SocketAddr, path: &str, accept: &str) -> Reply {
    let request = Request::get(path);
    let request = if accept.is_empty() { request } else { request.header("Accept", accept) };
    request.send(addr).expect("an answer")
}

impl Exposition {
    /// Reads an answer in the format that its type says.
    #[track_caller]
    pub fn of(reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", reply.text());
        let text = String::from_utf8(reply.body.clone()).expect("UTF-8");
        match reply.header("content-type") {
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8") => {
                let text = text.strip_suffix("# EOF\n").expect("an end");
                Self::read(text, true)
            }
            Some("text/plain; version=0.0.4; charset=utf-8") => Self::read(&text, false),
            other => panic!("{other:?}"),
        }
    }

    fn read(text: &str, open: bool) -> Self {
        assert!(text.is_empty() || text.ends_with('\n'));
        let mut page = Self::default();
        let mut names = BTreeSet::new();
        for line in text.lines() {
            let Some(comment) = line.strip_prefix("# ") else {
                page.sample(line, open);
                continue;
            };
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            let rest = words.next().unwrap();
            if page.families.last().is_none_or(|family| family.name != name) {
                assert!(names.insert(name.to_owned()), "{name} twice");
                page.families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            let family = page.families.last_mut().unwrap();
            assert!(!family.begun, "{line} after a sample");
            match what {
                "TYPE" => {
                    assert!(family.kind.is_empty(), "{line}");
                    let known: &[&str] = if open { &["info"] } else { &["untyped"] };
                    let all = ["counter", "gauge", "histogram"];
                    assert!(all.iter().chain(known).any(|kind| *kind == rest), "{line}");
                    assert!(open || rest != "counter" || name.ends_with("_total"), "{line}");
                    family.kind = rest.to_owned();
                }
                "HELP" => assert!(!std::mem::replace(&mut family.help, true), "{line}"),
                "UNIT" => {
                    assert!(open && name.ends_with(&format!("_{rest}")), "{line}");
                    assert!(!std::mem::replace(&mut family.unit, true), "{line}");
                }
                _ => panic!("{line}"),
            }
        }
        assert!(page.families.iter().all(|family| family.help && !family.kind.is_empty()));
        page.check_histograms();
        page
    }

    fn sample(&mut self, line: &str, open: bool) {
        let family = self.families.last_mut().expect("a family");
        family.begun = true;
        let end = line.find(['{', ' ']).expect("a name");
        let (name, rest) = line.split_at(end);
        let ending = name.strip_prefix(&family.name).unwrap_or_else(|| panic!("{line}"));
        let endings: &[&str] = match family.kind.as_str() {
            "counter" if open => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(endings.contains(&ending), "{line} in {family:?}");
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest),
            None => (BTreeMap::new(), rest),
        };
        let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
        let number: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(number >= 0.0 && number.is_finite(), "{line}");
        let series = format!("{name}{labels:?}");
        let sample = (labels, value.to_owned());
        assert!(self.samples.insert(series, sample).is_none(), "{line} twice");
    }

    /// Buckets go up, and the last one is the count.
    fn check_histograms(&self) {
        for family in self.families.iter().filter(|family| family.kind == "histogram") {
            let mut all: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for (labels, count) in self.all(&format!("{}_bucket", family.name)) {
                let mut labels = labels.clone();
                let le = labels.remove("le").expect("a bound");
                assert!(le == "+Inf" || le.contains('.'), "{le}");
                let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                all.entry(format!("{labels:?}")).or_default().push((bound, count));
            }
            for (labels, count) in self.all(&format!("{}_count", family.name)) {
                let mut buckets = all.remove(&format!("{labels:?}")).expect("buckets");
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)));
            }
            assert!(all.is_empty(), "{all:?}");
        }
    }

    /// Names of families.
    pub fn names(&self) -> Vec<&str> {
        self.families.iter().map(|family| family.name.as_str()).collect()
    }

    /// Labels and values of all samples of a name.
    pub fn all(&self, name: &str) -> Vec<(&BTreeMap<String, String>, f64)> {
        let start = format!("{name}{{");
        let samples = self.samples.range(start.clone()..);
        samples
            .take_while(|(series, _)| series.starts_with(&start))
            .map(|(_, (labels, value))| (labels, value.parse().unwrap()))
            .collect()
    }

    /// Values of the samples that have these labels, among others.
    pub fn with(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let has = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(name, value)| of.get(*name).is_some_and(|v| v == value))
        };
        self.all(name).into_iter().filter(|(of, _)| has(of)).map(|(_, value)| value).collect()
    }

    /// The one value with these labels, among others.
    #[track_caller]
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let values = self.with(name, labels);
        let [value] = values[..] else { panic!("{name} {labels:?}: {values:?}") };
        value
    }

    /// The sum of all values with these labels, among others.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.with(name, labels).iter().sum()
    }
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label");
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        assert!(!name.is_empty() && name.bytes().all(good), "{name}");
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => text.push(match chars.next().expect("an escaped character").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c}"),
                }),
                (_, c) => text.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), text).is_none(), "{name} twice");
        rest = &value[end + 1..];
        match rest.as_bytes() {
            [b',', ..] => rest = &rest[1..],
            [b'}', ..] => return (labels, &rest[1..]),
            _ => panic!("{rest}"),
        }
    }
}
