//! What was gathered of a zone at one scrape, to be said family by family.

use crate::counters::BUCKETS_MS;
use crate::route::decide;
use crate::state::State;

/// What runs.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Version of the module.
    pub version: &'static str,
    /// Its build.
    pub build: &'static str,
    /// Version of nginx that it was built for.
    pub nginx: &'static str,
}

/// A zone.
#[derive(Clone, Debug, Default)]
pub struct ZoneSample {
    /// Its name.
    pub zone: String,
    /// Revision in force.
    pub revision: u64,
    /// Bytes by kind.
    pub bytes: [(&'static str, u64); 5],
    /// Changes refused for lack of room.
    pub no_room: u64,
    /// Probes that began late.
    pub checks_late: u64,
    /// Its routes.
    pub routes: u64,
    /// Look-ups of keys, by what they came to; `None` where no request is routed by the zone.
    pub lookups: Option<[u64; decide::Shown::ALL.len()]>,
    /// The state file, where this nginx writes one.
    pub state: Option<StateFile>,
    /// Sources of its servers.
    pub sources: Vec<SourceSample>,
    /// Its upstreams.
    pub upstreams: Vec<UpstreamSample>,
}

/// A source of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSample {
    /// Its name with its kind: `consul/dc1:web`.
    pub source: String,
    /// Its last read was answered.
    pub up: bool,
    /// How old what it said last is, ms; `None`: it said nothing yet.
    pub age_ms: Option<u64>,
    /// Servers that are kept though it names them no longer.
    pub held: u32,
}

/// A store of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSample {
    /// Its name.
    pub store: String,
    /// It answered last, or has not failed often since.
    pub up: bool,
    /// What changes in it is heard.
    pub tracked: bool,
    /// Questions asked.
    pub questions: u64,
    /// Those without an answer, in the order of [`decide::Down::ALL`].
    pub failures: [u64; decide::Down::ALL.len()],
    /// What is cached, by [`STORED`]: how much there is, and how much had to go for others.
    pub cached: [(u64, u64); STORED.len()],
}

/// What is cached of a store.
pub const STORED: [&str; 3] = ["tenant", "app", "absent"];

/// How it goes with the state file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFile {
    /// How long the oldest change has waited for the disk, ms; 0 where all are there.
    pub lag_ms: u64,
    /// Failed writes.
    pub errors: u64,
}

/// An upstream. What its servers have of varying length lies together, so that a zone of many
/// servers is no heap of small pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamSample {
    /// Its name.
    pub upstream: String,
    /// Servers that take requests now.
    pub eligible: u32,
    /// Responses by time: one for each bound of [`BUCKETS_MS`], and the rest.
    pub times: [u64; BUCKETS_MS.len() + 1],
    /// Sum of these times, ms.
    pub times_ms: u64,
    /// Its servers, where they are asked for; with where their texts and responses end.
    servers: Vec<(ServerSample, usize, usize)>,
    texts: String,
    responses: Vec<(u16, u64)>,
}

/// A server: its peers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSample {
    /// What it is doing.
    pub state: State,
    /// Since when an operator wants it, or its host, not to be up, unix ms.
    pub admin_since: Option<u64>,
    /// Requests in flight.
    pub active: u64,
    /// Most of them at a time; 0 is no limit.
    pub max_conns: u32,
    /// Share of requests.
    pub weight: u16,
    /// Tries that ended.
    pub requests: u64,
    /// Those that failed.
    pub fails: u64,
    /// How often `max_fails` switched it off.
    pub unavail: u64,
    /// Its probes, where it is checked.
    pub checks: Option<ProbeCount>,
    /// When it was last chosen, unix ms; 0 is never.
    pub selected: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// Probes that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCount {
    /// Those that passed.
    pub passed: u64,
    /// Those that failed.
    pub failed: u64,
}

impl ProbeCount {
    /// Each result with how often it was.
    pub fn by_result(&self) -> [(&'static str, u64); 2] {
        [("passed", self.passed), ("failed", self.failed)]
    }
}

/// A server with what it has of varying length.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its address.
    pub server: &'a str,
    /// Its figures.
    pub sample: &'a ServerSample,
    /// Responses by status; 1 to 5 is what else was answered of a class, of which only eight
    /// statuses are counted one by one.
    pub responses: &'a [(u16, u64)],
}

impl UpstreamSample {
    /// An upstream of which nothing is known yet; about so many servers come.
    pub fn new(upstream: String, servers: usize) -> Self {
        Self { upstream, servers: Vec::with_capacity(servers), ..Self::default() }
    }

    /// Adds a server.
    pub fn push(
        &mut self,
        server: &str,
        sample: ServerSample,
        responses: impl IntoIterator<Item = (u16, u64)>,
    ) {
        self.texts.push_str(server);
        self.responses.extend(responses);
        self.servers.push((sample, self.texts.len(), self.responses.len()));
    }

    /// One of its servers.
    pub fn server(&self, at: usize) -> Option<Shown<'_>> {
        let (sample, text, response) = self.servers.get(at)?;
        let before = at.checked_sub(1).and_then(|at| self.servers.get(at));
        let (text_from, response_from) = before.map_or((0, 0), |&(_, text, from)| (text, from));
        Some(Shown {
            server: &self.texts[text_from..*text],
            sample,
            responses: &self.responses[response_from..*response],
        })
    }

    /// All its servers.
    pub fn servers(&self) -> impl Iterator<Item = Shown<'_>> {
        (0..self.servers.len()).filter_map(|at| self.server(at))
    }
}
