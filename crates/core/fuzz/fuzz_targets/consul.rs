//! Bodies of a Consul: whatever is read names servers that there can be, and takes no more away
//! from what was known than the guard's rules let it.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use peerage_core::addr::ServerAddr;
use peerage_core::consul::answer::Answer;
use peerage_core::consul::catalog::Tagged;
use peerage_core::consul::desired::{Names, desired};
use peerage_core::consul::guard::{Guard, Known, Rules};
use peerage_core::consul::reader::Evidence;
use peerage_core::consul::service::Service;
use peerage_core::source::Stated;

// A body, a NUL, another body.
fuzz_target!(|input: &[u8]| {
    let cut = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (before, after) = (&input[..cut], input.get(cut + 1..).unwrap_or_default());
    if let Ok(tagged) = Tagged::read(after, "lb") {
        for (name, service) in &tagged.services {
            assert_eq!(name.as_str(), service.to_ascii_lowercase());
        }
    }
    let (Some(before), Some(after)) = (read(before), read(after)) else { return };
    let known: Vec<Known> = before
        .into_iter()
        .map(|Stated { addr, said }| Known { addr, said, fails: false })
        .collect();
    let web = Service::parse("web", &["consul=dc1"]).expect("good words");
    let mut guard = Guard::new(Rules::from(&web));
    let decision = guard.look(after.clone(), &known, Evidence::default(), 1_000_000);
    let stays: BTreeSet<&ServerAddr> = decision.servers.iter().map(|server| &server.addr).collect();
    assert_eq!(stays.len(), decision.servers.len(), "one for each address");
    assert!(after.iter().all(|server| stays.contains(&server.addr)));
    let identities: BTreeSet<u32> = after.iter().map(|server| server.said.identity).collect();
    let moved = |k: &&Known| k.said.identity != 0 && identities.contains(&k.said.identity);
    let gone = known.iter().filter(|k| !stays.contains(&k.addr) && !moved(k)).count();
    assert!(gone <= (known.len() / 2).max(1), "{gone} of {}", known.len());
    assert!(!after.is_empty() || gone == 0, "an empty answer removes nothing at once");
});

/// The servers of a body, in order, each once.
fn read(body: &[u8]) -> Option<Vec<Stated>> {
    let answer = Answer::read(body).ok()?;
    for instance in &answer.instances {
        let text = instance.addr.to_string();
        assert_eq!(ServerAddr::parse(&text).as_ref(), Ok(&instance.addr));
        assert!(!matches!(instance.addr, ServerAddr::Unix(_)));
    }
    let entries = answer.instances.len();
    let (servers, skipped) = desired(answer, Names::Resolved);
    assert!(servers.windows(2).all(|pair| pair[0].addr < pair[1].addr));
    assert!(servers.len() <= entries && skipped.total() as usize >= entries - servers.len());
    Some(servers)
}
