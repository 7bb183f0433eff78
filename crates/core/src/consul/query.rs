//! The next read of a Consul, as a request.

use crate::consul::service::Service;
use crate::consul::settings::Consul;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The instances of a service.
    Health(&'a str),
    /// The names of all services, with their tags.
    Catalog,
}

/// How it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// The index that the Consul is to wait beyond; 0: it answers at once.
    pub index: u64,
    /// Its leader is to make sure that it still is one.
    pub consistent: bool,
    /// How long it may wait, ms, where that is less than its `wait`.
    pub wait: Option<u64>,
}

/// A `GET` with all that it is made of but the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Path and parameters.
    pub target: String,
    /// Headers beside `Host`.
    pub headers: Vec<(&'static str, String)>,
    /// Within how many milliseconds the whole answer must be there.
    pub deadline: u64,
}

impl Query {
    /// The read of what a service follows.
    ///
    /// Entries that are not passing are asked for too: they are told from those that are gone.
    pub fn new(
        consul: &Consul,
        service: &Service,
        what: What<'_>,
        how: How,
        token: Option<&str>,
    ) -> Self {
        let mut target = match what {
            What::Health(name) => format!("/v1/health/service/{}", encode(name)),
            What::Catalog => "/v1/catalog/services".to_owned(),
        };
        let mut mark = '?';
        let mut add = |name: &str, value: Option<&str>| {
            target.push(std::mem::replace(&mut mark, '&'));
            target.push_str(name);
            if let Some(value) = value {
                target.push('=');
                target.push_str(&encode(value));
            }
        };
        let mut wait = 0;
        if how.index > 0 {
            wait = how.wait.unwrap_or(u64::MAX).min(consul.wait.0);
            add("index", Some(&how.index.to_string()));
            add("wait", Some(&format!("{wait}ms")));
        }
        if how.consistent {
            add("consistent", None);
        }
        for (name, value) in [("dc", &consul.dc), ("ns", &consul.ns)] {
            value.iter().for_each(|value| add(name, Some(value)));
        }
        if let What::Health(_) = what {
            let Service { tag, filter, near, .. } = service;
            for (name, value) in [("tag", tag), ("filter", filter), ("near", near)] {
                value.iter().for_each(|value| add(name, Some(value)));
            }
        }
        let mut headers = vec![("Accept", "application/json".to_owned())];
        headers.extend(token.map(|token| ("X-Consul-Token", token.to_owned())));
        // The server adds up to a sixteenth, so that not all come back at once; without a leader
        // it thinks for seconds.
        Self { target, headers, deadline: wait + wait / 16 + SPARE }
    }
}

/// What an answer may take beside the time that it was to wait.
const SPARE: u64 = 10_000;

/// Everything but the characters that have no meaning anywhere in a URL, percent-encoded.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    // Whole segments of dots are taken away on the way.
    if matches!(text, "." | "..") { text.replace('.', "%2E") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consul(words: &[&str]) -> Consul {
        Consul::parse("dc1", &[&["server=http://127.0.0.1"], words].concat()).unwrap()
    }

    fn service(of: &str, words: &[&str]) -> Service {
        Service::parse(of, &[&["consul=dc1"], words].concat()).unwrap()
    }

    #[test]
    fn rule_1_a_read_waits_beyond_an_index_and_asks_for_all_instances() {
        let (consul, web) = (consul(&[]), service("web", &[]));
        let how = How { index: 7, ..How::default() };
        let query = Query::new(&consul, &web, What::Health("web"), how, None);
        assert_eq!(query.target, "/v1/health/service/web?index=7&wait=300000ms");
        assert_eq!(query.deadline, 300_000 * 17 / 16 + 10_000);
        let first = Query::new(&consul, &web, What::Health("web"), How::default(), None);
        assert_eq!((first.target.as_str(), first.deadline), ("/v1/health/service/web", 10_000));
    }

    #[test]
    fn rule_10_parameters_pass_through_and_the_token_is_a_header() {
        let consul = consul(&["dc=dc 2", "ns=team&x=1", "wait=10s"]);
        let words = ["tag=v2", "filter=Service.Meta.zone == \"a\"", "near=_agent"];
        let web = service("web", &words);
        let how = How { index: 1, consistent: true, wait: Some(u64::MAX) };
        let query = Query::new(&consul, &web, What::Health("a/../b"), how, Some("s3cret"));
        assert_eq!(
            query.target,
            "/v1/health/service/a%2F..%2Fb?index=1&wait=10000ms&consistent&dc=dc%202\
             &ns=team%26x%3D1&tag=v2&filter=Service.Meta.zone%20%3D%3D%20%22a%22&near=_agent"
        );
        assert!(query.headers.contains(&("X-Consul-Token", "s3cret".to_owned())));
        assert!(!query.target.contains("s3cret"));
        let catalog = Query::new(&consul, &web, What::Catalog, How::default(), None);
        assert_eq!(catalog.target, "/v1/catalog/services?dc=dc%202&ns=team%26x%3D1");
        let dots = Query::new(&consul, &web, What::Health(".."), How::default(), None);
        assert!(dots.target.starts_with("/v1/health/service/%2E%2E?"));
    }
}
