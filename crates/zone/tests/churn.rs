//! A small zone under operations of differing sizes, for a long time: what does not fit changes
//! nothing, and all room comes back. (CASES 25; `PEERAGE_LONG=1`: a million operations)

mod support;

use std::collections::BTreeMap;

use peerage_core::body::{Field, LimitsBody, ServerBody, UpstreamBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_core::upstream::Upstream;
use peerage_zone::{Attempt, BatchAttempt, Checks, Op};
use support::{World, sel, server, upstream};

/// A run of numbers that is the same each time.
struct Dice(u64);

impl Dice {
    fn of(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn addr(i: usize) -> String {
    match i % 5 {
        3 => format!("[2001:db8::{i:x}]:80"),
        4 => format!("unix:/run/{}/{i}.sock", "d".repeat(i % 80)),
        _ => format!("10.0.{}.{}:80", i / 250, i % 250),
    }
}

fn some_server(dice: &mut Dice, i: usize) -> ServerBody {
    let mut server = server(&addr(i), dice.of(9) as u16);
    let label = |l: usize| (format!("l{l}"), Some("x".repeat(l * 7 % 64)));
    server.labels = Field::Given((0..dice.of(4)).map(label).collect());
    server
}

fn name(dice: &mut Dice) -> String {
    let i = dice.of(400);
    format!("{}{i}", "n".repeat(i % 90))
}

/// An operation: of an upstream as a whole, of a server, an operator's verb, a removal.
fn operation(dice: &mut Dice, now: Option<&Upstream>) -> Change {
    let Some(now) = now.filter(|_| dice.of(4) != 0) else {
        let n = [0, 1, 3, 10, 40, 130][dice.of(6)];
        let from = dice.of(1000);
        let servers = (0..n).map(|i| some_server(dice, from + i)).collect();
        return Change::PutUpstream {
            body: UpstreamBody { servers: Some(servers), ..UpstreamBody::default() },
        };
    };
    let some = now.servers.get(dice.of(now.servers.len().max(1)));
    match (dice.of(10), some) {
        (0, _) | (_, None) => Change::DeleteUpstream { force: false },
        (1, Some(some)) => Change::DeleteServer { sel: sel(&some.addr.to_string()) },
        (2..5, Some(some)) => {
            let reason = Some("r".repeat(dice.of(255)));
            let verb = [AdminState::Up, AdminState::Drain, AdminState::Down][dice.of(3)];
            let opts = VerbOpts { reason, ..VerbOpts::default() };
            Change::Admin { sel: sel(&some.addr.to_string()), verb, opts }
        }
        (5..7, Some(some)) => {
            let weight = Field::Given(dice.of(1000) as u16);
            let limits = LimitsBody { weight, ..LimitsBody::default() };
            let body = ServerBody { limits, ..ServerBody::default() };
            Change::PatchServer { sel: sel(&some.addr.to_string()), body }
        }
        _ => {
            let body = some_server(dice, 0);
            Change::PutServer {
                sel: sel(&addr(dice.of(1000))),
                body: ServerBody { addr: None, ..body },
            }
        }
    }
}

/// Whether an operation never fails for lack of room.
fn is_sure(change: &Change) -> bool {
    !matches!(change, Change::PutUpstream { .. } | Change::PutServer { .. })
}

#[test]
fn a_full_zone_changes_as_a_whole_or_not_at_all_and_all_room_comes_back() {
    let operations = match std::env::var_os("PEERAGE_LONG") {
        Some(long) if long == "1" => 1_000_000,
        _ => 20_000,
    };
    // About the smallest that nginx lets a zone be.
    let world = World::new(160 << 10);
    let empty = world.zone.report();
    let mut model: BTreeMap<String, Upstream> = BTreeMap::new();
    let (mut dice, mut refused, mut done) = (Dice(25), 0, 0);
    for i in 0..operations {
        let name = name(&mut dice);
        let change = operation(&mut dice, model.get(&name));
        let revision = world.zone.revision();
        match world.change(&name, &change) {
            Attempt::Done { upstream, .. } => {
                done += 1;
                match upstream {
                    Some(upstream) => model.insert(name.clone(), *upstream),
                    None => model.remove(&name),
                };
            }
            Attempt::NoRoom { need, free } => {
                assert!(!is_sure(&change), "{change:?}");
                assert!(need > free, "{need} of {free} for {change:?}");
                assert_eq!(world.zone.revision(), revision);
                refused += 1;
                if refused % 20 == 0 {
                    // A tenth goes, and there is room again.
                    let from = dice.of(10);
                    for name in model.keys().skip(from).step_by(10) {
                        world.ok(name, &Change::DeleteUpstream { force: false });
                    }
                    let mut i = 0;
                    model.retain(|_, _| {
                        i += 1;
                        (i - 1) % 10 != from
                    });
                }
            }
            Attempt::Refused(error) => panic!("{change:?}: {error}"),
            Attempt::Busy | Attempt::NotWriter | Attempt::Unmet(_) => panic!("{change:?}"),
        }
        let there = world.worker.read_wanted(&upstream(&name)).map(|(upstream, _)| upstream);
        assert_eq!(there.as_ref(), model.get(&name), "{change:?}");
        if i % 64 == 0 {
            world.worker.sweep(&|_, _| true, &world.clock);
        }
        if i % 4096 == 0 {
            whole(&world, &model);
        }
    }
    whole(&world, &model);
    println!("{done} done, {refused} refused, {} upstreams at the end", model.len());
    assert!(refused * 20 > operations && done * 4 > operations, "{refused} refused, {done} done");
    for name in model.keys() {
        world.ok(name, &Change::DeleteUpstream { force: false });
    }
    for _ in 0..1_000 {
        world.worker.sweep(&|_, _| true, &world.clock);
    }
    let after = world.zone.report();
    assert_eq!(
        (after.used, after.reserve, after.largest),
        (empty.used, empty.reserve, empty.largest)
    );
}

/// The zone holds what the model says, and counts it so.
fn whole(world: &World, model: &BTreeMap<String, Upstream>) {
    let names: Vec<String> =
        world.worker.names(None, 10_000).iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    let report = world.zone.report();
    let servers: usize = model.values().map(|upstream| upstream.servers.len()).sum();
    assert_eq!((report.upstreams, report.servers), (model.len() as u64, servers as u64));
    assert!(report.free >= report.reserve || report.reserve < 32 << 10, "{report:?}");
}

#[test]
fn a_batch_that_does_not_fit_changes_none_of_its_upstreams() {
    let world = World::new(160 << 10);
    let body = |n: usize| UpstreamBody {
        servers: Some((0..n).map(|i| server(&format!("10.0.0.1:{}", i + 1), 1)).collect()),
        ..UpstreamBody::default()
    };
    let put = |name: String, n: usize| Op::Upstream {
        name: upstream(&name),
        change: Change::PutUpstream { body: body(n) },
    };
    let mut dice = Dice(25);
    let (mut refused, mut done) = (0, 0);
    for round in 0..300 {
        let ops: Vec<Op> = (0..1 + dice.of(12))
            .map(|i| put(format!("r{}-{i}", round % 40), dice.of(30)))
            .collect();
        let before = (world.worker.names(None, 10_000), world.zone.revision());
        match world.batch(&ops, &Checks::NONE) {
            BatchAttempt::Done(_) => done += 1,
            BatchAttempt::NoRoom { need, free } => {
                assert!(need > free, "{need} of {free}");
                assert_eq!((world.worker.names(None, 10_000), world.zone.revision()), before);
                refused += 1;
                for name in before.0.iter().step_by(3) {
                    world.ok(name.as_str(), &Change::DeleteUpstream { force: false });
                }
            }
            other => panic!("{other:?}"),
        }
        world.worker.sweep(&|_, _| true, &world.clock);
    }
    assert!(refused > 10 && done > 50, "{refused} {done}");
}
