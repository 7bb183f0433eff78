//! The answer of a resolver: addresses for the servers of a name.

use std::net::{IpAddr, SocketAddr};

use crate::change::Applied;
use crate::merge::same_set;
use crate::server::Server;
use crate::upstream::Upstream;

/// Gives every server of the name its addresses, in an order that does not hang on the answer's.
///
/// An answer without any changes nothing: what a name had last stays.
pub(super) fn resolve(current: &Upstream, host: &str, ips: &[IpAddr]) -> Applied {
    let mut ips = ips.to_vec();
    ips.sort_unstable();
    ips.dedup();
    let addrs = |server: &Server| {
        let (_, port) = server.resolvable().filter(|&(name, _)| name == host)?;
        let addrs: Vec<SocketAddr> = ips.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
        (!addrs.is_empty() && !same_set(&server.addrs, &addrs)).then_some(addrs)
    };
    if current.servers.iter().all(|server| addrs(server).is_none()) {
        return Applied::Same;
    }
    let mut next = current.clone();
    for server in &mut next.servers {
        if let Some(addrs) = addrs(server) {
            server.addrs = addrs;
        }
    }
    Applied::Set(next)
}
