//! How a source of servers is shown.

use serde::Serialize;

use crate::consul::guard::Why;
use crate::consul::status::Status;
use crate::time::iso;

/// What is held of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Why.
    pub why: Why,
    /// Since when, unix ms.
    pub since: u64,
    /// When it is decided, unix ms; `None`: by the source or an operator alone.
    pub until: Option<u64>,
    /// How many servers.
    pub servers: u32,
}

/// A source as `v1/sources` and the report of its zone show it.
#[derive(Clone, Debug, Serialize)]
pub struct SourceJson {
    /// `consul/dc1:web`
    name: String,
    state: &'static str,
    since: Option<String>,
    age_seconds: Option<u64>,
    index: u64,
    last_success: Option<String>,
    last_error: Option<ErrorJson>,
    answers: u64,
    failures: u64,
    skipped: u32,
    watcher: Option<u32>,
    held: Option<HeldJson>,
}

#[derive(Clone, Debug, Serialize)]
struct ErrorJson {
    text: String,
    time: String,
}

#[derive(Clone, Debug, Serialize)]
struct HeldJson {
    why: WhyJson,
    since: String,
    until: Option<String>,
    servers: u32,
}

#[derive(Clone, Debug, Serialize)]
struct WhyJson {
    code: &'static str,
    text: String,
}

impl SourceJson {
    /// Of a source of a Consul, `dc1:web`, that this process watches; 0 = none does.
    pub fn consul(
        name: &str,
        status: &Status,
        held: Option<&Held>,
        watcher: u32,
        now: u64,
    ) -> Self {
        let error = status.last_error.as_ref();
        Self {
            name: format!("consul/{name}"),
            state: status.health.as_str(),
            since: Some(status.since).filter(|&at| at != 0).map(iso),
            age_seconds: status.age(now).map(|age| age / 1000),
            index: status.index,
            last_success: status.last_success.map(iso),
            last_error: error.map(|(text, at)| ErrorJson { text: text.clone(), time: iso(*at) }),
            answers: status.answers,
            failures: status.failures,
            skipped: status.skipped,
            watcher: Some(watcher).filter(|&pid| pid != 0),
            held: held.map(|held| HeldJson {
                why: WhyJson { code: held.why.code(), text: held.why.to_string() },
                since: iso(held.since),
                until: held.until.map(iso),
                servers: held.servers,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_shows_how_it_stands_and_what_is_held() {
        let mut status = Status::default();
        status.succeed(812, 1_795_986_307_000);
        status.fail("status 500: No cluster leader".into(), 1_795_986_310_000);
        let why = Why::Removal { removed: 3, of: 4 };
        let (since, until) = (1_795_986_307_000, Some(1_795_986_309_000));
        let held = Held { why, since, until, servers: 3 };
        let now = 1_795_986_319_000;
        let shown = SourceJson::consul("dc1:web", &status, Some(&held), 4711, now);
        let expected = json!({
            "name": "consul/dc1:web", "state": "stale", "since": "2026-11-29T21:05:10Z",
            "age_seconds": 12, "index": 812, "last_success": "2026-11-29T21:05:07Z",
            "last_error": {
                "text": "status 500: No cluster leader", "time": "2026-11-29T21:05:10Z",
            },
            "answers": 1, "failures": 1, "skipped": 0, "watcher": 4711,
            "held": {
                "why": {"code": "max_removal", "text": "3 of 4 servers would go at once"},
                "since": "2026-11-29T21:05:07Z", "until": "2026-11-29T21:05:09Z", "servers": 3,
            },
        });
        assert_eq!(serde_json::to_value(&shown).unwrap(), expected);
        let new =
            serde_json::to_value(SourceJson::consul("dc1:web", &Status::default(), None, 0, now));
        let new = new.unwrap();
        assert_eq!(
            (&new["state"], &new["watcher"], &new["held"]),
            (&json!("waiting"), &json!(null), &json!(null))
        );
    }
}
