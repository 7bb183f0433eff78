//! A zone in memory of its own, and short words for what tests do to it.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod file;
pub(crate) mod routes;

use std::net::IpAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::body::{Field, LimitsBody, ServerBody, UpstreamBody, VerbOpts};
use peerage_core::change::{Actor, Change, ChangeError};
use peerage_core::host::HostVerb;
use peerage_core::name::UpstreamName;
use peerage_core::server::{AdminState, Origin};
use peerage_core::upstream::{Defaults, Method, ServerSel};
use peerage_shm::AtomicU64;
use peerage_zone::{
    Address, Attempt, BatchAttempt, Checks, Choice, Clock, Env, Format, FormatError, Key, Mark,
    NoPeer, Op, Outcome, Pick, Region, Target, Worker, Zone,
};

pub(crate) const FORMAT: Format = Format { build: 1, slots: 4, connections: 256 };

pub(crate) struct World {
    pub(crate) zone: Zone,
    /// The zone's own, where this made it.
    pub(crate) lock: Option<&'static AtomicU64>,
    pub(crate) worker: Worker,
    pub(crate) clock: Clock,
}

impl World {
    pub(crate) fn new(bytes: usize) -> Self {
        Self::try_new(bytes, &FORMAT).expect("it fits")
    }

    pub(crate) fn try_new(bytes: usize, format: &Format) -> Result<Self, FormatError> {
        let words: Box<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let lock: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let zone = Zone::format(Region::new(Box::leak(words)), lock, format)?;
        let worker = zone.worker(1, 1, format).expect("a slot is free");
        let clock = Clock { secs: 1_000, msec: 1_000_000 };
        Ok(Self { zone, lock: Some(lock), worker, clock })
    }

    /// The same zone as another process sees it.
    pub(crate) fn of(zone: Zone, pid: u32) -> Self {
        let worker = zone.worker(pid, 1, &FORMAT).expect("a slot is free");
        Self { zone, lock: None, worker, clock: Clock { secs: 1_000, msec: 1_000_000 } }
    }

    pub(crate) fn worker(&self, pid: u32) -> Worker {
        self.zone.worker(pid, 1, &FORMAT).expect("a slot is free")
    }

    pub(crate) fn tick(&mut self, secs: u32) {
        self.clock.secs += secs;
        self.clock.msec += u64::from(secs) * 1000;
    }

    pub(crate) fn change(&self, name: &str, change: &Change) -> Attempt {
        self.worker.change(&upstream(name), change, &self.env())
    }

    /// Applies a change that must succeed; revision and whether anything changed.
    pub(crate) fn ok(&self, name: &str, change: &Change) -> (u64, bool, Mark) {
        match self.change(name, change) {
            Attempt::Done { revision, changed, mark, .. } => (revision, changed, mark),
            other => panic!("{name}: {change:?}: {other:?}"),
        }
    }

    pub(crate) fn refused(&self, name: &str, change: &Change) -> ChangeError {
        match self.change(name, change) {
            Attempt::Refused(error) => error,
            other => panic!("{name}: {change:?}: {other:?}"),
        }
    }

    pub(crate) fn put(&self, name: &str, servers: &[ServerBody]) -> (u64, bool, Mark) {
        let body = UpstreamBody { servers: Some(servers.to_vec()), ..UpstreamBody::default() };
        self.ok(name, &Change::PutUpstream { body })
    }

    pub(crate) fn put_by(&self, name: &str, method: Method, servers: &[ServerBody]) {
        let (method, servers) = (Field::Given(method), Some(servers.to_vec()));
        let body = UpstreamBody { method, servers, ..UpstreamBody::default() };
        self.ok(name, &Change::PutUpstream { body });
    }

    pub(crate) fn admin(&self, name: &str, addr: &str, verb: AdminState) -> (u64, bool, Mark) {
        self.ok(name, &Change::Admin { sel: sel(addr), verb, opts: VerbOpts::default() })
    }

    pub(crate) fn host(&self, ip: IpAddr, verb: AdminState) -> Mark {
        let verb = HostVerb { ip, verb, opts: VerbOpts::default(), missing_ok: true };
        match self.batch(&[Op::Host(verb)], &Checks::NONE) {
            BatchAttempt::Done(batch) => batch.mark,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn batch(&self, ops: &[Op], checks: &Checks<'_>) -> BatchAttempt {
        self.worker.batch(ops, &self.env(), checks)
    }

    fn env(&self) -> Env<'_> {
        Env {
            clock: &self.clock,
            actor: Actor::new("test", "127.0.0.1"),
            origin: Origin::Api,
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: true,
        }
    }

    /// A request: the text of the peer's address, and the choice that holds it.
    pub(crate) fn pick(&self, name: &str) -> Result<(String, Choice), NoPeer> {
        let mut choice = Choice::new();
        let picked = self.worker.pick(&mut choice, &Target::Name(name.as_bytes()), &self.clock)?;
        Ok((text(&picked.address), choice))
    }

    /// One more try of a request with this key.
    pub(crate) fn try_by(&self, name: &str, choice: &mut Choice, key: Key<'_>) -> Option<String> {
        let target = Target::Name(name.as_bytes());
        match self.worker.pick_at_length(choice, &target, key, &self.clock) {
            Pick::Peer(picked) => Some(text(&picked.address)),
            Pick::Wants(input) => panic!("{name} wants {input:?}"),
            Pick::None(_) => None,
        }
    }

    /// A whole request with this text as key.
    pub(crate) fn hit_by(&self, name: &str, text: &str) -> String {
        let mut choice = Choice::new();
        let at = self.try_by(name, &mut choice, Key::Text(text.as_bytes()));
        self.done(choice, false);
        at.expect("a peer is open")
    }

    pub(crate) fn done(&self, mut choice: Choice, failed: bool) {
        let status = if failed { 502 } else { 200 };
        let outcome = Outcome { failed, status, ..Outcome::default() };
        self.worker.done(&mut choice, &outcome, || self.clock);
    }

    /// A whole request that succeeds; the last digit of its peer's port.
    pub(crate) fn hit(&self, name: &str) -> char {
        let (address, choice) = self.pick(name).expect("a peer is open");
        self.done(choice, false);
        address.chars().last().expect("an address has characters")
    }

    pub(crate) fn hits(&self, name: &str, n: usize) -> String {
        (0..n).map(|_| self.hit(name)).collect()
    }
}

pub(crate) fn text(address: &Address) -> String {
    address.text()
}

pub(crate) fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).expect("a good name")
}

pub(crate) fn sel(addr: &str) -> ServerSel {
    ServerSel::Addr(ServerAddr::parse(addr).expect("a good address"))
}

pub(crate) fn server(addr: &str, weight: u16) -> ServerBody {
    ServerBody {
        addr: Some(ServerAddr::parse(addr).expect("a good address")),
        limits: LimitsBody { weight: Field::Given(weight), ..LimitsBody::default() },
        ..ServerBody::default()
    }
}
