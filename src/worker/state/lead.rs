//! Whether this zone writes the state file, or another master's does.
//!
//! The last writer's zone stands in the first line of the newest journal. While any worker of that
//! zone attends, everybody else follows: what comes into the files is taken over and merged with
//! what this configuration declares. Once nobody attends, whoever gets the lock takes over what is
//! left and begins a journal with a higher epoch.

use std::collections::HashSet;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

use peerage_core::name::UpstreamName;
use peerage_core::route::RouteKey;
use peerage_shm::point;
use peerage_zone::{Adoptee, Cursor, Lead, ROUTES_AT_ONCE, RouteCursor, Unadopted};

use super::helper::{Claimed, Helper, Order, Outcome};
use super::pen::{From, Pen};
use super::source::{Image, News, RouteImage};
use super::subject::Subject;
use crate::ffi::process;
use crate::ffi::timer;
use crate::worker;

/// What the process on duty is about.
pub(super) enum Duty {
    /// Nothing before this, monotonic ms.
    Idle(u64),
    /// The helper finds out who writes.
    Claiming,
    /// Takes over what another zone has written.
    Adopting(Box<Adoption>),
    /// Writes.
    Leading(Box<Pen>),
}

/// News on their way into the zone.
pub(super) struct Adoption {
    news: News,
    at: usize,
    /// Upstreams that are in the zone and may not be in the files.
    rest: Option<(Cursor, HashSet<UpstreamName>)>,
    routes_at: usize,
    /// Routes likewise.
    rest_of_routes: Option<(RouteCursor, HashSet<RouteKey>)>,
    then: Then,
}

enum Then {
    Follow,
    Lead { newest: u64, journals: u32, epoch: u64 },
}

impl Duty {
    pub(super) const fn none() -> Self {
        Self::Idle(0)
    }

    /// Goes on; gives the time until the next look.
    pub(super) fn turn(&mut self, subject: &Subject, helper: &Helper) -> u64 {
        match mem::replace(self, Self::Claiming) {
            Self::Idle(until) => {
                let now = timer::now();
                if now < until {
                    *self = Self::Idle(until);
                    return until - now;
                }
                let durable = subject.durable();
                let (instance, epoch, seen) = (durable.instance(), durable.epoch(), durable.seen());
                helper.order(Order::Claim { instance, epoch, seen });
                IDLE_MS
            }
            Self::Claiming => IDLE_MS,
            Self::Adopting(mut adoption) => {
                if adoption.slice(subject) {
                    *self = Self::Adopting(adoption);
                    return 1;
                }
                *self = adoption.end(subject, helper);
                1
            }
            Self::Leading(mut pen) => match pen.turn(subject, helper) {
                Some(next) => {
                    *self = Self::Leading(pen);
                    next
                }
                None => {
                    // Not from the ring: what is not on the disk may stand before a gap in it, over
                    // which nobody reads, and the next reader would come to the same.
                    let pen = Pen::begin(subject, helper, From::Snapshot, pen.journals());
                    *self = Self::Leading(Box::new(pen));
                    1
                }
            },
        }
    }

    /// Something came of an order.
    pub(super) fn hear(&mut self, subject: &Subject, helper: &Helper, outcome: Outcome) {
        match outcome {
            Outcome::Claimed(claimed) => *self = Self::claimed(subject, helper, claimed),
            Outcome::Failed(error) => {
                subject.zone().ask_snapshot();
                self.fail(subject, &error);
            }
            written => {
                let is_wanted = subject.always || subject.durable().is_wanted();
                self.hear_last(subject, written);
                if is_wanted {
                    worker::wake_all();
                }
            }
        }
    }

    /// The same at the end, when nothing new is begun.
    pub(super) fn hear_last(&mut self, subject: &Subject, outcome: Outcome) {
        match (self, outcome) {
            (Self::Leading(pen), Outcome::Appended(revision)) => pen.appended(subject, revision),
            (Self::Leading(pen), Outcome::Saved(saved)) => pen.saved(subject, saved),
            // Of a pen that was given up.
            _ => {}
        }
    }

    /// Something failed: it is tried again later. Until then the zone is changed all the same,
    /// unless another one writes.
    pub(super) fn fail(&mut self, subject: &Subject, error: &io::Error) -> u64 {
        subject.failed(error);
        if subject.durable().lead() == Lead::Waiting {
            subject.set_lead(Lead::Leads);
        }
        *self = Self::Idle(timer::now() + RETRY_MS);
        RETRY_MS
    }

    /// Whether all is on the disk.
    pub(super) fn is_done(&self, subject: &Subject) -> bool {
        matches!(self, Self::Leading(pen) if pen.is_done()) && !super::is_behind(subject.zone())
    }

    fn claimed(subject: &Subject, helper: &Helper, claimed: Claimed) -> Self {
        match claimed {
            Claimed::Busy => {
                subject.is_kept_out();
                Self::Idle(timer::now() + BUSY_MS)
            }
            Claimed::Ours { newest, journals, has_snapshot } => {
                subject.durable().raise_generation(newest);
                lead(subject, helper, from(subject, has_snapshot), journals)
            }
            Claimed::Theirs(news) => {
                follow(subject);
                Self::Adopting(Box::new(Adoption::new(*news, Then::Follow)))
            }
            Claimed::Free { newest, journals, epoch, has_snapshot, news } => match news {
                Some(news) => Self::Adopting(Box::new(Adoption::new(
                    *news,
                    Then::Lead { newest, journals, epoch },
                ))),
                None => {
                    begin_epoch(subject, newest, epoch);
                    lead(subject, helper, from(subject, has_snapshot), journals)
                }
            },
        }
    }
}

fn from(subject: &Subject, has_snapshot: bool) -> From {
    if !has_snapshot {
        // Journals alone tell all only to who began with nothing.
        subject.zone().ask_snapshot();
    }
    From::Ring
}

/// This zone writes from now on.
fn lead(subject: &Subject, helper: &Helper, from: From, journals: u32) -> Duty {
    if subject.durable().lead() == Lead::Follows {
        let name = &subject.name;
        log!(Notice, "peerage zone \"{name}\" is the one to be changed now");
    }
    let duty = Duty::Leading(Box::new(Pen::begin(subject, helper, from, journals)));
    point!("lead.begun");
    subject.durable().set_seen(0);
    subject.set_lead(Lead::Leads);
    worker::wake_all();
    duty
}

/// Another one writes.
fn follow(subject: &Subject) {
    if subject.durable().lead() != Lead::Follows {
        let (name, path) = (&subject.name, subject.path.display());
        log!(
            Notice,
            "state file \"{path}\" is written by another nginx, peerage zone \"{name}\" follows it"
        );
        subject.set_lead(Lead::Follows);
    }
}

/// Higher than any that has written.
fn begin_epoch(subject: &Subject, newest: u64, epoch: u64) {
    let durable = subject.durable();
    durable.raise_generation(newest);
    durable.set_epoch(epoch.max(durable.epoch()) + 1);
}

impl Adoption {
    fn new(news: News, then: Then) -> Self {
        let rest = news.is_all.then(|| {
            (Cursor::default(), news.upstreams.iter().map(|(name, _)| name.clone()).collect())
        });
        let rest_of_routes = news.is_all.then(|| {
            (RouteCursor::default(), news.routes.iter().map(|(key, _)| key.clone()).collect())
        });
        Self { news, at: 0, rest, routes_at: 0, rest_of_routes, then }
    }

    /// Takes over a little; false at the end.
    fn slice(&mut self, subject: &Subject) -> bool {
        let begun = Instant::now();
        // Before upstreams, so that a server of a host that is down is never seen open.
        if let Some(hosts) = &self.news.hosts
            && self.at == 0
            && subject.worker.adopt_hosts(hosts, &process::clock(), &mut || false)
                == Err(Unadopted::Busy)
        {
            return true;
        }
        while begun.elapsed() < SLICE {
            let left = &self.news.upstreams[self.at..];
            if !left.is_empty() {
                let portion = &left[..left.len().min(PIECE)];
                let done = adopt(subject, portion, self.news.revision);
                self.at += done;
                point!("adoption.sliced");
                if done < portion.len() {
                    return true;
                }
                continue;
            }
            let Some((cursor, named)) = &mut self.rest else { return self.slice_routes(subject) };
            let before = *cursor;
            let mut names = subject.worker.walk(cursor, PIECE);
            if names.is_empty() {
                return self.slice_routes(subject);
            }
            names.retain(|name| !named.contains(name));
            let gone: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
            if adopt(subject, &gone, self.news.revision) < gone.len() {
                *cursor = before;
                return true;
            }
        }
        true
    }

    /// Takes over some of the routes; false at the end.
    fn slice_routes(&mut self, subject: &Subject) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < SLICE {
            let left = &self.news.routes[self.routes_at..];
            if !left.is_empty() {
                let portion = &left[..left.len().min(ROUTES_AT_ONCE)];
                let done = adopt_routes(subject, portion, self.news.revision);
                let all = done == portion.len();
                self.routes_at += done;
                if !all {
                    return true;
                }
                continue;
            }
            let Some((cursor, named)) = &mut self.rest_of_routes else { return false };
            let before = *cursor;
            let (routes, _) = subject.worker.walk_routes(cursor, ROUTES_AT_ONCE);
            if routes.is_empty() {
                return false;
            }
            let gone = routes.into_iter().filter(|route| !named.contains(&route.key));
            let gone: Vec<RouteImage> = gone.map(|route| (route.key, None)).collect();
            if adopt_routes(subject, &gone, self.news.revision) < gone.len() {
                *cursor = before;
                return true;
            }
        }
        true
    }

    fn end(self: Box<Self>, subject: &Subject, helper: &Helper) -> Duty {
        let (revision, next_id) = (self.news.revision, self.news.next_id);
        if !subject.worker.adopt_head(revision, next_id, &mut || false) {
            return Duty::Adopting(self);
        }
        point!("adoption.ended");
        let News { upstreams, routes, hosts, .. } = &self.news;
        if !upstreams.is_empty() || !routes.is_empty() || hosts.is_some() {
            worker::wake_all();
        }
        match self.then {
            Then::Follow => Duty::Idle(timer::now() + FOLLOW_MS),
            Then::Lead { newest, journals, epoch } => {
                begin_epoch(subject, newest, epoch);
                subject.durable().set_revision(revision);
                // What this configuration declares may differ from what is in the files.
                lead(subject, helper, From::Snapshot, journals)
            }
        }
    }
}

/// Brings upstreams to what the files say; how many were done.
fn adopt(subject: &Subject, images: &[Image], revision: u64) -> usize {
    let adoptees: Vec<Adoptee<'_>> = images
        .iter()
        .map(|(name, image)| Adoptee {
            name,
            file: image.as_ref().map(|(upstream, _)| upstream),
            revision: image.as_ref().map_or(revision, |&(_, revision)| revision),
            declared: subject.declared.iter().find(|declared| declared.name == *name),
        })
        .collect();
    let adopted = subject.worker.adopt(&adoptees, &process::clock(), &mut || false);
    if let Some(first) = adopted.no_room.first() {
        let (name, n) = (&subject.name, adopted.no_room.len());
        log!(
            Crit,
            "peerage zone \"{name}\" is full, {n} upstreams not taken over, the first is \"{first}\""
        );
    }
    adopted.done
}

/// Brings routes to what the files say; how many were done.
fn adopt_routes(subject: &Subject, images: &[RouteImage], revision: u64) -> usize {
    let images: Vec<_> = images.iter().map(|(key, route)| (key, route.as_ref())).collect();
    let clock = process::clock();
    let adopted = subject.worker.adopt_routes(&images, revision, &clock, &mut || false);
    if let Some(first) = adopted.no_room.first() {
        let (name, n) = (&subject.name, adopted.no_room.len());
        log!(
            Crit,
            "peerage zone \"{name}\" is full, {n} routes not taken over, the first is \"{first}\""
        );
    }
    adopted.done
}

/// Between two looks whether something came of an order; a bell rings earlier.
const IDLE_MS: u64 = 100;
/// Between two looks at another one's journal.
const FOLLOW_MS: u64 = 50;
/// While somebody else claims.
const BUSY_MS: u64 = 10;
/// Between a failure and the next try.
const RETRY_MS: u64 = 1_000;
/// Upstreams walked over at once.
const PIECE: usize = 16;
const SLICE: Duration = Duration::from_micros(500);
