//! Upstreams, servers, peers and routes in shared memory: where the model meets the mapping.
//!
//! Reading ([`Worker::read`], [`Worker::pick`]) takes no lock. Changing ([`Worker::change`]) goes
//! through one door: the model decides what becomes of an upstream, a table is built aside, and
//! one store puts it in force in every process.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod adopt;
mod along;
mod batch;
mod board;
mod bound;
pub mod cache;
mod change;
mod checked;
mod choice;
mod closing;
mod commit;
mod diagnosis;
mod directory;
mod done;
mod drain;
mod durable;
mod eject;
mod ends;
mod events;
mod generation;
mod health;
mod hosts;
mod inherit;
pub mod journal;
mod known;
mod layout;
mod lead;
mod lease;
mod listing;
mod live;
mod master;
mod names;
mod numbers;
mod part;
mod peers;
mod pick;
mod retired;
mod ring;
mod room;
mod routes;
mod search;
mod shards;
mod shut;
mod size;
mod sketch;
mod sources;
mod stored;
mod tally;
mod texts;
mod trace;
#[cfg(test)]
mod trial;
mod ttl;
mod turn;
mod worker;
mod young;
mod zone;

pub use peerage_shm::{AttachError, FormatError, Region, points};

pub use crate::address::{Address, CHUNK};
pub use crate::adopt::{Adopted, Adoptee, Unadopted};
pub use crate::batch::{Batch, BatchAttempt, Checks, Op, OpResult, Touched};
pub use crate::board::{Boardless, SeenHeld, SeenSource, Source, Wish};
pub use crate::change::{Attempt, Env};
pub use crate::checked::{CheckedPeer, CheckedPeers, CheckedUpstream, Handle, Observed};
pub use crate::choice::{Choice, Clock, Done, Fixed, FoundUp, Input, Key, NoPeer, Outcome, Target};
pub use crate::closing::{Closing, Due, How, upstream_of};
pub use crate::directory::Sought;
pub use crate::drain::{Drain, Mark};
pub use crate::durable::Durable;
pub use crate::eject::Ejected;
pub use crate::events::{Events, Gone, Reader, Said};
pub use crate::generation::Generation;
pub use crate::health::{Opined, Relieved};
pub use crate::inherit::Inherited;
pub use crate::known::Known;
pub use crate::lead::Lead;
pub use crate::lease::Lease;
pub use crate::listing::Cursor;
pub use crate::live::Seen;
pub use crate::master::{Master, Merged};
pub use crate::names::{Named, Names};
pub use crate::numbers::Numbers;
pub use crate::peers::{Page, PeerCursor, SeenPeer};
pub use crate::pick::{Pick, Picked};
pub use crate::routes::{
    AdoptedRoutes, AppName, Lookups, ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteCursor,
    RouteDone, RouteOp, RoutePage, RouteSum, RouteTouched,
};
pub use crate::shards::{Holder, Shard};
pub use crate::size::Need;
pub use crate::sources::Vanished;
pub use crate::tally::{Extent, Tallied, Tally};
pub use crate::worker::{Swept, Worker};
pub use crate::zone::{Format, Report, Zone};
