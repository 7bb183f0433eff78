//! Records of the zone's memory: any bytes decode or are refused, and what decodes encodes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::record::{
    decode_hosts, decode_server, decode_upstream_cold, encode_hosts, encode_server,
    encode_upstream_cold,
};

fuzz_target!(|bytes: &[u8]| {
    // Bytes after a record are ignored: it is padded to whole words.
    let padded = |mut bytes: Vec<u8>| {
        bytes.extend([0; 7]);
        bytes
    };
    if let Ok(server) = decode_server(bytes) {
        let again = padded(encode_server(&server));
        assert_eq!(decode_server(&again).as_ref(), Ok(&server));
        // What a listing and the log say of it.
        let _ = (server.text(), server.origin.to_string());
    }
    if let Ok(upstream) = decode_upstream_cold(bytes) {
        let again = padded(encode_upstream_cold(&upstream));
        assert_eq!(decode_upstream_cold(&again).as_ref(), Ok(&upstream));
        let _ = (upstream.digest(), upstream.next_expiry());
    }
    if let Ok(hosts) = decode_hosts(bytes) {
        let again = padded(encode_hosts(&hosts));
        assert_eq!(decode_hosts(&again).as_ref(), Ok(&hosts));
        for (ip, admin) in hosts.iter() {
            assert_eq!(hosts.get(ip), Some(admin), "{ip}");
        }
    }
});
