//! Servers that follow a Consul: each source is watched by one process of the whole nginx.
//!
//! [`watchers`] says which sources are this process's, by a lease each; [`watch`] follows one
//! service, [`tags`] all that have a tag; [`fetch`] reads. What an answer means, `core::consul`
//! decides.

mod fetch;
mod left;
mod scene;
mod tags;
mod watch;
mod watchers;

pub(crate) use self::scene::Terms;
pub(crate) use self::watchers::Watchers;
