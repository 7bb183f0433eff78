//! A store as one process asks it.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use peerage_core::addr::ServerAddr;
use peerage_core::name::UpstreamName;
use peerage_core::route::app;
use peerage_core::route::decide::{Changed, Down};
use peerage_core::route::redis::RedisConf;
use peerage_core::route::reply::Found as Reply;
use peerage_zone::cache::{Cache, Flight, Kind, Who};
use peerage_zone::{AppName, Worker};

use super::flights::{Flights, Got};
use super::home::Noted;
use super::malformed::Malformed;
use super::recent::Recent;
use super::saved::Saver;
use super::tracking::Tracking;
use super::{apps, clock};
use crate::conf::{Main, Store, Zone};
use crate::ffi::global::Global;
use crate::ffi::process;
use crate::log::Seldom;
use crate::net::executor;
use crate::net::time::sleep;
use crate::store::{self, Store as Client};

/// What a process needs to ask.
pub(crate) struct Desk {
    name: String,
    pub(super) cache: Cache,
    client: Rc<Client>,
    apps: Rc<Zone>,
    /// The file of what was said last.
    state: Option<String>,
    /// Whether servers of apps may be names.
    resolves: bool,
    timeout: u64,
    /// Whether the store is to tell what changes.
    listens: bool,
    flights: Flights,
    malformed: Malformed,
    pub(super) recent: Recent<Noted>,
    tracking: Tracking,
    saver: Saver,
}

static DESKS: Global<RefCell<Vec<Rc<Desk>>>> = Global::new(RefCell::new(Vec::new()));
static ANY: Global<Cell<bool>> = Global::new(Cell::new(false));

/// Whether any routes are in a store.
#[inline]
pub(crate) fn has_stores() -> bool {
    ANY.get().get()
}

/// A worker begins.
pub(crate) fn begin(main: &Main) {
    for store in main.stores() {
        let Some(cache) = store.cache() else { continue };
        let desk = Rc::new(Desk::new(&store, *cache, main));
        store.set_desk(Rc::clone(&desk));
        DESKS.get().borrow_mut().push(desk);
        ANY.get().set(true);
    }
}

/// Looks whether what one process does for all is this one's, and whether there is something to do;
/// `round`: it is time to look for processes that died.
pub(crate) fn look(round: bool) {
    for desk in DESKS.get().borrow().iter() {
        if desk.listens {
            desk.tracking.look(desk, round);
        }
        desk.saver.look(desk, round);
    }
}

/// Leaves that to other processes; whether there was anything.
pub(crate) fn give_up() -> bool {
    let desks = DESKS.get().borrow();
    desks.iter().fold(false, |any, desk| {
        desk.tracking.give_up(&desk.cache) | desk.saver.give_up(desk) | any
    })
}

/// The process leaves the configuration.
pub(crate) fn end() {
    give_up();
    let began = Instant::now();
    for desk in DESKS.get().take() {
        desk.saver.end(&desk, began);
    }
    ANY.get().set(false);
}

impl Desk {
    fn new(of: &Store, cache: Cache, main: &Main) -> Self {
        Self {
            name: of.name().to_owned(),
            cache,
            client: store::of(&of.redis),
            apps: Rc::clone(&of.apps),
            state: of.conf().state.clone(),
            resolves: main.resolver().is_some(),
            timeout: of.conf().timeout,
            listens: of.conf().tracking,
            flights: Flights::default(),
            malformed: Malformed::default(),
            recent: Recent::default(),
            tracking: Tracking::default(),
            saver: Saver::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn conf(&self) -> &RedisConf {
        &self.client.redis.settings
    }

    pub(super) fn client(&self) -> Rc<Client> {
        Rc::clone(&self.client)
    }

    pub(super) fn state(&self) -> Option<&Path> {
        self.state.as_deref().map(Path::new)
    }

    pub(super) fn saver(&self) -> &Saver {
        &self.saver
    }

    /// Why the store is not asked now, if it is not.
    pub(super) fn away(&self) -> Option<Down> {
        self.cache.is_open(clock::now()).then_some(Down::Open)
    }

    /// Has something asked anew that is used meanwhile; a few at a time.
    pub(super) fn refresh(self: &Rc<Self>, kind: Kind, key: &[u8]) {
        if self.flights.len() < REFRESHES && !self.is_asked(kind, key) {
            self.ask(kind, key);
        }
    }

    /// Whether a key is being asked for here.
    pub(super) fn is_asked(&self, kind: Kind, key: &[u8]) -> bool {
        self.flights.find(kind, key).is_some()
    }

    /// Whether the store said nonsense of a tenant within such a time.
    pub(super) fn is_malformed(&self, key: &[u8], within: u64) -> bool {
        self.malformed.has(&self.cache, key, clock::now(), within)
    }

    /// Asks, or waits for the answer to who has asked already.
    pub(super) async fn join(self: &Rc<Self>, kind: Kind, key: &[u8]) -> Rc<Got> {
        let mut found = self.flights.find(kind, key);
        if let Some(old) = found.as_ref().filter(|old| !self.cache.is_current(kind, key, old.asked))
        {
            // It may bring what was so before a change that was told since.
            old.answer().await;
            found = self.flights.find(kind, key);
        }
        let flight = match found {
            Some(flight) => flight,
            None if self.flights.len() >= FLIGHTS => return Rc::new(Got::Down(Down::Busy)),
            None => self.ask(kind, key),
        };
        flight.answer().await
    }

    fn ask(self: &Rc<Self>, kind: Kind, key: &[u8]) -> Rc<super::flights::Flight> {
        let asked = self.cache.begin(kind, key, clock::now());
        let flight = self.flights.begin(kind, key, asked);
        let ending = Ending { desk: Rc::clone(self), kind, key: key.to_vec() };
        flight.asked_by(executor::spawn(async move {
            let got = ending.desk.fly(kind, &ending.key).await;
            ending.desk.flights.end(kind, &ending.key, got);
        }));
        flight
    }

    /// Waits until no other process asks for a key, or `known` has what that was to bring; until a
    /// question's time is over.
    async fn claim<T>(
        &self,
        kind: Kind,
        key: &[u8],
        known: impl Fn() -> Option<T>,
    ) -> Result<Landing<'_>, Option<T>> {
        let began = clock::now();
        let mut pause = 1;
        loop {
            let claim = self.cache.claim(kind, key, clock::now(), self.span(), &who());
            let claim = claim.map(|it| Landing { cache: &self.cache, claim: Cell::new(Some(it)) });
            // Whoever had it before may have an answer.
            if let Some(known) = known() {
                return Err(Some(known));
            }
            if let Some(claim) = claim {
                return Ok(claim);
            }
            if clock::now() - began > self.span() {
                return Err(None);
            }
            sleep(pause).await;
            pause = (2 * pause).min(8);
        }
    }

    /// Asks for one key, unless another process does.
    async fn fly(&self, kind: Kind, key: &[u8]) -> Got {
        let before = self.asked(kind, key);
        let known = || self.heard_since(kind, key, before);
        let _landing = match self.claim(kind, key, known).await {
            Ok(landing) => landing,
            Err(known) => return known.unwrap_or(Got::Down(Down::Timeout)),
        };
        if !self.cache.may_ask(clock::now()) {
            self.cache.missed(Down::Open);
            return Got::Down(Down::Open);
        }
        let read = self.cache.begin(kind, key, clock::now());
        let until = self.until();
        match kind {
            Kind::Tenant => match self.heard(self.client.tenant(key).await, until) {
                Reply::There(tenant) => {
                    let app = tenant.app.map(|app| app.name);
                    let (now, status) = (clock::now(), tenant.status);
                    self.cache.put_tenant(key, app.as_deref(), &status, read, now, &who());
                    Got::Tenant { app: app.map(|app| app.as_bytes().to_vec()), status }
                }
                Reply::Absent => {
                    self.cache.put_absent(kind, key, read, clock::now(), &who());
                    Got::Absent
                }
                Reply::Malformed => {
                    static BAD: Seldom = Seldom::new();
                    if BAD.may() {
                        let (key, of) = (String::from_utf8_lossy(key), &self.name);
                        log!(Warn, "tenant \"{key}\" of store \"{of}\" has no valid app or status");
                    }
                    self.malformed.put(key, read, clock::now());
                    Got::Malformed
                }
                Reply::Down(why) => Got::Down(why),
            },
            Kind::App => {
                let name = std::str::from_utf8(key).unwrap_or_default();
                let (found, value) = self.client.app(name).await;
                match self.heard(found, until) {
                    Reply::There(servers) => match self.serve(key, &servers, until).await {
                        Ok(()) => {
                            let now = clock::now();
                            self.cache.put_app(key, &value, read, now, &who());
                            Got::App
                        }
                        Err(got) => {
                            if let Got::Malformed = got {
                                // It is not tried at once again: others made room for it.
                                self.cache.put_absent(kind, key, read, clock::now(), &who());
                            }
                            got
                        }
                    },
                    // Nonsense is asked for no more often than nothing.
                    absent @ (Reply::Absent | Reply::Malformed) => {
                        static BAD: Seldom = Seldom::new();
                        if absent == Reply::Malformed && BAD.may() {
                            let of = &self.name;
                            log!(Warn, "app \"{name}\" of store \"{of}\" is no list of addresses");
                        }
                        self.cache.put_absent(kind, key, read, clock::now(), &who());
                        Got::Absent
                    }
                    Reply::Down(why) => Got::Down(why),
                }
            }
        }
    }

    /// Notes whether the store answered. An answer that comes after the question could be another
    /// process's is none: this one was stopped meanwhile, and something newer may be there.
    fn heard<T>(&self, found: Reply<T>, until: u64) -> Reply<T> {
        match found {
            // It answers; what it has lost is another matter.
            Reply::Down(Down::Wiped) => self.cache.wiped(),
            Reply::Down(why) => self.cache.failed(why, clock::now()),
            _ => self.cache.answered(),
        }
        if clock::fresh() > until { Reply::Down(Down::Timeout) } else { found }
    }

    /// When a key was asked for last: that it is there, and that it is not.
    fn asked(&self, kind: Kind, key: &[u8]) -> [Option<u64>; 2] {
        let now = clock::now();
        let there = match kind {
            Kind::Tenant => self.cache.tenant(key, now, &mut AppName::default()).map(|t| t.at),
            Kind::App => self.cache.app_seen(key, now).map(|app| app.at),
        };
        [there, self.cache.absent(kind, key).map(|absent| absent.at)]
    }

    /// What was said of a key since then, by whichever process has asked.
    fn heard_since(&self, kind: Kind, key: &[u8], before: [Option<u64>; 2]) -> Option<Got> {
        let [there, absent] = before;
        let now = clock::now();
        let is_new = |at, changed, before| changed == Changed::No && before != Some(at);
        let none = self.cache.absent(kind, key);
        if none.is_some_and(|none| is_new(none.at, none.changed, absent)) {
            return Some(Got::Absent);
        }
        match kind {
            Kind::Tenant => {
                let mut room = AppName::default();
                let seen = self.cache.tenant(key, now, &mut room)?;
                let app = (seen.app_len != 0).then(|| room.as_flattened()[..seen.app_len].to_vec());
                is_new(seen.at, seen.changed, there)
                    .then_some(Got::Tenant { app, status: seen.status })
            }
            Kind::App => {
                let seen = self.cache.app_seen(key, now)?;
                is_new(seen.at, seen.changed, there).then_some(Got::App)
            }
        }
    }

    /// Makes an app's servers an upstream, until then at the latest.
    async fn serve(&self, name: &[u8], servers: &[ServerAddr], until: u64) -> Result<(), Got> {
        let Some(worker) = self.apps.worker() else { return Err(Got::Down(Down::Busy)) };
        let Some(upstream) = upstream(name) else { return Err(Got::Malformed) };
        let (cache, store) = (&self.cache, &self.name);
        apps::put(worker, cache, store, &upstream, servers, self.resolves, until).await?;
        apps::resolved(worker, &upstream, self.span()).await;
        Ok(())
    }

    /// Where an app is an upstream; made one by what is cached where it is not.
    pub(super) async fn upstream_of(&self, name: &[u8]) -> Option<&'static Worker> {
        let worker = self.apps.worker()?;
        let upstream = upstream(name)?;
        if worker.is_upstream(upstream.as_str().as_bytes()) {
            return Some(worker);
        }
        // As a question: else these could replace newer servers that another one brings.
        let is_there = || worker.is_upstream(upstream.as_str().as_bytes()).then_some(worker);
        let _landing = match self.claim(Kind::App, name, is_there).await {
            Ok(landing) => landing,
            Err(known) => return known,
        };
        let mut value = Vec::new();
        self.cache.app(name, clock::now(), &mut value)?;
        let servers = app::parse(&value).ok()?;
        self.serve(name, &servers, self.until()).await.ok()?;
        Some(worker)
    }

    /// How long an answer may take at most, with all that has to be waited for: then the question is
    /// another process's.
    fn span(&self) -> u64 {
        self.timeout + 2 * MARGIN
    }

    /// Until when what a question brings is put in force: so long before another process may ask that
    /// none is overtaken between the look at the clock and the write.
    fn until(&self) -> u64 {
        clock::now() + self.timeout + MARGIN
    }
}

/// A question's end, whatever ends it: nobody waits for one that nobody asks.
struct Ending {
    desk: Rc<Desk>,
    kind: Kind,
    key: Vec<u8>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        self.desk.flights.end(self.kind, &self.key, Got::Down(Down::Busy));
    }
}

/// Gives a claim back, however the question ends.
struct Landing<'a> {
    cache: &'a Cache,
    claim: Cell<Option<Flight>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.cache.land(claim);
        }
    }
}

fn who() -> Who<'static> {
    Who { pid: process::pid(), alive: &|pid| process::alive(pid, 0) }
}

/// The name of the upstream of an app.
fn upstream(name: &[u8]) -> Option<UpstreamName> {
    UpstreamName::parse(std::str::from_utf8(name).ok()?).ok()
}

/// Questions of a process at once.
const FLIGHTS: usize = 8_192;
/// As long as there are fewer, what is used meanwhile is asked anew.
const REFRESHES: usize = 64;
/// Above the time for an answer, ms; twice.
const MARGIN: u64 = 25;
