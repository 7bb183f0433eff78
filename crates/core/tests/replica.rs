//! A state file read whole, in pieces, cut, damaged and with parts missing.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use peerage_core::damage::{Damage, DamageKind, Part};
use peerage_core::host::Hosts;
use peerage_core::journal::{self, Head};
use peerage_core::name::UpstreamName;
use peerage_core::replica::Replica;
use peerage_core::server::{Admin, AdminState, Server};
use peerage_core::snapshot::{self, Header, Loaded, Writer};
use peerage_core::upstream::Upstream;
use proptest::prelude::*;
use proptest::sample::Index;
use support::{any_admin, any_server, any_upstream, keep_unique};

/// A zone at one revision: the naive model.
#[derive(Clone, Debug, Default, PartialEq)]
struct Moment {
    upstreams: BTreeMap<UpstreamName, (Upstream, u64)>,
    hosts: Hosts,
    hosts_revision: u64,
    next_id: u64,
}

/// What one revision does to an upstream.
#[derive(Clone, Debug)]
enum Act {
    Put(Upstream),
    Delete,
    Add(Vec<Server>),
    /// Of the server at this place, counted around.
    Remove(usize),
    Touch(usize, Box<Server>),
    Admin(usize, Admin),
    Reverse,
    Settings(Upstream),
}

#[derive(Clone, Debug)]
struct Step {
    acts: Vec<(u8, Act)>,
    hosts: Option<Vec<(u8, Admin)>>,
}

/// Every moment of a zone by revision, and the bytes of the changes to the next one.
struct History {
    moments: Vec<Moment>,
    changes: Vec<Vec<u8>>,
}

fn name(n: u8) -> UpstreamName {
    UpstreamName::parse(&format!("u{n}")).unwrap()
}

impl Act {
    fn apply(
        &self,
        name: &UpstreamName,
        stored: Option<Upstream>,
        next_id: &mut u64,
    ) -> Option<Upstream> {
        let mut fresh = |server: &Server| {
            *next_id += 1;
            Server { id: *next_id - 1, ..server.clone() }
        };
        if let Self::Put(upstream) = self {
            let servers = upstream.servers.iter().map(&mut fresh).collect();
            return Some(Upstream { name: name.clone(), servers, ..upstream.clone() });
        }
        let mut upstream = stored?;
        let len = upstream.servers.len();
        match self {
            Self::Delete => return None,
            Self::Add(servers) => upstream.servers.extend(servers.iter().map(&mut fresh)),
            Self::Reverse => upstream.servers.reverse(),
            Self::Settings(other) => {
                let (name, servers) = (name.clone(), upstream.servers);
                upstream = Upstream { name, servers, ..other.clone() };
            }
            _ if len == 0 => {}
            Self::Remove(at) => drop(upstream.servers.remove(at % len)),
            Self::Touch(at, server) => {
                let old = &mut upstream.servers[at % len];
                *old = Server { id: old.id, ..(**server).clone() };
            }
            Self::Admin(at, admin) => upstream.servers[at % len].admin = admin.clone(),
            Self::Put(_) => unreachable!(),
        }
        keep_unique(&mut upstream.servers, &mut upstream.removed);
        Some(upstream)
    }
}

impl History {
    fn of(steps: &[Step]) -> Self {
        let first = Moment { next_id: 1, ..Moment::default() };
        let mut history = Self { moments: vec![first], changes: Vec::new() };
        for step in steps {
            let revision = history.moments.len() as u64;
            let was = history.moments.last().unwrap();
            let mut is = was.clone();
            let mut changed = BTreeSet::new();
            for (n, act) in &step.acts {
                let name = name(*n);
                let stored = is.upstreams.remove(&name).map(|(upstream, _)| upstream);
                if let Some(next) = act.apply(&name, stored, &mut is.next_id) {
                    is.upstreams.insert(name.clone(), (next, revision));
                }
                changed.insert(name);
            }
            if let Some(hosts) = &step.hosts {
                is.hosts = Hosts::default();
                for (n, admin) in hosts {
                    is.hosts.set([10, 0, 0, *n].into(), admin.clone());
                }
                is.hosts_revision = revision;
            }
            let side = |name| {
                let of =
                    |moment: &'_ Moment| moment.upstreams.get(name).map(|(one, _)| one.clone());
                (of(was), of(&is))
            };
            let sides: Vec<_> = changed.iter().map(side).collect();
            let pairs: Vec<_> = sides.iter().map(|(was, is)| (was.as_ref(), is.as_ref())).collect();
            let hosts = step.hosts.is_some().then_some(&is.hosts);
            history.changes.push(journal::changes(&pairs, hosts));
            // What stays the same is of its old revision: the journal does not tell it.
            for name in &changed {
                if let (Some((was, old)), Some((is, new))) =
                    (was.upstreams.get(name), is.upstreams.get_mut(name))
                    && was == is
                {
                    *new = *old;
                }
            }
            history.moments.push(is);
        }
        history
    }

    fn last(&self) -> u64 {
        self.changes.len() as u64
    }

    fn at(&self, revision: u64) -> &Moment {
        &self.moments[revision as usize]
    }

    fn record(&self, out: &mut Vec<u8>, revision: u64) {
        let next_id = self.at(revision).next_id;
        journal::record(out, revision, next_id, &self.changes[revision as usize - 1]);
    }

    /// A journal of these revisions.
    fn journal(&self, generation: u64, after: u64, to: u64) -> Vec<u8> {
        let mut out = Vec::new();
        Head::new("main", generation, 1, 7, after, 0).write(&mut out);
        for revision in after + 1..=to {
            self.record(&mut out, revision);
        }
        out
    }

    /// A snapshot begun at a revision; each upstream is read at its own moment, the hosts at the
    /// last of these.
    fn snapshot(&self, begun: u64, journal: u64, read_at: &[u64; 5]) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header::new("main", begun, self.at(begun).next_id, 0);
        let header = Header { journal, epoch: 1, instance: 7, ..header };
        let mut writer = Writer::begin(&mut out, &header);
        let hosts = self.at(read_at[4]);
        writer.hosts(&mut out, &hosts.hosts, hosts.hosts_revision);
        for n in 0..4 {
            let moment = self.at(read_at[usize::from(n)]);
            if let Some((upstream, revision)) = moment.upstreams.get(&name(n)) {
                writer.upstream(&mut out, upstream, *revision);
            }
        }
        writer.end(&mut out);
        out
    }

    /// Not fuzzy.
    fn exact(&self, begun: u64, journal: u64) -> Vec<u8> {
        self.snapshot(begun, journal, &[begun; 5])
    }
}

/// What a replica says, as the model says it.
fn seen(replica: &Replica) -> BTreeMap<UpstreamName, (Upstream, u64)> {
    let one = |name: &UpstreamName| {
        let (upstream, revision) = replica.upstream(name).unwrap();
        (name.clone(), (upstream.clone(), revision))
    };
    replica.names().map(one).collect()
}

#[track_caller]
fn assert_is(replica: &Replica, moment: &Moment, revision: u64, story: &str) {
    assert_eq!(replica.revision(), revision, "{story}");
    assert_eq!(seen(replica), moment.upstreams, "{story}");
    assert_eq!(*replica.hosts(), moment.hosts, "{story}");
}

fn replica(snapshot: &[u8]) -> Replica {
    Replica::new(snapshot::read(snapshot))
}

fn any_act() -> impl Strategy<Value = Act> {
    let admin = (0usize..12, any_admin());
    prop_oneof![
        2 => any_upstream().prop_map(Act::Put),
        1 => Just(Act::Delete),
        2 => prop::collection::vec(any_server(), 1..12).prop_map(Act::Add),
        2 => (0usize..12).prop_map(Act::Remove),
        2 => (0usize..12, any_server()).prop_map(|(at, server)| Act::Touch(at, Box::new(server))),
        4 => admin.prop_map(|(at, admin)| Act::Admin(at, admin)),
        1 => Just(Act::Reverse),
        1 => any_upstream().prop_map(Act::Settings),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let hosts = prop::collection::vec((0u8..3, any_admin()), 0..3);
    let hosts = prop_oneof![5 => Just(None), 1 => hosts.prop_map(Some)];
    let acts = prop::collection::vec((0u8..4, any_act()), 0..3);
    (acts, hosts).prop_map(|(acts, hosts)| Step { acts, hosts })
}

fn any_steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any_step(), 1..max)
}

/// A few revisions that do all there is.
fn story() -> History {
    let server = |n: u64| {
        let addr = support::addr(&format!("10.0.0.{n}:80"));
        Server { id: n, addr, ..support::World::with(1).app.unwrap().servers[0].clone() }
    };
    let upstream = |servers: u64| {
        let app = support::World::with(1).app.unwrap();
        Upstream { servers: (1..=servers).map(server).collect(), ..app }
    };
    let down = Admin { state: AdminState::Down, since: 5, ..Admin::default() };
    let act = |n, act| Step { acts: vec![(n, act)], hosts: None };
    History::of(&[
        act(0, Act::Put(upstream(3))),
        act(1, Act::Put(upstream(1))),
        act(0, Act::Admin(0, down.clone())),
        Step {
            acts: vec![(1, Act::Delete), (0, Act::Remove(1))],
            hosts: Some(vec![(1, down.clone())]),
        },
        act(0, Act::Reverse),
        act(2, Act::Put(upstream(2))),
        Step { acts: Vec::new(), hosts: Some(Vec::new()) },
        act(0, Act::Add(vec![server(0)])),
    ])
}

fn kind(damage: Option<&Damage>) -> Option<DamageKind> {
    damage.map(|damage| damage.kind)
}

#[test]
fn a_journal_cut_at_any_byte_gives_the_revisions_before() {
    let history = story();
    let (base, bytes) = (history.exact(2, 4), history.journal(4, 2, history.last()));
    let ends: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] == b'\n').map(|i| i + 1).collect();
    for cut in 0..=bytes.len() {
        let lines = ends.iter().filter(|&&end| end <= cut).count();
        let whole = lines.checked_sub(1).map_or(0, |i| ends[i]);
        let revision = 2 + lines.saturating_sub(1) as u64;
        let mut one = replica(&base);
        let replayed = one.replay_all(4, &bytes[..cut]);
        assert_is(&one, history.at(revision), revision, &format!("cut at {cut}"));
        assert_eq!(replayed.consumed, whole);
        let torn = cut == 0 || whole < cut;
        let damage = replayed.damage.as_ref();
        assert_eq!(kind(damage), torn.then_some(DamageKind::Torn), "{cut}");
        if let Some(damage) = damage {
            assert_eq!((damage.part, damage.line), (Part::Journal(4), lines + 1));
        }

        let mut growing = replica(&base);
        let replayed = growing.replay(4, &bytes[..cut]);
        assert_eq!((replayed.damage, replayed.consumed), (None, whole));
        assert_is(&growing, history.at(revision), revision, "growing");
        let rest = growing.replay(4, &bytes[whole..]);
        assert_eq!((rest.damage, rest.consumed), (None, bytes.len() - whole));
        assert_is(&growing, history.at(history.last()), history.last(), "grown");
    }
}

#[test]
fn a_flipped_byte_anywhere_ends_the_reading_there() {
    let history = story();
    let base = history.exact(2, 4);
    let journals = [history.journal(4, 2, 5), history.journal(5, 5, history.last())];
    for (file, at) in (0..2).flat_map(|file| (0..journals[file].len()).map(move |at| (file, at))) {
        let mut bad = journals.clone();
        bad[file][at] ^= 1 << (at % 8);
        let mut replica = replica(&base);
        let damage = [replica.replay_all(4, &bad[0]).damage, replica.replay_all(5, &bad[1]).damage];
        let lines = journals[file][..at].iter().filter(|&&b| b == b'\n').count() as u64;
        let revision = [2, 5][file] + lines.saturating_sub(1);
        let story = format!("byte {at} of journal {file}: {damage:?}");
        assert_is(&replica, history.at(revision), revision, &story);
        let expected = match file {
            0 => [damage[0].as_ref().map(|d| d.kind), Some(DamageKind::Gap)],
            _ => [None, kind(damage[1].as_ref())],
        };
        assert_eq!(damage.each_ref().map(|d| kind(d.as_ref())), expected, "{story}");
        let found = damage[file].as_ref().expect("a flipped byte is damage");
        assert!(matches!(found.kind, DamageKind::Damaged | DamageKind::Torn), "{story}");
        assert_eq!((found.part, found.line), (Part::Journal(file as u64 + 4), lines as usize + 1));
        let again = replica.replay(5, b"more\n");
        assert_eq!((again.consumed, again.damage), (0, damage[1].clone()), "it is told again");
    }
}

#[test]
fn a_damaged_snapshot_never_gives_a_wrong_upstream() {
    let history = story();
    let (base, journal) = (history.exact(2, 4), history.journal(4, 2, history.last()));
    for at in 0..base.len() {
        let mut bad = base.clone();
        bad[at] ^= 1 << (at % 8);
        let mut replica = replica(&bad);
        replica.replay_all(4, &journal);
        for (name, found) in seen(&replica) {
            assert_eq!(Some(&found), history.at(history.last()).upstreams.get(&name), "{at}");
        }
        assert!(replica.into_loaded().damage.is_some());
    }
}

#[test]
fn what_does_not_go_on_is_not_used() {
    let history = story();
    let last = history.last();
    let head = |generation, epoch, after| {
        let mut out = Vec::new();
        Head::new("main", generation, epoch, 7, after, 0).write(&mut out);
        out
    };
    let with = |mut out: Vec<u8>, revisions: &[u64]| {
        revisions.iter().for_each(|&revision| history.record(&mut out, revision));
        out
    };
    let later = Head { format: 3, ..Head::new("main", 4, 1, 7, 2, 0) };
    let mut of_later = Vec::new();
    later.write(&mut of_later);
    let mut unknown = head(4, 1, 2);
    journal::record(&mut unknown, 3, 9, br#"[{"set_all":{}}]"#);
    let mut twice = head(4, 1, 2);
    journal::record(&mut twice, 3, 9, br#"[{"delete":"u0","upstream":"u0"}]"#);
    use DamageKind::{Damaged, Format, Gap};
    // Files, in force up to, damage of the last: kind and line.
    type Row<'a> = (&'a str, Vec<(u64, Vec<u8>)>, u64, Option<(DamageKind, usize)>);
    let table: Vec<Row<'_>> = vec![
        ("a record is missing", vec![(4, with(head(4, 1, 2), &[3, 5, 6]))], 3, Some((Gap, 3))),
        ("the first one too", vec![(4, with(head(4, 1, 2), &[4]))], 2, Some((Gap, 2))),
        ("the head says so", vec![(4, with(head(4, 1, 3), &[4]))], 2, Some((Gap, 1))),
        ("a file is missing", vec![(5, history.journal(5, 4, last))], 2, Some((Gap, 1))),
        ("one that is not needed is missing", vec![(6, history.journal(6, 2, last))], last, None),
        (
            "a file that goes on after a gap before it",
            vec![(4, with(head(4, 1, 2), &[3, 5])), (5, history.journal(5, 3, last))],
            last,
            None,
        ),
        (
            "repetitions",
            vec![(4, with(head(4, 1, 0), &[1, 2, 3, 4])), (5, history.journal(5, 1, last))],
            last,
            None,
        ),
        ("a repetition inside", vec![(4, with(head(4, 1, 2), &[3, 4, 3, 4, 5]))], 5, None),
        (
            "an older file after a newer",
            vec![(5, history.journal(5, 2, 4)), (4, history.journal(4, 2, last))],
            4,
            None,
        ),
        ("not needed", vec![(3, history.journal(3, 2, last))], 2, None),
        ("it says another number", vec![(4, history.journal(5, 2, last))], 2, Some((Damaged, 1))),
        ("an earlier epoch", vec![(4, with(head(4, 0, 2), &[3]))], 2, Some((Gap, 1))),
        ("the next epoch", vec![(4, with(head(4, 2, 2), &[3]))], 3, None),
        (
            "the next epoch that has not read all",
            vec![(4, history.journal(4, 2, 5)), (5, with(head(5, 2, 4), &[5, 6]))],
            5,
            Some((Gap, 1)),
        ),
        ("no head", vec![(4, with(Vec::new(), &[3]))], 2, Some((Damaged, 1))),
        (
            "a head inside",
            vec![(4, [head(4, 1, 2), head(4, 1, 2)].concat())],
            2,
            Some((Damaged, 2)),
        ),
        ("a later format", vec![(4, of_later)], 2, Some((Format, 1))),
        ("a change of another kind", vec![(4, unknown)], 2, Some((Damaged, 2))),
        ("a change of two kinds", vec![(4, twice)], 2, Some((Damaged, 2))),
    ];
    for (story, files, revision, expected) in table {
        let mut replica = replica(&history.exact(2, 4));
        let mut damage = None;
        for (generation, bytes) in files {
            damage = replica.replay_all(generation, &bytes).damage;
        }
        assert_is(&replica, history.at(revision), revision, story);
        assert_eq!(damage.as_ref().map(|d| (d.kind, d.line)), expected, "{story}: {damage:?}");
    }
}

#[test]
fn without_a_snapshot_a_journal_from_the_start_is_the_state() {
    let history = story();
    let journal = history.journal(1, 0, history.last());
    let mut replica = Replica::default();
    assert_eq!(replica.replay_all(1, &journal).damage, None);
    assert_is(&replica, history.at(history.last()), history.last(), "no snapshot");
    assert_eq!((replica.epoch(), replica.instance(), replica.generation()), (1, 7, 1));
    let header = replica.into_loaded().header.unwrap();
    assert_eq!((header.zone.as_str(), header.revision), ("main", history.last()));

    for (bad, kind) in [("", DamageKind::Gap), ("x\n", DamageKind::Gap)] {
        let mut replica = Replica::new(snapshot::read(bad.as_bytes()));
        assert_eq!(replica.replay_all(1, &journal).damage.unwrap().kind, kind);
        assert_eq!(replica.into_loaded().upstreams, []);
    }
    let mut later = Vec::new();
    let header = Header { format: 3, ..Header::new("main", 0, 1, 0) };
    Writer::begin(&mut later, &header).end(&mut later);
    let mut replica = Replica::new(snapshot::read(&later));
    assert_eq!(replica.replay_all(1, &journal).damage.unwrap().kind, DamageKind::Format);
    assert_eq!(replica.into_loaded().upstreams, []);
}

#[test]
fn a_fuzzy_snapshot_says_up_to_where_it_needs_its_journals() {
    let history = story();
    let mut replica = replica(&history.snapshot(2, 4, &[3, 2, 6, 2, 2]));
    assert_eq!(replica.lacks(), Some(6));
    replica.replay(4, &history.journal(4, 2, 5));
    assert_eq!(replica.lacks(), Some(6));
    let mut more = Vec::new();
    history.record(&mut more, 6);
    replica.replay(4, &more);
    assert_eq!(replica.lacks(), None);
    let exact = Replica::new(snapshot::read(&history.exact(5, 4)));
    assert_eq!(exact.lacks(), None);
    let lost = Replica::new(snapshot::read(&history.snapshot(2, 4, &[3, 2, 6, 2, 2])));
    assert_eq!(lost.into_loaded().header.unwrap().revision, 6, "no revision is given twice");
}

#[test]
fn what_is_newer_in_the_snapshot_stays() {
    let put = Act::Put(support::World::with(2).app.unwrap());
    let step = |act: &Act| Step { acts: vec![(0, act.clone())], hosts: None };
    let history = History::of(&[step(&put), step(&Act::Delete), step(&put), step(&Act::Reverse)]);
    for end in 1..=4 {
        let mut replica = replica(&history.snapshot(1, 4, &[3; 5]));
        replica.replay_all(4, &history.journal(4, 1, end));
        assert_eq!(seen(&replica), history.at(end.max(3)).upstreams, "{end}");
    }
}

#[test]
fn upstreams_are_loaded_in_the_order_of_the_file() {
    let history = story();
    let mut replica = replica(&history.exact(3, 4));
    replica.replay_all(4, &history.journal(4, 3, history.last()));
    let Loaded { header, upstreams, hosts_revision, damage, .. } = replica.into_loaded();
    let names: Vec<String> = upstreams.iter().map(|(u, _)| u.name.to_string()).collect();
    assert_eq!(names, ["u0", "u2"]);
    let header = header.unwrap();
    assert_eq!((header.revision, header.epoch, header.instance), (history.last(), 1, 7));
    assert_eq!(header.next_id, history.at(history.last()).next_id);
    assert_eq!((hosts_revision, damage), (7, None));
}

/// A snapshot and journals of a history, as a zone and its crashes leave them.
#[derive(Clone, Debug)]
struct Layout {
    begun: Index,
    read_at: [Index; 5],
    /// How far before the snapshot the first journal begins.
    before: Index,
    /// Where journals end, how far before it the next one begins, and whether a torn line is left.
    cuts: Vec<(Index, Index, bool)>,
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let cuts = prop::collection::vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..4);
    let read_at = any::<[Index; 5]>();
    (any::<Index>(), read_at, any::<Index>(), cuts)
        .prop_map(|(begun, read_at, before, cuts)| Layout { begun, read_at, before, cuts })
}

struct Files {
    begun: u64,
    read_at: [u64; 5],
    snapshot: Vec<u8>,
    /// The first is 4, and one that a snapshot does not need comes before.
    journals: Vec<Vec<u8>>,
    torn: Vec<bool>,
}

impl Layout {
    /// The files of the history up to a revision.
    fn files(&self, history: &History, to: u64) -> Files {
        let begun = self.begun.index(to as usize + 1) as u64;
        let span = (history.last() - begun) as usize;
        let read_at = self.read_at.map(|at| begun + at.index(span + 1) as u64);
        let mut from = self.before.index(begun as usize + 1) as u64;
        let mut ends: Vec<(u64, Index, bool)> = self
            .cuts
            .iter()
            .map(|&(at, back, torn)| {
                (begun + at.index((to - begun) as usize + 1) as u64, back, torn)
            })
            .collect();
        ends.sort_by_key(|&(end, ..)| end);
        let (mut journals, mut torn) = (Vec::new(), Vec::new());
        for (end, back, cut_off) in ends {
            let mut bytes = history.journal(4 + journals.len() as u64, from, end);
            let cut_off = cut_off && end < history.last();
            if cut_off {
                let mut next = Vec::new();
                history.record(&mut next, end + 1);
                bytes.extend(&next[..1 + back.index(next.len() - 1)]);
            }
            journals.push(bytes);
            torn.push(cut_off);
            from = end - back.index(end as usize + 1) as u64;
        }
        journals.push(history.journal(4 + journals.len() as u64, from, to));
        torn.push(false);
        let snapshot = history.snapshot(begun, 4, &read_at);
        Files { begun, read_at, snapshot, journals, torn }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_fuzzy_snapshot_and_its_journals_are_the_last_moment(
        steps in any_steps(20),
        layout in any_layout(),
        chunks in prop::collection::vec(1usize..600, 1..20),
    ) {
        let history = History::of(&steps);
        let last = history.last();
        let files = layout.files(&history, last);
        let mut whole = replica(&files.snapshot);
        let mut fed = replica(&files.snapshot);
        let mut sizes = chunks.iter().cycle();
        for (generation, (bytes, torn)) in (4..).zip(files.journals.iter().zip(&files.torn)) {
            let damage = whole.replay_all(generation, bytes).damage;
            prop_assert_eq!(kind(damage.as_ref()), torn.then_some(DamageKind::Torn));
            let (mut from, mut to) = (0, 0);
            while to < bytes.len() {
                to = bytes.len().min(to + sizes.next().unwrap());
                let (was, hosts) = (seen(&fed), fed.hosts().clone());
                let replayed = fed.replay(generation, &bytes[from..to]);
                prop_assert_eq!(replayed.damage, None);
                from += replayed.consumed;
                let is = seen(&fed);
                let names: BTreeSet<_> = was.keys().chain(is.keys()).cloned().collect();
                for name in names {
                    let touched = replayed.upstreams.contains(&name);
                    prop_assert!(touched || was.get(&name) == is.get(&name), "{}", name);
                }
                prop_assert!(replayed.hosts || hosts == *fed.hosts());
            }
        }
        for replica in [whole, fed] {
            assert_is(&replica, history.at(last), last, "all");
            prop_assert_eq!(replica.lacks(), None);
            prop_assert_eq!(replica.next_id(), history.at(last).next_id);
            prop_assert_eq!(replica.generation(), 3 + files.journals.len() as u64);
            let begun = replica.into_loaded();
            prop_assert_eq!(begun.header.unwrap().revision, last);
        }
    }

    #[test]
    fn where_journals_end_early_each_upstream_is_as_it_was_at_one_moment(
        steps in any_steps(16),
        layout in any_layout(),
        end in any::<Index>(),
    ) {
        let history = History::of(&steps);
        let end = end.index(history.last() as usize + 1) as u64;
        let files = layout.files(&history, end);
        let mut replica = replica(&files.snapshot);
        for (generation, bytes) in (4..).zip(&files.journals) {
            replica.replay_all(generation, bytes);
        }
        prop_assert_eq!(replica.revision(), end);
        prop_assert!(files.begun <= end);
        let found = seen(&replica);
        for n in 0..4 {
            let (name, read_at) = (name(n), files.read_at[usize::from(n)]);
            let found = found.get(&name);
            let at_end = history.at(end).upstreams.get(&name);
            match history.at(read_at).upstreams.get(&name) {
                Some(line) if line.1 > end => prop_assert_eq!(found, Some(line)),
                None if read_at > end && found.is_none() => {}
                _ => prop_assert_eq!(found, at_end),
            }
        }
        let hosts = history.at(files.read_at[4]);
        if hosts.hosts_revision > end {
            prop_assert!(*replica.hosts() == hosts.hosts || hosts.hosts.is_empty());
        } else {
            prop_assert_eq!(replica.hosts(), &history.at(end).hosts);
        }
    }

    #[test]
    fn damage_anywhere_leaves_a_moment_that_was(
        steps in any_steps(12),
        layout in any_layout(),
        (file, at, value) in (any::<Index>(), any::<Index>(), any::<u8>()),
        harm in prop::sample::select(vec!["byte", "cut", "line", "file"]),
    ) {
        let history = History::of(&steps);
        let mut files = layout.files(&history, history.last());
        let file = file.index(files.journals.len());
        let bad = &mut files.journals[file];
        let place = at.index(bad.len());
        match harm {
            "byte" => bad[place] = value,
            "cut" => bad.truncate(place),
            "line" => {
                let lines: Vec<&[u8]> = bad.split_inclusive(|&b| b == b'\n').collect();
                let gone = at.index(lines.len());
                *bad = [lines[..gone].concat(), lines[gone + 1..].concat()].concat();
            }
            _ => bad.clear(),
        }
        let mut replica = replica(&history.exact(files.begun, 4));
        for (generation, bytes) in (4..).zip(&files.journals) {
            replica.replay_all(generation, bytes);
        }
        let revision = replica.revision();
        prop_assert!(files.begun <= revision && revision <= history.last());
        assert_is(&replica, history.at(revision), revision, "damaged");
    }

    #[test]
    fn no_bytes_make_a_replica_panic(
        snapshot in prop::collection::vec(any::<u8>(), 0..50),
        journal in prop::collection::vec(any::<u8>(), 0..200),
        changes in "\\[[{}\\[\\]\":,0-9a-z. -]{0,80}\\]",
    ) {
        replica(&snapshot).replay_all(1, &journal);
        let mut bytes = Vec::new();
        Head::new("main", 1, 1, 1, 0, 0).write(&mut bytes);
        journal::record(&mut bytes, u64::MAX, 1, changes.as_bytes());
        journal::record(&mut bytes, 1, u64::MAX, changes.as_bytes());
        bytes.extend(journal);
        Replica::default().replay(1, &bytes);
    }
}
