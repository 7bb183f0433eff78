//! The body of a `POST`: the directives of an upstream's block, as far as they are known here.

use std::collections::HashSet;

use thiserror::Error;

use crate::addr::ServerAddr;
use crate::api::error::{Code, Problem};
use crate::body::{AdminBody, Field, ServerBody, UpstreamBody};
use crate::change::Change;
use crate::declare::{DeclareError, DeclaredServer};
use crate::doors::statement::{Statement, SyntaxError, statements};
use crate::server::AdminState;
use crate::template::{Template, TemplateError};
use crate::upstream::Method;

/// The reason of servers that a line takes down; a later line that says nothing sets them up again.
pub const OWN: &str = "dyups";

/// What a body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// What it changes.
    pub change: Change,
    /// Names of directives that were read and have no meaning here, each once.
    pub ignored: Vec<String>,
}

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// It is no list of directives.
    #[error("{0}")]
    Syntax(#[from] SyntaxError),
    /// A directive is wrong.
    #[error("{why} in line {line}")]
    Statement {
        /// How.
        why: Why,
        /// Its line, from 1.
        line: usize,
    },
    /// Nothing would serve.
    #[error("no servers are inside upstream")]
    NoServers,
}

/// Why a directive is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Why {
    /// nginx knows it, here it has no place.
    #[error("\"{0}\" directive is not allowed here")]
    NotAllowed(String),
    /// Nobody knows it.
    #[error("unknown directive \"{0}\"")]
    Unknown(String),
    /// A word has a variable.
    #[error("variables are not allowed in \"{0}\"")]
    Variable(String),
    /// Too few words, or too many.
    #[error("invalid number of arguments in \"{0}\" directive")]
    Arguments(String),
    /// Words that it does not know.
    #[error("invalid parameter \"{word}\" in \"{directive}\" directive")]
    Parameter {
        /// The directive.
        directive: String,
        /// The word.
        word: String,
    },
    /// A server's words.
    #[error("{0}")]
    Server(DeclareError),
    /// An address comes twice.
    #[error("server \"{0}\" comes twice")]
    SameAddress(ServerAddr),
    /// A second method.
    #[error("load balancing method redefined")]
    Method,
    /// The key of `hash`.
    #[error("the key of \"hash\" {0}")]
    Key(TemplateError),
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        Self::new(Code::BadValue, error.to_string())
    }
}

/// Reads a body.
pub fn read(text: &[u8]) -> Result<Posted, BodyError> {
    let mut reader = Reader::default();
    for statement in statements(text)? {
        let line = statement.line;
        reader.statement(&statement).map_err(|why| BodyError::Statement { why, line })?;
    }
    let Reader { mut body, servers, ignored, .. } = reader;
    if servers.is_empty() {
        return Err(BodyError::NoServers);
    }
    body.servers = Some(servers);
    Ok(Posted { change: Change::SetServers { body, own: Some(OWN) }, ignored })
}

#[derive(Default)]
struct Reader {
    body: UpstreamBody,
    servers: Vec<ServerBody>,
    seen: HashSet<ServerAddr>,
    ignored: Vec<String>,
}

impl Reader {
    fn statement(&mut self, statement: &Statement) -> Result<(), Why> {
        let words: Vec<&str> = statement.words.iter().map(String::as_str).collect();
        let Some((&name, args)) = words.split_first() else { return Ok(()) };
        if name != "hash"
            && let Some(word) = words.iter().find(|word| word.contains('$'))
        {
            return Err(Why::Variable((*word).to_owned()));
        }
        match name {
            "server" => self.server(args),
            "least_conn" | "ip_hash" | "random" | "least_time" => {
                let method = Method::parse_words(&words).ok_or_else(|| wrong(name, args))?;
                self.method(method)
            }
            "hash" => self.hash(args),
            "keepalive" | "keepalive_requests" | "keepalive_time" | "keepalive_timeout"
            | "check" => {
                self.ignore(name);
                Ok(())
            }
            _ if name.starts_with("check_") => {
                self.ignore(name);
                Ok(())
            }
            "include" | "zone" | "state" => Err(Why::NotAllowed(name.to_owned())),
            _ => Err(Why::Unknown(name.to_owned())),
        }
    }

    fn server(&mut self, args: &[&str]) -> Result<(), Why> {
        let [addr, words @ ..] = args else { return Err(Why::Arguments("server".to_owned())) };
        let server = DeclaredServer::parse(addr, words).map_err(Why::Server)?;
        if !self.seen.insert(server.addr.clone()) {
            return Err(Why::SameAddress(server.addr));
        }
        self.servers.push(named(server));
        Ok(())
    }

    fn hash(&mut self, args: &[&str]) -> Result<(), Why> {
        let (key, method) = match args {
            [key] => (key, Method::Hash),
            [key, "consistent"] => (key, Method::HashConsistent),
            [_, word] => return Err(wrong("hash", &[word])),
            _ => return Err(Why::Arguments("hash".to_owned())),
        };
        self.body.hash_key = Field::Given(Template::parse(key).map_err(Why::Key)?);
        self.method(method)
    }

    fn method(&mut self, method: Method) -> Result<(), Why> {
        if !self.body.method.is_absent() {
            return Err(Why::Method);
        }
        self.body.method = Field::Given(method);
        Ok(())
    }

    fn ignore(&mut self, name: &str) {
        if !self.ignored.iter().any(|ignored| ignored == name) {
            self.ignored.push(name.to_owned());
        }
    }
}

/// The words of a method that are none of it.
fn wrong(directive: &str, args: &[&str]) -> Why {
    match args.last() {
        Some(word) => Why::Parameter { directive: directive.to_owned(), word: (*word).to_owned() },
        None => Why::Arguments(directive.to_owned()),
    }
}

/// A server's line as a body: what it does not name is not there.
fn named(server: DeclaredServer) -> ServerBody {
    fn field<T>(value: Option<T>) -> Field<T> {
        value.map_or(Field::Absent, Field::Given)
    }
    let DeclaredServer { addr, given, params, admin, .. } = server;
    let labels = params.labels.into_iter().map(|(key, value)| (key, Some(value)));
    let labels: Vec<(String, Option<String>)> = labels.collect();
    let mut body = ServerBody {
        addr: Some(addr),
        given,
        backup: field(params.backup.then_some(true)),
        route: field(Some(params.route).filter(|route| !route.is_empty())),
        labels: field(Some(labels).filter(|labels| !labels.is_empty())),
        ..ServerBody::default()
    };
    body.limits.weight = field(params.weight);
    body.limits.max_conns = field(params.max_conns);
    body.limits.max_fails = field(params.max_fails);
    body.limits.fail_timeout = field(params.fail_timeout);
    body.limits.slow_start = field(params.slow_start);
    if admin != AdminState::Up {
        let (state, reason) = (Some(admin), OWN.to_owned());
        body.admin = Field::Given(AdminBody { state, reason, ..AdminBody::default() });
    }
    body
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Secs;

    fn body(text: &str) -> (UpstreamBody, Vec<String>) {
        let Posted { change, ignored } = read(text.as_bytes()).unwrap();
        let Change::SetServers { body, own: Some(OWN) } = change else { panic!("{change:?}") };
        (body, ignored)
    }

    #[test]
    fn the_documented_bodies_are_read() {
        let (said, ignored) = body("server 127.0.0.1:8089;server 127.0.0.1:8088;");
        let servers = said.servers.as_deref().unwrap();
        let addrs: Vec<String> =
            servers.iter().map(|s| s.addr.as_ref().unwrap().to_string()).collect();
        assert_eq!(addrs, ["127.0.0.1:8089", "127.0.0.1:8088"]);
        assert!(ignored.is_empty());
        let addr = servers[0].addr.clone();
        assert_eq!(servers[0], ServerBody { addr, ..ServerBody::default() });
        assert_eq!(UpstreamBody { servers: None, ..said }, UpstreamBody::default());
    }

    #[test]
    fn what_a_line_names_is_all_that_it_states() {
        let line = "server 10.0.0.1 weight=3 max_fails=2 fail_timeout=1m backup;\n\
                    server '10.0.0.2:80' down;";
        let (said, _) = body(line);
        let [first, second] = said.servers.as_deref().unwrap() else { panic!("{said:?}") };
        assert_eq!(first.given.as_deref(), Some("10.0.0.1"));
        assert_eq!(first.limits.weight, Field::Given(3));
        assert_eq!(first.limits.max_fails, Field::Given(2));
        assert_eq!(first.limits.fail_timeout, Field::Given(Secs(60)));
        assert_eq!(first.backup, Field::Given(true));
        assert!(first.limits.max_conns.is_absent() && first.admin.is_absent());
        let Field::Given(admin) = &second.admin else { panic!("{second:?}") };
        assert_eq!((admin.state, &*admin.reason), (Some(AdminState::Down), "dyups"));
        assert!(second.backup.is_absent() && second.limits.weight.is_absent());
    }

    #[test]
    fn methods_are_honoured_and_what_has_no_meaning_is_told() {
        let table = [
            ("least_conn;", Method::LeastConn, None),
            ("ip_hash;", Method::IpHash, None),
            ("random;", Method::Random, None),
            ("random two least_conn;", Method::RandomTwo, None),
            ("hash $request_uri;", Method::Hash, Some("$request_uri")),
            ("hash \"$a ${b}\" consistent;", Method::HashConsistent, Some("$a ${b}")),
        ];
        for (text, method, key) in table {
            let (said, _) = body(&format!("{text} server 10.0.0.1;"));
            assert_eq!(said.method, Field::Given(method), "{text}");
            let key = key.map_or(Field::Absent, |key| Field::Given(Template::parse(key).unwrap()));
            assert_eq!(said.hash_key, key, "{text}");
        }
        let text = "keepalive 32; check interval=3000 rise=2 type=http;\n# a comment\n\
                    check_http_send \"GET / HTTP/1.0\\r\\n\\r\\n\"; check rise=1; \
                    check_http_expect_alive http_2xx; keepalive_timeout 60s; server 10.0.0.1;";
        let ignored = [
            "keepalive",
            "check",
            "check_http_send",
            "check_http_expect_alive",
            "keepalive_timeout",
        ];
        assert_eq!(body(text).1, ignored);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let table = [
            ("", "no servers are inside upstream"),
            ("# server 10.0.0.1;", "no servers are inside upstream"),
            ("least_conn;", "no servers are inside upstream"),
            (
                "server 10.0.0.1;\ninclude /etc/passwd;",
                "\"include\" directive is not allowed here in line 2",
            ),
            ("zone z 64k; server 10.0.0.1;", "\"zone\" directive is not allowed here in line 1"),
            ("state /tmp/x;", "\"state\" directive is not allowed here in line 1"),
            ("proxy_pass http://a;", "unknown directive \"proxy_pass\" in line 1"),
            ("peerage main;", "unknown directive \"peerage\" in line 1"),
            ("server;", "invalid number of arguments in \"server\" directive in line 1"),
            ("server $host;", "variables are not allowed in \"$host\" in line 1"),
            ("server 10.0.0.1 weight=$w;", "variables are not allowed in \"weight=$w\" in line 1"),
            ("keepalive $n;", "variables are not allowed in \"$n\" in line 1"),
            ("server \"\";", "invalid address \"\": an address may not be empty in line 1"),
            ("server 10.0.0.1 wight=1;", "invalid parameter \"wight=1\" in line 1"),
            (
                "server 10.0.0.1 weight=x;",
                "invalid value \"weight=x\": it must be a whole number from 0 to 65535 in line 1",
            ),
            (
                "server 10.0.0.1;\nserver 10.0.0.1:80;",
                "server \"10.0.0.1:80\" comes twice in line 2",
            ),
            ("server 10.0.0.1\nserver 10.0.0.2;", "invalid parameter \"server\" in line 1"),
            ("least_conn; ip_hash;", "load balancing method redefined in line 1"),
            ("ip_hash x;", "invalid parameter \"x\" in \"ip_hash\" directive in line 1"),
            ("hash;", "invalid number of arguments in \"hash\" directive in line 1"),
            ("hash $a b;", "invalid parameter \"b\" in \"hash\" directive in line 1"),
            ("hash $;", "the key of \"hash\" has a \"$\" without the name of a variable in line 1"),
            ("upstream a { server 10.0.0.1; }", "unexpected \"{\" in line 1"),
            ("server 10.0.0.1; }", "unexpected \"}\" in line 1"),
            ("server 10.0.0.1", "unexpected end, expecting \";\" in line 1"),
            ("server \"10.0.0.1;", "missing terminating \"\"\" character in line 1"),
            ("server 10.0.0.1;\0", "a control character in line 1"),
        ];
        for (text, error) in table {
            assert_eq!(read(text.as_bytes()).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "server", "10.0.0.1", "[::1]:80", "unix:/a", "app:7", "weight=2", "down",
                    "backup", ";", "hash", "$uri", "consistent", "ip_hash", "keepalive", "check",
                    "\"", "'", "{", "}", "#", "\n", "\\", "include", "fail_timeout=1m", "\u{0}",
                ]),
                0..24,
            ),
        ) {
            let text = words.join(" ");
            if let Ok(Posted { change: Change::SetServers { body, .. }, .. }) = read(text.as_bytes()) {
                let servers = body.servers.unwrap();
                let addrs: HashSet<_> = servers.iter().map(|server| server.addr.clone()).collect();
                prop_assert!(!servers.is_empty() && addrs.len() == servers.len());
            }
        }
    }
}
