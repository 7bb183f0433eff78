//! The servers that an answer means: one for each address, in an order of their own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::addr::ServerAddr;
use crate::consul::answer::{Answer, Instance, Skipped};
use crate::source::{Sourced, Standing, Stated};

/// Whether names can be resolved at run time, so that a server may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// There is a resolver.
    Resolved,
    /// There is none: instances whose address is a name are left out.
    Refused,
}

/// The servers of an answer by address, and what was left out of it.
///
/// In which order an answer names them means nothing: equal content is equal here. Of two at one
/// address the one counts that is well, then the one in no maintenance.
pub fn desired(answer: Answer, names: Names) -> (Vec<Stated>, Skipped) {
    let Answer { instances, mut skipped } = answer;
    let mut by_addr: BTreeMap<ServerAddr, Instance> = BTreeMap::new();
    for instance in instances {
        if instance.addr.is_name() && names == Names::Refused {
            skipped.address += 1;
            continue;
        }
        match by_addr.entry(instance.addr.clone()) {
            Entry::Vacant(place) => {
                place.insert(instance);
            }
            Entry::Occupied(mut place) => {
                skipped.repeated += 1;
                if rank(&instance) < rank(place.get()) {
                    place.insert(instance);
                }
            }
        }
    }
    let servers =
        by_addr.into_iter().map(|(addr, instance)| Stated { addr, said: said(&instance) });
    (servers.collect(), skipped)
}

/// The least counts; between equals it is not the answer's order that decides.
fn rank(instance: &Instance) -> (bool, bool, &str, &str) {
    (instance.critical, instance.maintenance, &instance.node, &instance.id)
}

fn said(instance: &Instance) -> Sourced {
    let standing = if instance.maintenance { Standing::Maintenance } else { Standing::Named };
    Sourced {
        identity: instance.identity(),
        weight: Some(instance.weight),
        failing: instance.critical,
        standing,
        held: false,
        discarded: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str, addr: &str, critical: bool) -> Instance {
        Instance {
            node: "n1".into(),
            id: id.into(),
            addr: ServerAddr::parse(addr).unwrap(),
            weight: 1,
            critical,
            maintenance: false,
        }
    }

    fn of(instances: &[Instance]) -> (Vec<Stated>, Skipped) {
        let answer = Answer { instances: instances.to_vec(), skipped: Skipped::default() };
        desired(answer, Names::Refused)
    }

    #[test]
    fn rule_8_the_same_address_counts_once_and_the_healthy_one_wins() {
        let (old, new) = (instance("a", "10.0.0.1:80", true), instance("b", "10.0.0.1:80", false));
        let other = instance("c", "10.0.0.2:80", false);
        let (servers, skipped) = of(&[old.clone(), new.clone(), other.clone()]);
        assert_eq!((servers.len(), skipped.repeated), (2, 1));
        assert_eq!(servers[0].said.identity, new.identity());
        assert!(!servers[0].said.failing);
        assert_eq!(of(&[other, new, old]), (servers, skipped));
    }

    #[test]
    fn names_are_left_out_where_nobody_resolves_them() {
        let name = instance("a", "app.internal:80", false);
        assert_eq!(of(std::slice::from_ref(&name)).1.address, 1);
        let answer = Answer { instances: vec![name], skipped: Skipped::default() };
        assert_eq!(desired(answer, Names::Resolved).0.len(), 1);
    }
}
