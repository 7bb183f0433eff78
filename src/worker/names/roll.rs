//! What the worker knows whose duty it is to resolve names: which there are, when each is due, and
//! who is to get an answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::time::Instant;

use peerage_core::agenda::{Agenda, Turn};
use peerage_core::name::UpstreamName;
use peerage_zone::Attempt;

use super::{Inner, Occasion};
use crate::ffi::process;
use crate::ffi::resolve::{Answer, Failure, Lookup, Resolver};
use crate::ffi::timer;
use crate::log::Seldom;
use crate::worker;

#[derive(Default)]
pub(super) struct Duty {
    /// Generation of the names that `agenda` has.
    generation: Option<u64>,
    scan: Option<Scan>,
    agenda: Agenda,
    /// Upstreams with a name.
    users: HashMap<Rc<str>, Vec<UpstreamName>>,
    asked: HashMap<Rc<str>, Lookup>,
    /// The answer that every upstream with the name has, or is about to get.
    last: HashMap<Rc<str>, Rc<[IpAddr]>>,
    jobs: VecDeque<Job>,
    /// Names with more addresses than are used.
    cut: HashSet<Rc<str>>,
}

/// What the resolver said of a name.
pub(super) struct Heard {
    host: Rc<str>,
    outcome: Result<Answer, Failure>,
}

/// A walk over all upstreams, a slice at a time.
struct Scan {
    generation: u64,
    bucket: usize,
    /// By name: the upstreams with it, and whether one of them lacks an address.
    found: HashMap<Box<str>, (Vec<UpstreamName>, bool)>,
}

/// An answer that an upstream has yet to get.
struct Job {
    host: Rc<str>,
    ips: Rc<[IpAddr]>,
    upstream: UpstreamName,
}

impl Duty {
    /// Looks which names there are, if that has changed.
    pub(super) fn learn(&mut self, of: &Inner, generation: u64, occasion: Occasion, end: Instant) {
        // An odd one is not final, and stays so until somebody repairs what a dead writer left.
        let is_final = generation.is_multiple_of(2) || occasion != Occasion::Round;
        if self.scan.is_none() && (self.generation != Some(generation) || !is_final) {
            self.scan = Some(Scan { generation, bucket: 0, found: HashMap::new() });
        }
        let Some(mut scan) = self.scan.take() else { return };
        while let Some(some) = of.worker.named(scan.bucket) {
            scan.bucket += 1;
            for named in some {
                for (host, lacks) in named.hosts {
                    let (users, lacking) = scan.found.entry(host).or_default();
                    users.push(named.upstream.clone());
                    *lacking |= lacks;
                }
            }
            if scan.bucket.is_multiple_of(BUCKETS) && Instant::now() >= end {
                self.scan = Some(scan);
                return;
            }
        }
        let names = scan.found.iter().map(|(host, (_, lacks))| (&**host, *lacks));
        self.agenda.set(names, timer::now());
        self.users =
            scan.found.into_iter().map(|(host, (users, _))| (host.into(), users)).collect();
        self.asked.retain(|host, _| self.users.contains_key(host));
        self.cut.retain(|host| self.users.contains_key(host));
        self.last.clear();
        self.generation = Some(scan.generation);
    }

    /// Takes what the resolver said of a name.
    pub(super) fn hear(&mut self, of: &Inner, Heard { host, outcome }: Heard) {
        self.asked.remove(&host);
        let zone = &of.zone;
        let Answer { ips, good } = match outcome {
            Ok(answer) => answer,
            Err(failure) => {
                if self.agenda.failed(&host, timer::now()) == Some(Turn::Lost) {
                    log!(Warn, "\"{host}\" could not be resolved ({failure}), zone \"{zone}\"");
                }
                return;
            }
        };
        let good = good.saturating_add(SLACK_MS);
        if self.agenda.answered(&host, good, timer::now()) == Some(Turn::Back) {
            log!(Notice, "\"{host}\" is resolved again, zone \"{zone}\"");
        }
        let ips = self.within_limit(&host, ips, zone);
        if self.last.get(&host) == Some(&ips) {
            return;
        }
        // What somebody has not got yet of the answer before is out of date; and while the lock is
        // not to be had, there is one after the other.
        self.jobs.retain(|job| job.host != host);
        let users = self.users.get(&host).into_iter().flatten();
        self.jobs.extend(users.map(|upstream| Job {
            host: Rc::clone(&host),
            ips: Rc::clone(&ips),
            upstream: upstream.clone(),
        }));
        self.last.insert(host, ips);
    }

    /// The addresses that are used, in an order that does not hang on the answer's.
    fn within_limit(&mut self, host: &Rc<str>, mut ips: Vec<IpAddr>, zone: &str) -> Rc<[IpAddr]> {
        ips.sort_unstable();
        ips.dedup();
        let left_off = ips.len().saturating_sub(ADDRESSES);
        if left_off == 0 {
            self.cut.remove(host);
        } else if self.cut.insert(Rc::clone(host)) {
            log!(Warn, "\"{host}\" has {left_off} addresses more than are used, zone \"{zone}\"");
        }
        ips.truncate(ADDRESSES);
        ips.into()
    }

    /// Gives upstreams their answers; the time until it goes on where not all have theirs.
    pub(super) fn apply(&mut self, of: &Inner, end: Instant) -> Option<u64> {
        let clock = process::clock();
        let (mut changed, mut again) = (false, None);
        while let Some(job) = self.jobs.pop_front() {
            if !of.is_owner() {
                // Whoever resolves them now asks for all of them.
                *self = Self::default();
                break;
            }
            let Job { host, ips, upstream } = &job;
            match of.worker.resolve(upstream, host, ips, &clock) {
                Attempt::Done { changed: true, .. } => {
                    changed = true;
                    let some = match ips.len() {
                        1 => "1 address".to_owned(),
                        n => format!("{n} addresses"),
                    };
                    log!(Info, "\"{host}\" has {some}, upstream \"{upstream}\"");
                }
                Attempt::Busy => {
                    self.jobs.push_front(job);
                    again = Some(BUSY_MS);
                    break;
                }
                Attempt::NoRoom { .. } => {
                    // With the next answer, whatever that is.
                    self.last.remove(host);
                    say_full(&of.zone, host, upstream);
                }
                Attempt::Done { .. }
                | Attempt::NotWriter
                | Attempt::Refused(_)
                | Attempt::Unmet(_) => {}
            }
            if Instant::now() >= end && !self.jobs.is_empty() {
                again = Some(1);
                break;
            }
        }
        if changed {
            worker::wake_all();
        }
        again
    }

    /// Asks for the names that are due.
    pub(super) fn ask(&mut self, of: &Rc<Inner>, resolver: &Resolver) {
        while self.asked.len() < AT_A_TIME {
            let Some(host) = self.agenda.next(timer::now()) else { return };
            let (weak, name) = (Rc::downgrade(of), Rc::clone(&host));
            let lookup = resolver.look_up(&host, move |outcome| {
                if let Some(inner) = Weak::upgrade(&weak) {
                    inner.heard.borrow_mut().push(Heard { host: name, outcome });
                    // Not at once: nginx may have others to tell.
                    if let Some(timer) = inner.timer.borrow().as_ref() {
                        timer.post();
                    }
                }
            });
            self.asked.insert(host, lookup);
        }
    }

    /// The time until something is due.
    pub(super) fn next(&self) -> Option<u64> {
        if self.scan.is_some() {
            return Some(1);
        }
        let due = self.agenda.first().filter(|_| self.asked.len() < AT_A_TIME)?;
        Some(due.saturating_sub(timer::now()).max(1))
    }
}

/// Says once a minute that there is no room for an answer.
fn say_full(zone: &str, host: &str, upstream: &UpstreamName) {
    static FULL: Seldom = Seldom::new();
    if FULL.may() {
        log!(Crit, "zone \"{zone}\" is full, \"{host}\" of upstream \"{upstream}\" not changed");
    }
}

/// Addresses of a name that are used, at most.
const ADDRESSES: usize = 128;
/// Names that are asked for at a time.
const AT_A_TIME: usize = 64;
/// Buckets between two looks at the clock.
const BUCKETS: usize = 64;
/// Until the next try while another one writes.
const BUSY_MS: u64 = 20;
/// Added to an answer's time: nginx's two clocks do not tick together.
const SLACK_MS: u64 = 5;
