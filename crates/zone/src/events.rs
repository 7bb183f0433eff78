//! The last events, in a ring of the zone.
//!
//! An entry is number, revision, time, and the bytes of a JSON object. The word behind the last
//! entry holds the next number, so that one store to `HEAD` publishes entries together with their
//! numbers.

use peerage_core::change::Actor;
use peerage_core::event;
use peerage_core::upstream::Upstream;
use peerage_shm::{Ordering, Ref, Writer};

use crate::choice::Clock;
use crate::layout::root;
use crate::ring::{Places, Ring};
use crate::size::events_bytes;
use crate::trace::Reachable;
use crate::worker::Worker;
use crate::zone::Zone;

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Counts events; never goes back, over restarts neither.
    pub seq: u64,
    /// The zone's revision with the change.
    pub revision: u64,
    /// Unix ms.
    pub time: u64,
    /// A JSON object, see [`event::Event::to_bytes`].
    pub json: Vec<u8>,
}

impl Said {
    /// Appends it as streams and polls show it.
    pub fn write(&self, out: &mut Vec<u8>) {
        event::write(out, None, self.seq, self.revision, self.time, &self.json);
    }

    /// Appends it as the log shows it.
    pub fn write_of_zone(&self, out: &mut Vec<u8>, zone: &str) {
        event::write(out, Some(zone), self.seq, self.revision, self.time, &self.json);
    }
}

/// What a change of an upstream tells, made before the lock is taken.
pub(crate) fn told(
    before: Option<&Upstream>,
    after: Option<&Upstream>,
    actor: &Actor,
) -> Vec<Vec<u8>> {
    event::of_change(before, after, actor).iter().map(event::Event::to_bytes).collect()
}

/// What was asked for is not kept any more, or never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Number of the last event.
    pub last: u64,
}

/// The events of a zone.
#[derive(Clone, Copy)]
pub struct Events {
    ring: Ring<3>,
}

/// Reads events one after the other.
pub struct Reader {
    events: Events,
    at: u64,
    last: u64,
}

impl Zone {
    /// The last events.
    pub fn events(&self) -> Events {
        Events { ring: Ring::new(self, PLACES) }
    }

    /// Takes the ring, in a zone that is being laid out.
    pub(crate) fn lay_out_events(&self, writer: &mut Writer<'_>) -> Option<()> {
        self.lay_out_ring(writer, PLACES, events_bytes(self.region().bytes()))
    }

    /// The block of the ring, for the allocator's truth.
    pub(crate) fn events_block(&self) -> (Ref, u32) {
        self.ring_block(PLACES)
    }

    /// Tells what came of a change, under the lock; `events` are JSON objects made beforehand.
    ///
    /// The events as they were told: what cannot lie in the ring at all is left out.
    pub(crate) fn append(
        &self,
        _writer: &mut Writer<'_>,
        revision: u64,
        now: u64,
        events: &[Vec<u8>],
    ) -> Vec<Said> {
        let kept = self.events();
        let mut told = Vec::with_capacity(events.len());
        let mut seq = kept.next_seq(now);
        for json in events {
            let said = Said { seq, revision, time: now, json: json.clone() };
            if kept.put(&said).is_some() {
                told.push(said);
                seq += 1;
            }
        }
        if let Some(last) = told.last() {
            self.root(root::SEQ).store(last.seq, Ordering::Release);
        }
        told
    }
}

impl Worker {
    /// Tells events that no change brings with it; false: somebody else writes, try again a little
    /// later.
    pub fn tell(&self, events: &[event::Event], clock: &Clock) -> bool {
        let trace = Reachable(*self.zone());
        let Ok(mut writer) = self.zone().shared().try_write(self.pid(), &trace) else {
            return false;
        };
        let bytes: Vec<Vec<u8>> = events.iter().map(event::Event::to_bytes).collect();
        let revision = self.zone().revision();
        let said = self.zone().append(&mut writer, revision, clock.msec, &bytes);
        drop(writer);
        self.say(said);
        true
    }
}

impl Events {
    /// Number of the last event, 0 = there was none.
    pub fn last(self) -> u64 {
        self.now().last
    }

    /// Reads what comes from now on.
    pub fn now(self) -> Reader {
        loop {
            let head = self.ring.head();
            let next = self.ring.word(head);
            if self.ring.check(head).is_ok() {
                return Reader { events: self, at: head, last: next.saturating_sub(1) };
            }
        }
    }

    /// Reads what came after the event of that number; all there is after 0.
    pub fn after(self, seq: u64) -> Result<Reader, Gone> {
        let now = self.now();
        if seq == now.last {
            return Ok(now);
        }
        if seq > now.last {
            return Err(Gone { last: now.last });
        }
        'lapped: for _ in 0..RACES {
            let mut reader = Reader { events: self, at: self.ring.tail(), last: 0 };
            let mut first = true;
            while reader.at < self.ring.head() {
                let Ok(([number, ..], next)) = self.ring.peek(reader.at) else { continue 'lapped };
                if number > seq {
                    if first && number > seq + 1 && seq != 0 {
                        return Err(Gone { last: now.last });
                    }
                    reader.last = seq;
                    return Ok(reader);
                }
                first = false;
                reader.at = next;
            }
            // All there was is read.
            return Err(Gone { last: now.last });
        }
        Err(Gone { last: self.last() })
    }

    /// The number of the next event. The first one of a zone gets the time in microseconds: a zone
    /// that is made anew goes on above the numbers of the one before it.
    fn next_seq(self, now: u64) -> u64 {
        match self.ring.word(self.ring.head()) {
            0 => now.max(1).saturating_mul(1000),
            next => next,
        }
    }

    /// Takes over what another zone's ring holds, in a zone that is being filled.
    pub(crate) fn inherit(self, zone: &Zone, old: Self) {
        let mut next = old.last() + 1;
        let mut reader = old.after(0).unwrap_or_else(|_| old.now());
        while let Ok(Some(said)) = reader.next_event() {
            if self.put(&said).is_some() {
                next = said.seq + 1;
            }
        }
        // What did not fit is told too: numbers never go back.
        if let Some(word) = self.ring.from(self.ring.head()).next().filter(|_| next > 1) {
            word.store(next.max(old.last() + 1), Ordering::Release);
        }
        zone.root(root::SEQ).store(old.last(), Ordering::Release);
    }

    /// Writes one entry and publishes it.
    fn put(self, said: &Said) -> Option<()> {
        let first = [said.seq, said.revision, said.time];
        let head = self.ring.write(first, &said.json, Some(said.seq + 1))?;
        self.ring.publish(head);
        Some(())
    }
}

impl Reader {
    /// Number of the last event read, or of the one after which reading began.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Whether there is no event yet that was not read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.events.ring.head()
    }

    /// The next event; `None`: there is none yet.
    pub fn next_event(&mut self) -> Result<Option<Said>, Gone> {
        if self.is_at_end() {
            return Ok(None);
        }
        let gone = |_| self.gone();
        let ([seq, revision, time], json, next) = self.events.ring.read(self.at).map_err(gone)?;
        self.at = next;
        self.last = seq;
        Ok(Some(Said { seq, revision, time, json }))
    }

    /// Whether what was copied, or comes next, is still there.
    pub fn check(&self) -> Result<(), Gone> {
        self.events.ring.check(self.at).map_err(|_| self.gone())
    }

    fn gone(&self) -> Gone {
        Gone { last: self.events.last() }
    }
}

/// Where the ring lies.
const PLACES: Places =
    Places { block: root::EVENTS, head: root::EVENTS_HEAD, tail: root::EVENTS_TAIL };
/// How often a reader looks for its place while it is lapped.
const RACES: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::trial::{writer, zone};

    fn append(zone: &Zone, revision: u64, now: u64, texts: &[&str]) -> Vec<Said> {
        let mut writer = writer(zone);
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        zone.append(&mut writer, revision, now, &texts)
    }

    fn rest(reader: &mut Reader) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(said) = reader.next_event().expect("it is kept") {
            texts.push(String::from_utf8(said.json).expect("text"));
        }
        texts
    }

    #[test]
    fn what_is_told_is_read_in_its_order() {
        let zone = zone(256 << 10);
        let mut early = zone.events().now();
        assert_eq!((early.last(), early.next_event()), (0, Ok(None)));
        assert!(zone.events().after(7).is_err());
        let told = append(&zone, 1, 1, &["{\"a\":1}", "{}"]);
        assert_eq!(told.iter().map(|said| said.seq).collect::<Vec<_>>(), [1000, 1001]);
        append(&zone, 2, 900, &["{\"a\":\"longer than a word\"}"]);
        assert_eq!(rest(&mut early).len(), 3);
        assert_eq!((early.last(), zone.events().last(), zone.report().seq), (1002, 1002, 1002));
        for (since, left) in [(0, 3), (999, 3), (1000, 2), (1001, 1), (1002, 0)] {
            assert_eq!(rest(&mut zone.events().after(since).expect("kept")).len(), left, "{since}");
        }
        for since in [998, 1003] {
            assert_eq!(zone.events().after(since).err(), Some(Gone { last: 1002 }), "{since}");
        }
    }

    #[test]
    fn the_oldest_go_and_who_asks_for_them_is_told() {
        let zone = zone(256 << 10);
        let mut slow = zone.events().now();
        let text = format!("{{\"{}\"}}", "x".repeat(100));
        for i in 0..1000 {
            append(&zone, i, 1, &[&text]);
        }
        assert_eq!(slow.next_event(), Err(Gone { last: 1999 }));
        assert!(zone.events().after(1000).is_err());
        let mut all = zone.events().after(0).expect("0 is all there is");
        let kept = rest(&mut all).len();
        assert!((40..=60).contains(&kept), "{kept}");
        assert_eq!(rest(&mut zone.events().after(1989).expect("kept")).len(), 10);
        // Too long for the ring: left out, no number is used up.
        let long = "x".repeat(8 << 10);
        assert_eq!(append(&zone, 1, 1, &[&long, "{}"])[0].seq, 2000);
    }

    #[test]
    fn a_reader_that_is_lapped_never_sees_half_an_entry() {
        let zone = zone(256 << 10);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                for i in 0..200_000_u64 {
                    let one = char::from(b'a' + (i % 26) as u8);
                    let text: String = std::iter::repeat_n(one, 10 + (i % 300) as usize).collect();
                    append(&zone, i, 1, &[&text]);
                }
                over.store(true, Ordering::Release);
            });
            let (mut seen, mut lapped) = (0, 0);
            while !over.load(Ordering::Acquire) {
                // The oldest entry is the one that the writer comes to next.
                let Ok(mut reader) = zone.events().after(0) else { continue };
                match reader.next_event() {
                    Ok(None) => {}
                    Ok(Some(said)) => {
                        seen += 1;
                        assert_eq!(said.seq, said.revision + 1000);
                        let one = b'a' + (said.revision % 26) as u8;
                        assert_eq!(said.json.len() as u64, 10 + said.revision % 300);
                        assert!(said.json.iter().all(|&byte| byte == one), "{said:?}");
                    }
                    Err(Gone { .. }) => lapped += 1,
                }
            }
            println!("{seen} read, {lapped} overwritten while read");
            assert!(seen > 0);
        });
    }

    #[test]
    fn a_writer_that_dies_has_told_nothing_or_all() {
        let zone = zone(256 << 10);
        append(&zone, 1, 1, &["{\"a\":1}"]);
        // Dead between its words and the head.
        let ring = zone.events().ring;
        let at = ring.head();
        ring.make_room(at + 20);
        for word in ring.from(at + 1).take(8) {
            word.store(77, Ordering::Relaxed);
        }
        assert_eq!(zone.events().now().next_event(), Ok(None));
        assert_eq!(append(&zone, 2, 1, &["{}"])[0].seq, 1001);
        // Dead between the head and the number in the root.
        zone.root(root::SEQ).store(1, Ordering::Relaxed);
        assert_eq!(append(&zone, 3, 1, &["{}"])[0].seq, 1002);
        let mut writer = writer(&zone);
        assert_eq!(writer.check(), Ok(()));
    }
}
