//! A snapshot: what is read has its checksums and its rules, and written again it reads equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::damage::DamageKind;
use peerage_core::replica::Replica;
use peerage_core::snapshot::{Header, Loaded, read};
use peerage_core_fuzz::seal::{is_sealed, seal};
use peerage_core_fuzz::world::{check, check_admin};

fuzz_target!(|bytes: &[u8]| {
    reads(bytes);
    reads(&seal(bytes));
});

fn reads(bytes: &[u8]) {
    let loaded = read(bytes);
    let lines = loaded.damage.as_ref().map_or(usize::MAX, |damage| damage.line - 1);
    assert!(is_sealed(bytes, lines), "a line without its checksum is used");
    let taken: usize = bytes.split_inclusive(|&b| b == b'\n').take(lines).map(<[u8]>::len).sum();
    loaded.upstreams.iter().for_each(|(upstream, _)| check(upstream));
    for (ip, admin) in loaded.hosts.iter() {
        assert_eq!(loaded.hosts.get(ip), Some(admin), "{ip}");
        check_admin(admin);
    }
    let again = read(&loaded.to_bytes(loaded.header.as_ref().map_or(0, |header| header.journal)));
    assert_eq!(again.damage, None);
    assert_eq!(again.upstreams, loaded.upstreams);
    assert_eq!(again.hosts, loaded.hosts);
    if let Some(header) = &loaded.header {
        assert_eq!(again.header, Some(Header { journal: 0, ..header.clone() }));
    }
    // What stands before the damage says the same without what follows.
    let Loaded { header, hosts, upstreams, damage, .. } = read(&bytes[..taken]);
    assert_eq!((&header, &hosts, &upstreams), (&loaded.header, &loaded.hosts, &loaded.upstreams));
    if loaded.damage.is_some() && taken < bytes.len() {
        assert!(damage.is_none_or(|damage| damage.kind == DamageKind::Torn));
    }
    let (header, upstreams) = (loaded.header.clone(), loaded.upstreams.len());
    let replica = Replica::new(loaded);
    assert_eq!(replica.revision(), header.map_or(0, |header| header.revision));
    assert_eq!(replica.names().count(), upstreams);
}
