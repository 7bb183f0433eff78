//! What answers in a location: one of the directives that do.

use std::rc::Rc;

use super::{Api, Door, Metrics, Zone, words};
use crate::dashboard::Dashboard;
use crate::ffi::conf::{Location, Refused};

/// A directive's content handler, with what it says.
#[derive(Clone)]
pub(crate) enum Content {
    /// The API.
    Api(Rc<Api>),
    /// The door of another system.
    Door(Rc<Door>),
    /// The page of metrics.
    Metrics(Metrics),
    /// The page for operators.
    Dashboard(Rc<Dashboard>),
}

impl Content {
    fn directive(&self) -> &'static str {
        match self {
            Self::Api(_) => super::api::DIRECTIVE,
            Self::Door(door) => door.directive(),
            Self::Metrics(_) => super::metrics::DIRECTIVE,
            Self::Dashboard(_) => super::dashboard::DIRECTIVE,
        }
    }

    /// The zone that it is bound to.
    pub(super) fn zone(&self) -> Option<&Rc<Zone>> {
        match self {
            Self::Api(api) => api.zone(),
            Self::Door(door) => door.zone(),
            Self::Metrics(_) | Self::Dashboard(_) => None,
        }
    }
}

/// Refuses a directive where another one answers already.
pub(super) fn is_free(location: &Location<'_>, directive: &'static str) -> Result<(), Refused> {
    match location.loc.content.get().map(Content::directive) {
        None => Ok(()),
        Some(other) if other == directive => Err(words::duplicate(directive)),
        Some(other) => Err(words::conflict(directive, other)),
    }
}

/// Lets it answer in a location that is free.
pub(super) fn serve(location: &Location<'_>, content: Content) {
    location.serve(&content);
    // Nobody sets a second one.
    let _ = location.loc.content.set(content);
}

/// Lets what answers in a location answer inside its `limit_except`, where nginx runs no handler
/// otherwise.
pub(super) fn inherit(parent: Option<&Content>, location: &Location<'_>) {
    if !location.is_limit_except() || location.has_handler() {
        return;
    }
    if let Some(content) = parent {
        serve(location, content.clone());
    }
}
