//! The helper thread: the only one in a worker, for what a disk may take its time over.
//!
//! It carries out orders one after the other and keeps what came of them until the event loop
//! asks. It touches neither nginx nor the zone.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use peerage_shm::point;

use super::clerk::{Clerk, LOCK_LOST};
use super::fence::Fence;
use super::source::News;
use crate::ffi::{thread, wake};

/// What the thread is to do.
pub(super) enum Order {
    /// Find out who writes the file, and become the one who may if nobody does.
    Claim { instance: u64, epoch: u64, seen: u64 },
    /// Begin the journal of that number, with its first line.
    Journal { number: u64, head: Vec<u8> },
    /// Add lines to it, up to this revision.
    Append { lines: Vec<u8>, revision: u64 },
    /// Let others claim again.
    Release,
    /// Begin a snapshot.
    Begin,
    /// Add to it.
    Write(Vec<u8>),
    /// Put it in the old one's place; journals from this number on are needed with it.
    Commit { journal: u64, revision: u64 },
}

/// What came of orders; `Begin`, `Write`, `Journal` and `Release` tell failures only.
pub(super) enum Outcome {
    Claimed(Claimed),
    /// All up to this revision is on the disk.
    Appended(u64),
    /// The snapshot is in its place.
    Saved(Saved),
    /// What was begun is given up, journal and snapshot.
    Failed(io::Error),
}

impl Outcome {
    /// Whether the lock file that is held is not the one that others open.
    pub(super) fn has_lost_lock(&self) -> bool {
        matches!(self, Self::Failed(error) if error.raw_os_error() == Some(LOCK_LOST))
    }
}

/// A snapshot in its place.
pub(super) struct Saved {
    /// The first journal that is needed with it: no other snapshot has the same.
    pub(super) journal: u64,
    /// What it counts for.
    pub(super) revision: u64,
    pub(super) bytes: u64,
}

/// What a claim found.
pub(super) enum Claimed {
    /// Somebody else claims, or replaces a file: ask again in a moment.
    Busy,
    /// This zone was the last to write.
    Ours { newest: u64, journals: u32, has_snapshot: bool },
    /// Another zone writes: what is new in its files.
    Theirs(Box<News>),
    /// Nobody writes. Until `Release` nobody else can claim.
    Free { newest: u64, journals: u32, epoch: u64, has_snapshot: bool, news: Option<Box<News>> },
}

/// The running thread.
pub(super) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    orders: VecDeque<Order>,
    /// Bytes in `orders`.
    bytes: usize,
    outcomes: VecDeque<Outcome>,
    stop: bool,
}

impl Helper {
    /// Starts the thread for one file; it rings when something came of an order.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let clerk = Clerk::new(path, Fence::open(path)?);
        let bell = wake::bell();
        let thread = thread::spawn("peerage-state", move || theirs.run(clerk, bell))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn order(&self, order: Order) {
        let mut queue = self.shared.lock();
        queue.bytes += order.bytes();
        queue.orders.push_back(order);
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// Bytes that the disk has not taken yet.
    pub(super) fn backlog(&self) -> usize {
        self.shared.lock().bytes
    }

    /// What came of orders, in their order, each told once.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.shared.lock().outcomes.pop_front()
    }

    /// Lets the thread carry out what was ordered, and tells what came of it.
    pub(super) fn finish(mut self) -> VecDeque<Outcome> {
        self.stop();
        std::mem::take(&mut self.shared.lock().outcomes)
    }

    /// Lets the thread end after what it is doing, without waiting for it.
    pub(super) fn dismiss(mut self) -> Option<JoinHandle<()>> {
        self.shared.lock().orders.clear();
        self.end();
        self.thread.take()
    }

    fn end(&self) {
        self.shared.lock().stop = true;
        self.shared.filled.notify_one();
    }

    fn stop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // A panic in it was an outcome already.
            let _ = thread.join();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Order {
    fn bytes(&self) -> usize {
        match self {
            Self::Append { lines, .. } => lines.len(),
            Self::Write(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

impl Queue {
    /// Adds the appends that wait next to one that is carried out: the disk is asked once.
    fn join(&mut self, lines: &mut Vec<u8>, revision: &mut u64) {
        while let Some(Order::Append { lines: more, revision: later }) = self.orders.front_mut() {
            self.bytes -= more.len();
            lines.append(more);
            *revision = *later;
            self.orders.pop_front();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut clerk: Clerk, bell: Option<wake::Bell>) {
        while let Some(order) = self.next() {
            if let Some(outcome) = clerk.carry_out(order) {
                self.lock().outcomes.push_back(outcome);
                point!("helper.told");
                if let Some(bell) = &bell {
                    bell.ring();
                }
            }
        }
    }

    /// The next order; waits for one. `None`: the owner has gone.
    fn next(&self) -> Option<Order> {
        let mut queue = self.lock();
        loop {
            if let Some(mut order) = queue.orders.pop_front() {
                queue.bytes -= order.bytes();
                if let Order::Append { lines, revision } = &mut order {
                    queue.join(lines, revision);
                }
                return Some(order);
            }
            if queue.stop {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
