//! A journal: bytes in pieces say what they say as a whole, only lines with their checksum count,
//! and one that was written, cut, and damaged gives a moment that was.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use peerage_core::api::batch::Op;
use peerage_core::api::model;
use peerage_core::api::route::WriteMode;
use peerage_core::journal::{Head, changes, record};
use peerage_core::name::UpstreamName;
use peerage_core::replica::Replica;
use peerage_core::upstream::Upstream;
use peerage_core_fuzz::call;
use peerage_core_fuzz::seal::{is_sealed, seal};
use peerage_core_fuzz::world::World;

fuzz_target!(|bytes: &[u8]| {
    in_pieces(bytes);
    in_pieces(&seal(bytes));
    // Without choices there is no story.
    let _ = story(&mut Unstructured::new(bytes));
});

type Seen = (u64, u64, Vec<(Upstream, u64)>);

fn seen(replica: Replica) -> Seen {
    let (revision, next_id) = (replica.revision(), replica.next_id());
    (revision, next_id, replica.into_loaded().upstreams)
}

fn in_pieces(bytes: &[u8]) {
    let (mut whole, mut pieces) = (Replica::default(), Replica::default());
    let replayed = whole.replay_all(1, bytes);
    let lines = replayed.damage.as_ref().map_or(usize::MAX, |damage| damage.line - 1);
    assert!(is_sealed(bytes, lines), "a line without its checksum is used");
    let (mut from, mut to, step) = (0, 0, 1 + bytes.len() / 7);
    while to < bytes.len() {
        to = bytes.len().min(to + step);
        from += pieces.replay(1, &bytes[from..to]).consumed;
    }
    assert_eq!(from, replayed.consumed);
    assert_eq!(pieces.replay_all(1, &bytes[from..]).damage, replayed.damage);
    assert_eq!(seen(pieces), seen(whole));
}

/// What may happen to the upstreams `a` and `b`.
const ACTS: [(&str, &str); 12] = [
    ("PUT /v1/upstreams/{}", r#"{"servers":[{"server":"10.0.0.1"},{"server":"10.0.0.2"}]}"#),
    ("PUT /v1/upstreams/{}", r#"{"servers":[{"server":"10.0.0.2","weight":3}]}"#),
    ("PUT /v1/upstreams/{}", r#"{"servers":[]}"#),
    ("PATCH /v1/upstreams/{}", r#"{"defaults":{"max_fails":2}}"#),
    ("PATCH /v1/upstreams/{}", r#"{"defaults":null}"#),
    ("DELETE /v1/upstreams/{}", ""),
    ("PUT /v1/upstreams/{}/servers/10.0.0.3", r#"{"labels":{"a":"é\n"}}"#),
    ("PUT /v1/upstreams/{}/servers/10.0.0.1", r#"{"labels":{"a":"é\""}}"#),
    ("PATCH /v1/upstreams/{}/servers/10.0.0.2", r#"{"weight":0,"backup":true}"#),
    ("DELETE /v1/upstreams/{}/servers/10.0.0.1", ""),
    ("POST /v1/upstreams/{}/servers/10.0.0.2/down", r#"{"ttl":"5m","reason":"x"}"#),
    ("POST /v1/upstreams/{}/servers/10.0.0.2/up", ""),
];

fn story(choices: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::default();
    let mut bytes = Vec::new();
    Head::new("main", 1, 1, 7, 0, 0).write(&mut bytes);
    let mut moments: Vec<Vec<Upstream>> = vec![Vec::new()];
    for _ in 0..choices.int_in_range(0..=12)? {
        let (line, body) = choices.choose(&ACTS)?;
        let name = if choices.arbitrary()? { "a" } else { "b" };
        let call = call::routed(&line.replace("{}", name)).expect("it has a path").call;
        let Ok(Some(change)) = model::change(call, body.as_bytes(), WriteMode::On) else {
            continue;
        };
        let name = UpstreamName::parse(name).expect("a name");
        let before = world.upstreams.get(&name).cloned();
        if !world.apply(&Op::Upstream { name: name.clone(), change }).unwrap_or(false) {
            continue;
        }
        let change = changes(&[(before.as_ref(), world.upstreams.get(&name))], None);
        record(&mut bytes, moments.len() as u64, 9, &change);
        moments.push(world.upstreams.values().cloned().collect());
    }
    bytes.truncate(choices.int_in_range(0..=bytes.len())?);
    let whole = bytes.clone();
    for _ in 0..choices.int_in_range(0..=2)? {
        let at = choices.int_in_range(0..=bytes.len().saturating_sub(1))?;
        let bit = 1 << choices.int_in_range(0..=7)?;
        bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
    }
    let good = bytes.iter().zip(&whole).take_while(|(a, b)| a == b).count();
    let lines = bytes[..good].iter().filter(|&&b| b == b'\n').count();
    let mut replica = Replica::default();
    replica.replay_all(1, &bytes);
    let revision = replica.revision() as usize;
    assert_eq!(revision, lines.saturating_sub(1), "all that stands before the damage");
    let mut upstreams: Vec<Upstream> = seen(replica).2.into_iter().map(|(one, _)| one).collect();
    upstreams.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(upstreams, moments[revision]);
    Ok(())
}
