//! What several test files build on: a small world with its own clock and ids, and strategies.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses its part")]

use std::collections::BTreeMap;

use peerage_core::addr::ServerAddr;
use peerage_core::api::error::Problem;
use peerage_core::api::model;
use peerage_core::api::render::{self, Servers, Shown};
use peerage_core::api::route::{Http, WriteMode, route};
use peerage_core::change::{Actor, Applied, Change, Context, apply};
use peerage_core::check::Check;
use peerage_core::check::outlier::Outlier;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::merge::{Conflict, merge};
use peerage_core::name::UpstreamName;
use peerage_core::server::{Admin, AdminState, Declared, Origin, Params, Server};
use peerage_core::source::{Sourced, Standing};
use peerage_core::state::Live;
use peerage_core::template::Template;
use peerage_core::texts::Texts;
use peerage_core::units::{Millis, Secs};
use peerage_core::upstream::{Defaults, Method, Settings, Upstream};
use proptest::prelude::*;

/// One upstream, "app", with a clock, an actor and ids.
pub struct World {
    pub app: Option<Upstream>,
    pub now: u64,
    pub by: String,
    pub next_id: u64,
    pub named_by_block: bool,
    pub keyed: Defaults,
    pub resolves: bool,
    /// Addresses that are not eligible though up.
    pub failed: Vec<ServerAddr>,
    /// How often something changed.
    pub revision: u64,
    /// Who brings what is new.
    pub origin: Origin,
}

pub fn app() -> UpstreamName {
    UpstreamName::parse("app").unwrap()
}

pub fn addr(text: &str) -> ServerAddr {
    ServerAddr::parse(text).unwrap()
}

impl World {
    pub fn new() -> Self {
        Self {
            app: None,
            now: 1_795_986_307_000,
            by: "ci".into(),
            next_id: 1,
            named_by_block: false,
            keyed: Defaults::default(),
            resolves: false,
            failed: Vec::new(),
            revision: 0,
            origin: Origin::Api,
        }
    }

    /// With servers 10.0.0.1:80 and so on.
    pub fn with(servers: usize) -> Self {
        let mut world = Self::new();
        let list: Vec<String> =
            (1..=servers).map(|n| format!(r#"{{"server":"10.0.0.{n}:80"}}"#)).collect();
        world.call("PUT /v1/upstreams/app", &format!(r#"{{"servers":[{}]}}"#, list.join(",")));
        world
    }

    fn act<T>(&mut self, act: impl FnOnce(Option<&Upstream>, &mut Context<'_>) -> T) -> T {
        let next_id = &mut self.next_id;
        let mut fresh = || {
            *next_id += 1;
            *next_id - 1
        };
        let failed = &self.failed;
        let eligible = |server: &Server| {
            server.admin.state == AdminState::Up && !failed.contains(&server.addr)
        };
        let mut ctx = Context {
            now: self.now,
            actor: Actor::new(&self.by, "10.1.1.1"),
            fresh_id: &mut fresh,
            eligible: &eligible,
            origin: self.origin.clone(),
            named_by_block: self.named_by_block,
            keyed: self.keyed,
            resolves: self.resolves,
        };
        act(self.app.as_ref(), &mut ctx)
    }

    fn take(&mut self, applied: Applied) -> bool {
        match applied {
            Applied::Same => return false,
            Applied::Set(next) => self.app = Some(next),
            Applied::Gone => self.app = None,
        }
        self.revision += 1;
        true
    }

    /// Tells whether something changed.
    pub fn apply(&mut self, change: &Change) -> Result<bool, Problem> {
        let applied = self.act(|current, ctx| apply(current, &app(), change, ctx))?;
        Ok(self.take(applied))
    }

    /// A name has these addresses; tells whether something changed.
    pub fn resolve(&mut self, host: &str, ips: &[&str]) -> bool {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        self.apply(&Change::Resolve { host: host.into(), ips }).unwrap()
    }

    /// Sends "METHOD path?query" with a body; tells whether something changed.
    pub fn try_call(&mut self, line: &str, body: &str) -> Result<bool, Problem> {
        self.try_bytes(line, body.as_bytes())
    }

    pub fn try_bytes(&mut self, line: &str, body: &[u8]) -> Result<bool, Problem> {
        let (method, target) = line.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mode = WriteMode::On;
        let method = Http::parse(method.as_bytes());
        let routed = route(method, path.as_bytes(), query.as_bytes(), mode)?;
        let change = model::change(routed.call, body, mode)?.expect("a writing call");
        self.apply(&change)
    }

    #[track_caller]
    pub fn call(&mut self, line: &str, body: &str) -> bool {
        match self.try_call(line, body) {
            Ok(changed) => changed,
            Err(problem) => panic!("{line} {body}: {problem:?}"),
        }
    }

    /// Sends a verb for a server.
    #[track_caller]
    pub fn verb(&mut self, server: &str, verb: &str) -> bool {
        self.call(&format!("POST /v1/upstreams/app/servers/{server}/{verb}"), "")
    }

    pub fn try_verb(&mut self, server: &str, verb: &str) -> Result<bool, Problem> {
        self.try_call(&format!("POST /v1/upstreams/app/servers/{server}/{verb}"), "")
    }

    pub fn merge(&mut self, declared: Option<&DeclaredUpstream>) -> (bool, Vec<Conflict>) {
        let (applied, conflicts) = self.act(|current, ctx| merge(current, declared, ctx));
        (self.take(applied), conflicts)
    }

    #[track_caller]
    pub fn server(&self, text: &str) -> &Server {
        let servers = &self.app.as_ref().unwrap().servers;
        servers.iter().find(|server| server.addr == addr(text)).unwrap()
    }

    pub fn addrs(&self) -> Vec<String> {
        let servers = self.app.as_ref().map_or(&[][..], |app| &app.servers);
        servers.iter().map(|server| server.addr.to_string()).collect()
    }

    /// The listing that a GET gives.
    pub fn listing(&self) -> String {
        listing(self.app.as_ref().unwrap())
    }
}

pub fn listing(upstream: &Upstream) -> String {
    let live = vec![Live::default(); upstream.servers.len()];
    let shown = Shown { zone: "main", revision: 812, upstream, live: &live, hosts: &[] };
    let mut out = Vec::new();
    render::upstream(&mut out, &shown, Servers::With);
    String::from_utf8(out).unwrap()
}

/// A block of the configuration; each line is an address and its parameters.
pub fn block(lines: &[&str]) -> DeclaredUpstream {
    let servers = lines.iter().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        DeclaredServer::parse(words[0], &words[1..]).unwrap()
    });
    DeclaredUpstream { name: app(), settings: Settings::default(), servers: servers.collect() }
}

pub fn any_addr() -> impl Strategy<Value = ServerAddr> {
    prop_oneof![
        4 => (0u8..20, 1u16..4).prop_map(|(ip, port)| addr(&format!("10.0.0.{ip}:{port}"))),
        1 => (0u16..20).prop_map(|ip| addr(&format!("[fe80::{ip:x}]:80"))),
        1 => (0u8..20).prop_map(|n| addr(&format!("unix:/run/{n}.sock"))),
    ]
}

pub fn any_params() -> impl Strategy<Value = Params> {
    let secs = || prop::option::of((0u32..4).prop_map(Secs));
    let labels = prop::collection::btree_map("[a-c]", "[a-zé \"\\\\]{0,3}", 0..3);
    let limits = (
        prop::option::of(0u16..4),
        prop::option::of(0u32..4),
        prop::option::of(0u32..4),
        secs(),
        prop::option::of(Just(Secs(0))),
    );
    (limits, any::<bool>(), "[a-z]{0,2}", labels).prop_map(|(limits, backup, route, labels)| {
        let (weight, max_conns, max_fails, fail_timeout, slow_start) = limits;
        let labels: BTreeMap<String, String> = labels;
        Params { weight, max_conns, max_fails, fail_timeout, slow_start, backup, route, labels }
    })
}

pub fn any_state() -> impl Strategy<Value = AdminState> {
    prop_oneof![Just(AdminState::Up), Just(AdminState::Drain), Just(AdminState::Down)]
}

pub fn any_admin() -> impl Strategy<Value = Admin> {
    let until = prop::option::of(2_000_000_000_000u64..2_000_000_100_000);
    let close = prop::option::of(2_000_000_000_000u64..2_000_000_100_000);
    let texts = ("[a-zé\"<]{0,5}", "(ci|config|)", "(10\\.0\\.0\\.9|)");
    (any_state(), 0u64..3, until, close, texts).prop_map(|(state, since, until, close, texts)| {
        let (until, close) = if state == AdminState::Up { (None, None) } else { (until, close) };
        let (reason, by, from) = texts;
        Admin { state, since: since * 1_000_000_000_123, until, close, reason, by, from }
    })
}

pub fn any_settings() -> impl Strategy<Value = Settings> {
    let method = prop::option::of(prop::sample::select(&Method::ALL));
    let base = (method, any_params()).prop_map(|(method, params)| {
        let Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = params;
        let defaults = Defaults { weight, max_conns, max_fails, fail_timeout, slow_start };
        (method, defaults)
    });
    (base, any_texts(), any_health()).prop_map(|((method, defaults), texts, health)| {
        let (check, outlier) = health;
        Settings { method, defaults, texts, check, outlier }
    })
}

/// A check of any kind with some words, and rules of outliers.
pub fn any_health() -> impl Strategy<Value = (Option<Box<Check>>, Option<Outlier>)> {
    let words = [
        "",
        "type=http uri=/a interval=500ms",
        "type=https host=a.test ca=/ca.pem",
        "type=https ca=/ca.pem verify=off sni=a.test",
        "type=tcp mandatory port=81",
        "type=grpc uri=a.B fails=1 on_all_down=refuse",
        "body=é status=204,404 jitter=0% passes=9 reuse=off",
    ];
    let check = prop::sample::select(words.to_vec()).prop_map(|words| {
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        Box::new(Check::parse(&words).unwrap())
    });
    let outlier = (1u16..9, 1u64..9, 1u8..=100).prop_map(|(errors, base, percent)| Outlier {
        consecutive_errors: errors,
        base: Millis(base * 1_000),
        max_percent: percent,
        ..Outlier::default()
    });
    (prop::option::of(check), prop::option::of(outlier))
}

pub fn any_texts() -> impl Strategy<Value = Texts> {
    let texts = (
        prop::option::of("[a-z]{0,2}\\$\\{?uri"),
        prop::option::of("[a-z]{1,3}(:80)?"),
        prop::option::of("[a-z]{1,3}\\.test"),
    );
    texts.prop_map(|(hash_key, host, tls_name)| {
        let close = |text: String| if text.contains('{') { text + "}" } else { text };
        let hash_key = hash_key.map(|text| Template::parse(&close(text)).unwrap());
        Texts { hash_key, host, tls_name }
    })
}

pub fn any_declared() -> impl Strategy<Value = Declared> {
    (any_params(), any_state()).prop_map(|(params, admin)| Declared { params, admin })
}

pub fn any_sourced() -> impl Strategy<Value = Sourced> {
    let standing = prop_oneof![
        Just(Standing::Named),
        Just(Standing::Maintenance),
        any::<u64>().prop_map(|since| Standing::Vanished { since }),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u32>(), any::<Option<u16>>(), standing, flags).prop_map(
        |(identity, weight, standing, (failing, held, discarded))| Sourced {
            identity,
            weight,
            failing,
            standing,
            held,
            discarded,
        },
    )
}

pub fn any_server() -> impl Strategy<Value = Server> {
    let declared = prop::option::of(any_declared());
    let origin = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Origin::Consul("dc1:web".into()))),
        1 => Just(Some(Origin::Redis("r".into()))),
    ];
    let given = any::<bool>();
    let addrs = (any::<bool>(), prop::collection::vec(any::<([u8; 4], u16)>(), 0..3));
    let said = prop::option::of(any_sourced());
    (any_addr(), any_params(), any_admin(), declared, (origin, said), given, addrs).prop_map(
        |(addr, params, admin, declared, (origin, said), given, (resolve, addrs))| {
            let own = if declared.is_some() { Origin::Config } else { Origin::Api };
            // The same address in another way.
            let given = given.then(|| match &addr {
                ServerAddr::Unix(path) => format!("UNIX:{path}"),
                addr => addr.to_string().replacen("]:", "]:0", 1).replacen(".0:", ".0:0", 1),
            });
            let given = given.filter(|text| *text != addr.to_string());
            let addrs = addrs.into_iter().map(|(ip, port)| (ip, port).into()).collect();
            let origin = origin.unwrap_or(own);
            let source = said.filter(|_| !origin.is_own());
            Server { id: 0, addr, given, origin, params, admin, declared, source, resolve, addrs }
        },
    )
}

/// Keeps the first of each address.
pub fn keep_unique(servers: &mut Vec<Server>, removed: &mut Vec<(ServerAddr, Declared)>) {
    let mut seen = std::collections::HashSet::new();
    servers.retain(|server| seen.insert(server.addr.clone()));
    removed.retain(|(addr, _)| seen.insert(addr.clone()));
}

pub fn any_upstream() -> impl Strategy<Value = Upstream> {
    let servers = prop::collection::vec(any_server(), 0..6);
    let removed = prop::collection::vec((any_addr(), any_declared()), 0..3);
    let declared = prop::option::of(any_settings());
    let orphaned_at = prop::option::of(any::<u64>());
    (any_settings(), declared, servers, removed, orphaned_at).prop_map(
        |(settings, declared, mut servers, mut removed, orphaned_at)| {
            keep_unique(&mut servers, &mut removed);
            for (id, server) in servers.iter_mut().enumerate() {
                server.id = id as u64 + 1;
            }
            let origin = if declared.is_some() { Origin::Config } else { Origin::Api };
            Upstream { name: app(), origin, settings, declared, servers, removed, orphaned_at }
        },
    )
}

pub fn any_block() -> impl Strategy<Value = DeclaredUpstream> {
    let server = (any_addr(), any_params(), any_state()).prop_map(|(addr, params, admin)| {
        DeclaredServer { addr, given: None, resolve: false, addrs: Vec::new(), params, admin }
    });
    (any_settings(), prop::collection::vec(server, 0..6)).prop_map(|(settings, mut servers)| {
        let mut seen = std::collections::HashSet::new();
        servers.retain(|server| seen.insert(server.addr.clone()));
        DeclaredUpstream { name: app(), settings, servers }
    })
}
