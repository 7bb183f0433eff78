//! Which servers of a zone a listing shows, and where its next page begins.

use std::fmt;
use std::net::IpAddr;

use crate::addr::ServerAddr;
use crate::host::is_on;
use crate::name::UpstreamName;
use crate::server::{AdminState, Server};
use crate::state::State;

/// What a server must be to be shown; what is not said does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFilter {
    /// Any of these states.
    states: Vec<State>,
    /// Any of these admin states of its own.
    admin: Vec<AdminState>,
    /// This label, with this value.
    label: Option<(String, Option<String>)>,
    /// On this host, or at this address.
    address: Option<Address>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Host(IpAddr),
    Server(ServerAddr),
}

impl ServerFilter {
    /// The parameters that [`Self::read`] knows.
    pub const NAMES: [&'static str; 4] = ["state", "admin", "label", "address"];

    /// Reads a parameter; the error says what it may be.
    pub fn read(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "state" => {
                let state = |word: &str| State::ALL.into_iter().find(|s| s.as_str() == word);
                self.states = words(text, state).ok_or_else(|| {
                    let known: Vec<&str> = State::ALL.iter().map(|s| s.as_str()).collect();
                    format!("\"state\" may have {}", known.join(", "))
                })?;
            }
            "admin" => {
                self.admin = words(text, AdminState::parse)
                    .ok_or_else(|| "\"admin\" may have up, drain, down".to_owned())?;
            }
            "label" => {
                let (key, value) = match text.split_once(':') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (text, None),
                };
                if key.is_empty() {
                    return Err("\"label\" must be KEY or KEY:VALUE".to_owned());
                }
                self.label = Some((key.to_owned(), value));
            }
            _ => {
                let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
                self.address = Some(match bare.unwrap_or(text).parse() {
                    Ok(ip) => Address::Host(ip),
                    Err(_) => Address::Server(
                        ServerAddr::parse(text)
                            .map_err(|error| format!("\"address\": \"{text}\": {error}"))?,
                    ),
                });
            }
        }
        Ok(())
    }

    /// Tells whether it shows a server in a state.
    pub fn matches(&self, server: &Server, state: State) -> bool {
        (self.states.is_empty() || self.states.contains(&state)) && self.fits(server)
    }

    /// The same without the state: what can be told without what is live.
    pub fn fits(&self, server: &Server) -> bool {
        if !self.admin.is_empty() && !self.admin.contains(&server.admin.state) {
            return false;
        }
        if let Some((key, value)) = &self.label {
            let has = server.params.labels.get(key);
            if has.is_none() || value.is_some() && has != value.as_ref() {
                return false;
            }
        }
        match &self.address {
            None => true,
            Some(Address::Host(ip)) => is_on(server, *ip),
            Some(Address::Server(addr)) => server.addr == *addr,
        }
    }
}

fn words<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(read).collect()
}

/// A server in the order of listings: upstreams by name, servers by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its upstream.
    pub upstream: UpstreamName,
    /// Its id; `None` = before all of the next upstream.
    pub id: Option<u64>,
}

impl Place {
    /// Reads `app` or `app/7`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, id) = match text.split_once('/') {
            Some((name, id)) => (name, Some(id)),
            None => (text, None),
        };
        let upstream = UpstreamName::parse(name).map_err(|error| format!("after: {error}"))?;
        let id = match id {
            None => None,
            Some(id) if id.bytes().all(|b| b.is_ascii_digit()) => {
                Some(id.parse().map_err(|_| format!("after: \"{id}\" is no id"))?)
            }
            Some(id) => return Err(format!("after: \"{id}\" is no id")),
        };
        Ok(Self { upstream, id })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{}/{id}", self.upstream),
            None => write!(f, "{}", self.upstream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Admin, Origin, Params};

    fn server() -> Server {
        Server {
            id: 7,
            addr: ServerAddr::parse("10.0.0.1:8080").unwrap(),
            given: None,
            origin: Origin::Api,
            params: Params { labels: [("rack".into(), "a".into())].into(), ..Params::default() },
            admin: Admin { state: AdminState::Drain, ..Admin::default() },
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    }

    #[test]
    fn every_parameter_must_fit() {
        let table = [
            ("state", "draining", true),
            ("state", "down,draining", true),
            ("state", "down", false),
            ("admin", "drain", true),
            ("admin", "up,down", false),
            ("label", "rack", true),
            ("label", "rack:a", true),
            ("label", "rack:", false),
            ("label", "row", false),
            ("address", "10.0.0.1", true),
            ("address", "10.0.0.1:8080", true),
            ("address", "::ffff:10.0.0.1", true),
            ("address", "10.0.0.1:80", false),
            ("address", "10.0.0.2", false),
            ("address", "app.internal", false),
        ];
        for (name, text, shown) in table {
            let mut filter = ServerFilter::default();
            filter.read(name, text).unwrap();
            assert_eq!(filter.matches(&server(), State::Draining), shown, "{name}={text}");
        }
        for (name, text) in [("state", ""), ("state", "up,"), ("admin", "x"), ("label", ":a")] {
            assert!(ServerFilter::default().read(name, text).is_err(), "{name}={text}");
        }
        assert!(ServerFilter::default().matches(&server(), State::Up));
    }

    #[test]
    fn places_read_back() {
        for text in ["app", "app/7"] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "app/", "app/x", "app/+7", "a b"] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }
}
