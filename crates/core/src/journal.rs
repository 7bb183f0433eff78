//! A journal of a state file: what each revision changed, a line for each.
//!
//! ```text
//! {"sum":"…","data":{"format":2,"zone":"main","journal":3,"epoch":2,"instance":77,"after":812,…}}
//! {"sum":"…","data":{"revision":813,"next_id":9,"changes":[{"upstream":"app","servers":[{…}]}]}}
//! {"sum":"…","data":{"revision":814,"next_id":9,"changes":[{"delete":"old"}]}}
//! {"sum":"…","data":{"revision":815,"next_id":9,"changes":[{"route":{"key":"acme",…}}]}}
//! ```
//!
//! All that one revision changed stands in one line, so that it is in force as a whole or not. A
//! line costs bytes in proportion to what changed. Times are unix ms.

mod change;

use serde::{Deserialize, Serialize};

pub(crate) use self::change::Change;
use self::change::ChangeLine;
use crate::damage::Fault;
use crate::host::Hosts;
use crate::line::{self, FORMAT};
use crate::route::Route;
use crate::time::iso;
use crate::upstream::Upstream;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// See [`FORMAT`].
    pub format: u32,
    /// Whose changes these are.
    pub zone: String,
    /// Its generation: journals of a state file are read in its order.
    pub journal: u64,
    /// Under which epoch it is written.
    pub epoch: u64,
    /// Which instance of the zone writes it.
    pub instance: u64,
    /// The first record is of the next revision, or of an older one.
    pub after: u64,
    /// When it began, for people.
    pub time: String,
}

impl Head {
    /// The head of a journal that begins at `now`, unix ms.
    pub fn new(zone: &str, journal: u64, epoch: u64, instance: u64, after: u64, now: u64) -> Self {
        let (zone, time) = (zone.to_owned(), iso(now));
        Self { format: FORMAT, zone, journal, epoch, instance, after, time }
    }

    /// Reads the first line of a journal; `None`: it is none.
    pub fn read(line: &[u8]) -> Option<Self> {
        read_head(line).ok()
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        line::write(out, self);
    }
}

/// What a revision changes, for [`record`]: upstreams before and after, each once, and the hosts
/// as they are from now on.
///
/// It is made before the revision is known. Takes time in proportion to the servers of the
/// upstreams, and writes only those that changed.
pub fn changes(
    upstreams: &[(Option<&Upstream>, Option<&Upstream>)],
    hosts: Option<&Hosts>,
) -> Vec<u8> {
    let lines = upstreams.iter().filter_map(|&(before, after)| ChangeLine::of(before, after));
    let lines: Vec<ChangeLine<'_>> = lines.chain(hosts.map(ChangeLine::of_hosts)).collect();
    // No type of a line refuses to be written.
    serde_json::to_vec(&lines).unwrap_or_default()
}

/// The same of routes before and after.
pub fn route_changes(routes: &[(Option<&Route>, Option<&Route>)]) -> Vec<u8> {
    let lines = routes.iter().filter_map(|&(before, after)| ChangeLine::of_route(before, after));
    // As above.
    serde_json::to_vec(&lines.collect::<Vec<_>>()).unwrap_or_default()
}

/// Appends what a revision changed, as [`changes`] has it.
pub fn record(out: &mut Vec<u8>, revision: u64, next_id: u64, changes: &[u8]) {
    line::wrap(out, |out| {
        let start = format!("{{\"revision\":{revision},\"next_id\":{next_id},\"changes\":");
        out.extend_from_slice(start.as_bytes());
        out.extend_from_slice(changes);
        out.push(b'}');
    });
}

/// What a line says.
pub(crate) struct Record {
    pub(crate) revision: u64,
    pub(crate) next_id: u64,
    pub(crate) changes: Vec<Change>,
}

/// Reads a first line.
pub(crate) fn read_head(text: &[u8]) -> Result<Head, Fault> {
    line::first(line::unwrap(text)?)
}

/// Reads a line that is not the first.
pub(crate) fn read_record(text: &[u8]) -> Result<Record, Fault> {
    #[derive(Deserialize)]
    struct RecordLine<'a> {
        revision: u64,
        next_id: u64,
        #[serde(borrow)]
        changes: Vec<ChangeLine<'a>>,
    }
    let RecordLine { revision, next_id, changes } = line::from_json(line::unwrap(text)?)?;
    let changes: Result<Vec<Change>, String> =
        changes.into_iter().map(ChangeLine::into_change).collect();
    Ok(Record { revision, next_id, changes: changes? })
}
