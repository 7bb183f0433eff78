//! The guard: which of the servers that an answer leaves out go, and when.
//!
//! What an answer adds or alters is done at once. What it leaves out goes at once only if that is
//! little; if it is much, a second and consistent read must leave it out too; and an answer without
//! any server is not believed for a while, then only of those that fail here as well. What is not
//! believed is held: the servers stay as they were, and are shown so.
//!
//! The guard remembers no more than the last answer and since when it waits. Which servers there
//! are it is told with every look, so that another process can take its place at any time: the wait
//! begins anew then, and nothing goes for that. All times are unix ms.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::addr::ServerAddr;
use crate::consul::reader::Evidence;
use crate::consul::service::{OnEmpty, Service};
use crate::source::{Sourced, Stated};
use crate::units::Millis;

/// A server that the source named before, as it is in the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its address.
    pub addr: ServerAddr,
    /// What was said of it.
    pub said: Sourced,
    /// It does not answer now: its check fails, or what was tried last did.
    pub fails: bool,
}

/// Why servers are held that the source names no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// More go at once than may.
    Removal {
        /// How many.
        removed: usize,
        /// Of how many.
        of: usize,
    },
    /// Fewer would be left than must.
    TooFew {
        /// How many.
        left: usize,
        /// How many must.
        min: u32,
    },
    /// The source names none.
    Empty,
    /// It names none, and says that it may not show all.
    Denied,
    /// An operator has said that they stay.
    Discarded,
}

impl Why {
    /// The word of the API.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Removal { .. } => "max_removal",
            Self::TooFew { .. } => "min_servers",
            Self::Empty => "empty",
            Self::Denied => "denied",
            Self::Discarded => "discarded",
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Removal { removed, of } => {
                write!(f, "{removed} of {of} servers would go at once")
            }
            Self::TooFew { left, min } => {
                write!(f, "{left} servers would be left, min_servers={min}")
            }
            Self::Empty => f.write_str("the source names no server"),
            Self::Denied => {
                f.write_str("the source names no server, and the token may not be let see any")
            }
            Self::Discarded => f.write_str("the removal was discarded"),
        }
    }
}

/// What is held, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Why.
    pub why: Why,
    /// Since when.
    pub since: u64,
    /// When that is decided; `None`: by the source or an operator alone.
    pub until: Option<u64>,
    /// Which servers.
    pub servers: Vec<ServerAddr>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The servers from now on, for `Change::Source`: those of the source that are not among them
    /// drain and go.
    pub servers: Vec<Stated>,
    /// When to read again, consistently: for `Reader::confirm`, after every decision, `None` too.
    pub confirm_at: Option<u64>,
    /// When to ask the guard again, though nothing has come: see [`Guard::wake`].
    pub wake_at: Option<u64>,
    /// Servers are held that were not, or for another reason than before: a warning.
    pub began: Option<Why>,
    /// None are held any more.
    pub ended: bool,
}

/// How far a source is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// See [`Service::min_servers`].
    pub min_servers: u32,
    /// See [`Service::max_removal`].
    pub max_removal: u8,
    /// See [`Service::empty_hold`].
    pub empty_hold: Millis,
    /// See [`Service::on_empty`].
    pub on_empty: OnEmpty,
}

impl From<&Service> for Rules {
    fn from(service: &Service) -> Self {
        let Service { min_servers, max_removal, empty_hold, on_empty, .. } = *service;
        Self { min_servers, max_removal, empty_hold, on_empty }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Guard {
    rules: Rules,
    /// What the source named last; `None`: it said nothing yet.
    named: Option<Vec<Stated>>,
    denied: bool,
    /// Since when each server is missed.
    missed: BTreeMap<ServerAddr, u64>,
    /// Since when the source names none, and whether that was confirmed once its time was over.
    empty: Option<(u64, bool)>,
    /// Servers that stay by an operator's word until the source names them again.
    discarded: BTreeSet<ServerAddr>,
    held: Option<Held>,
}

/// How long a removal waits to be confirmed, ms.
pub const CONFIRM: u64 = 2_000;
/// How often servers are looked at that go once they fail, ms.
const LOOK: u64 = 5_000;

impl Guard {
    /// Knows nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            named: None,
            denied: false,
            missed: BTreeMap::new(),
            empty: None,
            discarded: BTreeSet::new(),
            held: None,
        }
    }

    /// What is held now.
    pub const fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// What the source named last; `None`: it said nothing yet.
    pub fn named(&self) -> Option<&[Stated]> {
        self.named.as_deref()
    }

    /// The source has answered: it names these servers, one for each address.
    pub fn look(
        &mut self,
        named: Vec<Stated>,
        known: &[Known],
        evidence: Evidence,
        now: u64,
    ) -> Decision {
        self.denied = evidence.denied;
        self.named = Some(named);
        self.decide(known, now, if evidence.consistent { Say::Confirmed } else { Say::Answer })
    }

    /// The time of [`Decision::wake_at`] has come. `None`: nothing was answered yet.
    pub fn wake(&mut self, known: &[Known], now: u64) -> Option<Decision> {
        self.named.as_ref()?;
        Some(self.decide(known, now, Say::Time))
    }

    /// An operator says that what is held goes. `None`: nothing is held.
    pub fn apply(&mut self, known: &[Known], now: u64) -> Option<Decision> {
        self.held.as_ref()?;
        Some(self.decide(known, now, Say::Apply))
    }

    /// An operator says that what is held stays, until the source names it again or an operator
    /// says otherwise. `None`: nothing is held.
    pub fn discard(&mut self, known: &[Known], now: u64) -> Option<Decision> {
        let held = self.held.take()?;
        self.discarded.extend(held.servers);
        Some(self.decide(known, now, Say::Time))
    }

    fn decide(&mut self, known: &[Known], now: u64, say: Say) -> Decision {
        // Whoever watched before may have been told.
        let told = known.iter().filter(|k| k.said.discarded && k.said.vanished().is_none());
        self.discarded.extend(told.map(|k| k.addr.clone()));
        let named = self.named.clone().unwrap_or_default();
        let addrs: HashSet<&ServerAddr> = named.iter().map(|server| &server.addr).collect();
        // One that is named at another address has moved; it is not missed.
        let identities: HashSet<u32> =
            named.iter().map(|server| server.said.identity).filter(|&id| id != 0).collect();
        let present: Vec<&Known> = known.iter().filter(|k| k.said.vanished().is_none()).collect();
        let missing: Vec<&Known> = present
            .iter()
            .copied()
            .filter(|k| !addrs.contains(&k.addr) && !identities.contains(&k.said.identity))
            .collect();
        if !named.is_empty() && self.empty.take().is_some() {
            // They come back one by one: an answer without any is no first one that leaves these out.
            self.missed.clear();
        }
        self.missed = missing
            .iter()
            .map(|k| (k.addr.clone(), self.missed.get(&k.addr).map_or(now, |&at| at.min(now))))
            .collect();
        let wait = if named.is_empty() && !present.is_empty() {
            self.empty(&missing, now, say)
        } else {
            self.empty = None;
            // What went a moment ago counts too: many small removals in a row are one large one.
            let went = known.iter().filter(|k| {
                let is_new = |since: u64| since.saturating_add(CONFIRM) > now;
                let is_missed = !addrs.contains(&k.addr) && !identities.contains(&k.said.identity);
                is_missed && k.said.vanished().is_some_and(is_new)
            });
            let counts = Counts { left: named.len(), of: present.len(), went: went.count() };
            self.fewer(&missing, counts, now, say)
        };
        let stays = |k: &&Known| !wait.go.contains(&k.addr);
        let stay: Vec<&Known> = missing.iter().copied().filter(stays).collect();
        let before = self.held.take().map(|held| (held.why, held.since));
        let why = wait.why.filter(|_| !stay.is_empty());
        self.held = why.map(|why| {
            let code = why.code();
            let since = before.filter(|(why, _)| why.code() == code).map_or(now, |(_, at)| at);
            let servers = stay.iter().map(|k| k.addr.clone()).collect();
            Held { why, since, until: wait.until, servers }
        });
        let is_held = self.held.is_some();
        if say == Say::Apply {
            self.discarded.clear();
        }
        self.discarded.retain(|addr| !addrs.contains(addr));
        let mut servers = named.clone();
        servers.extend(stay.iter().map(|k| {
            let discarded = self.discarded.contains(&k.addr);
            Stated { addr: k.addr.clone(), said: Sourced { held: true, discarded, ..k.said } }
        }));
        Decision {
            servers,
            confirm_at: wait.confirm_at.filter(|_| is_held),
            wake_at: wait.wake_at.filter(|_| is_held),
            began: why.filter(|why| before.is_none_or(|(before, _)| before.code() != why.code())),
            ended: before.is_some() && !is_held,
        }
    }

    /// The source names none.
    fn empty(&mut self, missing: &[&Known], now: u64, say: Say) -> Wait {
        let (since, mut confirmed) = self.empty.unwrap_or((now, false));
        // The clock may have been set back.
        let since = since.min(now);
        let over = since.saturating_add(self.rules.empty_hold.0);
        confirmed |= say == Say::Confirmed && now >= over;
        self.empty = Some((since, confirmed));
        if say == Say::Apply {
            return Wait::none(addrs(missing));
        }
        let discarded = |k: &&&Known| self.discarded.contains(&k.addr);
        if !missing.is_empty() && missing.iter().all(|k| discarded(&k)) {
            return Wait::held(Why::Discarded);
        }
        if self.denied {
            return Wait::held(Why::Denied);
        }
        if self.rules.on_empty == OnEmpty::Keep {
            return Wait::held(Why::Empty);
        }
        if !confirmed {
            let confirm_at = Some(over.max(now));
            return Wait { until: Some(over), confirm_at, ..Wait::held(Why::Empty) };
        }
        let goes =
            |k: &&&Known| !discarded(k) && (self.rules.on_empty == OnEmpty::Apply || k.fails);
        let go: Vec<&Known> = missing.iter().filter(goes).copied().collect();
        Wait { go: addrs(&go), wake_at: Some(now + LOOK), ..Wait::held(Why::Empty) }
    }

    /// The source names some.
    fn fewer(&self, missing: &[&Known], counts: Counts, now: u64, say: Say) -> Wait {
        let Counts { left, of, went } = counts;
        let of = of + went;
        if say == Say::Apply {
            return Wait::none(addrs(missing));
        }
        let (kept, gone): (Vec<&Known>, Vec<&Known>) =
            missing.iter().partition(|k| self.discarded.contains(&k.addr));
        let most = (of * usize::from(self.rules.max_removal) / 100).max(1);
        let (removed, min) = (gone.len() + went, self.rules.min_servers);
        let is_few = removed <= most && left >= min as usize;
        // Each is believed gone once a consistent read leaves it out so long after the first did.
        // What is held waits for that too where servers that came meanwhile make it few.
        let since = |k: &&Known| self.missed.get(&k.addr).copied().unwrap_or(now);
        let goes = |k: &&Known| {
            let ripe = say == Say::Confirmed && since(k) + CONFIRM <= now;
            ripe || is_few && !k.said.held
        };
        let (go, rest): (Vec<&Known>, Vec<&Known>) = gone.into_iter().partition(goes);
        let why = match self.held.as_ref().map(|held| held.why) {
            _ if rest.is_empty() => (!kept.is_empty()).then_some(Why::Discarded),
            // Servers that come meanwhile make no other reason of it.
            Some(why @ (Why::Removal { .. } | Why::TooFew { .. }))
                if rest.iter().all(|k| k.said.held) =>
            {
                Some(why)
            }
            _ if removed <= most && !is_few => Some(Why::TooFew { left, min }),
            _ => Some(Why::Removal { removed, of }),
        };
        let until = rest.iter().map(|k| since(k) + CONFIRM).min();
        Wait { why, go: addrs(&go), until, confirm_at: until.map(|at| at.max(now)), wake_at: None }
    }
}

/// How many servers there are.
struct Counts {
    /// Named now.
    left: usize,
    /// There until now, the held ones among them.
    of: usize,
    /// Gone a moment ago.
    went: usize,
}

/// What calls for a decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Say {
    /// An answer.
    Answer,
    /// One that a leader has confirmed.
    Confirmed,
    /// The clock.
    Time,
    /// An operator, who wants it done.
    Apply,
}

/// What becomes of the servers that are missing.
struct Wait {
    /// Why those stay that do.
    why: Option<Why>,
    go: BTreeSet<ServerAddr>,
    until: Option<u64>,
    confirm_at: Option<u64>,
    wake_at: Option<u64>,
}

impl Wait {
    /// These go, the others stay without a word.
    fn none(go: BTreeSet<ServerAddr>) -> Self {
        Self { why: None, go, until: None, confirm_at: None, wake_at: None }
    }

    /// All stay.
    fn held(why: Why) -> Self {
        Self { why: Some(why), ..Self::none(BTreeSet::new()) }
    }
}

fn addrs(servers: &[&Known]) -> BTreeSet<ServerAddr> {
    servers.iter().map(|server| server.addr.clone()).collect()
}

#[cfg(test)]
mod tests;
