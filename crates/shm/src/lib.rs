//! Memory that several processes map: how it is shared out, published, read, counted and freed.
//!
//! A [`Region`] is an array of 64-bit atomic words, so every access, whatever it finds, is defined.
//! On it stand:
//!
//! - an allocator ([`Writer`]) whose state can be rebuilt from what is reachable, so that any
//!   instruction may be a writer's last;
//! - a lock that is tried and never waited for;
//! - read sections and grace periods ([`Slot::enter`], [`Shared::passed`]): what was retired is
//!   reused only after every process has been outside a section;
//! - exact counts of references ([`Slot::acquire`]), which stay exact through the death of their
//!   holders.
//!
//! Beside it, without the allocator: words that any process may write and any may read, whole or
//! not at all ([`Version`]).
//!
//! What the words mean is the user's; this crate knows no peer and no nginx.

mod arena;
mod head;
mod inflight;
mod limbo;
mod lock;
mod places;
pub mod points;
mod region;
mod shared;
mod slot;
mod sweep;
mod sync;
#[cfg(all(test, not(loom)))]
mod trial;
mod version;
mod writer;

pub use crate::arena::Usage;
pub use crate::inflight::{Held, NO_LIMIT, Refusal, count};
pub use crate::limbo::Limbo;
pub use crate::lock::Busy;
pub use crate::region::{GRANULE, Ref, Region, WORDS_PER_GRANULE, Words, word_of};
pub use crate::shared::{AttachError, Config, Epoch, FormatError, ROOT_WORDS, Shared};
pub use crate::slot::{Section, Slot};
pub use crate::sweep::Swept;
pub use crate::sync::{AtomicU64, Ordering};
#[cfg(loom)]
pub use crate::sync::{Died, live_for};
pub use crate::version::{Claim, Version, overtake};
pub use crate::writer::{Trace, Writer};
