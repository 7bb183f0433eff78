//! The families of metrics: names, help, and where the values come from, in this one place.

use super::sample::{ServerSample, SourceSample, StoreSample, UpstreamSample, ZoneSample};

/// What kind of metric a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up only; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket; its samples end in `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Always 1, the labels tell; its sample ends in `_info`.
    Info,
}

/// A family of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name without what the kind adds.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// The unit that its name ends in.
    pub unit: Option<&'static str>,
    /// What it says, for people.
    pub help: &'static str,
    /// Labels beside those of the thing that it is about.
    pub labels: &'static [&'static str],
    pub(super) of: Of,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Int(u64),
    /// Said in seconds.
    Millis(u64),
}

/// What a family is about, and how its values are read from that.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Server(fn(&ServerSample) -> Option<Value>),
    Responses,
    States,
    Checks,
    Upstream(fn(&UpstreamSample) -> Value),
    Times,
    Zone(fn(&ZoneSample) -> Option<Value>),
    Source(fn(&SourceSample) -> Option<Value>),
    Bytes,
    Lookups,
    Store(fn(&StoreSample) -> Value),
    Failures,
    Cached(fn((u64, u64)) -> u64),
    Build,
}

impl Kind {
    /// The word of the formats.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

impl Family {
    /// The labels of its samples, in order; those of a histogram's buckets have `le` besides.
    pub fn all_labels(&self) -> Vec<&'static str> {
        let of: &[&str] = match self.of {
            Of::Server(_) | Of::Responses | Of::States | Of::Checks => {
                &["zone", "upstream", "server"]
            }
            Of::Upstream(_) | Of::Times => &["zone", "upstream"],
            Of::Source(_) => &["zone", "source"],
            Of::Zone(_) | Of::Bytes | Of::Lookups => &["zone"],
            Of::Store(_) | Of::Failures | Of::Cached(_) => &["store"],
            Of::Build => &[],
        };
        [of, self.labels].concat()
    }

    /// The names of its samples.
    pub fn sample_names(&self) -> Vec<String> {
        let endings: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            Kind::Info => &["_info"],
        };
        endings.iter().map(|ending| format!("{}{ending}", self.name)).collect()
    }

    /// Whether it is about servers, which a page may leave out.
    pub fn is_of_servers(&self) -> bool {
        matches!(self.of, Of::Server(_) | Of::Responses | Of::States | Of::Checks)
    }
}

const fn counter(name: &'static str, help: &'static str, of: Of) -> Family {
    Family { name, kind: Kind::Counter, unit: None, help, labels: &[], of }
}

const fn gauge(name: &'static str, help: &'static str, of: Of) -> Family {
    Family { name, kind: Kind::Gauge, unit: None, help, labels: &[], of }
}

impl Family {
    const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
}

/// All of them, in the order of a page.
pub static FAMILIES: &[Family] = &[
    Family {
        name: "peerage_build",
        kind: Kind::Info,
        unit: None,
        help: "Version and build of the module, and the nginx that it was built for.",
        labels: &["version", "build", "nginx"],
        of: Of::Build,
    },
    gauge(
        "peerage_revision",
        "Revision of the last change in force.",
        Of::Zone(|zone| Some(Value::Int(zone.revision))),
    ),
    gauge("peerage_zone_bytes", "Bytes of the zone, by kind.", Of::Bytes)
        .unit("bytes")
        .labels(&["kind"]),
    counter(
        "peerage_zone_no_room",
        "Changes refused because the zone had no room.",
        Of::Zone(|zone| Some(Value::Int(zone.no_room))),
    ),
    gauge(
        "peerage_state_lag_seconds",
        "How long the oldest change in force has not been on the disk, 0 where all are.",
        Of::Zone(|zone| Some(Value::Millis(zone.state?.lag_ms))),
    )
    .unit("seconds"),
    counter(
        "peerage_state_errors",
        "Failed writes of the state file.",
        Of::Zone(|zone| Some(Value::Int(zone.state?.errors))),
    ),
    counter(
        "peerage_checks_late",
        "Probes that began later than their interval says.",
        Of::Zone(|zone| Some(Value::Int(zone.checks_late))),
    ),
    gauge("peerage_routes", "Routes in the zone.", Of::Zone(|zone| Some(Value::Int(zone.routes)))),
    counter("peerage_route_lookups", "Look-ups of keys by what they came to.", Of::Lookups)
        .labels(&["status"]),
    gauge(
        "peerage_store_up",
        "1 where the store of routes answered last, with what it had; 0 where it failed five times since.",
        Of::Store(|store| Value::Int(store.up.into())),
    ),
    gauge(
        "peerage_store_tracked",
        "1 where what changes in the store is heard.",
        Of::Store(|store| Value::Int(store.tracked.into())),
    ),
    counter(
        "peerage_store_questions",
        "Questions to the store.",
        Of::Store(|store| Value::Int(store.questions)),
    ),
    counter("peerage_store_failures", "Questions without an answer, by reason.", Of::Failures)
        .labels(&["reason"]),
    gauge(
        "peerage_store_cached",
        "What is cached of the store, by kind; absent are keys that it does not have.",
        Of::Cached(|(there, _)| there),
    )
    .labels(&["kind"]),
    counter(
        "peerage_store_evicted",
        "What was cached and made room for others, by kind.",
        Of::Cached(|(_, evicted)| evicted),
    )
    .labels(&["kind"]),
    gauge(
        "peerage_source_up",
        "1 where the last read of the source was answered, 0 where it is stale.",
        Of::Source(|source| Some(Value::Int(source.up.into()))),
    ),
    gauge(
        "peerage_source_age_seconds",
        "How old what a source said last is that is stale, 0 where it is not.",
        Of::Source(|source| source.age_ms.map(Value::Millis)),
    )
    .unit("seconds"),
    gauge(
        "peerage_source_held",
        "Those that are kept though their source names them no longer.",
        Of::Source(|source| Some(Value::Int(source.held.into()))),
    ),
    gauge(
        "peerage_upstream_eligible",
        "Servers that take new requests now.",
        Of::Upstream(|upstream| Value::Int(upstream.eligible.into())),
    ),
    Family {
        name: "peerage_upstream_response_time_seconds",
        kind: Kind::Histogram,
        unit: Some("seconds"),
        help: "Time from the beginning of a try until the end of the response.",
        labels: &[],
        of: Of::Times,
    },
    gauge(
        "peerage_upstream_server_state",
        "1 for the state that the server is in, 0 for all others.",
        Of::States,
    )
    .labels(&["state"]),
    gauge(
        "peerage_upstream_server_admin_since_seconds",
        "Unix time since when the server or its host is set down or set to drain.",
        Of::Server(|server| server.admin_since.map(Value::Millis)),
    )
    .unit("seconds"),
    gauge(
        "peerage_upstream_server_weight",
        "Weight of the server.",
        Of::Server(|server| Some(Value::Int(server.weight.into()))),
    ),
    gauge(
        "peerage_upstream_server_max_conns",
        "Most requests to the server at a time, 0 for no limit.",
        Of::Server(|server| Some(Value::Int(server.max_conns.into()))),
    ),
    gauge(
        "peerage_upstream_server_active",
        "Requests in flight to the server, over all workers.",
        Of::Server(|server| Some(Value::Int(server.active))),
    ),
    gauge(
        "peerage_upstream_server_selected_seconds",
        "Unix time when the server was last chosen.",
        Of::Server(|server| (server.selected != 0).then_some(Value::Millis(server.selected))),
    )
    .unit("seconds"),
    counter(
        "peerage_upstream_server_requests",
        "Requests sent to the server, counted when they end.",
        Of::Server(|server| Some(Value::Int(server.requests))),
    ),
    counter(
        "peerage_upstream_server_responses",
        "Responses of the server by status; beyond eight statuses by class.",
        Of::Responses,
    )
    .labels(&["code"]),
    counter(
        "peerage_upstream_server_fails",
        "Requests to the server that failed.",
        Of::Server(|server| Some(Value::Int(server.fails))),
    ),
    counter(
        "peerage_upstream_server_unavail",
        "How often max_fails switched the server off, or an ejection.",
        Of::Server(|server| Some(Value::Int(server.unavail))),
    ),
    counter(
        "peerage_upstream_server_health_checks",
        "Probes of the server by result, where its upstream has a check.",
        Of::Checks,
    )
    .labels(&["result"]),
    counter(
        "peerage_upstream_server_sent_bytes",
        "Bytes sent to the server.",
        Of::Server(|server| Some(Value::Int(server.sent))),
    )
    .unit("bytes"),
    counter(
        "peerage_upstream_server_received_bytes",
        "Bytes received from the server.",
        Of::Server(|server| Some(Value::Int(server.received))),
    )
    .unit("bytes"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_once_each_and_end_as_the_formats_demand() {
        let mut names = BTreeSet::new();
        for family in FAMILIES {
            for name in family.sample_names() {
                assert!(names.insert(name.clone()), "{name} twice");
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            }
            let ends = |ending: &str| family.name.ends_with(ending);
            assert!(family.unit.is_none_or(|unit| ends(&format!("_{unit}"))), "{}", family.name);
            assert_eq!(ends("_seconds") || ends("_bytes"), family.unit.is_some());
            assert!(!["_total", "_info", "_count", "_sum", "_bucket"].iter().any(|e| ends(e)));
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '"']));
        }
    }
}
