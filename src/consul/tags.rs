//! All services that have a tag: each in an upstream of its own, which comes and goes with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use peerage_core::consul::catalog::Tagged;
use peerage_core::consul::service::service_of;
use peerage_core::name::{Glob, UpstreamName};
use peerage_core::server::Origin;
use peerage_zone::Boardless;

use super::scene::Scene;
use super::watch::{Aim, Watch};
use super::watchers::own;
use crate::conf::consul::Follow;
use crate::duty;
use crate::worker;

/// The services of a tag, in the process that watches it.
pub(super) struct Tags {
    scene: Rc<Scene>,
    follow: Follow,
    glob: Option<Glob>,
    services: RefCell<BTreeMap<UpstreamName, Member>>,
    /// Services that are to be watched and have no board yet.
    waiting: RefCell<Vec<(UpstreamName, String)>>,
    /// Names of the services that the catalog has; `None`: it was not read yet.
    there: RefCell<Option<BTreeSet<UpstreamName>>>,
}

struct Member {
    watch: Rc<Watch>,
    /// The catalog has it.
    is_there: bool,
}

impl Tags {
    /// Begins with the services that are watched or followed already.
    pub(super) fn begin(scene: &Rc<Scene>, follow: &Follow, glob: Option<Glob>) -> Self {
        let followed = scene.worker.followed();
        let name = follow.service.source();
        let of = |source: &str| service_of(&name, source).map(str::to_owned);
        let known = followed.into_iter().filter_map(|(upstream, origin)| match origin {
            Origin::Consul(source) => Some((upstream, of(&source)?)),
            _ => None,
        });
        // Some may have a board and no upstream.
        let seen = scene.worker.sources().into_iter().filter_map(|seen| {
            let service = of(&seen.name)?;
            Some((UpstreamName::parse(&service).ok()?, service))
        });
        let known: BTreeMap<UpstreamName, String> = seen.chain(known).collect();
        Self {
            scene: Rc::clone(scene),
            follow: follow.clone(),
            glob,
            services: RefCell::default(),
            waiting: RefCell::new(known.into_iter().collect()),
            there: RefCell::default(),
        }
    }

    pub(super) fn end(&self) {
        for Member { watch, .. } in self.services.borrow().values() {
            watch.end();
            if let Some(lease) = self.scene.worker.source_lease(watch.board()) {
                duty::leave(lease);
            }
        }
    }

    /// Takes what the catalog says.
    pub(super) fn take(&self, found: Tagged) {
        let mut services = self.services.borrow_mut();
        for (name, member) in services.iter_mut() {
            member.is_there = found.services.contains_key(name);
        }
        self.there.replace(Some(found.services.keys().cloned().collect()));
        let fits = |upstream: &UpstreamName, service: &String| {
            let is_free = !self.scene.names(upstream);
            is_free && self.follow.service.fits(service) && self.matches(upstream)
        };
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|(name, _)| !services.contains_key(name));
        for (upstream, service) in found.services {
            let is_known = services.contains_key(&upstream)
                || waiting.iter().any(|(name, _)| *name == upstream);
            if !is_known && fits(&upstream, &service) {
                waiting.push((upstream, service));
            }
        }
    }

    fn matches(&self, upstream: &UpstreamName) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.matches(upstream.as_str()))
    }

    /// Does what there is to do for each.
    pub(super) fn look(&self) {
        let mut services = self.services.borrow_mut();
        let mut gone = Vec::new();
        for (name, member) in services.iter() {
            if own(self.scene.worker, member.watch.board(), true) {
                member.watch.look();
            }
            if !member.is_there && member.watch.is_over() {
                gone.push(name.clone());
            }
        }
        for name in gone {
            if let Some(member) = services.remove(&name) {
                member.watch.end();
                self.scene.worker.forget_source(member.watch.board());
            }
        }
        let mut begun = 0;
        self.waiting.borrow_mut().retain(|(upstream, service)| {
            if begun == AT_ONCE {
                return true;
            }
            let service = self.follow.service.of_service(service);
            let board = match self.scene.worker.source(&service.source()) {
                Ok(board) => board,
                Err(Boardless::Busy | Boardless::NoRoom) => return true,
            };
            if !own(self.scene.worker, board, true) {
                return true;
            }
            let aim = Aim::Servers { upstream: upstream.clone(), retires: true };
            let watch = Watch::begin(&self.scene, &self.follow.consul, &service, board, aim);
            let is_there = self.there.borrow().as_ref().is_none_or(|all| all.contains(upstream));
            services.insert(upstream.clone(), Member { watch, is_there });
            begun += 1;
            false
        });
        if begun == AT_ONCE {
            // The others have their turn once nginx has looked at its events.
            worker::wake_all();
        }
    }
}

/// As many services are begun with in one turn of the event loop.
const AT_ONCE: usize = 16;
