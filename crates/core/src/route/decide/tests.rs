//! The state table, row by row.

use super::*;

const NOW: u64 = 1_000_000_000;
const DAY: u64 = 86_400_000;

fn entry(holds: Holds<'static>, age: u64) -> Cached<'static> {
    Cached { holds, at: NOW - age, valid: 5_000, changed: Changed::No }
}

fn suspended() -> Holds<'static> {
    Holds::Held(&Status::Suspended)
}

fn answers() -> Answers {
    Answers::parse("moved:451").unwrap()
}

fn seen(cached: Option<Cached<'_>>, away: Option<Down>) -> Look {
    look(cached.as_ref(), NOW, &Times::default(), &answers(), away)
}

fn settled(cached: Option<Cached<'_>>, answer: Answer<'_>) -> (Verdict, Kept) {
    settle(Table::Keys, cached.as_ref(), answer, NOW, &Times::default(), &answers())
}

const FRESH: Verdict = Verdict::Pass(Shown::Fresh, From::Cache);
const STALE: Verdict = Verdict::Pass(Shown::Stale, From::Cache);
const MISS: Verdict = Verdict::Pass(Shown::Miss, From::Store);
const HELD: Verdict = Verdict::Refuse(Shown::Suspended, 403);
const DOWN: Down = Down::Timeout;

#[test]
fn row_1_what_is_fresh_needs_no_store() {
    for away in [None, Some(Down::Open)] {
        for age in [0, 5_000] {
            assert_eq!(seen(Some(entry(Holds::Active, age)), away), Look::Done(FRESH));
        }
    }
}

#[test]
fn row_2_what_is_a_little_stale_is_used_and_refreshed() {
    for age in [5_001, 35_000] {
        let look = seen(Some(entry(Holds::Active, age)), None);
        assert_eq!(look, Look::Refresh(STALE));
    }
    assert_eq!(seen(Some(entry(suspended(), 5_001)), None), Look::Refresh(HELD));
}

#[test]
fn row_3_what_is_older_waits_for_the_refresh() {
    let old = entry(Holds::Active, 35_001);
    assert_eq!(seen(Some(old), None), Look::Ask);
    assert_eq!(settled(Some(old), Answer::Active), (MISS, Kept::Answer));
    assert_eq!(settled(Some(old), Answer::Down(DOWN)), (STALE, Kept::Cached));
}

#[test]
fn rows_4_and_5_an_outage_is_bridged_for_a_day() {
    for (age, verdict) in [(5_001, STALE), (DAY + 5_000, STALE), (DAY + 5_001, AWAY)] {
        let old = entry(Holds::Active, age);
        assert_eq!(seen(Some(old), Some(Down::Open)), Look::Done(verdict), "{age}");
        assert_eq!(settled(Some(old), Answer::Down(DOWN)), (verdict, Kept::Cached), "{age}");
    }
    let look = |keep, age| {
        let times = Times { stale_if_error: keep, ..Times::default() };
        look(Some(&entry(Holds::Active, age)), NOW, &times, &answers(), Some(Down::Open))
    };
    assert_eq!(look(Keep::Forever, 900_000_000), Look::Done(STALE));
    assert_eq!(look(Keep::Off, 5_001), Look::Done(AWAY));
    assert_eq!(look(Keep::Off, 5_000), Look::Done(FRESH));
}

#[test]
fn row_6_what_is_found_is_kept() {
    assert_eq!(seen(None, None), Look::AskUnknown);
    assert_eq!(settled(None, Answer::Active), (MISS, Kept::Answer));
}

#[test]
fn row_7_what_is_not_there_is_a_404_and_kept_apart() {
    for cached in [None, Some(entry(Holds::Active, 99_000)), Some(entry(suspended(), 99_000))] {
        assert_eq!(settled(cached, Answer::Absent), (MISSED, Kept::Nothing));
    }
    assert_eq!(MISSED, Verdict::Refuse(Shown::Negative, 404));
}

#[test]
fn row_8_a_status_is_answered_by_its_code() {
    let moved = Status::parse("moved").unwrap();
    let cached = [None, Some(entry(Holds::Active, 99_000)), Some(entry(suspended(), 99_000))];
    for cached in cached {
        assert_eq!(settled(cached, Answer::Held(&Status::Suspended)), (HELD, Kept::Answer));
        let code = Verdict::Refuse(Shown::Suspended, 451);
        assert_eq!(settled(cached, Answer::Held(&moved)), (code, Kept::Answer));
    }
    assert_eq!(seen(Some(entry(suspended(), 0)), None), Look::Done(HELD));
}

#[test]
fn row_9_an_outage_never_turns_a_suspension_into_service() {
    for age in [5_001, 99_000, DAY * 2] {
        let old = entry(suspended(), age);
        assert_eq!(seen(Some(old), Some(Down::Open)), Look::Done(HELD), "{age}");
        assert_eq!(settled(Some(old), Answer::Down(DOWN)), (HELD, Kept::Cached), "{age}");
    }
}

#[test]
fn rows_10_and_11_a_404_holds_while_it_is_fresh_and_not_for_an_outage() {
    for away in [None, Some(Down::Open)] {
        assert_eq!(seen(Some(entry(Holds::Nothing, 5_000)), away), Look::Done(MISSED));
    }
    let old = entry(Holds::Nothing, 5_001);
    assert_eq!(seen(Some(old), None), Look::AskUnknown);
    assert_eq!(seen(Some(old), Some(Down::Open)), Look::Done(AWAY));
    assert_eq!(settled(Some(old), Answer::Down(DOWN)), (AWAY, Kept::Cached));
}

#[test]
fn row_12_what_nobody_knows_is_a_503_at_once() {
    assert_eq!(seen(None, Some(Down::Open)), Look::Done(AWAY));
    assert_eq!(settled(None, Answer::Down(DOWN)), (AWAY, Kept::Cached));
    assert_eq!(AWAY, Verdict::Refuse(Shown::Down, 503));
}

#[test]
fn row_13_an_error_is_no_answer() {
    let reasons = [
        Down::Loading,
        Down::MasterDown,
        Down::ClusterDown,
        Down::Busy,
        Down::NoAuth,
        Down::WrongPass,
        Down::NoPerm,
        Down::Error,
        Down::Protocol,
    ];
    for reason in reasons {
        assert_eq!(settled(None, Answer::Down(reason)), (AWAY, Kept::Cached), "{reason:?}");
        let old = entry(Holds::Active, 99_000);
        assert_eq!(settled(Some(old), Answer::Down(reason)), (STALE, Kept::Cached));
        assert!(!reason.as_str().is_empty());
    }
}

#[test]
fn row_14_what_cannot_be_read_leaves_the_last_good_one() {
    assert_eq!(settled(None, Answer::Malformed), (BAD, Kept::Cached));
    let table = [
        (entry(Holds::Active, 99_000), STALE),
        (entry(suspended(), 99_000), HELD),
        (entry(Holds::Nothing, 99_000), BAD),
        (entry(Holds::Active, 2 * DAY), BAD),
    ];
    for (cached, verdict) in table {
        assert_eq!(settled(Some(cached), Answer::Malformed), (verdict, Kept::Cached));
    }
    assert_eq!(BAD, Verdict::Refuse(Shown::Bad, 502));
}

#[test]
fn row_15_an_app_that_is_not_there_is_a_502_unless_it_was() {
    let settled = |cached: Option<Cached<'_>>, answer| {
        settle(Table::Apps, cached.as_ref(), answer, NOW, &Times::default(), &answers())
    };
    assert_eq!(settled(None, Answer::Absent), (BAD, Kept::Cached));
    let old = Some(entry(Holds::Active, 99_000));
    assert_eq!(settled(old, Answer::Absent), (STALE, Kept::Cached));
    assert_eq!(settled(old, Answer::Active), (MISS, Kept::Answer));
    assert_eq!(settled(None, Answer::Down(DOWN)), (AWAY, Kept::Cached));
    assert_eq!(Shown::Bad.error(), Some("bad_data"));
}

#[test]
fn row_17_what_is_no_key_is_looked_up_nowhere() {
    let long = [b'x'; 256];
    for bad in [&b""[..], b"a\n", b"\0", &long] {
        assert!(!super::super::is_key(bad));
    }
    assert_eq!(MISSED.shown(), Shown::Negative);
}

#[test]
fn row_18_a_store_that_lost_all_is_away() {
    let wiped = Answer::Down(Down::Wiped);
    assert_eq!(settled(Some(entry(Holds::Active, 99_000)), wiped), (STALE, Kept::Cached));
    assert_eq!(settled(None, wiped), (AWAY, Kept::Cached));
}

#[test]
fn row_19_what_may_have_changed_is_used_once_more_and_refreshed() {
    for (holds, verdict) in [(Holds::Active, STALE), (suspended(), HELD)] {
        let doubtful = Cached { changed: Changed::Perhaps, ..entry(holds, 10) };
        assert_eq!(seen(Some(doubtful), None), Look::Refresh(verdict));
        assert_eq!(seen(Some(doubtful), Some(Down::Open)), Look::Done(verdict));
    }
    let doubtful = Cached { changed: Changed::Perhaps, ..entry(Holds::Nothing, 10) };
    assert_eq!(seen(Some(doubtful), None), Look::AskUnknown);
}

#[test]
fn what_has_changed_is_waited_for() {
    for (holds, verdict) in [(Holds::Active, STALE), (suspended(), HELD)] {
        let changed = Cached { changed: Changed::Yes, ..entry(holds, 10) };
        assert_eq!(seen(Some(changed), None), Look::Ask);
        assert_eq!(seen(Some(changed), Some(Down::Open)), Look::Done(verdict));
    }
}

#[test]
fn routes_of_the_zone_stand_over_the_store() {
    let (active, held_too) = (Status::Active, Status::Suspended);
    let of = |found, place| of_zone(found, place, &answers());
    assert_eq!(of(Some(&active), Place::Alone), Some(FRESH));
    let over = Verdict::Pass(Shown::Override, From::Cache);
    assert_eq!(of(Some(&active), Place::Over), Some(over));
    for place in [Place::Alone, Place::Over] {
        assert_eq!(of(Some(&held_too), place), Some(HELD));
    }
    assert_eq!(of(None, Place::Alone), Some(MISSED));
    assert_eq!(of(None, Place::Over), None);
}

#[test]
fn words_are_those_of_the_page() {
    let words = Shown::ALL.map(Shown::as_str);
    assert_eq!(words.join(" "), "FRESH STALE MISS NEGATIVE OVERRIDE SUSPENDED DOWN BAD");
    let errors: Vec<_> = Shown::ALL.into_iter().filter_map(Shown::error).collect();
    assert_eq!(errors, ["no_route", "suspended", "store_down", "bad_data"]);
}
