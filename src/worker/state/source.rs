//! Reads a state file with its journals: once at start, or again and again while another zone
//! writes them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use peerage_core::damage::{Damage, Part};
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::replica::Replica;
use peerage_core::route::{Route, RouteKey};
use peerage_core::snapshot::{self, Header};
use peerage_core::upstream::Upstream;

use super::file::{self, Identity};
use super::journal;

/// Files that others write, as far as they were read.
pub(super) struct Source {
    path: PathBuf,
    replica: Option<Replica>,
    snapshot: Option<Identity>,
    /// Bytes of the last journal that were used.
    at: u64,
}

/// An upstream in the files, with its revision; none where it is gone.
pub(super) type Image = (UpstreamName, Option<(Upstream, u64)>);

/// A route in the files; none where it is gone.
pub(super) type RouteImage = (RouteKey, Option<Route>);

/// What came into the files.
pub(super) struct News {
    /// Upstreams that changed, with their revision; those that are gone without.
    pub(super) upstreams: Vec<Image>,
    /// Routes likewise, without their revision.
    pub(super) routes: Vec<RouteImage>,
    /// Whether `upstreams` and `routes` are all there are.
    pub(super) is_all: bool,
    /// The hosts, if they may have changed.
    pub(super) hosts: Option<Hosts>,
    pub(super) revision: u64,
    pub(super) next_id: u64,
}

/// What the end of the last journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// All that will ever be there.
    Whole,
    /// Somebody may be writing it.
    Growing,
}

/// The files, read whole.
pub(super) struct Whole {
    pub(super) replica: Replica,
    /// What is not as it was written.
    pub(super) damages: Vec<Damage>,
    /// Bytes of the last journal that were used.
    at: u64,
    snapshot: Option<Identity>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), replica: None, snapshot: None, at: 0 }
    }

    /// Whether something was read.
    pub(super) const fn is_open(&self) -> bool {
        self.replica.is_some()
    }

    /// Forgets what was read.
    pub(super) fn forget(&mut self) {
        *self = Self::new(&self.path);
    }

    /// Reads all anew the next time, and tells what is new of it.
    pub(super) const fn look_again(&mut self) {
        self.at = 0;
        self.snapshot = None;
    }

    /// Reads what has come since the last time.
    pub(super) fn refresh(&mut self) -> io::Result<News> {
        if self.replica.is_some() && file::identity(&self.path) == self.snapshot {
            match self.read_on() {
                // The journal is gone: there is a new snapshot.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        let Whole { replica, damages, at, snapshot } = read(&self.path, Tail::Growing)?;
        let spoilt = damages.iter().any(|damage| damage.part == Part::Snapshot)
            || (snapshot.is_none() && self.snapshot.is_some());
        if let Some(known) = self.replica.as_ref().filter(|_| spoilt) {
            // What was read of it is more than what is left: its writer makes it anew, or we do.
            return Ok(News {
                upstreams: Vec::new(),
                routes: Vec::new(),
                is_all: false,
                hosts: None,
                revision: known.revision(),
                next_id: known.next_id(),
            });
        }
        let old = self.replica.take();
        let news = News::between(old.as_ref(), &replica);
        (self.replica, self.snapshot, self.at) = (Some(replica), snapshot, at);
        Ok(news)
    }

    /// Reads what was appended.
    fn read_on(&mut self) -> io::Result<News> {
        let mut replica = self.replica.take().unwrap_or_default();
        let done = self.read_into(&mut replica);
        let news = done.map(|(names, keys, hosts)| {
            let image = |name: &UpstreamName| {
                replica.upstream(name).map(|(upstream, revision)| (upstream.clone(), revision))
            };
            News {
                upstreams: names.into_iter().map(|name| (name.clone(), image(&name))).collect(),
                routes: keys.into_iter().map(|key| (key.clone(), route(&replica, &key))).collect(),
                is_all: false,
                hosts: hosts.then(|| replica.hosts().clone()),
                revision: replica.revision(),
                next_id: replica.next_id(),
            }
        });
        self.replica = Some(replica);
        news
    }

    fn read_into(&mut self, replica: &mut Replica) -> io::Result<Touched> {
        let (mut names, mut keys, mut hosts) = (Vec::new(), Vec::new(), false);
        let numbers = journal::numbers(&self.path)?;
        let newest = numbers.last().copied().unwrap_or(0);
        let mut number = replica.generation();
        loop {
            if numbers.contains(&number) {
                let bytes = read_from(journal::open(&self.path, number)?, self.at)?;
                let replayed = if number < newest {
                    replica.replay_all(number, &bytes)
                } else {
                    replica.replay(number, &bytes)
                };
                self.at += replayed.consumed as u64;
                names.extend(replayed.upstreams);
                keys.extend(replayed.routes);
                hosts |= replayed.hosts;
            } else if self.at != 0 {
                return Err(io::ErrorKind::NotFound.into());
            }
            match numbers.iter().find(|&&next| next > number) {
                Some(&next) => (number, self.at) = (next, 0),
                None => return Ok((names, keys, hosts)),
            }
        }
    }
}

/// Upstreams and routes that journals name, and whether hosts do.
type Touched = (Vec<UpstreamName>, Vec<RouteKey>, bool);

fn route(replica: &Replica, key: &RouteKey) -> Option<Route> {
    replica.route(key).map(|(route, _)| route.clone())
}

impl News {
    fn between(old: Option<&Replica>, new: &Replica) -> Self {
        let known = |name| old.and_then(|old| old.upstream(name)).map(|(_, revision)| revision);
        let image = |name| new.upstream(name).map(|(upstream, at)| (upstream.clone(), at));
        let changed = new.names().filter(|name| {
            let now = new.upstream(name).map(|(_, revision)| revision);
            known(name) != now
        });
        let gone = old.into_iter().flat_map(Replica::names);
        let gone = gone.filter(|name| new.upstream(name).is_none());
        let upstreams = changed.chain(gone).map(|name| (name.clone(), image(name))).collect();
        let was = |key: &RouteKey| old.and_then(|old| old.route(key)).map(|(route, _)| route);
        let changed = new.routes().filter(|route| was(&route.key) != Some(*route));
        let gone = old.into_iter().flat_map(Replica::routes);
        let gone = gone.filter(|route| new.route(&route.key).is_none());
        let routes = changed.map(|route| (route.key.clone(), Some(route.clone())));
        let routes = routes.chain(gone.map(|route| (route.key.clone(), None))).collect();
        Self {
            upstreams,
            routes,
            is_all: old.is_none(),
            hosts: Some(new.hosts().clone()),
            revision: new.revision(),
            next_id: new.next_id(),
        }
    }
}

/// Reads the snapshot and the journals that are needed with it.
pub(super) fn read(path: &Path, tail: Tail) -> io::Result<Whole> {
    let mut races = 0;
    loop {
        let snapshot = file::identity(path);
        let done = read_once(path, tail, snapshot);
        // A writer replaces the snapshot and removes what is not needed any more.
        let raced = file::identity(path) != snapshot;
        let gone = matches!(&done, Err(error) if error.kind() == io::ErrorKind::NotFound);
        races += 1;
        if !(raced || gone) || races == RACES {
            return done;
        }
    }
}

fn read_once(path: &Path, tail: Tail, snapshot: Option<Identity>) -> io::Result<Whole> {
    let loaded = file::read(path)?.map(|bytes| snapshot::read(&bytes)).unwrap_or_default();
    let needed = loaded.header.as_ref().map_or(0, |header| header.journal);
    let mut damages: Vec<Damage> = loaded.damage.iter().cloned().collect();
    let mut replica = Replica::new(loaded);
    let numbers = match journal::numbers(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut at = 0;
    for &number in numbers.iter().filter(|&&number| number >= needed) {
        let bytes = read_from(journal::open(path, number)?, 0)?;
        let replayed = if tail == Tail::Growing && Some(&number) == numbers.last() {
            replica.replay(number, &bytes)
        } else {
            replica.replay_all(number, &bytes)
        };
        at = replayed.consumed as u64;
        damages.extend(replayed.damage);
    }
    Ok(Whole { replica, damages, at, snapshot })
}

/// Who wrote last.
pub(super) struct Last {
    /// The highest number of a journal, 0 = there is none.
    pub(super) newest: u64,
    /// How many there are.
    pub(super) journals: u32,
    /// 0 = nobody.
    pub(super) epoch: u64,
    pub(super) instance: u64,
}

/// Who wrote last: it stands in the newest journal, or else in the snapshot.
pub(super) fn last(path: &Path) -> io::Result<Last> {
    let (newest, journals, head) = journal::newest(path)?;
    let journal = head.map(|head| (head.epoch, head.instance));
    let snapshot = header_of(path)?.map(|header| (header.epoch, header.instance));
    let (epoch, instance) = journal.max(snapshot).unwrap_or_default();
    Ok(Last { newest, journals, epoch, instance })
}

/// The first journal that the snapshot there needs, 0 where there is none.
pub(super) fn journal_of(path: &Path) -> io::Result<u64> {
    Ok(header_of(path)?.map_or(0, |header| header.journal))
}

fn header_of(path: &Path) -> io::Result<Option<Header>> {
    let Some(file) = file::open(path)? else { return Ok(None) };
    let mut line = Vec::new();
    BufReader::new(file.take(FIRST_LINE)).read_until(b'\n', &mut line)?;
    Ok(snapshot::read(&line).header)
}

fn read_from(mut file: File, at: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of a first line at most.
const FIRST_LINE: u64 = 4096;
/// How often files are read anew that a writer replaces meanwhile.
const RACES: u32 = 10;
