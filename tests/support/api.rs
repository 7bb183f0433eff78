//! The API as a story uses it: a path below `/api/v1`, a status and a JSON value back.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::http::{Reply, Request};

/// The door to one API location. Every call is a fresh connection.
#[derive(Clone, Debug)]
pub struct Api {
    addr: SocketAddr,
    prefix: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
}

impl Api {
    /// `prefix` comes before every path: `/api/v1`.
    pub fn new(addr: SocketAddr, prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_string();
        Self { addr, prefix, headers: Vec::new(), timeout: Duration::from_secs(60) }
    }

    /// The same door with a header on every call (`If-Match`, `Origin`).
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut api = self.clone();
        api.headers.push((name.into(), value.into()));
        api
    }

    /// The same door with another limit for an answer, 60 s unless said.
    pub fn patient(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The request that a call sends, for [`super::Conn::begin`] or another connection.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Request {
        let target = format!("{}/{}", self.prefix, path.trim_start_matches('/'));
        let request = Request::new(method, &target).timeout(self.timeout);
        let request = self.headers.iter().fold(request, |r, (name, value)| r.header(name, value));
        match body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// One call with its whole answer.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        match self.request(method, path, body).send(self.addr) {
            Ok(reply) => reply,
            Err(error) => panic!("no answer to {method} {path}: {error}"),
        }
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, Value) {
        pair(&self.call("GET", path, None))
    }

    /// POST without a body, as the verbs are used.
    #[track_caller]
    pub fn post(&self, path: &str) -> (u16, Value) {
        pair(&self.call("POST", path, None))
    }

    #[track_caller]
    pub fn post_json(&self, path: &str, body: &Value) -> (u16, Value) {
        pair(&self.call("POST", path, Some(body)))
    }

    #[track_caller]
    pub fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        pair(&self.call("PUT", path, Some(body)))
    }

    #[track_caller]
    pub fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        pair(&self.call("PATCH", path, Some(body)))
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> (u16, Value) {
        pair(&self.call("DELETE", path, None))
    }

    /// A call that must answer 2xx; gives its body.
    #[track_caller]
    pub fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, value) = pair(&self.call(method, path, body));
        assert!((200..300).contains(&status), "{method} {path}: {status} {value}");
        value
    }

    /// `GET upstreams/{name}`, which must exist.
    #[track_caller]
    pub fn upstream(&self, name: &str) -> Value {
        self.ok("GET", &format!("upstreams/{name}"), None)
    }

    /// `GET upstreams/{upstream}/servers/{server}`, which must exist.
    #[track_caller]
    pub fn server(&self, upstream: &str, server: impl std::fmt::Display) -> Value {
        self.ok("GET", &format!("upstreams/{upstream}/servers/{server}"), None)
    }

    /// `POST …/servers/{server}/{verb}`; `verb` with its query: `down?wait=5s`.
    #[track_caller]
    pub fn verb(&self, upstream: &str, server: impl std::fmt::Display, verb: &str) -> (u16, Value) {
        self.post(&format!("upstreams/{upstream}/servers/{server}/{verb}"))
    }
}

/// An empty body is `null`.
#[track_caller]
fn pair(reply: &Reply) -> (u16, Value) {
    let value = if reply.body.is_empty() { Value::Null } else { value(reply) };
    (reply.status, value)
}

/// nginx's own error pages are not JSON: they come as a string.
fn value(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|_| Value::String(reply.text()))
}
