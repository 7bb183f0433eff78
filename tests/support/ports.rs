//! Loopback ports that no other story, in this process or another, is given while they are held.
//!
//! They lie below the kernel's ephemeral range, so that no outgoing connection can sit on a port
//! that is closed for a while (a backend between two versions, an nginx between stop and start).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A reserved port; it may be handed out again once this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A name in the abstract namespace is taken by one process at a time and freed by its death.
    _claim: UnixListener,
}

impl Port {
    /// Reserves a port on which nothing listens now, on any loopback address.
    pub fn reserve() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = process::id().wrapping_mul(97);
        for _ in 0..SPAN {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + (start.wrapping_add(step) % SPAN) as u16;
            let Some(claim) = claim(number) else { continue };
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok() {
                return Self { number, _claim: claim };
            }
        }
        panic!("no free port on loopback");
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// This port on 127.0.0.1.
    pub fn addr(&self) -> SocketAddr {
        self.at(Ipv4Addr::LOCALHOST)
    }

    /// This port on another loopback address.
    pub fn at(&self, ip: impl Into<IpAddr>) -> SocketAddr {
        SocketAddr::new(ip.into(), self.number)
    }
}

fn claim(number: u16) -> Option<UnixListener> {
    let name = format!("peerage-test-port-{number}");
    UnixListener::bind_addr(&UnixAddr::from_abstract_name(name).ok()?).ok()
}

const FIRST: u16 = 12_000;
const SPAN: u32 = 20_000;
