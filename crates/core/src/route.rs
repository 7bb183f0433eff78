//! Routes: from a tenant's key to the upstream that serves it, its app.
//!
//! A route is one entry of the table of a zone: `v1/routes` writes it, requests look it up. Apps are
//! upstreams; a route names one, so that many tenants move by one change of the app, and one
//! tenant by one change of its route.

pub mod app;
pub mod breaker;
pub mod change;
pub mod conf;
pub mod decide;
mod key;
pub mod limiter;
pub mod redis;
pub mod reply;
pub mod saved;
mod status;

use std::collections::BTreeMap;

pub use self::key::{KeyError, RouteKey, is_key};
pub use self::status::{Answers, Status, StatusError};
use crate::field::{self, FieldError, MAX_LABELS};
use crate::name::UpstreamName;
use crate::server::Origin;
use crate::upstream::Fold;

/// A route, as it is declared and wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whose it is.
    pub key: RouteKey,
    /// Where requests go.
    pub upstream: UpstreamName,
    /// Whether they may.
    pub status: Status,
    /// Why it is so.
    pub reason: String,
    /// When it ends by itself, unix ms.
    pub until: Option<u64>,
    /// Free texts, by key.
    pub labels: BTreeMap<String, String>,
    /// Who made it.
    pub origin: Origin,
}

impl Route {
    /// An active route of the API that says no more.
    pub const fn new(key: RouteKey, upstream: UpstreamName) -> Self {
        Self {
            key,
            upstream,
            status: Status::Active,
            reason: String::new(),
            until: None,
            labels: BTreeMap::new(),
            origin: Origin::Api,
        }
    }

    /// Hash of what is declared and wanted, without origin and times: equal on any box.
    pub fn digest(&self) -> u64 {
        let mut fold = Fold::new();
        fold.text(self.key.as_str());
        fold.text(self.upstream.as_str());
        fold.text(self.status.as_str());
        fold.text(&self.reason);
        fold.number(self.labels.len() as u64);
        for (key, value) in &self.labels {
            fold.text(key);
            fold.text(value);
        }
        fold.end()
    }

    /// The digest as the text of the `ETag`, without quotes.
    pub fn digest_text(&self) -> String {
        format!("{:016x}", self.digest())
    }

    /// Tells whether it keeps the rules of fields, for who reads it from a file.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        field::reason(&self.reason)?;
        check_labels(&self.labels)
    }
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), FieldError> {
    if labels.len() > MAX_LABELS {
        return Err(FieldError::Labels);
    }
    for (key, value) in labels {
        field::label_key(key)?;
        field::label_value(value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_of_what_is_wanted() {
        let key = RouteKey::parse("acme").unwrap();
        let route = Route::new(key, UpstreamName::parse("orders").unwrap());
        let same = Route { until: Some(5), origin: Origin::Config, ..route.clone() };
        assert_eq!(route.digest(), same.digest());
        let labels = BTreeMap::from([("tier".to_owned(), "a".to_owned())]);
        let others = [
            Route { status: Status::Suspended, ..route.clone() },
            Route { upstream: UpstreamName::parse("b").unwrap(), ..route.clone() },
            Route { reason: "late".into(), ..route.clone() },
            Route { labels, ..route.clone() },
        ];
        assert!(others.iter().all(|other| other.digest() != route.digest()));
        assert_eq!(route.digest_text().len(), 16);
    }
}
