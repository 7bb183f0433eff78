//! Whether the store is asked: the breaker and the limit of misses, for all processes together.

use peerage_core::route::breaker::Breaker;
use peerage_core::route::decide::Down;
use peerage_core::route::limiter::Rate;
use peerage_shm::{AtomicU64, Ordering};

use super::Cache;
use super::layout::head;

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
        self.head[head::FAILED + why as usize].fetch_add(1, Ordering::Relaxed);
        step(self.breaker(), |word| Some(Breaker::from_word(word).failed(now).word()));
    }

    /// The store answered, whatever it said.
    pub fn answered(&self) {
        step(self.breaker(), |word| Some(Breaker::from_word(word).answered().word()));
    }

    /// Whether the store is not asked now, not even for a trial.
    pub fn is_open(&self, now: u64) -> bool {
        Breaker::from_word(self.breaker().load(Ordering::Acquire)).ask(now).is_none()
    }

    /// Whether the store answered last, or has not failed often since; a trial is no answer.
    pub fn is_up(&self) -> bool {
        !Breaker::from_word(self.breaker().load(Ordering::Acquire)).is_open()
    }

    /// Whether a key that may be made up may be asked for.
    pub fn may_miss(&self, rate: Rate, now: u64) -> bool {
        step(&self.head[head::LIMITER], |word| rate.take(word, now))
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
