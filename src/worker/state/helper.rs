//! The helper thread: the only one in a worker, for writes and fsyncs that may block.
//!
//! It is given a file's new content piece by piece and answers once a file. It touches neither
//! nginx nor the zone.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::file::{self, Draft};
use crate::ffi::thread;

/// What became of a file.
pub(super) type Outcome = Result<(), io::Error>;

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
    outcome: Option<Outcome>,
    /// Until when the process may write the file.
    lease: Option<Instant>,
    stop: bool,
}

enum Order {
    Begin,
    Write(Vec<u8>),
    Commit,
    Abort,
}

impl Helper {
    /// Starts the thread for one file.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let path = path.to_owned();
        let thread = thread::spawn("peerage-state", move || theirs.run(&path))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The process may write the file for so long from now on.
    pub(super) fn renew(&self, lease: Duration) {
        self.shared.lock().lease = Some(Instant::now() + lease);
    }

    /// Begins a new file.
    pub(super) fn begin(&self) {
        self.order(Order::Begin);
    }

    /// Adds to it.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        self.order(Order::Write(bytes));
    }

    /// Ends it: [`Helper::outcome`] tells when it is on disk.
    pub(super) fn commit(&self) {
        self.order(Order::Commit);
    }

    /// Drops it.
    pub(super) fn abort(&self) {
        self.order(Order::Abort);
    }

    /// Bytes that the disk has not taken yet.
    pub(super) fn backlog(&self) -> usize {
        self.shared.lock().bytes
    }

    /// What became of the last file, told once; after a failure the rest of it is ignored.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.shared.lock().outcome.take()
    }

    /// Lets the thread finish what it was given whole, and tells what became of it.
    pub(super) fn finish(mut self) -> Option<Outcome> {
        self.stop();
        self.outcome()
    }

    fn stop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in it was an outcome already.
            let _ = thread.join();
        }
    }

    fn order(&self, order: Order) {
        let mut queue = self.shared.lock();
        if let Order::Write(bytes) = &order {
            queue.bytes += bytes.len();
        }
        queue.orders.push_back(order);
        drop(queue);
        self.shared.filled.notify_one();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, path: &Path) {
        file::sweep(path);
        let mut draft = None;
        while let Some(order) = self.next() {
            let result = match order {
                Order::Begin => Draft::begin(path).map(|new| draft = Some(new)),
                Order::Write(bytes) => match draft.as_mut() {
                    Some(draft) => draft.write(&bytes),
                    None => Ok(()),
                },
                Order::Commit => match draft.take() {
                    Some(draft) => {
                        let still = || self.lock().lease.is_some_and(|end| Instant::now() < end);
                        let outcome = draft.commit(still);
                        self.lock().outcome = Some(outcome);
                        Ok(())
                    }
                    None => Ok(()),
                },
                Order::Abort => {
                    draft = None;
                    Ok(())
                }
            };
            if let Err(error) = result {
                draft = None;
                self.lock().outcome = Some(Err(error));
            }
        }
    }

    /// The next order; waits for one. `None`: the owner has gone.
    fn next(&self) -> Option<Order> {
        let mut queue = self.lock();
        loop {
            if let Some(order) = queue.orders.pop_front() {
                if let Order::Write(bytes) = &order {
                    queue.bytes -= bytes.len();
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
