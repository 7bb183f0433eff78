//! What a state file says: its snapshot with the journals on top, as far as they are good.
//!
//! Read once at start, or again and again by a process that follows another's file: journals are
//! fed as bytes, also those that were appended since. A record is in force when its revision is
//! the next one; one that was read already is skipped; where one is missing, nothing newer of that
//! journal is used. Since lines of the snapshot may be newer than its header, a record changes an
//! upstream only if it is newer than that upstream.

mod upstreams;

use std::collections::{BTreeMap, BTreeSet};

use self::upstreams::Upstreams;
use crate::damage::{Damage, DamageKind, Fault, Part};
use crate::host::Hosts;
use crate::journal::{self, Change, Head, Record};
use crate::line::FORMAT;
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey};
use crate::snapshot::{Header, Loaded};
use crate::upstream::Upstream;

/// The state that a file holds, as far as it was read.
#[derive(Debug)]
pub struct Replica {
    /// With the revision, next id and epoch of what was read last.
    header: Option<Header>,
    hosts: Hosts,
    hosts_revision: u64,
    upstreams: Upstreams,
    routes: BTreeMap<RouteKey, (Route, u64)>,
    /// Of the snapshot.
    damage: Option<Damage>,
    /// The newest revision of a line in the snapshot: up to there journals make it whole.
    needs: u64,
    journal: Reading,
}

/// How far a journal is read.
#[derive(Debug, Default)]
struct Reading {
    generation: u64,
    lines: usize,
    /// Nothing after it is read.
    damage: Option<Damage>,
}

/// What some bytes of a journal did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes that need not be fed again.
    pub consumed: usize,
    /// Upstreams that were created, changed or deleted.
    pub upstreams: BTreeSet<UpstreamName>,
    /// Routes that were created, changed or deleted.
    pub routes: BTreeSet<RouteKey>,
    /// Whether the hosts changed.
    pub hosts: bool,
    /// Why nothing more of this journal is used; said again at every call for it.
    pub damage: Option<Damage>,
}

impl Default for Replica {
    fn default() -> Self {
        Self::new(Loaded::default())
    }
}

impl Replica {
    /// What a snapshot says; `Loaded::default()` where there is none.
    pub fn new(loaded: Loaded) -> Self {
        let Loaded { header, hosts, hosts_revision, upstreams, routes, damage } = loaded;
        let revisions = upstreams.iter().map(|&(_, revision)| revision);
        let revisions = revisions.chain(routes.iter().map(|&(_, revision)| revision));
        let needs = revisions.fold(hosts_revision, u64::max);
        let routes = routes.into_iter().map(|one| (one.0.key.clone(), one)).collect();
        let upstreams = Upstreams::new(upstreams);
        let generation = header.as_ref().map_or(0, |header| header.journal);
        let journal = Reading { generation, ..Reading::default() };
        Self { header, hosts, hosts_revision, upstreams, routes, damage, needs, journal }
    }

    /// Takes bytes of a journal: those that follow what was consumed of it. Journals come in the
    /// order of their generation; of one older than the last nothing is used.
    ///
    /// A last line that is not whole may still be being written: it is not consumed.
    pub fn replay(&mut self, generation: u64, bytes: &[u8]) -> Replayed {
        let mut replayed = Replayed::default();
        if generation < self.journal.generation {
            replayed.consumed = bytes.len();
            return replayed;
        }
        if generation > self.journal.generation {
            self.journal = Reading { generation, ..Reading::default() };
        }
        if self.journal.damage.is_none() {
            for text in bytes.split_inclusive(|&b| b == b'\n').filter(|t| t.ends_with(b"\n")) {
                if let Err(fault) = self.line(text, &mut replayed) {
                    self.journal.stop(fault);
                    break;
                }
                self.journal.lines += 1;
                replayed.consumed += text.len();
            }
        }
        replayed.damage.clone_from(&self.journal.damage);
        replayed
    }

    /// Takes the bytes of a journal to which nothing is appended any more: a last line that is not
    /// whole was cut off.
    pub fn replay_all(&mut self, generation: u64, bytes: &[u8]) -> Replayed {
        let mut replayed = self.replay(generation, bytes);
        if generation == self.journal.generation && self.journal.damage.is_none() {
            if replayed.consumed < bytes.len() {
                self.journal.stop(Fault::torn("the line is cut off"));
            } else if self.journal.lines == 0 {
                self.journal.stop(Fault::torn("it is empty"));
            }
            replayed.damage.clone_from(&self.journal.damage);
        }
        replayed
    }

    /// The revision up to which journals were to be read to make the snapshot whole, where they
    /// end earlier: upstreams may be of different moments.
    pub fn lacks(&self) -> Option<u64> {
        let header = self.header.as_ref()?;
        (header.journal > 0 && header.revision < self.needs).then_some(self.needs)
    }

    /// The last revision that was read; the next record is of the one after it.
    pub fn revision(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// The next id that was never given.
    pub fn next_id(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.next_id)
    }

    /// The epoch of what was read last; 0 = none was written.
    pub fn epoch(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.epoch)
    }

    /// The instance of the zone that wrote what was read last; 0 = none was written.
    pub fn instance(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.instance)
    }

    /// The last journal that was fed, or else the first that is needed.
    pub fn generation(&self) -> u64 {
        self.journal.generation
    }

    /// An upstream and its revision.
    pub fn upstream(&self, name: &UpstreamName) -> Option<(&Upstream, u64)> {
        self.upstreams.get(name).map(|(upstream, revision)| (upstream, *revision))
    }

    /// Every upstream's name, in the file's order.
    pub fn names(&self) -> impl Iterator<Item = &UpstreamName> {
        self.upstreams.iter().map(|(upstream, _)| &upstream.name)
    }

    /// A route and its revision.
    pub fn route(&self, key: &RouteKey) -> Option<(&Route, u64)> {
        self.routes.get(key).map(|(route, revision)| (route, *revision))
    }

    /// Every route, in the order of keys.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().map(|(route, _)| route)
    }

    /// The admin states of hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// What a zone loads; the header has the newest revision of all, the damage is the snapshot's.
    pub fn into_loaded(self) -> Loaded {
        let Self { mut header, hosts, hosts_revision, upstreams, routes, damage, needs, .. } = self;
        if let Some(header) = &mut header {
            header.revision = header.revision.max(needs);
        }
        let (upstreams, routes) = (upstreams.into_vec(), routes.into_values().collect());
        Loaded { header, hosts, hosts_revision, upstreams, routes, damage }
    }

    fn line(&mut self, text: &[u8], replayed: &mut Replayed) -> Result<(), Fault> {
        if self.journal.lines == 0 {
            return self.head(journal::read_head(text)?);
        }
        self.record(journal::read_record(text)?, replayed)
    }

    fn head(&mut self, head: Head) -> Result<(), Fault> {
        let Head { zone, journal, epoch, instance, after, time, format: _ } = head;
        if journal != self.journal.generation {
            return Err(format!("it is journal {journal}").into());
        }
        if let (None, Some(damage)) = (&self.header, &self.damage) {
            return Err(match damage.kind {
                DamageKind::Format => Fault::format(damage.text.clone()),
                _ => Fault::gap("the snapshot before it cannot be read".to_owned()),
            });
        }
        let (revision, mine) = (self.revision(), self.epoch());
        // Another epoch is another zone: it counts on from what it had read, which is all.
        if epoch < mine || after > revision || (epoch > mine && after < revision) {
            return Err(Fault::gap(format!(
                "it goes on after revision {after} of epoch {epoch} where revision {revision} of \
                 epoch {mine} is the last"
            )));
        }
        let (format, next_id) = (FORMAT, 1);
        let header = self.header.get_or_insert(Header {
            format,
            zone,
            revision,
            next_id,
            journal,
            epoch,
            instance,
            time,
        });
        (header.epoch, header.instance) = (epoch, instance);
        Ok(())
    }

    fn record(&mut self, record: Record, replayed: &mut Replayed) -> Result<(), Fault> {
        let Record { revision, next_id, changes } = record;
        let last = self.revision();
        match revision.checked_sub(last) {
            None | Some(0) => return Ok(()),
            Some(1) => {}
            Some(_) => {
                return Err(Fault::gap(format!("revision {revision} comes after {last}")));
            }
        }
        for change in changes {
            self.apply(change, revision, replayed);
        }
        if let Some(header) = &mut self.header {
            header.revision = revision;
            header.next_id = header.next_id.max(next_id);
        }
        Ok(())
    }

    fn apply(&mut self, change: Change, revision: u64, replayed: &mut Replayed) {
        match change {
            Change::Set(upstream) => {
                let name = upstream.name.clone();
                if self.upstreams.get(&name).is_none_or(|&(_, newest)| newest < revision) {
                    self.upstreams.set(upstream, revision);
                    replayed.upstreams.insert(name);
                }
            }
            Change::Parts(parts) => {
                // One that is not there went before the snapshot came to it.
                if let Some((upstream, newest)) = self.upstreams.get_mut(&parts.name)
                    && *newest < revision
                {
                    *newest = revision;
                    replayed.upstreams.insert(parts.name.clone());
                    parts.apply(upstream);
                }
            }
            Change::Delete(name) => {
                if self.upstreams.get(&name).is_some_and(|&(_, newest)| newest < revision) {
                    self.upstreams.remove(&name);
                    replayed.upstreams.insert(name);
                }
            }
            Change::Route(route) => {
                let key = route.key.clone();
                if self.routes.get(&key).is_none_or(|&(_, newest)| newest < revision) {
                    self.routes.insert(key.clone(), (*route, revision));
                    replayed.routes.insert(key);
                }
            }
            Change::Unroute(key) => {
                if self.routes.get(&key).is_some_and(|&(_, newest)| newest < revision) {
                    self.routes.remove(&key);
                    replayed.routes.insert(key);
                }
            }
            Change::Hosts(hosts) => {
                if self.hosts_revision < revision {
                    (self.hosts, self.hosts_revision) = (hosts, revision);
                    replayed.hosts = true;
                }
            }
        }
    }
}

impl Reading {
    fn stop(&mut self, fault: Fault) {
        self.damage = Some(fault.at(Part::Journal(self.generation), self.lines + 1));
    }
}
