//! An upstream: its settings and its servers, with what the configuration declared of both.

use serde::{Deserialize, Serialize};

use crate::addr::ServerAddr;
use crate::check::Check;
use crate::check::outlier::Outlier;
use crate::name::UpstreamName;
use crate::server::{Admin, Declared, Limits, Origin, Server};
use crate::texts::Texts;
use crate::units::Secs;

/// How peers are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// nginx's smooth weighted round robin.
    #[default]
    RoundRobin,
    /// The peer with the fewest requests in flight for its weight.
    LeastConn,
    /// Any peer, by weight.
    Random,
    /// Of two peers chosen at random the one with fewer requests in flight for its weight.
    #[serde(rename = "random two")]
    RandomTwo,
    /// By a key, over the weights in the order of the servers.
    Hash,
    /// By a key, on a ring on which a change of servers moves few keys.
    #[serde(rename = "hash consistent")]
    HashConsistent,
    /// By the client's address, over the weights in the order of the servers.
    IpHash,
    /// The peer with the least time to the header for its load and weight.
    #[serde(rename = "least_time header")]
    LeastTimeHeader,
    /// The same by the time of the whole response.
    #[serde(rename = "least_time last_byte")]
    LeastTimeLastByte,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 9] = [
        Self::RoundRobin,
        Self::LeastConn,
        Self::Random,
        Self::RandomTwo,
        Self::Hash,
        Self::HashConsistent,
        Self::IpHash,
        Self::LeastTimeHeader,
        Self::LeastTimeLastByte,
    ];

    /// The words of the API and of the directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastConn => "least_conn",
            Self::Random => "random",
            Self::RandomTwo => "random two",
            Self::Hash => "hash",
            Self::HashConsistent => "hash consistent",
            Self::IpHash => "ip_hash",
            Self::LeastTimeHeader => "least_time header",
            Self::LeastTimeLastByte => "least_time last_byte",
        }
    }

    /// Reads the words.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// Reads the words of the directive, nginx's `random two least_conn` among them.
    pub fn parse_words(words: &[&str]) -> Option<Self> {
        match words {
            ["random", "two", "least_conn"] => Some(Self::RandomTwo),
            _ => Self::parse(&words.join(" ")),
        }
    }

    /// Tells whether the order of servers is part of what is declared.
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::Hash | Self::IpHash)
    }

    /// Tells whether a new or recovered peer may ramp up: where a client or a key belongs to a
    /// peer, or chance alone decides, it may not, as in nginx.
    pub const fn ramps(self) -> bool {
        match self {
            Self::RoundRobin
            | Self::LeastConn
            | Self::LeastTimeHeader
            | Self::LeastTimeLastByte => true,
            Self::Random | Self::RandomTwo | Self::Hash | Self::HashConsistent | Self::IpHash => {
                false
            }
        }
    }
}

/// What holds for servers that do not say; `None` is what is built in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defaults {
    /// See [`crate::server::Params::weight`].
    pub weight: Option<u16>,
    /// See [`crate::server::Params::max_conns`].
    pub max_conns: Option<u32>,
    /// See [`crate::server::Params::max_fails`].
    pub max_fails: Option<u32>,
    /// See [`crate::server::Params::fail_timeout`].
    pub fail_timeout: Option<Secs>,
    /// See [`crate::server::Params::slow_start`].
    pub slow_start: Option<Secs>,
}

impl Defaults {
    /// What holds for a server that says nothing.
    pub fn limits(&self) -> Limits {
        let base = Limits::BUILT_IN;
        Limits {
            weight: self.weight.unwrap_or(base.weight),
            max_conns: self.max_conns.unwrap_or(base.max_conns),
            max_fails: self.max_fails.unwrap_or(base.max_fails),
            fail_timeout: self.fail_timeout.unwrap_or(base.fail_timeout),
            slow_start: self.slow_start.unwrap_or(base.slow_start),
        }
    }
}

/// The settings of an upstream itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How peers are chosen; `None` is round robin.
    pub method: Option<Method>,
    /// For servers that do not say.
    pub defaults: Defaults,
    /// What requests to it are made with.
    pub texts: Texts,
    /// How its servers are checked; `None`: they are not.
    pub check: Option<Box<Check>>,
    /// How servers that err are ejected; `None`: they are not.
    pub outlier: Option<Outlier>,
}

impl Settings {
    /// The method that holds.
    pub fn method(&self) -> Method {
        self.method.unwrap_or_default()
    }
}

/// An upstream of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in the zone.
    pub name: UpstreamName,
    /// Who declared it first.
    pub origin: Origin,
    /// What holds now.
    pub settings: Settings,
    /// The configuration's settings at the last accepted load; `None` = no block names it.
    pub declared: Option<Settings>,
    /// Its servers, in order.
    pub servers: Vec<Server>,
    /// Servers that the configuration names and that were removed at run time.
    pub removed: Vec<(ServerAddr, Declared)>,
    /// Since when no block names it though one did, unix ms.
    pub orphaned_at: Option<u64>,
}

/// How a request names a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSel {
    /// By its address.
    Addr(ServerAddr),
    /// By its id.
    Id(u64),
}

impl std::fmt::Display for ServerSel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Addr(addr) => write!(f, "{addr}"),
            Self::Id(id) => write!(f, "id:{id}"),
        }
    }
}

impl ServerSel {
    /// Tells whether it means this server.
    pub fn is(&self, server: &Server) -> bool {
        match self {
            Self::Addr(addr) => server.addr == *addr,
            Self::Id(id) => server.id == *id,
        }
    }
}

impl Upstream {
    /// An upstream without servers.
    pub fn new(name: UpstreamName, origin: Origin) -> Self {
        Self {
            name,
            origin,
            settings: Settings::default(),
            declared: None,
            servers: Vec::new(),
            removed: Vec::new(),
            orphaned_at: None,
        }
    }

    /// Where a server is in the list.
    pub fn position(&self, sel: &ServerSel) -> Option<usize> {
        self.servers.iter().position(|server| sel.is(server))
    }

    /// A server.
    pub fn find(&self, sel: &ServerSel) -> Option<&Server> {
        self.servers.iter().find(|server| sel.is(server))
    }

    /// What holds for one of its servers.
    pub fn limits(&self, server: &Server) -> Limits {
        server.limits(&self.settings.defaults)
    }

    /// When the next `ttl` ends, unix ms.
    pub fn next_expiry(&self) -> Option<u64> {
        self.servers.iter().filter_map(|server| server.admin.until).min()
    }

    /// Hash of what is declared and wanted, without ids, origins, times and actors.
    ///
    /// Equal content has an equal digest on every box and in every version: values count as they
    /// hold, whether said or by default. The order of servers counts only where the method's does.
    pub fn digest(&self) -> u64 {
        let mut fold = Fold::new();
        let method = self.settings.method();
        fold.text(method.as_str());
        fold.limits(&self.settings.defaults.limits());
        // What is not there leaves no trace, so that older digests hold.
        for (name, text) in self.settings.texts.given() {
            fold.text(name);
            fold.text(text);
        }
        if let Some(check) = &self.settings.check {
            fold.words("check", check.words());
        }
        if let Some(outlier) = &self.settings.outlier {
            fold.words("outlier", outlier.words());
        }
        let mut servers: Vec<u64> = self.servers.iter().map(|s| self.server_digest(s)).collect();
        if !method.is_ordered() {
            servers.sort_unstable();
        }
        fold.number(servers.len() as u64);
        for server in servers {
            fold.number(server);
        }
        fold.end()
    }

    /// The digest as the text of `digest` and, in quotes, of the `ETag`.
    pub fn digest_text(&self) -> String {
        format!("{:016x}", self.digest())
    }

    fn server_digest(&self, server: &Server) -> u64 {
        let mut fold = Fold::new();
        fold.text(&server.addr.to_string());
        fold.limits(&self.limits(server));
        fold.number(u64::from(server.params.backup));
        fold.text(&server.params.route);
        fold.number(server.params.labels.len() as u64);
        for (key, value) in &server.params.labels {
            fold.text(key);
            fold.text(value);
        }
        let Admin { state, reason, .. } = &server.admin;
        fold.text(state.as_str());
        fold.text(reason);
        fold.end()
    }
}

/// FNV-1a of 64 bits over parts with their lengths, mixed at the end.
pub(crate) struct Fold(u64);

impl Fold {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    fn words(&mut self, name: &str, words: impl IntoIterator<Item = (&'static str, String)>) {
        self.text(name);
        for (name, value) in words {
            self.text(name);
            self.text(&value);
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits { weight, max_conns, max_fails, fail_timeout, slow_start } = *limits;
        self.number(u64::from(weight) << 32 | u64::from(max_conns));
        self.number(u64::from(max_fails) << 32 | u64::from(fail_timeout.0));
        self.number(u64::from(slow_start.0));
    }

    pub(crate) fn end(self) -> u64 {
        let mut x = self.0;
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ x >> 33
    }
}
