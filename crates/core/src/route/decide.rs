//! What a request for a key is answered, by what is cached and what the store says.
//!
//! A decision has two halves. [`look`] goes by the cache alone: it answers, or says that the store
//! is to be asked. [`settle`] goes by the store's answer, and says what is kept of it. The same
//! holds for both tables: from keys to apps, and from apps to servers.
//!
//! An outage never turns a suspension into service, nor an expired "no such key" into a 404.

use super::conf::{Keep, Times};
use super::{Answers, Status};

/// What is cached of a key or an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached<'a> {
    /// What it says.
    pub holds: Holds<'a>,
    /// When the store said so, ms.
    pub at: u64,
    /// How long it is fresh, ms.
    pub valid: u64,
    /// Whether that has changed since.
    pub changed: Changed,
}

/// Whether something has changed since it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Not as far as is known.
    No,
    /// It may have: nobody listened, or it was read from a file.
    Perhaps,
    /// The store has told so.
    Yes,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds<'a> {
    /// It leads somewhere.
    Active,
    /// Its status is another one.
    Held(&'a Status),
    /// There is no such key.
    Nothing,
}

/// What the store answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It leads somewhere.
    Active,
    /// Its status is another one.
    Held(&'a Status),
    /// There is no such key; or, where a marker that is there as long as the data is gone too,
    /// nothing can be said: then it is [`Down::Wiped`].
    Absent,
    /// Something that is none of these.
    Malformed,
    /// Nothing that can be used.
    Down(Down),
}

/// Why the store has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Nobody listens there.
    Connect,
    /// It did not answer in time.
    Timeout,
    /// It hung up.
    Closed,
    /// It failed so often that it is not asked now.
    Open,
    /// It says so: it loads its data.
    Loading,
    /// Its master is away.
    MasterDown,
    /// Its cluster is.
    ClusterDown,
    /// It runs a script.
    Busy,
    /// It wants a password.
    NoAuth,
    /// It has another one.
    WrongPass,
    /// Its user may not.
    NoPerm,
    /// Another error of its own.
    Error,
    /// It answered in another language.
    Protocol,
    /// Its data is gone as a whole.
    Wiped,
}

impl Down {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::Connect,
        Self::Timeout,
        Self::Closed,
        Self::Open,
        Self::Loading,
        Self::MasterDown,
        Self::ClusterDown,
        Self::Busy,
        Self::NoAuth,
        Self::WrongPass,
        Self::NoPerm,
        Self::Error,
        Self::Protocol,
        Self::Wiped,
    ];

    /// The word of logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Open => "breaker",
            Self::Loading => "loading",
            Self::MasterDown => "masterdown",
            Self::ClusterDown => "clusterdown",
            Self::Busy => "busy",
            Self::NoAuth => "noauth",
            Self::WrongPass => "wrongpass",
            Self::NoPerm => "noperm",
            Self::Error => "error",
            Self::Protocol => "protocol",
            Self::Wiped => "wiped",
        }
    }
}

/// The value of `$peerage_route_status`, and the label of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// From what holds.
    Fresh,
    /// From what held last.
    Stale,
    /// The store was asked.
    Miss,
    /// There is no such key.
    Negative,
    /// By the zone's own routes, over the store.
    Override,
    /// Its status is another one.
    Suspended,
    /// The store is away.
    Down,
    /// What the store has cannot be used.
    Bad,
}

impl Shown {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Fresh,
        Self::Stale,
        Self::Miss,
        Self::Negative,
        Self::Override,
        Self::Suspended,
        Self::Down,
        Self::Bad,
    ];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "FRESH",
            Self::Stale => "STALE",
            Self::Miss => "MISS",
            Self::Negative => "NEGATIVE",
            Self::Override => "OVERRIDE",
            Self::Suspended => "SUSPENDED",
            Self::Down => "DOWN",
            Self::Bad => "BAD",
        }
    }

    /// The word of `$peerage_error`, where a request fails by it.
    pub const fn error(self) -> Option<&'static str> {
        match self {
            Self::Negative => Some("no_route"),
            Self::Suspended => Some("suspended"),
            Self::Down => Some("store_down"),
            Self::Bad => Some("bad_data"),
            Self::Fresh | Self::Stale | Self::Miss | Self::Override => None,
        }
    }
}

/// Whose servers a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// What is cached.
    Cache,
    /// What the store answered.
    Store,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass(Shown, From),
    /// It is answered with this status; a 503 has `Retry-After`.
    Refuse(Shown, u16),
}

impl Verdict {
    /// What is shown of it.
    pub const fn shown(self) -> Shown {
        match self {
            Self::Pass(shown, _) | Self::Refuse(shown, _) => shown,
        }
    }
}

/// What the cache says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The answer, without the store.
    Done(Verdict),
    /// The answer; one refresh for the whole nginx goes on in the background.
    Refresh(Verdict),
    /// The store is to be asked, and the request waits: for a key that may be made up, so that
    /// [`MISSED`] is the answer where too many are.
    AskUnknown,
    /// The same for one that was known.
    Ask,
}

/// What is kept of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The answer, in the place of what was there.
    Answer,
    /// That there is none, among its like; what was there goes.
    Nothing,
    /// What was there.
    Cached,
}

/// Which of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// From keys to apps: what is not there is not known.
    Keys,
    /// From apps to servers: what is not there should be.
    Apps,
}

/// The answer to a key that is none, or that too many unknown ones are asked for beside.
pub const MISSED: Verdict = Verdict::Refuse(Shown::Negative, 404);
const AWAY: Verdict = Verdict::Refuse(Shown::Down, 503);
const BAD: Verdict = Verdict::Refuse(Shown::Bad, 502);

/// Where a route of the zone stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is no store: the zone has all.
    Alone,
    /// Over a store.
    Over,
}

/// What a key is answered by the zone's own routes; `None`: a store is to be asked.
#[inline]
pub fn of_zone(found: Option<&Status>, place: Place, answers: &Answers) -> Option<Verdict> {
    match (found, place) {
        (Some(Status::Active), Place::Alone) => Some(Verdict::Pass(Shown::Fresh, From::Cache)),
        (Some(Status::Active), Place::Over) => Some(Verdict::Pass(Shown::Override, From::Cache)),
        (Some(status), _) => Some(held(status, answers)),
        (None, Place::Alone) => Some(MISSED),
        (None, Place::Over) => None,
    }
}

/// Looks at the cache, for a request at `now`, ms; `away` says whether the store may not be asked.
pub fn look(
    cached: Option<&Cached<'_>>,
    now: u64,
    times: &Times,
    answers: &Answers,
    away: Option<Down>,
) -> Look {
    let Some(cached) = cached else {
        return if away.is_some() { Look::Done(AWAY) } else { Look::AskUnknown };
    };
    let fresh = is_fresh(cached, now);
    match cached.holds {
        Holds::Nothing if fresh => return Look::Done(MISSED),
        Holds::Nothing if away.is_some() => return Look::Done(AWAY),
        Holds::Nothing => return Look::AskUnknown,
        Holds::Active | Holds::Held(_) => {}
    }
    if fresh {
        return Look::Done(match cached.holds {
            Holds::Held(status) => held(status, answers),
            _ => Verdict::Pass(Shown::Fresh, From::Cache),
        });
    }
    match away {
        Some(_) => Look::Done(without(Some(cached), now, times, answers)),
        None if cached.changed == Changed::Yes => Look::Ask,
        None if over(cached, now) <= times.stale => Look::Refresh(last(cached, answers)),
        None => Look::Ask,
    }
}

/// Goes by the store's answer to what was asked for.
pub fn settle(
    table: Table,
    cached: Option<&Cached<'_>>,
    answer: Answer<'_>,
    now: u64,
    times: &Times,
    answers: &Answers,
) -> (Verdict, Kept) {
    match (answer, table) {
        (Answer::Active, _) => (Verdict::Pass(Shown::Miss, From::Store), Kept::Answer),
        (Answer::Held(status), _) => (held(status, answers), Kept::Answer),
        (Answer::Absent, Table::Keys) => (MISSED, Kept::Nothing),
        (Answer::Absent, Table::Apps) | (Answer::Malformed, _) => {
            let verdict = match usable(cached, now, times) {
                Some(cached) => last(cached, answers),
                None => BAD,
            };
            (verdict, Kept::Cached)
        }
        (Answer::Down(_), _) => (without(cached, now, times, answers), Kept::Cached),
    }
}

/// The answer while the store is away.
fn without(cached: Option<&Cached<'_>>, now: u64, times: &Times, answers: &Answers) -> Verdict {
    match cached.map(|cached| cached.holds) {
        // Whatever its age: it would not be served either way.
        Some(Holds::Held(status)) => held(status, answers),
        _ => usable(cached, now, times).map_or(AWAY, |cached| last(cached, answers)),
    }
}

/// What was known last, if it may be used where the store has nothing better.
fn usable<'c, 'a>(
    cached: Option<&'c Cached<'a>>,
    now: u64,
    times: &Times,
) -> Option<&'c Cached<'a>> {
    let may = |cached: &Cached<'_>| match (cached.holds, times.stale_if_error) {
        (Holds::Nothing, _) | (_, Keep::Off) => false,
        (_, Keep::Forever) => true,
        (_, Keep::For(ms)) => over(cached, now) <= ms,
    };
    cached.filter(|cached| may(cached))
}

fn last(cached: &Cached<'_>, answers: &Answers) -> Verdict {
    match cached.holds {
        Holds::Held(status) => held(status, answers),
        _ => Verdict::Pass(Shown::Stale, From::Cache),
    }
}

fn held(status: &Status, answers: &Answers) -> Verdict {
    Verdict::Refuse(Shown::Suspended, answers.code(status))
}

fn is_fresh(cached: &Cached<'_>, now: u64) -> bool {
    cached.changed == Changed::No && now.saturating_sub(cached.at) <= cached.valid
}

/// For how long it is not fresh any more, by its time.
const fn over(cached: &Cached<'_>, now: u64) -> u64 {
    now.saturating_sub(cached.at).saturating_sub(cached.valid)
}

#[cfg(test)]
mod tests;
