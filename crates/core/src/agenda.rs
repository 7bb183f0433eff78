//! When names are looked up: at first at once, then when the answer is no longer good, and after a
//! failure again after a pause that grows.
//!
//! A name is either due at a time or being asked for. Times are monotonic ms.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// The names to look up, with their times.
#[derive(Debug, Default)]
pub struct Agenda {
    names: HashMap<Rc<str>, Entry>,
    /// Those that nobody is asking for, by their time.
    due: BTreeSet<(u64, Rc<str>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// `None`: it is being asked for.
    due: Option<u64>,
    /// Failures since the last answer.
    failures: u32,
}

/// A name went from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It cannot be resolved, and could before or was never asked for.
    Lost,
    /// It is resolved again.
    Back,
}

/// An answer is good for this long at least, ms.
const LEAST: u64 = 1_000;
/// The pause after the first failure, ms; it doubles with each further one.
const PAUSE: u64 = 1_000;
/// The longest pause, ms.
const LONGEST: u64 = 30_000;

impl Agenda {
    /// Takes the names that there are now: new ones are due at once, others forgotten. Those for
    /// which an answer is missing somewhere (`true`) are due at once too.
    pub fn set<'a>(&mut self, names: impl IntoIterator<Item = (&'a str, bool)>, now: u64) {
        let mut stay = HashSet::new();
        for (name, lacks) in names {
            if let Some((known, entry)) = self.names.get_key_value(name) {
                let (known, entry) = (Rc::clone(known), *entry);
                // Who fails keeps its pause.
                if lacks && entry.failures == 0 && entry.due.is_some_and(|due| due > now) {
                    self.put(&known, Entry { due: Some(now), ..entry });
                }
                stay.insert(known);
            } else {
                let name: Rc<str> = name.into();
                self.put(&name, Entry { due: Some(now), failures: 0 });
                stay.insert(name);
            }
        }
        self.names.retain(|name, _| stay.contains(name));
        self.due.retain(|(_, name)| stay.contains(name));
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The time of the name that is due first.
    pub fn first(&self) -> Option<u64> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Takes the name that has been due longest, to ask for it.
    pub fn next(&mut self, now: u64) -> Option<Rc<str>> {
        let name = self.due.first().filter(|(due, _)| *due <= now)?.1.clone();
        let entry = self.names.get(&name).copied().unwrap_or_default();
        self.put(&name, Entry { due: None, ..entry });
        Some(name)
    }

    /// There is an answer, good for so many ms.
    pub fn answered(&mut self, name: &Rc<str>, good: u64, now: u64) -> Option<Turn> {
        let entry = *self.names.get(name)?;
        self.put(name, Entry { due: Some(now.saturating_add(good.max(LEAST))), failures: 0 });
        (entry.failures != 0).then_some(Turn::Back)
    }

    /// There is none.
    pub fn failed(&mut self, name: &Rc<str>, now: u64) -> Option<Turn> {
        let Entry { failures, .. } = *self.names.get(name)?;
        let pause = PAUSE.checked_shl(failures).map_or(LONGEST, |pause| pause.min(LONGEST));
        // Beyond some dozen the pause stays as it is.
        let more = failures.saturating_add(1).min(32);
        self.put(name, Entry { due: Some(now.saturating_add(pause)), failures: more });
        (failures == 0).then_some(Turn::Lost)
    }

    fn put(&mut self, name: &Rc<str>, entry: Entry) {
        let before = self.names.insert(Rc::clone(name), entry);
        if let Some(due) = before.and_then(|before| before.due) {
            self.due.remove(&(due, Rc::clone(name)));
        }
        if let Some(due) = entry.due {
            self.due.insert((due, Rc::clone(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Agenda {
        let mut agenda = Agenda::default();
        agenda.set(names.iter().map(|name| (*name, true)), 0);
        agenda
    }

    #[test]
    fn a_name_is_asked_for_again_when_its_answer_is_no_longer_good() {
        let mut agenda = of(&["a", "b"]);
        let (a, b) = (agenda.next(0).unwrap(), agenda.next(0).unwrap());
        assert_eq!((&*a, &*b, agenda.next(0)), ("a", "b", None));
        assert_eq!(agenda.first(), None, "nobody asks twice at a time");
        assert_eq!(agenda.answered(&a, 0, 10), None);
        assert_eq!(agenda.answered(&b, 5_000, 10), None);
        assert_eq!((agenda.first(), agenda.next(1_009)), (Some(1_010), None));
        assert_eq!(agenda.next(1_010), Some(a));
        assert_eq!(agenda.next(5_010), Some(b));
    }

    #[test]
    fn failures_are_told_once_and_their_pause_grows() {
        let mut agenda = of(&["a"]);
        let mut now = 0;
        let pauses: Vec<u64> = (0..40)
            .map(|i| {
                let name = agenda.next(now).unwrap();
                assert_eq!(agenda.failed(&name, now), (i == 0).then_some(Turn::Lost));
                let pause = agenda.first().unwrap() - now;
                now += pause;
                pause
            })
            .collect();
        assert_eq!(pauses[..6], [1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
        assert!(pauses[6..].iter().all(|&pause| pause == 30_000));
        let name = agenda.next(now).unwrap();
        assert_eq!(agenda.answered(&name, 3_000, now), Some(Turn::Back));
        let name = agenda.next(now + 3_000).unwrap();
        assert_eq!(agenda.failed(&name, now), Some(Turn::Lost));
    }

    #[test]
    fn names_that_went_are_forgotten_and_new_ones_due() {
        let mut agenda = of(&["a", "b"]);
        let (a, b) = (agenda.next(0).unwrap(), agenda.next(0).unwrap());
        agenda.answered(&b, 60_000, 0);
        agenda.set([("b", false), ("c", true)], 10);
        assert_eq!(agenda.answered(&a, 0, 20), None);
        assert_eq!(agenda.failed(&a, 20), None);
        assert_eq!(agenda.next(20).as_deref(), Some("c"));
        assert_eq!((agenda.next(59_999), agenda.first()), (None, Some(60_000)));
        // It has come to another server, which has no address yet.
        agenda.set([("b", true), ("c", true)], 30);
        assert_eq!(agenda.next(30).as_deref(), Some("b"));
        assert_eq!(agenda.next(30), None, "the other is being asked for");
        agenda.set([], 40);
        assert!(agenda.is_empty());
    }

    #[test]
    fn a_name_that_fails_keeps_its_pause_whatever_comes() {
        let mut agenda = of(&["a"]);
        let a = agenda.next(0).unwrap();
        agenda.failed(&a, 0);
        agenda.set([("a", true)], 10);
        assert_eq!(agenda.first(), Some(1_000));
    }
}
