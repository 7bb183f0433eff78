//! What reading a state file costs, for figures: `cargo test --release --test speed -- --ignored
//! --nocapture`.

use std::time::{Duration, Instant};

use peerage_core::addr::ServerAddr;
use peerage_core::journal::{self, Head};
use peerage_core::name::UpstreamName;
use peerage_core::replica::Replica;
use peerage_core::server::{Admin, AdminState, Origin, Params, Server};
use peerage_core::snapshot::{self, Header, Writer};
use peerage_core::upstream::Upstream;

fn upstream(n: u64, servers: u64) -> Upstream {
    let name = UpstreamName::parse(&format!("svc-{n}")).unwrap();
    let one = |i: u64| {
        let id = n * servers + i + 1;
        Server {
            id,
            addr: ServerAddr::parse(&format!("10.{}.{}.{}:80", id >> 16, id >> 8 & 255, id & 255))
                .unwrap(),
            given: None,
            origin: Origin::Api,
            params: Params { weight: Some(3), ..Params::default() },
            admin: Admin::default(),
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    };
    Upstream { servers: (0..servers).map(one).collect(), ..Upstream::new(name, Origin::Api) }
}

/// A snapshot of 10,000 upstreams of 20 servers, that journal 1 goes on.
fn snapshot_of_200_000_servers() -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header { journal: 1, ..Header::new("main", 0, 1, 0) };
    let mut writer = Writer::begin(&mut out, &header);
    for n in 0..10_000 {
        writer.upstream(&mut out, &upstream(n, 20), 0);
    }
    writer.end(&mut out);
    out
}

#[test]
#[ignore = "figures"]
fn reading_a_snapshot_of_10_000_upstreams_of_20_servers() {
    let out = snapshot_of_200_000_servers();
    for _ in 0..5 {
        let begun = Instant::now();
        let loaded = snapshot::read(&out);
        let read = begun.elapsed();
        assert_eq!(loaded.damage, None);
        let begun = Instant::now();
        let loaded = Replica::new(loaded).into_loaded();
        let through = begun.elapsed();
        assert_eq!(loaded.upstreams.len(), 10_000);
        println!("{} MB read in {read:?}, through a replica in {through:?}", out.len() >> 20);
    }
}

/// Replays 100,000 changes of one server each in upstreams of so many servers.
fn replay_100_000(upstreams: u64, servers: u64) {
    let mut all: Vec<Upstream> = (0..upstreams).map(|n| upstream(n, servers)).collect();
    let mut base = Vec::new();
    let header = Header { journal: 1, ..Header::new("main", 0, 1, 0) };
    let mut writer = Writer::begin(&mut base, &header);
    all.iter().for_each(|one| writer.upstream(&mut base, one, 0));
    writer.end(&mut base);
    let mut bytes = Vec::new();
    Head::new("main", 1, 1, 1, 0, 0).write(&mut bytes);
    let mut making = Duration::ZERO;
    for revision in 1..=100_000 {
        let random = revision * 7_919;
        let one = &mut all[(random % upstreams) as usize];
        let before = one.clone();
        let admin = &mut one.servers[(random / upstreams % servers) as usize].admin;
        *admin = Admin { state: AdminState::Down, since: revision, ..Admin::default() };
        let begun = Instant::now();
        journal::record(
            &mut bytes,
            revision,
            1,
            &journal::changes(&[(Some(&before), Some(one))], None),
        );
        making += begun.elapsed();
    }
    let mut replica = Replica::new(snapshot::read(&base));
    let begun = Instant::now();
    let replayed = replica.replay_all(1, &bytes);
    let took = begun.elapsed();
    assert_eq!((replayed.damage, replica.revision()), (None, 100_000));
    println!(
        "{upstreams} upstreams of {servers}: 100,000 records made in {making:?}, {} MB replayed in \
         {took:?}",
        bytes.len() >> 20
    );
}

#[test]
#[ignore = "figures"]
fn replaying_100_000_changes_of_one_server() {
    replay_100_000(10_000, 20);
    replay_100_000(100, 1_000);
    replay_100_000(1, 1);
}
