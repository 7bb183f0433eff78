//! A helper thread that nginx's signals do not reach.

use std::io;
use std::mem;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked: nginx's handlers run on nginx's own thread only.
///
/// To be called in a worker, after fork; whoever calls it joins the thread before the process
/// exits, since the module may be unloaded then, or has its code kept.
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

/// Keeps the module's code in its place until the process ends, for a thread that nobody waits for;
/// whether that can be.
pub(crate) fn keep_code() -> bool {
    static HERE: u8 = 0;
    let (Some(ours), Some(nginx)) =
        (object(&raw const HERE), object((&raw const nginx_sys::ngx_cycle).cast()))
    else {
        return false;
    };
    if ours.dli_fbase == nginx.dli_fbase {
        // The module is in nginx itself, which stays.
        return true;
    }
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the loader's own name of this library, which is loaded: nothing is run, and it stays.
    !ours.dli_fname.is_null() && !unsafe { libc::dlopen(ours.dli_fname, flags) }.is_null()
}

/// What an address of code or data is of.
fn object(of: *const u8) -> Option<libc::Dl_info> {
    // SAFETY: a plain C struct of pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is filled where it is found.
    (unsafe { libc::dladdr(of.cast(), &raw mut info) } != 0).then_some(info)
}
