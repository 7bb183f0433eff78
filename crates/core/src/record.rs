//! The compact binary form of what the zone keeps cold: servers and settings.
//!
//! The form is the zone's own and goes with its layout version; it is never in a file. Bytes after
//! a record are ignored, so that it may be padded to whole words.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addr::ServerAddr;
use crate::check::Check;
use crate::check::outlier::Outlier;
use crate::host::Hosts;
use crate::name::UpstreamName;
use crate::server::{Declared, Origin, Server};
use crate::texts::Texts;
use crate::upstream::{Defaults, Method, Settings, Upstream};

/// Bytes that are no record of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot decode the record")]
pub struct RecordError;

/// A server, whole.
pub fn encode_server(server: &Server) -> Vec<u8> {
    encode(server)
}

/// The server of a record.
pub fn decode_server(bytes: &[u8]) -> Result<Server, RecordError> {
    decode(bytes)
}

/// An upstream without its servers and its texts.
pub fn encode_upstream_cold(upstream: &Upstream) -> Vec<u8> {
    let Upstream { name, origin, settings, declared, servers: _, removed, orphaned_at } = upstream;
    let Settings { method, defaults, texts: _, check, outlier } = settings;
    let health = (check, outlier);
    encode(&(name.as_str(), origin, method, defaults, health, declared, removed, orphaned_at))
}

/// The upstream of a record; it has no servers and no texts.
pub fn decode_upstream_cold(bytes: &[u8]) -> Result<Upstream, RecordError> {
    let cold: Cold = decode(bytes)?;
    let (name, origin, method, defaults, health, declared, removed, orphaned_at) = cold;
    let (check, outlier) = health;
    let settings = Settings { method, defaults, texts: Texts::default(), check, outlier };
    Ok(Upstream { name, origin, settings, declared, servers: Vec::new(), removed, orphaned_at })
}

/// The admin states of hosts.
pub fn encode_hosts(hosts: &Hosts) -> Vec<u8> {
    encode(hosts)
}

/// The hosts of a record.
pub fn decode_hosts(bytes: &[u8]) -> Result<Hosts, RecordError> {
    decode(bytes)
}

type Cold = (
    UpstreamName,
    Origin,
    Option<Method>,
    Defaults,
    (Option<Box<Check>>, Option<Outlier>),
    Option<Settings>,
    Vec<(ServerAddr, Declared)>,
    Option<u64>,
);

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // A vector takes any length and no type of the model refuses to be written.
    postcard::to_allocvec(value).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    postcard::take_from_bytes(bytes).map(|(value, _)| value).map_err(|_| RecordError)
}
