//! The backends of a run, who may use which, and the configuration around them.

use std::collections::BTreeMap;

use crate::support::*;

use super::draw::Kit;
use super::model::{Admin, Server, Upstream, World};

pub(crate) const CLIENTS: usize = 8;

/// Upstreams in which every client has servers beside those that nobody touches.
pub(crate) const SHARED: [&str; 4] = ["fix0", "fix1", "shared-0", "shared-1"];

/// Everything that answers.
pub(crate) struct Backends {
    /// For all clients; the first two are in every shared upstream, and nobody touches them there.
    pub common: Vec<Backend>,
    /// Two for each client, on an address that is its own.
    private: Vec<Vec<Backend>>,
}

impl Backends {
    pub(crate) fn start() -> Self {
        let common = (0..6).map(|i| Backend::on(&format!("common{i}"), [127, 0, 0, 11 + i]));
        let private = (0..CLIENTS).map(|i| {
            let one = |n| Backend::on(&format!("own{i}-{n}"), [127, 1, i as u8, 1]);
            (0..2).map(one).collect()
        });
        Self { common: common.collect(), private: private.collect() }
    }

    pub(crate) fn names(&self) -> BTreeMap<String, String> {
        let all = self.common.iter().chain(self.private.iter().flatten());
        all.map(|backend| (backend.addr(), backend.name())).collect()
    }

    pub(crate) fn base(&self) -> Value {
        json!({"servers": [{"server": self.common[0].addr()}, {"server": self.common[1].addr()}]})
    }

    pub(crate) fn kit(&self, client: usize) -> Kit {
        let named = |kind: &str| (0..3).map(|n| format!("c{client}-{kind}{n}")).collect();
        let private: Vec<String> = self.private[client].iter().map(Backend::addr).collect();
        let mut fake: Vec<String> =
            (0..3).map(|n| format!("10.50.{client}.1:{}", 8000 + n)).collect();
        fake.extend((1..6).map(|n| format!("10.60.{client}.{n}:80")));
        fake.extend((0..2).map(|n| format!("unix:/run/app-{n}.sock")));
        fake.extend((0..2).map(|n| format!("[2001:db8::a{client}]:{}", 8000 + n)));
        Kit {
            hot: named("hot"),
            cold: named("cold"),
            shared: SHARED.map(str::to_owned).to_vec(),
            real: self.common.iter().map(Backend::addr).chain(private.iter().cloned()).collect(),
            hosts: vec![format!("127.1.{client}.1"), format!("10.50.{client}.1")],
            private,
            fake,
        }
    }

    /// What a client finds: nothing of its own, and its servers in blocks of the configuration.
    pub(crate) fn world(&self, client: usize) -> World {
        let private: Vec<String> = self.private[client].iter().map(Backend::addr).collect();
        let upstream = |name: &&str| {
            let mut up = Upstream { shared: Some(private.clone()), ..Upstream::default() };
            if name.starts_with("fix") {
                up.declared = vec![private[0].clone()];
                up.servers.push(Server {
                    addr: private[0].clone(),
                    born: SHARED.iter().position(|other| other == name).unwrap_or(0) as u64 + 1,
                    config: true,
                    limits: [Some(2), None, None, None],
                    backup: false,
                    route: String::new(),
                    labels: BTreeMap::new(),
                    admin: Admin::default(),
                });
            }
            ((*name).to_owned(), up)
        };
        World { upstreams: SHARED.iter().map(upstream).collect(), hosts: BTreeMap::new() }
    }

    pub(crate) fn http(&self, conf: Conf, size: &str, flush: &str, edit: &str) -> Conf {
        let declared: Vec<String> = self.common[..2]
            .iter()
            .map(|backend| format!("server {backend};"))
            .chain(self.private.iter().map(|own| format!("server {} weight=2;", own[0])))
            .collect();
        let declared = declared.join(" ");
        let mut text = format!(
            "peerage_zone main {size} state={{prefix}}/disk/main.json flush={flush};
             add_header X-Worker $pid always;
             upstream k {{ peerage main name=$arg_u; keepalive 16; }}
             upstream fix0 {{ peerage main; {declared} keepalive 8; }}
             upstream fix1 {{ peerage main; {declared} }}
             {edit}
             server {{ listen {{each}} reuseport; location /api {{ peerage_api; }} }}
             server {{ listen {{web}}; proxy_http_version 1.1; proxy_set_header Connection '';"
        );
        for place in ["k", "fix0", "fix1", "edit"] {
            text += &format!(" location /{place} {{ proxy_pass http://{place}; }}");
        }
        conf.http(text + " }").with_api("write=on")
    }
}
