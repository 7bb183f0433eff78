//! Faults on demand, for tests; never in a release.
//!
//! - `panic`: a request with the header `Peerage-Panic: NAME` panics in the callback of that name.
//! - `points`: `PEERAGE_POINT=NAME:kill:N` (or `stop`) in the environment ends or stops each
//!   worker when it comes to that point of the code for the Nth time. `PEERAGE_POINTS=FILE` does so
//!   to one worker at a time, as a plan in the file says that changes while they run.

#[cfg(feature = "panic")]
pub(super) fn panic_on_demand(r: super::request::Request<'_>, callback: &str) {
    assert!(r.header("peerage-panic") != Some(callback.as_bytes()), "asked for in \"{callback}\"");
}

#[cfg(feature = "points")]
pub(crate) mod points {
    use std::env;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    struct Fault {
        point: String,
        signal: i32,
        at: u64,
    }

    static FAULT: OnceLock<Fault> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Steps that come one after the other, in a file that all workers have mapped: words in the
    /// machine's order. The first is the number of the step to come, from 0; then come [`STEPS`]
    /// of [`WORDS`] each: its [`PASSED_AT`], [`STRIKES_AT`], [`SIGNAL`] and [`PID`], and the
    /// point's name, filled up with zeros; none ends the plan.
    static PLAN: OnceLock<&'static [AtomicU64; 1 + STEPS * WORDS]> = OnceLock::new();

    const STEPS: usize = 4;
    const WORDS: usize = 8;
    /// How often it was passed.
    const PASSED_AT: usize = 0;
    /// At which time it strikes.
    const STRIKES_AT: usize = 1;
    const SIGNAL: usize = 2;
    /// Whom it struck; written before the strike.
    const PID: usize = 3;
    const NAME: usize = 4;

    /// Reads what the environment asks for; nginx passes it on where `env PEERAGE_POINT;` says so.
    pub(crate) fn arm() {
        if let Ok(text) = env::var("PEERAGE_POINT") {
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
        if let Some(plan) = env::var_os("PEERAGE_POINTS").and_then(|path| map(path.as_ref()))
            && PLAN.set(plan).is_ok()
        {
            peerage_zone::points::set(visited);
        }
    }

    fn map(path: &std::path::Path) -> Option<&'static [AtomicU64; 1 + STEPS * WORDS]> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let bytes = size_of::<[AtomicU64; 1 + STEPS * WORDS]>();
        if file.metadata().ok()?.len() < bytes as u64 {
            return None;
        }
        // SAFETY: a new mapping, at a page's start, of a file that is long enough.
        let at = unsafe {
            let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0)
        };
        // SAFETY: it is never unmapped, and others write it by whole words alone.
        (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast() })
    }

    fn visited(point: &str) {
        let Some(plan) = PLAN.get() else { return };
        let step = plan[0].load(SeqCst);
        let Some(words) =
            usize::try_from(step).ok().and_then(|step| plan[1..].chunks(WORDS).nth(step))
        else {
            return;
        };
        let name: Vec<u8> =
            words[NAME..].iter().flat_map(|word| word.load(SeqCst).to_ne_bytes()).collect();
        if name.iter().position(|&byte| byte == 0) != Some(point.len())
            || !name.starts_with(point.as_bytes())
            || words[PASSED_AT].fetch_add(1, SeqCst) + 1 != words[STRIKES_AT].load(SeqCst)
        {
            return;
        }
        words[PID].store(u64::from(std::process::id()), SeqCst);
        if plan[0].compare_exchange(step, step + 1, SeqCst, SeqCst).is_ok() {
            let signal = words[SIGNAL].load(SeqCst) as i32;
            // SAFETY: no pointers; a signal to this process itself.
            unsafe { libc::raise(signal) };
        }
    }

    fn reached(point: &str) {
        if let Some(fault) = FAULT.get()
            && fault.point == point
            && PASSED.fetch_add(1, SeqCst) + 1 == fault.at
        {
            // SAFETY: no pointers; a signal to this process itself.
            unsafe { libc::raise(fault.signal) };
        }
    }
}
