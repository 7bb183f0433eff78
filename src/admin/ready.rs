//! `GET v1/ready`: whether this nginx may be sent traffic.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::name::UpstreamName;

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::Answer;

/// Every zone has its state and this worker a place in it, and one of them has each of the
/// upstreams that are required.
pub(super) fn ready(zones: &[Rc<Zone>], require: &[UpstreamName]) -> Result<Answer, Problem> {
    let mut reasons = Vec::new();
    for zone in zones {
        let name = &zone.name;
        match zone.memory() {
            Some(memory) if memory.zone.is_loaded() => {}
            _ => reasons.push(format!("zone \"{name}\" has not loaded its state")),
        }
        if zone.worker().is_none() {
            reasons.push(format!("this worker has no place in zone \"{name}\" yet"));
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
