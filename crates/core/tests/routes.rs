//! Routes in the files of a zone: what was written is read, by snapshot and journal together.

use std::collections::BTreeMap;

use peerage_core::journal::{self, Head};
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::replica::Replica;
use peerage_core::route::{Route, RouteKey, Status};
use peerage_core::server::Origin;
use peerage_core::snapshot::{self, Header, Loaded, Writer};
use proptest::prelude::*;

fn key(text: &str) -> RouteKey {
    RouteKey::parse(text).unwrap()
}

fn route(name: &str, app: &str) -> Route {
    Route::new(key(name), UpstreamName::parse(app).unwrap())
}

fn any_route() -> impl Strategy<Value = Route> {
    let status = prop_oneof![
        3 => Just("active".to_owned()),
        1 => Just("suspended".to_owned()),
        1 => "[a-z]{1,32}",
    ];
    let labels = prop::collection::btree_map("[a-z]{1,9}", "\\PC{0,9}", 0..4);
    let origin = prop_oneof![
        3 => Just(Origin::Api),
        1 => Just(Origin::Redis("routes".into())),
    ];
    let until = prop::option::of(any::<u64>());
    ("[a-j]", "[a-c]", status, "\\PC{0,20}", until, labels, origin).prop_map(
        |(name, app, status, reason, until, labels, origin)| Route {
            status: Status::parse(&status).unwrap(),
            reason,
            until,
            labels,
            origin,
            ..route(&name, &app)
        },
    )
}

/// A change of a zone: a route as it is from then on, or that it is gone.
#[derive(Clone, Debug)]
enum Step {
    Set(Route),
    Gone(String),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => any_route().prop_map(Step::Set), 1 => "[a-j]".prop_map(Step::Gone)]
}

type Model = BTreeMap<RouteKey, Route>;

/// Does a step, and appends the journal's record of it; steps that change nothing have none.
fn apply(model: &mut Model, step: &Step, revision: u64, lines: &mut Vec<u8>) -> bool {
    let (key, after) = match step {
        Step::Set(route) => (route.key.clone(), Some(route)),
        Step::Gone(name) => (key(name), None),
    };
    let before = model.get(&key).cloned();
    let changes = journal::route_changes(&[(before.as_ref(), after)]);
    if before.as_ref() == after {
        assert_eq!(changes, b"[]");
        return false;
    }
    journal::record(lines, revision, 1, &changes);
    match after {
        Some(route) => model.insert(key, route.clone()),
        None => model.remove(&key),
    };
    true
}

fn of(loaded: Loaded) -> Model {
    loaded.routes.into_iter().map(|(route, _)| (route.key.clone(), route)).collect()
}

proptest! {
    /// The snapshot is made in pieces while changes go on: the journal that was begun with it makes
    /// it whole, whatever was read when.
    #[test]
    fn a_fuzzy_snapshot_and_its_journal_are_the_whole(
        before in prop::collection::vec(step(), 0..30),
        meanwhile in prop::collection::vec((step(), any::<bool>()), 0..30),
        after in prop::collection::vec(step(), 0..10),
    ) {
        let (mut model, mut revision) = (Model::new(), 1);
        for step in &before {
            revision += u64::from(apply(&mut model, step, revision + 1, &mut Vec::new()));
        }
        let mut file = Vec::new();
        let header = Header { journal: 3, ..Header::new("main", revision, 1, 0) };
        let mut writer = Writer::begin(&mut file, &header);
        let mut lines = Vec::new();
        Head::new("main", 3, 0, 0, revision, 0).write(&mut lines);
        // Keys in their order, as a walk has them: each piece as it is when it is read.
        let mut keys = ('a'..='j').map(|c| key(&c.to_string()));
        for (step, goes_on) in &meanwhile {
            revision += u64::from(apply(&mut model, step, revision + 1, &mut lines));
            if *goes_on {
                let some: Vec<Route> =
                    keys.by_ref().take(2).filter_map(|key| model.get(&key).cloned()).collect();
                writer.routes(&mut file, &some, revision);
            }
        }
        let rest: Vec<Route> = keys.filter_map(|key| model.get(&key).cloned()).collect();
        writer.routes(&mut file, &rest, revision);
        writer.end(&mut file);
        for step in &after {
            revision += u64::from(apply(&mut model, step, revision + 1, &mut lines));
        }
        let loaded = snapshot::read(&file);
        prop_assert_eq!(&loaded.damage, &None);
        let mut replica = Replica::new(loaded);
        let replayed = replica.replay_all(3, &lines);
        prop_assert_eq!((replayed.damage, replica.lacks()), (None, None));
        prop_assert_eq!(replica.revision(), revision);
        let whole: Model = replica.routes().map(|r| (r.key.clone(), r.clone())).collect();
        prop_assert_eq!(&whole, &model);
        // Written as one snapshot again.
        let again = snapshot::read(&replica.into_loaded().to_bytes(4));
        prop_assert_eq!(of(again), model);
    }

    #[test]
    fn what_a_record_keeps_reads_back(route in any_route()) {
        let rest = record::encode_route_rest(&route);
        let plain = match route.status {
            Status::Other(_) => Status::Active,
            ref status => status.clone(),
        };
        let padded = [&rest[..], &[0; 7]].concat();
        let bytes = if rest.is_empty() { &rest } else { &padded };
        let again =
            record::decode_route(route.key.clone(), route.upstream.clone(), plain, bytes);
        prop_assert_eq!(again, Ok(route));
    }
}

#[test]
fn a_plain_route_takes_no_rest() {
    assert!(record::encode_route_rest(&route("acme", "orders")).is_empty());
    let held = Route { status: Status::Suspended, ..route("acme", "orders") };
    assert!(record::encode_route_rest(&held).is_empty());
}

#[test]
fn what_does_not_fit_together_is_damage() {
    let lines = |routes: &[&[Route]], end: &dyn Fn(Writer, &mut Vec<u8>)| {
        let mut file = Vec::new();
        let mut writer = Writer::begin(&mut file, &Header::new("main", 1, 1, 0));
        routes.iter().for_each(|routes| writer.routes(&mut file, routes, 1));
        end(writer, &mut file);
        snapshot::read(&file)
    };
    let acme = route("acme", "orders");
    let whole: &dyn Fn(Writer, &mut Vec<u8>) = &|writer, file| writer.end(file);
    assert_eq!(lines(&[std::slice::from_ref(&acme)], whole).damage, None);
    let twice = lines(&[&[acme.clone(), acme.clone()]], whole);
    assert_eq!(twice.damage.unwrap().text, "route \"acme\" comes twice");
    let fewer = lines(&[std::slice::from_ref(&acme)], &|_, file| {
        let header = Header::new("main", 1, 1, 0);
        Writer::begin(&mut Vec::new(), &header).end(file);
    });
    assert_eq!(fewer.damage.unwrap().text, "1 routes where 0 were written");
    let labels = (0..17).map(|i| (format!("l{i}"), String::new())).collect();
    let many = Route { labels, ..acme };
    let refused = lines(&[&[many]], whole).damage.unwrap();
    assert!(refused.text.contains("at most 16 labels"), "{refused:?}");
}

#[test]
fn what_is_newer_in_the_snapshot_stays() {
    let mut file = Vec::new();
    let header = Header { journal: 1, ..Header::new("main", 4, 1, 0) };
    let mut writer = Writer::begin(&mut file, &header);
    writer.routes(&mut file, &[route("acme", "new"), route("globex", "new")], 6);
    writer.end(&mut file);
    let mut lines = Vec::new();
    Head::new("main", 1, 0, 0, 4, 0).write(&mut lines);
    let (old, other) = (route("acme", "old"), route("globex", "new"));
    journal::record(&mut lines, 5, 1, &journal::route_changes(&[(None, Some(&old))]));
    journal::record(&mut lines, 6, 1, &journal::route_changes(&[(Some(&other), None)]));
    let mut replica = Replica::new(snapshot::read(&file));
    assert!(replica.replay_all(1, &lines).routes.is_empty());
    let seen: Vec<_> = replica.routes().map(|route| route.upstream.as_str()).collect();
    assert_eq!((seen, replica.lacks()), (vec!["new"; 2], None));
    lines.clear();
    journal::record(&mut lines, 7, 1, &journal::route_changes(&[(None, Some(&old))]));
    assert_eq!(replica.replay_all(1, &lines).routes, [key("acme")].into());
}
