//! A helper thread that nginx's signals do not reach.

use std::io;
use std::mem;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked: nginx's handlers run on nginx's own thread only.
///
/// To be called in a worker, after fork; whoever calls it joins the thread before the process
/// exits, since the module may be unloaded then.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // SAFETY: sigset_t is a plain C struct, filled by sigfillset before it is read; the mask is
    // this thread's own, is inherited by the new one, and is restored below.
    let old = unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        let mut old: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut()) };
    thread
}
