//! Whether the store is asked: the breaker and the limit of misses, for all processes together.

use peerage_core::route::breaker::Breaker;
use peerage_core::route::decide::Down;
use peerage_core::route::limiter::Rate;
use peerage_shm::{AtomicU64, Ordering};

use super::Cache;
use super::layout::{LIMITERS, head};

impl Cache {
    /// Whether the store may be asked; counts as asked.
    pub fn may_ask(&self, now: u64) -> bool {
        let may = step(self.breaker(), |word| Some(Breaker::from_word(word).ask(now)?.word()));
        if may {
            self.head[head::ASKED].fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// The store had no answer.
    pub fn failed(&self, why: Down, now: u64) {
        self.missed(why);
        step(self.breaker(), |word| Some(Breaker::from_word(word).failed(now).word()));
    }

    /// Counts that there was no answer, and no more.
    pub fn missed(&self, why: Down) {
        self.head[head::FAILED + why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The store answered, whatever it said.
    pub fn answered(&self) {
        self.heard(0);
    }

    /// The store answered that it has lost what it had.
    pub fn wiped(&self) {
        self.missed(Down::Wiped);
        self.heard(1);
    }

    fn heard(&self, wiped: u64) {
        step(self.breaker(), |word| Some(Breaker::from_word(word).answered().word()));
        step(&self.head[head::WIPED], |_| Some(wiped));
    }

    /// Whether the store is not asked now, not even for a trial.
    pub fn is_open(&self, now: u64) -> bool {
        Breaker::from_word(self.breaker().load(Ordering::Acquire)).ask(now).is_none()
    }

    /// Whether the store answered last, with what it had, or has not failed often since; a trial is
    /// no answer.
    pub fn is_up(&self) -> bool {
        let is_wiped = self.head[head::WIPED].load(Ordering::Acquire) != 0;
        !is_wiped && !Breaker::from_word(self.breaker().load(Ordering::Acquire)).is_open()
    }

    /// Whether a key that may be made up may be asked for.
    pub fn may_miss(&self, rate: Rate, now: u64) -> bool {
        step(self.limiter(rate), |word| rate.take(word, now))
    }

    /// The state of a rate: it takes the first place that is free, for ever.
    fn limiter(&self, rate: Rate) -> &'static AtomicU64 {
        let (places, _) = self.head[head::LIMITERS..][..2 * LIMITERS].as_chunks::<2>();
        let mine = places.iter().find(|[whose, _]| {
            let there = whose.load(Ordering::Acquire);
            let took = || whose.compare_exchange(0, rate.id(), Ordering::AcqRel, Ordering::Acquire);
            there == rate.id()
                || there == 0 && took().map_or_else(|other| other == rate.id(), |_| true)
        });
        &mine.unwrap_or(&places[0])[1]
    }

    fn breaker(&self) -> &'static AtomicU64 {
        &self.head[head::BREAKER]
    }
}

/// Brings a word to its next state, if it has one.
fn step(word: &AtomicU64, next: impl Fn(u64) -> Option<u64>) -> bool {
    let mut now = word.load(Ordering::Acquire);
    loop {
        let Some(then) = next(now) else { return false };
        if then == now {
            return true;
        }
        match word.compare_exchange_weak(now, then, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
}
