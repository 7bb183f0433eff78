//! Faults on demand, for tests; never in a release.
//!
//! - `panic`: a request with the header `Peerage-Panic: NAME` panics in the callback of that name.
//! - `points`: `PEERAGE_POINT=NAME:kill:N` (or `stop`) in the environment ends or stops a worker
//!   when it comes to that point of the shared memory's code for the Nth time.

#[cfg(feature = "panic")]
pub(super) fn panic_on_demand(r: super::request::Request<'_>, callback: &str) {
    assert!(r.header("peerage-panic") != Some(callback.as_bytes()), "asked for in \"{callback}\"");
}

#[cfg(feature = "points")]
pub(crate) mod points {
    use std::env;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Fault {
        point: String,
        signal: i32,
        at: u64,
    }

    static FAULT: OnceLock<Fault> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Reads what the environment asks for; nginx passes it on where `env PEERAGE_POINT;` says so.
    pub(crate) fn arm() {
        let Ok(text) = env::var("PEERAGE_POINT") else { return };
        let mut parts = text.split(':');
        let point = parts.next().unwrap_or_default().to_owned();
        let signal = match parts.next() {
            Some("stop") => libc::SIGSTOP,
            _ => libc::SIGKILL,
        };
        let at = parts.next().and_then(|n| n.parse().ok()).unwrap_or(1);
        if FAULT.set(Fault { point, signal, at }).is_ok() {
            peerage_zone::points::set(reached);
        }
    }

    fn reached(point: &str) {
        if let Some(fault) = FAULT.get()
            && fault.point == point
            && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == fault.at
        {
            // SAFETY: no pointers; a signal to this process itself.
            unsafe { libc::raise(fault.signal) };
        }
    }
}
