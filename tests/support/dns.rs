//! A name server on loopback, that answers what the story says and counts who asks.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::ports::Port;

/// A name server; it answers from its making until it is dropped.
#[derive(Debug)]
pub struct Dns {
    port: Port,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What is said of a name.
#[derive(Clone, Debug)]
pub enum Say {
    /// These addresses, for so many seconds.
    Ips(Vec<IpAddr>, u32),
    /// The same, but over TCP only.
    Long(Vec<IpAddr>, u32),
    /// This code: 2 = server failure, 3 = no such name.
    Code(u8),
    /// Nothing at all.
    Nothing,
}

#[derive(Debug, Default)]
struct Shared {
    names: Mutex<HashMap<String, Say>>,
    /// Questions for A records, by name.
    asked: Mutex<HashMap<String, u64>>,
    /// Sockets that asked.
    askers: Mutex<BTreeSet<SocketAddr>>,
    over_tcp: AtomicBool,
    stop: AtomicBool,
}

impl Dns {
    /// Knows no name yet.
    pub fn new() -> Self {
        let (port, shared) = (Port::reserve(), Arc::<Shared>::default());
        let udp = UdpSocket::bind(port.addr()).expect("the port is its own");
        let tcp = TcpListener::bind(port.addr()).expect("the port is its own");
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || packets(&udp, &one)),
            thread::spawn(move || streams(&tcp, &other)),
        ];
        Self { port, shared, threads }
    }

    /// From now on the name has these addresses.
    pub fn set(&self, name: &str, ips: &[&str], ttl: u32) {
        let ips = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
        self.say(name, Say::Ips(ips, ttl));
    }

    /// From now on this is said of the name.
    pub fn say(&self, name: &str, say: Say) {
        lock(&self.shared.names).insert(name.into(), say);
    }

    /// How often the name was asked for.
    pub fn asked(&self, name: &str) -> u64 {
        lock(&self.shared.asked).get(name).copied().unwrap_or(0)
    }

    /// How often any name was asked for.
    pub fn asked_in_all(&self) -> u64 {
        lock(&self.shared.asked).values().sum()
    }

    /// How many sockets have asked since the last call of this: one for each process.
    pub fn askers(&self) -> usize {
        std::mem::take(&mut *lock(&self.shared.askers)).len()
    }

    /// Whether somebody has asked over TCP.
    pub fn over_tcp(&self) -> bool {
        self.shared.over_tcp.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.port.addr().fmt(f)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let wake = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(&[0], self.port.addr()));
        wake.ok(); // the threads end with the process anyway
        TcpStream::connect(self.port.addr()).ok(); // as above
        for thread in self.threads.drain(..) {
            thread.join().ok(); // it does not panic; if it did, it answers no more either
        }
    }
}

fn packets(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 1500];
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(answer) = answer(&buffer[..n], shared, Some(from)) {
            socket.send_to(&answer, from).ok(); // whoever asked may have gone
        }
    }
}

fn streams(listener: &TcpListener, shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok((mut stream, _)) = listener.accept() else { continue };
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            if stream.read_exact(&mut question).is_err() {
                break;
            }
            shared.over_tcp.store(true, Ordering::SeqCst);
            let Some(answer) = answer(&question, shared, None) else { break };
            let length = (answer.len() as u16).to_be_bytes();
            if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                break;
            }
        }
    }
}

/// The answer to a question; `from` where it came in a packet.
fn answer(question: &[u8], shared: &Shared, from: Option<SocketAddr>) -> Option<Vec<u8>> {
    let (name, end) = name(question.get(12..)?)?;
    let end = 12 + end;
    let kind = u16::from_be_bytes(question.get(end..end + 2)?.try_into().ok()?);
    if kind == A && from.is_some() {
        *lock(&shared.asked).entry(name.clone()).or_default() += 1;
    }
    if let Some(from) = from {
        lock(&shared.askers).insert(from);
    }
    let say = lock(&shared.names).get(&name).cloned().unwrap_or(Say::Code(3));
    let (code, ips, ttl, cut) = match say {
        Say::Ips(ips, ttl) => (0, ips, ttl, false),
        Say::Long(_, ttl) if from.is_some() => (0, Vec::new(), ttl, true),
        Say::Long(ips, ttl) => (0, ips, ttl, false),
        Say::Code(code) => (code, Vec::new(), 0, false),
        Say::Nothing => return None,
    };
    let data: Vec<Vec<u8>> = ips
        .iter()
        .filter_map(|ip| match ip {
            IpAddr::V4(ip) => (kind == A).then(|| ip.octets().to_vec()),
            IpAddr::V6(ip) => (kind == AAAA).then(|| ip.octets().to_vec()),
        })
        .collect();
    let mut out = question[..2].to_vec();
    out.extend([0x81 | u8::from(cut) << 1, 0x80 | code, 0, 1]);
    out.extend((data.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend(&question[12..end + 4]);
    for data in data {
        // The name is that of the question.
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    Some(out)
}

/// A name of a question, and where it ends.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let n = usize::from(*bytes.get(at)?);
        if n == 0 {
            return Some((labels.join("."), at + 1));
        }
        labels.push(String::from_utf8_lossy(bytes.get(at + 1..at + 1 + n)?).into_owned());
        at += 1 + n;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const A: u16 = 1;
const AAAA: u16 = 28;
