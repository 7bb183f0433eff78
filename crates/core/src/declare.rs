//! What the configuration declares: the blocks' servers and defaults, read from directive words.

use std::collections::HashSet;
use std::net::SocketAddr;

use thiserror::Error;

use crate::addr::{AddrError, ServerAddr};
use crate::field::{self, FieldError};
use crate::name::UpstreamName;
use crate::server::{AdminState, Declared, Params};
use crate::upstream::{Defaults, Settings};

/// A server line of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredServer {
    /// Its address.
    pub addr: ServerAddr,
    /// The text of the address, where that is not the canonical one.
    pub given: Option<String>,
    /// Whether it is a name that is resolved at run time.
    pub resolve: bool,
    /// The addresses of a name, resolved at load.
    pub addrs: Vec<SocketAddr>,
    /// Its parameters.
    pub params: Params,
    /// Its first admin state.
    pub admin: AdminState,
}

/// A block of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredUpstream {
    /// The name of the upstream.
    pub name: UpstreamName,
    /// Its settings.
    pub settings: Settings,
    /// Its servers, in order.
    pub servers: Vec<DeclaredServer>,
}

/// Why words of a directive are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// The address.
    #[error("invalid address \"{text}\": {error}")]
    Addr {
        /// The word.
        text: String,
        /// Why.
        error: AddrError,
    },
    /// A parameter nobody knows.
    #[error("invalid parameter \"{0}\"")]
    Unknown(String),
    /// A parameter twice.
    #[error("duplicate parameter \"{0}\"")]
    Twice(String),
    /// A parameter that must be said.
    #[error("parameter \"{0}\" is missing")]
    Missing(&'static str),
    /// A value that does not fit; `word` is the whole `name=value`.
    #[error("invalid value \"{word}\": it {error}")]
    Value {
        /// The word.
        word: String,
        /// Why.
        error: FieldError,
    },
}

impl DeclaredServer {
    /// A server that says nothing but its address.
    pub fn new(text: &str) -> Result<Self, DeclareError> {
        let addr = ServerAddr::parse(text)
            .map_err(|error| DeclareError::Addr { text: text.to_owned(), error })?;
        let given = given(&addr, text);
        let (params, admin) = (Params::default(), AdminState::Up);
        Ok(Self { addr, given, resolve: false, addrs: Vec::new(), params, admin })
    }

    /// Reads the words of `peerage_server`: the address and its parameters. A name is resolved at
    /// run time.
    pub fn parse(text: &str, words: &[&str]) -> Result<Self, DeclareError> {
        let mut server = Self::new(text)?;
        server.resolve = server.addr.is_name();
        let mut seen = HashSet::new();
        let mut limits = Defaults::default();
        for &word in words {
            let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
            if name != "label" && !seen.insert(name) {
                return Err(DeclareError::Twice(name.to_owned()));
            }
            if let Some(value) = value
                && limits.set(name, value).map_err(|error| bad(word, error))?
            {
                continue;
            }
            match (name, value) {
                ("backup", None) => server.params.backup = true,
                ("down", None) => server.admin = AdminState::Down,
                ("drain", None) if server.admin != AdminState::Down => {
                    server.admin = AdminState::Drain;
                }
                // Names are resolved at run time in any case; `down` goes over `drain`.
                ("drain" | "resolve", None) => {}
                ("route", Some(value)) => {
                    field::route(value)
                        .map_err(|error| bad(word, error))?
                        .clone_into(&mut server.params.route);
                }
                ("label", Some(label)) => server.label(word, label)?,
                _ => return Err(DeclareError::Unknown(word.to_owned())),
            }
        }
        let Defaults { weight, max_conns, max_fails, fail_timeout, slow_start } = limits;
        let Params { backup, route, labels, .. } = server.params;
        server.params = Params {
            weight,
            max_conns,
            max_fails,
            fail_timeout,
            slow_start,
            backup,
            route,
            labels,
        };
        Ok(server)
    }

    /// What is remembered of the line until the next load.
    pub fn declared(&self) -> Declared {
        Declared { params: self.params.clone(), admin: self.admin }
    }

    fn label(&mut self, word: &str, label: &str) -> Result<(), DeclareError> {
        let (key, value) = label.split_once(':').unwrap_or((label, ""));
        let key = field::label_key(key).map_err(|error| bad(word, error))?;
        let value = field::label_value(value).map_err(|error| bad(word, error))?;
        if self.params.labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(DeclareError::Twice(format!("label={key}")));
        }
        if self.params.labels.len() > field::MAX_LABELS {
            return Err(bad(word, FieldError::Labels));
        }
        Ok(())
    }
}

impl DeclaredUpstream {
    /// The first address that comes twice, which no upstream may have.
    pub fn duplicate(&self) -> Option<&ServerAddr> {
        let mut seen = HashSet::new();
        self.servers.iter().map(|server| &server.addr).find(|addr| !seen.insert(*addr))
    }
}

impl Defaults {
    /// Reads the words of `peerage_defaults`.
    pub fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let mut defaults = Self::default();
        let mut seen = HashSet::new();
        for &word in words {
            let Some((name, value)) = word.split_once('=') else {
                return Err(DeclareError::Unknown(word.to_owned()));
            };
            if !seen.insert(name) {
                return Err(DeclareError::Twice(name.to_owned()));
            }
            if !defaults.set(name, value).map_err(|error| bad(word, error))? {
                return Err(DeclareError::Unknown(word.to_owned()));
            }
        }
        Ok(defaults)
    }

    /// Sets the limit of that name; `false` where there is none.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, FieldError> {
        match name {
            "weight" => self.weight = Some(field::weight(number(value))?),
            "max_conns" => self.max_conns = Some(field::max_conns(number(value))?),
            "max_fails" => self.max_fails = Some(field::max_fails(number(value))?),
            "fail_timeout" => self.fail_timeout = Some(field::seconds(value)?),
            "slow_start" => self.slow_start = Some(field::slow_start(field::seconds(value)?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The text of an address, where that is not the canonical one.
pub(crate) fn given(addr: &ServerAddr, text: &str) -> Option<String> {
    (addr.to_string() != text).then(|| text.to_owned())
}

/// A number of digits alone; what is none is out of every range.
pub(crate) fn number(text: &str) -> i64 {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return -1;
    }
    text.parse().unwrap_or(i64::MAX)
}

fn bad(word: &str, error: FieldError) -> DeclareError {
    DeclareError::Value { word: word.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Secs;

    #[test]
    fn words_of_a_server_line_are_read() {
        let words = ["weight=3", "max_conns=10", "fail_timeout=1m", "backup", "down", "drain"];
        let server = DeclaredServer::parse("10.0.0.1", &words).unwrap();
        assert_eq!(server.given.as_deref(), Some("10.0.0.1"));
        assert_eq!(server.params.weight, Some(3));
        assert_eq!(server.params.fail_timeout, Some(Secs(60)));
        assert!(server.params.backup);
        assert_eq!(server.admin, AdminState::Down);
        let labels = ["label=zone:a", "label=rack:b:c", "route=r1", "resolve"];
        let server = DeclaredServer::parse("App:8080", &labels).unwrap();
        assert_eq!(server.params.labels["rack"], "b:c");
        assert_eq!(server.given.as_deref(), Some("App:8080"));
        assert!(server.resolve);
        assert!(!DeclaredServer::parse("10.0.0.1", &["resolve"]).unwrap().resolve);
    }

    #[test]
    fn a_bad_word_is_named() {
        let table = [
            (
                vec!["weight=-1"],
                "invalid value \"weight=-1\": it must be a whole number from 0 to 65535",
            ),
            (
                vec!["weight=65536"],
                "invalid value \"weight=65536\": it must be a whole number from 0 to 65535",
            ),
            (
                vec!["weight="],
                "invalid value \"weight=\": it must be a whole number from 0 to 65535",
            ),
            (vec!["weight"], "invalid parameter \"weight\""),
            (vec!["down=1"], "invalid parameter \"down=1\""),
            (vec!["service=http"], "invalid parameter \"service=http\""),
            (vec!["weight=1", "weight=1"], "duplicate parameter \"weight\""),
            (vec!["slow_start=5h"], "invalid value \"slow_start=5h\": it must be at most 4h"),
            (
                vec!["fail_timeout=x"],
                "invalid value \"fail_timeout=x\": it is not a time like \"30s\" or \"1m30s\"",
            ),
            (
                vec!["label=:x"],
                "invalid value \"label=:x\": it must have keys that are not empty and have no colon",
            ),
        ];
        for (words, text) in table {
            let error = DeclaredServer::parse("10.0.0.1:1", &words).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        assert!(Defaults::parse(&["backup"]).is_err());
        assert!(Defaults::parse(&["route=x"]).is_err());
        assert_eq!(Defaults::parse(&["weight=5"]).unwrap().weight, Some(5));
    }

    #[test]
    fn one_address_in_two_texts_is_a_duplicate() {
        let server = |text| DeclaredServer::new(text).unwrap();
        let mut block = DeclaredUpstream {
            name: UpstreamName::parse("app").unwrap(),
            settings: Settings::default(),
            servers: vec![server("10.0.0.1"), server("10.0.0.1:81")],
        };
        assert_eq!(block.duplicate(), None);
        block.servers.push(server("10.0.0.1:80"));
        assert_eq!(block.duplicate(), Some(&block.servers[0].addr));
    }
}
