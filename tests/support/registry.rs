//! A real Consul, started by the story; and what both it and the fake can be told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::consul::{Checked, FakeConsul};
use super::http::Request;
use super::nginx::Nginx;
use super::ports::Port;
use super::wait::{eventually, within};
use super::{ms, secs};

/// The addresses of the servers of "app".
pub fn servers(nginx: &Nginx) -> Vec<String> {
    let app = nginx.api().upstream("app");
    let all = app["servers"].as_array().cloned().unwrap_or_default();
    all.iter().map(|server| server["server"].as_str().unwrap().to_owned()).collect()
}

/// How the service "web" stands as a source.
pub fn source(nginx: &Nginx) -> Value {
    nginx.api().get("sources/consul/dc1:web").1
}

/// What a story tells a registry.
pub trait Registry {
    fn url(&self) -> String;
    fn register(&self, service: &str, id: &str, addr: SocketAddr, tags: &[&str]);
    fn deregister(&self, service: &str, id: &str);
    fn check(&self, service: &str, id: &str, check: Checked);
    fn maintenance(&self, service: &str, id: &str, on: bool);
    fn weights(&self, service: &str, id: &str, addr: SocketAddr, passing: u16);
    /// Stops answering, as if the process died.
    fn stop(&mut self);
    /// Comes back; whether with what it knew.
    fn start(&mut self, remembers: bool);
}

impl Registry for FakeConsul {
    fn url(&self) -> String {
        Self::url(self)
    }

    fn register(&self, service: &str, id: &str, addr: SocketAddr, tags: &[&str]) {
        Self::register(self, service, id, addr);
        self.tags(service, id, tags);
    }

    fn deregister(&self, service: &str, id: &str) {
        Self::deregister(self, service, id);
    }

    fn check(&self, service: &str, id: &str, check: Checked) {
        Self::check(self, service, id, check);
    }

    fn maintenance(&self, service: &str, id: &str, on: bool) {
        Self::maintenance(self, service, id, on);
    }

    fn weights(&self, service: &str, id: &str, _: SocketAddr, passing: u16) {
        Self::weights(self, service, id, passing, 1);
    }

    fn stop(&mut self) {
        Self::stop(self);
    }

    fn start(&mut self, remembers: bool) {
        if !remembers {
            self.forget();
        }
        Self::start(self);
    }
}

/// A server of its own, with its data in a directory of the story.
#[derive(Debug)]
pub struct RealConsul {
    binary: PathBuf,
    /// Of http, of the members, of the server.
    ports: [Port; 3],
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl RealConsul {
    /// `None` where there is none: `PEERAGE_CONSUL` says where one is.
    pub fn new() -> Option<Self> {
        let binary = PathBuf::from(std::env::var_os("PEERAGE_CONSUL")?);
        let dir = tempfile::Builder::new().prefix("peerage-consul-").tempdir().unwrap();
        let ports = [0; 3].map(|_| Port::reserve());
        let mut consul = Self { binary, ports, dir, child: None };
        consul.run();
        Some(consul)
    }

    fn run(&mut self) {
        let [http, members, server] = self.ports.each_ref().map(|port| port.number());
        let data = self.dir.path().join("data");
        let child = Command::new(&self.binary)
            .args(["agent", "-server", "-bootstrap", "-bind=127.0.0.1", "-node=n1"])
            .args(["-log-level=err", "-dns-port=-1", "-grpc-port=-1", "-serf-wan-port=-1"])
            .arg(format!("-data-dir={}", data.display()))
            .arg(format!("-http-port={http}"))
            .arg(format!("-serf-lan-port={members}"))
            .arg(format!("-server-port={server}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("consul starts"));
        eventually(secs(20), || {
            let leader = self.try_call("GET", "/v1/status/leader", None);
            leader.is_some_and(|(status, text)| status == 200 && text.len() > 4)
        });
        // Writes are taken only a moment later.
        let body = json!({ "ID": "probe", "Name": "probe" });
        eventually(secs(20), || {
            let done = self.try_call("PUT", "/v1/agent/service/register", Some(&body));
            done.is_some_and(|(status, _)| status == 200)
        });
        self.call("PUT", "/v1/agent/service/deregister/probe", None);
    }

    fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, String)> {
        let request = Request::new(method, path).timeout(secs(10));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let reply = request.send(self.ports[0].addr()).ok()?;
        Some((reply.status, reply.text()))
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> String {
        let (status, text) = self.try_call(method, path, body).expect("it answers");
        assert_eq!(status, 200, "{method} {path}: {text}");
        text
    }

    fn put(&self, service: &str, id: &str, addr: SocketAddr, more: Value) {
        let mut body = json!({
            "ID": id, "Name": service, "Address": addr.ip().to_string(), "Port": addr.port(),
            "Check": { "CheckID": format!("check-{id}"), "TTL": "1h", "Status": "passing" },
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call("PUT", "/v1/agent/service/register", Some(&body));
    }
}

impl Registry for RealConsul {
    fn url(&self) -> String {
        format!("http://{}", self.ports[0].addr())
    }

    fn register(&self, service: &str, id: &str, addr: SocketAddr, tags: &[&str]) {
        self.put(service, id, addr, json!({ "Tags": tags }));
    }

    fn deregister(&self, _: &str, id: &str) {
        self.call("PUT", &format!("/v1/agent/service/deregister/{id}"), None);
    }

    fn check(&self, _: &str, id: &str, check: Checked) {
        let word = match check {
            Checked::Passing => "pass",
            Checked::Warning => "warn",
            Checked::Critical => "fail",
        };
        self.call("PUT", &format!("/v1/agent/check/{word}/check-{id}"), None);
    }

    fn maintenance(&self, _: &str, id: &str, on: bool) {
        self.call("PUT", &format!("/v1/agent/service/maintenance/{id}?enable={on}"), None);
    }

    fn weights(&self, service: &str, id: &str, addr: SocketAddr, passing: u16) {
        let weights = json!({ "Weights": { "Passing": passing, "Warning": 1 } });
        self.put(service, id, addr, weights);
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn start(&mut self, remembers: bool) {
        if !remembers {
            std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
        }
        // Its ports may be busy for a moment.
        within(ms(300), || false);
        self.run();
    }
}

impl Drop for RealConsul {
    fn drop(&mut self) {
        Registry::stop(self);
    }
}
