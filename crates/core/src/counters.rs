//! What is counted of a peer, with the names and units of the Plus peer when shown.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::check::results::HealthChecks;
use crate::time::iso;

/// Upper bounds of the buckets of response times, ms; one more bucket takes the rest.
pub const BUCKETS_MS: [u32; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

/// Counters of a peer; kept over reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests in flight.
    pub active: u64,
    /// Upgraded connections among them.
    pub upgraded: u64,
    /// Requests that were sent to it.
    pub requests: u64,
    /// Responses by class, 1xx to 5xx.
    pub responses: [u64; 5],
    /// Responses by status.
    pub codes: Vec<(u16, u64)>,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
    /// Attempts that failed.
    pub fails: u64,
    /// How often `max_fails` switched it off.
    pub unavail: u64,
    /// Average time to the header, ms; 0 is not measured.
    pub header_time: u64,
    /// Average time to the end, ms; 0 is not measured.
    pub response_time: u64,
    /// When it was last chosen, unix ms; 0 is never.
    pub selected: u64,
    /// Results of its health checks.
    pub health_checks: HealthChecks,
    /// How long it was not available in all, ms.
    pub downtime: u64,
    /// Since when it is not available, unix ms.
    pub downstart: Option<u64>,
}

impl Counters {
    /// Responses by class and by status.
    pub fn responses(&self) -> impl Serialize + '_ {
        Responses(self)
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("requests", &self.requests)?;
        map.serialize_entry("responses", &Responses(self))?;
        map.serialize_entry("sent", &self.sent)?;
        map.serialize_entry("received", &self.received)?;
        map.serialize_entry("fails", &self.fails)?;
        map.serialize_entry("unavail", &self.unavail)?;
        map.serialize_entry("health_checks", &self.health_checks)?;
        map.serialize_entry("downtime", &self.downtime)?;
        if self.header_time > 0 {
            map.serialize_entry("header_time", &self.header_time)?;
        }
        if self.response_time > 0 {
            map.serialize_entry("response_time", &self.response_time)?;
        }
        if self.selected > 0 {
            map.serialize_entry("selected", &iso(self.selected))?;
        }
        if let Some(downstart) = self.downstart {
            map.serialize_entry("downstart", &iso(downstart))?;
        }
        map.end()
    }
}

struct Responses<'a>(&'a Counters);

impl Serialize for Responses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(self.0.responses) {
            map.serialize_entry(class, &count)?;
        }
        map.serialize_entry("codes", &Codes(&self.0.codes))?;
        map.serialize_entry("total", &self.0.responses.iter().sum::<u64>())?;
        map.end()
    }
}

struct Codes<'a>(&'a [(u16, u64)]);

impl Serialize for Codes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(code, count)| (code, count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_units_are_those_of_the_plus_peer() {
        let mut counters = Counters { responses: [0, 3, 0, 1, 0], ..Counters::default() };
        counters.codes = vec![(200, 3), (404, 1)];
        counters.requests = 4;
        let text = r#"{"requests":4,"responses":{"1xx":0,"2xx":3,"3xx":0,"4xx":1,"5xx":0,"codes":{"200":3,"404":1},"total":4},"sent":0,"received":0,"fails":0,"unavail":0,"health_checks":{"checks":0,"fails":0,"unhealthy":0},"downtime":0}"#;
        assert_eq!(serde_json::to_string(&counters).unwrap(), text);
        counters.header_time = 5;
        counters.selected = 1_795_986_307_000;
        let text = serde_json::to_string(&counters).unwrap();
        assert!(
            text.ends_with(r#""downtime":0,"header_time":5,"selected":"2026-11-29T21:05:07Z"}"#)
        );
    }
}
