//! A client: it changes what is its own, knows what must be there, and looks.

use std::collections::{HashMap, VecDeque};

use crate::support::*;

use super::change::{Change, Moment};
use super::draw::{Kit, bad, draw};
use super::model::*;
use super::rng::Rng;
use super::site::Site;

#[derive(Debug)]
pub(crate) struct Client {
    pub index: usize,
    pub kit: Kit,
    pub world: World,
    /// Worlds and when each was in force at the latest.
    pub history: VecDeque<(Instant, World)>,
    /// What may be in force instead, since a connection was lost.
    pub pending: Option<(World, Instant)>,
    pub born: u64,
    pub ids: HashMap<u64, u64>,
    pub revision: u64,
    pub trace: VecDeque<String>,
    pub tags: Vec<(String, String, Upstream)>,
}

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No answer came, and what was asked may be done or not.
    Lost,
    Wrong(String),
}

pub(crate) type Step<T = ()> = Result<T, Trouble>;

#[derive(Clone, Copy)]
enum Kind {
    Single,
    Batch,
    Bad,
    Dry,
    Tagged,
    Wait,
}

const KINDS: [(u64, Kind); 6] = [
    (70, Kind::Single),
    (10, Kind::Batch),
    (5, Kind::Bad),
    (5, Kind::Dry),
    (6, Kind::Tagged),
    (4, Kind::Wait),
];

impl Client {
    pub(crate) fn new(index: usize, kit: Kit, world: World) -> Self {
        let born = world.upstreams.values().flat_map(|up| &up.servers).map(|s| s.born).max();
        Self {
            index,
            kit,
            history: [(Instant::now(), world.clone())].into(),
            world,
            pending: None,
            born: born.unwrap_or_default(),
            ids: HashMap::new(),
            revision: 0,
            trace: VecDeque::new(),
            tags: Vec::new(),
        }
    }

    /// The nth thing that it does.
    pub(crate) fn step(&mut self, site: &Site, nth: u64) {
        let mut rng = Rng::of(site.seed, self.index as u64, nth);
        let done = match self.pending.is_some() {
            true => self.resolve(site),
            false => self.act(site, &mut rng),
        };
        match done {
            Ok(()) => {}
            Err(Trouble::Lost) => {
                site.count("lost");
                self.pending.get_or_insert_with(|| (self.world.clone(), Instant::now()));
            }
            Err(Trouble::Wrong(text)) => {
                let tail = self.trace.len().saturating_sub(15);
                let trace: Vec<String> = self.trace.range(tail..).cloned().collect();
                let text = format!(
                    "client {}, step {nth}: {text}\nits last calls:\n{}",
                    self.index,
                    trace.join("\n")
                );
                site.fail(text);
            }
        }
    }

    fn act(&mut self, site: &Site, rng: &mut Rng) -> Step {
        self.world.settle(Instant::now());
        match rng.weighted(&KINDS) {
            Kind::Single => {
                let Some(change) = draw(rng, &self.kit, &self.world) else { return Ok(()) };
                let (method, path, body) = change.call();
                self.change(site, &[change], (method, &path, body.as_ref()), None)?;
            }
            Kind::Batch => {
                let mut world = self.world.clone();
                let mut born = self.born;
                let mut changes = Vec::new();
                for _ in 0..1 + rng.below(6) {
                    let Some(change) = draw(rng, &self.kit, &world) else { continue };
                    let mut at = Moment { now: Instant::now(), born: &mut born };
                    let verdict = change.apply(&mut world, &mut at);
                    // Most batches are good to the end.
                    if verdict.refused.is_empty() || rng.chance(5) {
                        changes.push(change);
                    }
                }
                if changes.is_empty() {
                    return Ok(());
                }
                let items: Vec<Value> = changes.iter().map(Change::item).collect();
                let body = json!({ "changes": items });
                self.change(site, &changes, ("POST", "batch", Some(&body)), None)?;
            }
            Kind::Bad => return self.bad(site, rng),
            Kind::Dry => {
                let Some(change) = draw(rng, &self.kit, &self.world) else { return Ok(()) };
                return self.dry(site, &change);
            }
            Kind::Tagged => return self.tagged(site, rng),
            Kind::Wait => {
                let Some(change @ Change::Verb { .. }) = draw(rng, &self.kit, &self.world) else {
                    return Ok(());
                };
                let (method, path, _) = change.call();
                self.change(site, &[change], (method, &format!("{path}&wait=2s"), None), None)?;
            }
        }
        if rng.chance(40) { self.hits(site, rng) } else { Ok(()) }
    }

    /// Makes changes by one call, and looks whether they are in force.
    fn change(
        &mut self,
        site: &Site,
        changes: &[Change],
        (method, path, body): (&'static str, &str, Option<&Value>),
        tag: Option<(&str, &str, bool)>,
    ) -> Step {
        let mut next = self.world.clone();
        let mut at = Moment { now: Instant::now(), born: &mut self.born };
        let mut verdict = super::change::Verdict { done: true, refused: Vec::new() };
        for change in changes {
            verdict.and(change.apply(&mut next, &mut at));
            if !verdict.done {
                break;
            }
        }
        let api = match tag {
            Some((header, value, holds)) => {
                if !holds {
                    verdict.done = false;
                    verdict.refused.extend([409, 412]);
                }
                site.api.with(header, value)
            }
            None => site.api.clone(),
        };
        let names = changes.iter().filter_map(Change::upstream);
        let mut touched: Vec<String> = names.map(str::to_owned).collect();
        touched.sort_unstable();
        touched.dedup();
        self.unpost(site);
        let answer = self.call(site, &api, method, path, body);
        let (status, reply) = match answer {
            Ok(answer) => answer,
            Err(Trouble::Lost) => {
                self.pending = Some((next, Instant::now()));
                return Err(Trouble::Lost);
            }
            Err(wrong) => return Err(wrong),
        };
        let in_force = (200..300).contains(&status)
            || reply["type"] == "urn:peerage:wait-expired"
            || reply["type"] == "urn:peerage:not-durable";
        let said = format!("{method} {path} {}: {status} {reply}", body.unwrap_or(&Value::Null));
        if in_force {
            if !verdict.done {
                return wrong(format!("must be refused with {:?}: {said}", verdict.refused));
            }
            let changed = next != self.world;
            // What is not on the disk yet is answered alike when it is repeated.
            let told = reply["changed"].as_bool().filter(|_| status != 503);
            if told.is_some_and(|told| told != changed) && site.still().is_some() {
                return wrong(format!("changed must be {changed}: {said}"));
            }
            let revision = reply["revision"].as_u64().unwrap_or_default();
            if revision < self.revision || (changed && revision == self.revision) {
                return wrong(format!("the revision was {} before: {said}", self.revision));
            }
            self.revision = revision;
            self.enter(next);
        } else if !verdict.refused.contains(&status) {
            return wrong(format!(
                "must be {}: {said}",
                match verdict.done {
                    true => "done".to_owned(),
                    false => format!("refused with {:?}", verdict.refused),
                }
            ));
        }
        self.look(site, &touched)?;
        self.post(site);
        Ok(())
    }

    /// What is wrong in itself is refused and changes nothing.
    fn bad(&mut self, site: &Site, rng: &mut Rng) -> Step {
        let (method, path, body) = bad(rng, &self.kit);
        let name = path.split('/').nth(1).unwrap_or_default().to_owned();
        let request = site.api.request(method, &path, None).body(body.clone());
        let (status, reply) = self.send(site, &request, &format!("{method} {path} (bad)"))?;
        if !(400..500).contains(&status) {
            let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            return wrong(format!("{method} {path} {body}: {status} {reply}"));
        }
        let own = self.kit.own().any(|own| *own == name);
        self.look(site, &if own { vec![name] } else { Vec::new() })
    }

    /// A dry run says what would be and changes nothing.
    fn dry(&mut self, site: &Site, change: &Change) -> Step {
        let mut next = self.world.clone();
        let mut born = self.born;
        let verdict = change.apply(&mut next, &mut Moment { now: Instant::now(), born: &mut born });
        let (method, path, body) = change.call();
        let path = format!("{path}{}dry_run=1", if path.contains('?') { "&" } else { "?" });
        let (status, reply) = self.call(site, &site.api.clone(), method, &path, body.as_ref())?;
        let done = (200..300).contains(&status);
        if done && !verdict.done || !done && !verdict.refused.contains(&status) {
            return wrong(format!("{method} {path}: {status} {reply}, not as {verdict:?}"));
        }
        if done && reply["changed"].as_bool().is_some_and(|told| told != (next != self.world)) {
            return wrong(format!("{method} {path} {body:?}: changed is wrong: {reply}"));
        }
        let name = change.upstream().map(str::to_owned);
        self.look(site, &name.into_iter().collect::<Vec<_>>())
    }

    /// A write with a condition: the tag of now, one of before, or that it is new.
    fn tagged(&mut self, site: &Site, rng: &mut Rng) -> Step {
        let name = rng.weighted(&[(1, &self.kit.hot), (1, &self.kit.cold)]);
        let name = rng.pick(name).clone();
        let Some(up) = self.world.upstreams.get(&name).cloned() else { return Ok(()) };
        if up.servers.iter().any(|server| server.admin.unsure(Instant::now() + secs(3))) {
            return Ok(());
        }
        let change = loop {
            match draw(rng, &self.kit, &self.world) {
                Some(change) if change.upstream() == Some(&*name) => break change,
                Some(Change::Verb { addr, state, opts, .. }) => {
                    let addr = up.servers.first().map_or(addr, |server| server.addr.clone());
                    break Change::Verb { name: name.clone(), addr, state, opts };
                }
                _ => {}
            }
        };
        let (method, path, body) = change.call();
        let call = (method, &*path, body.as_ref());
        if matches!(change, Change::Upstream { whole: true, .. }) && rng.chance(30) {
            return self.change(
                site,
                std::slice::from_ref(&change),
                call,
                Some(("If-None-Match", "*", false)),
            );
        }
        let old = self.tags.iter().rposition(|(of, _, then)| *of == name && !same(then, &up));
        if let Some(old) = old.filter(|_| rng.chance(50)) {
            let tag = self.tags.remove(old).1;
            return self.change(
                site,
                std::slice::from_ref(&change),
                call,
                Some(("If-Match", &tag, false)),
            );
        }
        let request = site.api.request("GET", &format!("upstreams/{name}"), None);
        let begin = Instant::now();
        let Ok(reply) = request.send(site.api.addr()) else { return self.lost(site, begin, "GET") };
        let tag = reply.header("etag").unwrap_or_default().to_owned();
        self.tags.push((name, tag.clone(), up));
        if self.tags.len() > 20 {
            self.tags.remove(0);
        }
        // While zones move the tag may be read in the old one.
        if site.still().is_none() {
            return Ok(());
        }
        self.change(site, std::slice::from_ref(&change), call, Some(("If-Match", &tag, true)))
    }

    /// Some requests: none may be answered by what is down or gone.
    fn hits(&mut self, site: &Site, rng: &mut Rng) -> Step {
        let name = rng.weighted(&[(7, &self.kit.hot), (3, &self.kit.shared)]);
        let name = rng.pick(name).clone();
        for _ in 0..5 {
            super::traffic::request(site, &name, rng.chance(10)).map_err(Trouble::Wrong)?;
        }
        Ok(())
    }

    /// Gets rid of what it is unsure of; `false` if it cannot yet.
    pub(crate) fn settled(&mut self, site: &Site) -> bool {
        if self.pending.is_some() {
            self.step(site, u64::MAX);
        }
        self.pending.is_none()
    }

    pub(crate) fn enter(&mut self, world: World) {
        let now = Instant::now();
        self.world = world;
        self.history.push_back((now, self.world.clone()));
        while self.history.len() > 200 {
            self.history.pop_front();
        }
    }

    fn unpost(&self, site: &Site) {
        for name in self.kit.hot.iter().chain(&self.kit.shared) {
            site.board.clear(name, self.index);
        }
    }

    pub(crate) fn post(&self, site: &Site) {
        let now = Instant::now();
        let known = |addr: &String| Some((addr.clone(), site.names.get(addr)?.clone()));
        for name in self.kit.hot.iter().chain(&self.kit.shared) {
            let shared = self.kit.shared.contains(name);
            let up = self.world.upstreams.get(name);
            let serves = |addr: &str| {
                let server = up.and_then(|up| Some((up, up.server(addr)?)));
                server.map_or(Serves::No, |(up, server)| self.world.serves(up, server, now))
            };
            let pool = if shared { &self.kit.private } else { &self.kit.real };
            let banned = pool.iter().filter(|addr| serves(addr) == Serves::No);
            let banned = banned.filter_map(known).map(|(_, name)| name).collect();
            let usable = !shared && pool.iter().any(|addr| serves(addr) == Serves::Yes);
            site.board.post(name, self.index, banned, usable);
        }
    }
}

/// Whether two have one tag: equal but for who made them and when.
fn same(a: &Upstream, b: &Upstream) -> bool {
    let plain = |up: &Upstream| {
        let mut up = up.clone();
        for server in &mut up.servers {
            server.born = 0;
            (server.admin.since, server.admin.until) = (None, None);
            if server.admin.state == State::Up {
                server.admin.reason.clear();
            }
        }
        // Tags come from what holds, and not from where it is said; order does not count.
        let defaults = up.defaults;
        for server in &mut up.servers {
            server.limits = std::array::from_fn(|at| Some(server.limit(at, &defaults)));
        }
        up.servers.sort_by(|a, b| a.addr.cmp(&b.addr));
        up
    };
    plain(a) == plain(b)
}

pub(crate) fn wrong<T>(text: String) -> Step<T> {
    Err(Trouble::Wrong(text))
}
