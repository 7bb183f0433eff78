//! Metrics for Prometheus: what is shown, under which names, and as which text.
//!
//! The edge gathers a [`ZoneSample`] of each zone, and a [`Page`] says them piece by piece: all
//! samples of a family stand together, as both formats demand.

mod accept;
mod family;
mod page;
mod sample;
mod text;

pub use self::accept::Format;
pub use self::family::{FAMILIES, Family, Kind};
pub use self::page::Page;
pub use self::sample::{
    Build, ProbeCount, STORED, ServerSample, Shown, SourceSample, StateFile, StoreSample,
    UpstreamSample, ZoneSample,
};
