//! How fast the state file of 10,000 upstreams of 20 servers is written and read.
//!
//! `cargo run --release --example snapshot_speed`

#![allow(clippy::disallowed_methods, reason = "an example may read the clock; the core may not")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use peerage_core::addr::ServerAddr;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::server::{Admin, AdminState, Origin, Params, Server};
use peerage_core::snapshot::{self, Header, Writer};
use peerage_core::upstream::Upstream;

const UPSTREAMS: u32 = 10_000;
const SERVERS: u32 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let upstreams: Vec<Upstream> =
        (0..UPSTREAMS).map(upstream).collect::<Result<_, peerage_core::name::NameError>>()?;

    let start = Instant::now();
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &Header::new("main", 1, 1, 0));
    let mut longest = start.elapsed();
    for upstream in &upstreams {
        let slice = Instant::now();
        writer.upstream(&mut out, upstream, 1);
        longest = longest.max(slice.elapsed());
    }
    writer.end(&mut out);
    println!("write  {:?}, {} bytes, longest upstream {longest:?}", start.elapsed(), out.len());

    let start = Instant::now();
    let loaded = snapshot::read(&out);
    println!("read   {:?}, {} upstreams", start.elapsed(), loaded.upstreams.len());
    assert_eq!(loaded.damage, None);

    let start = Instant::now();
    let records: Vec<Vec<u8>> =
        upstreams.iter().flat_map(|u| &u.servers).map(record::encode_server).collect();
    let bytes: usize = records.iter().map(Vec::len).sum();
    println!("encode {:?}, {} bytes a server", start.elapsed(), bytes / records.len());
    let start = Instant::now();
    for record in &records {
        record::decode_server(record)?;
    }
    println!("decode {:?}", start.elapsed());

    let start = Instant::now();
    let sum = upstreams.iter().fold(0u64, |sum, upstream| sum ^ upstream.digest());
    println!("digest {:?} ({sum:x})", start.elapsed());
    Ok(())
}

fn upstream(n: u32) -> Result<Upstream, peerage_core::name::NameError> {
    let name = UpstreamName::parse(&format!("svc-{n}"))?;
    let mut upstream = Upstream::new(name, Origin::Api);
    upstream.servers = (0..SERVERS).map(|i| server(n * SERVERS + i)).collect();
    Ok(upstream)
}

fn server(n: u32) -> Server {
    let ip = Ipv4Addr::from_bits(10 << 24 | n);
    let admin = if n.is_multiple_of(10) {
        let state = AdminState::Down;
        let (reason, by, from) = ("deploy-812".into(), "ci".into(), "10.1.1.1".into());
        Admin { state, since: 1_795_986_307_000, until: None, close: None, reason, by, from }
    } else {
        Admin::default()
    };
    Server {
        id: u64::from(n) + 1,
        addr: ServerAddr::Inet(SocketAddr::new(ip.into(), 8080)),
        given: None,
        origin: Origin::Api,
        params: Params { weight: Some(3), ..Params::default() },
        admin,
        declared: None,
        source: None,
        resolve: false,
        addrs: Vec::new(),
    }
}
