//! The words of directives: what is accepted has a text that reads equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::addr::ServerAddr;
use peerage_core::check::Check;
use peerage_core::check::outlier::Outlier;
use peerage_core::declare::DeclaredServer;
use peerage_core::field;
use peerage_core::name::{Case, Glob, UpstreamName, case};
use peerage_core::server::{AdminState, Params};
use peerage_core::units::{Secs, parse_millis, parse_size};
use peerage_core::upstream::Defaults;
use peerage_core_fuzz::world::check_params;

// Words of one line, and a name that is held against the first as a glob.
fuzz_target!(|text: &str| {
    let (line, name) = text.split_once('\n').unwrap_or((text, "app"));
    let words: Vec<&str> = line.split(' ').collect();
    for word in [line, words[0]] {
        address(word);
        units(word);
        names(word, name);
    }
    if let Ok(defaults) = Defaults::parse(&words) {
        let said = limits(&defaults);
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        assert_eq!(Defaults::parse(&said), Ok(defaults));
    }
    if let Ok(check) = Check::parse(&words) {
        assert_eq!(check.said().build().as_ref(), Ok(&check));
        let said = check.to_string();
        let said: Vec<&str> = said.split(' ').collect();
        assert_eq!(Check::parse(&said).as_ref(), Ok(&check), "{said:?}");
        assert_eq!(check.clone().kept(), Ok(check));
    }
    if let Ok(outlier) = Outlier::parse(&words) {
        let said = outlier.to_string();
        let said: Vec<&str> = said.split(' ').collect();
        assert_eq!(Outlier::parse(&said), Ok(outlier), "{said:?}");
        assert_eq!(outlier.said().build(), Ok(outlier));
    }
    if let Ok(server) = DeclaredServer::parse(words[0], &words[1..]) {
        let DeclaredServer { addr, given, params, admin, .. } = &server;
        check_params(params);
        let Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = *params;
        let mut said = limits(&Defaults { weight, max_conns, max_fails, fail_timeout, slow_start });
        params.backup.then(|| said.push("backup".into()));
        (*admin != AdminState::Up).then(|| said.push(admin.as_str().into()));
        (!params.route.is_empty()).then(|| said.push(format!("route={}", params.route)));
        said.extend(params.labels.iter().map(|(key, value)| format!("label={key}:{value}")));
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let text = given.clone().unwrap_or_else(|| addr.to_string());
        assert_eq!(DeclaredServer::parse(&text, &said).as_ref(), Ok(&server), "{said:?}");
    }
});

fn address(text: &str) {
    let Ok(addr) = ServerAddr::parse(text) else { return };
    let canonical = addr.to_string();
    assert!(!canonical.chars().any(char::is_control));
    assert_eq!(ServerAddr::parse(&canonical).as_ref(), Ok(&addr), "{canonical}");
    let json = serde_json::to_string(&addr).unwrap();
    assert_eq!(serde_json::from_str::<ServerAddr>(&json).unwrap(), addr);
    // What the standard library reads as an address with its port is that address.
    if let Ok(socket) = text.parse::<std::net::SocketAddr>() {
        assert!(addr == ServerAddr::Inet(socket), "{addr} {socket}");
    }
}

fn units(text: &str) {
    let millis = parse_millis(text);
    if let Ok(time) = Secs::parse(text) {
        assert_eq!((millis, time.0 <= Secs::MAX), (Ok(u64::from(time.0) * 1000), true));
        assert_eq!(Secs::parse(&time.to_string()), Ok(time));
        assert_eq!(field::seconds(text), Ok(time));
    }
    if let Ok(millis) = millis {
        assert_eq!(parse_millis(&format!("{millis}ms")), Ok(millis));
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
}

fn names(text: &str, name: &str) {
    let parsed = UpstreamName::parse(text);
    assert_eq!(case(text.as_bytes()).is_some(), parsed.is_ok());
    if let Ok(parsed) = &parsed {
        assert_eq!(UpstreamName::parse(parsed.as_str()).as_ref(), Ok(parsed));
        let folded = case(text.as_bytes()) == Some(Case::Folded);
        assert_eq!(folded, parsed.as_str() == text);
    }
    let Ok(glob) = Glob::parse(text) else { return };
    assert_eq!(Glob::parse(glob.as_str()).as_ref(), Ok(&glob));
    if let Ok(parsed) = parsed {
        assert!(glob.matches(parsed.as_str()));
    }
    if text.len() < 64 && name.len() < 64 {
        assert_eq!(glob.matches(name), fits(glob.as_str().as_bytes(), name.as_bytes()));
    }
}

/// Whether a name fits a glob, by the table of their beginnings.
fn fits(glob: &[u8], name: &[u8]) -> bool {
    let mut row = vec![false; name.len() + 1];
    row[0] = true;
    for &g in glob {
        let mut next = vec![g == b'*' && row[0]; name.len() + 1];
        for (n, &byte) in name.iter().enumerate() {
            next[n + 1] = match g {
                b'*' => next[n] || row[n + 1],
                g => row[n] && (g == b'?' || g == byte),
            };
        }
        row = next;
    }
    row[name.len()]
}

fn limits(defaults: &Defaults) -> Vec<String> {
    let Defaults { weight, max_conns, max_fails, fail_timeout, slow_start } = defaults;
    let number = |name: &str, value: Option<u32>| value.map(|value| format!("{name}={value}"));
    let time = |name: &str, value: &Option<Secs>| value.map(|value| format!("{name}={value}"));
    let all = [
        number("weight", weight.map(u32::from)),
        number("max_conns", *max_conns),
        number("max_fails", *max_fails),
        time("fail_timeout", fail_timeout),
        time("slow_start", slow_start),
    ];
    all.into_iter().flatten().collect()
}
