//! `GET v1/ready`: whether this nginx may be sent traffic.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::consul::service::service_of;
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_zone::{SeenSource, Worker};

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::Answer;

/// Every zone has its state and this worker a place in it, each of its sources has answered or has
/// servers that were kept, and one of them has each of the upstreams that are required.
pub(super) fn ready(zones: &[Rc<Zone>], require: &[UpstreamName]) -> Result<Answer, Problem> {
    let mut reasons = Vec::new();
    for zone in zones {
        let name = &zone.name;
        match zone.memory() {
            Some(memory) if memory.zone.is_loaded() => {}
            _ => reasons.push(format!("zone \"{name}\" has not loaded its state")),
        }
        match zone.worker() {
            None => reasons.push(format!("this worker has no place in zone \"{name}\" yet")),
            Some(worker) => reasons.extend(unheard(worker)),
        }
    }
    for name in require {
        let has = |zone: &Rc<Zone>| zone.worker().is_some_and(|w| w.read_wanted(name).is_some());
        if !zones.iter().any(has) {
            reasons.push(format!("upstream \"{name}\" not found"));
        }
    }
    if reasons.is_empty() {
        return Ok(answer::json(200, Box::new(br#"{"ready":true}"#.to_vec())));
    }
    let detail = reasons.join("; ");
    Err(Problem::new(Code::NotReady, detail).with("ready", false).with("reasons", reasons))
}

/// Sources that said nothing yet, and of which nothing is known from before.
fn unheard(worker: &Worker) -> Vec<String> {
    let mut sources = worker.sources();
    sources.retain(|seen| seen.status.last_success.is_none());
    if sources.is_empty() {
        return Vec::new();
    }
    let kept = worker.followed();
    let has_kept = |seen: &SeenSource| {
        kept.iter().any(|(_, origin)| {
            matches!(origin, Origin::Consul(source) if *source == seen.name
                || service_of(&seen.name, source).is_some())
        })
    };
    sources.retain(|seen| !has_kept(seen));
    let said = |seen: &SeenSource| format!("source \"consul/{}\" has not answered", seen.name);
    sources.iter().map(said).collect()
}
