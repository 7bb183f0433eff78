//! The directive `peerage_consul`: where a Consul is, and how it is asked.

use crate::addr::ServerAddr;
use crate::check::words::{each, millis};
use crate::declare::DeclareError;
use crate::field::{self, FieldError};
use crate::units::Millis;

/// A Consul that sources name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consul {
    /// How `peerage_service` names it.
    pub name: String,
    /// Its addresses, in the order in which they are tried.
    pub servers: Vec<Endpoint>,
    /// The file that its token is read from.
    pub token_file: Option<String>,
    /// The datacenter that is asked for; `None`: the agent's own.
    pub dc: Option<String>,
    /// The namespace.
    pub ns: Option<String>,
    /// How long the Consul may wait for a change before it answers.
    pub wait: Millis,
    /// The file of the authorities that its certificate is verified by.
    pub ca: Option<String>,
    /// The file of our certificate.
    pub cert: Option<String>,
    /// The file of its key.
    pub key: Option<String>,
    /// The name that its certificate must have.
    pub tls_name: Option<String>,
}

/// One address of a Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it is `https`.
    pub tls: bool,
    /// Where it listens.
    pub addr: ServerAddr,
}

/// How long a Consul waits where nothing is said.
pub const WAIT: Millis = Millis(5 * 60_000);
/// The shortest and the longest time; Consul itself waits no longer than the latter.
const WAITS: (Millis, Millis) = (Millis(1_000), Millis(10 * 60_000));
/// The longest name, path or parameter, in bytes.
pub(super) const MAX_TEXT: usize = 255;

impl Endpoint {
    /// Reads `http://address`, `https://address`, with the ports of Consul where none is said.
    pub fn parse(text: &str) -> Option<Self> {
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = match rest.strip_prefix('[') {
            Some(rest) => rest.contains("]:"),
            None => rest.contains(':'),
        };
        let port = if tls { 8501 } else { 8500 };
        let text = if has_port { rest.to_owned() } else { format!("{rest}:{port}") };
        match ServerAddr::parse(&text).ok()? {
            // A path has slashes, which the authority of a URL has not.
            ServerAddr::Unix(_) => None,
            addr => Some(Self { tls, addr }),
        }
    }

    /// The value of `Host`.
    pub fn host(&self) -> String {
        self.addr.to_string()
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.addr)
    }
}

impl Consul {
    /// Reads the words of the directive: the name and its parameters.
    pub fn parse(name: &str, words: &[&str]) -> Result<Self, DeclareError> {
        if !is_name(name) {
            let word = name.to_owned();
            return Err(DeclareError::Value { word, error: FieldError::SourceName });
        }
        let mut consul = Self {
            name: name.to_owned(),
            servers: Vec::new(),
            token_file: None,
            dc: None,
            ns: None,
            wait: WAIT,
            ca: None,
            cert: None,
            key: None,
            tls_name: None,
        };
        // Only addresses may be said more than once.
        let (servers, rest): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.starts_with("server="));
        for word in servers {
            let bad = |error| DeclareError::Value { word: word.to_owned(), error };
            let server = Endpoint::parse(&word["server=".len()..]);
            let server = server.ok_or_else(|| bad(FieldError::Url))?;
            if consul.servers.contains(&server) {
                return Err(DeclareError::Twice(word.to_owned()));
            }
            consul.servers.push(server);
        }
        each(&rest, |name, value| {
            let Some(value) = value else { return Ok(false) };
            let text = || field::text(value, MAX_TEXT).map(|text| Some(text.to_owned()));
            match name {
                "token_file" => consul.token_file = text()?,
                "dc" => consul.dc = text()?,
                "ns" => consul.ns = text()?,
                "wait" => {
                    let (min, max) = WAITS;
                    consul.wait = Some(millis(value)?)
                        .filter(|wait| (min..=max).contains(wait))
                        .ok_or(FieldError::Span { min, max })?;
                }
                "ca" => consul.ca = text()?,
                "cert" => consul.cert = text()?,
                "key" => consul.key = text()?,
                "tls_name" => consul.tls_name = Some(field::tls_name(value)?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        consul.fits(&rest)?;
        Ok(consul)
    }

    /// What the words have to be together.
    fn fits(&self, words: &[&str]) -> Result<(), DeclareError> {
        if self.servers.is_empty() {
            return Err(DeclareError::Missing("server"));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(DeclareError::Missing(if self.cert.is_some() { "key" } else { "cert" }));
        }
        let of_tls = |word: &&&str| {
            ["ca=", "cert=", "key=", "tls_name="].iter().any(|name| word.starts_with(name))
        };
        match words.iter().find(of_tls) {
            Some(word) if !self.servers.iter().any(|server| server.tls) => {
                Err(DeclareError::Value {
                    word: (*word).to_owned(),
                    error: FieldError::NotOf("http"),
                })
            }
            _ => Ok(()),
        }
    }
}

/// A name that is a segment of a path and a part of `consul:NAME:SERVICE`.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !matches!(text, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_directive_are_read() {
        let words = [
            "server=https://[::1]",
            "server=http://consul.internal:18500/",
            "token_file=/etc/nginx/token",
            "dc=dc2",
            "ns=team",
            "wait=1m30s",
            "ca=/ca.pem",
            "cert=/c.pem",
            "key=/k.pem",
            "tls_name=server.dc2.consul",
        ];
        let consul = Consul::parse("dc2", &words).unwrap();
        let servers: Vec<String> = consul.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["https://[::1]:8501", "http://consul.internal:18500"]);
        assert_eq!((consul.wait, consul.dc.as_deref()), (Millis(90_000), Some("dc2")));
        let least = Consul::parse("dc1", &["server=http://127.0.0.1"]).unwrap();
        assert_eq!((least.servers[0].host(), least.wait), ("127.0.0.1:8500".into(), WAIT));
    }

    #[test]
    fn a_bad_word_is_named() {
        let server = "server=http://127.0.0.1:8500";
        let url = |word| {
            format!("invalid value \"{word}\": it must be a URL like \"http://127.0.0.1:8500\"")
        };
        let table = [
            ("dc1", vec![], "parameter \"server\" is missing".to_owned()),
            ("a/b", vec![server], "invalid value \"a/b\": it must be a name of letters, digits, \"-\", \"_\", \".\", at most 64".to_owned()),
            ("dc1", vec!["server=127.0.0.1:8500"], url("server=127.0.0.1:8500")),
            ("dc1", vec!["server=http://a:0"], url("server=http://a:0")),
            ("dc1", vec!["server=http://unix:/run/a"], url("server=http://unix:/run/a")),
            ("dc1", vec!["server=http://a/v1"], url("server=http://a/v1")),
            ("dc1", vec![server, server], format!("duplicate parameter \"{server}\"")),
            ("dc1", vec![server, "wait=11m"], "invalid value \"wait=11m\": it must be a time from 1s to 600s".to_owned()),
            ("dc1", vec![server, "wait=1m", "wait=1m"], "duplicate parameter \"wait\"".to_owned()),
            ("dc1", vec![server, "tls"], "invalid parameter \"tls\"".to_owned()),
            ("dc1", vec![server, "dc="], "invalid value \"dc=\": it must not be empty".to_owned()),
            ("dc1", vec!["server=https://a", "cert=/a"], "parameter \"key\" is missing".to_owned()),
            ("dc1", vec![server, "ca=/a"], "invalid value \"ca=/a\": it has no meaning where the type is \"http\"".to_owned()),
        ];
        for (name, words, text) in table {
            assert_eq!(Consul::parse(name, &words).unwrap_err().to_string(), text);
        }
    }
}
