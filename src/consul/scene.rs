//! What all watches of a zone share.

use std::collections::BTreeSet;
use std::rc::Rc;

use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;
use peerage_zone::{Attempt, Env, Source, Worker};

use crate::conf::consul::{Follow, Into};
use crate::conf::{Main, Zone};
use crate::ffi::process;
use crate::zone;

/// What the configuration says about the upstreams of a zone.
pub(crate) struct Terms {
    /// Upstreams that blocks name.
    named: BTreeSet<UpstreamName>,
    keyed: Defaults,
    resolves: bool,
    pub(super) follows: Vec<Follow>,
}

/// A zone, and the terms of its upstreams.
pub(super) struct Scene {
    pub(super) zone: String,
    pub(super) worker: &'static Worker,
    terms: Rc<Terms>,
}

impl Terms {
    pub(crate) fn new(main: &Main, zone: &Zone) -> Rc<Self> {
        let named = main.declared(zone).into_iter().map(|declared| declared.name).collect();
        Rc::new(Self {
            named,
            keyed: zone::keyed_defaults(zone, main),
            resolves: main.resolver().is_some(),
            follows: main.follows(zone),
        })
    }
}

impl Scene {
    pub(super) fn new(zone: &str, worker: &'static Worker, terms: &Rc<Terms>) -> Rc<Self> {
        Rc::new(Self { zone: zone.to_owned(), worker, terms: Rc::clone(terms) })
    }

    /// Whether a block names an upstream.
    pub(super) fn names(&self, upstream: &UpstreamName) -> bool {
        self.terms.named.contains(upstream)
    }

    /// The sources that a block has an upstream follow.
    pub(super) fn followed(&self, upstream: &UpstreamName) -> Vec<Origin> {
        let here = self.terms.follows.iter().filter(|follow| match &follow.into {
            Into::Upstream(name) => name == upstream,
            Into::Services(_) => false,
        });
        here.map(|follow| Origin::Consul(follow.service.source())).collect()
    }

    /// What the configuration follows.
    pub(super) fn follows(&self) -> &[Follow] {
        &self.terms.follows
    }

    /// Whether servers may be names.
    pub(super) fn resolves(&self) -> bool {
        self.terms.resolves
    }

    /// Puts in force what follows from a source; with a board, only as long as that is watched here.
    pub(super) fn change(
        &self,
        upstream: &UpstreamName,
        change: &Change,
        origin: &Origin,
        board: Option<Source>,
    ) -> Attempt {
        let clock = process::clock();
        let env = Env {
            clock: &clock,
            actor: Actor::new(&origin.to_string(), ""),
            origin: origin.clone(),
            named: &|name| self.names(name),
            keyed: self.terms.keyed,
            resolves: self.terms.resolves,
        };
        match board {
            Some(board) => self.worker.change_of_source(upstream, change, &env, board),
            None => self.worker.change(upstream, change, &env),
        }
    }
}
