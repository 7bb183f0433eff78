//! This process and others, as the kernel and nginx know them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nginx_sys::{
    NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, ngx_cached_time, ngx_exiting, ngx_inherited,
    ngx_last_process, ngx_parent, ngx_pid, ngx_process, ngx_process_slot, ngx_quit, ngx_terminate,
    ngx_test_config, ngx_worker,
};
use peerage_zone::Clock;

/// What nginx made this process for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `master_process off`: everything in one process. Also what nginx calls itself before it
    /// has read its first configuration.
    Single,
    Worker,
    /// The master, a cache helper, a privileged agent, the sender of a signal.
    Other,
}

pub(crate) fn role() -> Role {
    // SAFETY: a plain integer that nginx writes before it calls modules.
    match unsafe { ngx_process } as u32 {
        NGX_PROCESS_SINGLE => Role::Single,
        NGX_PROCESS_WORKER => Role::Worker,
        _ => Role::Other,
    }
}

/// `nginx -t` and `-T`.
pub(crate) fn testing() -> bool {
    // SAFETY: a plain integer that nginx writes before it reads a configuration.
    unsafe { ngx_test_config != 0 }
}

/// Whether another master started this one and gave it its listening sockets: a binary upgrade.
pub(crate) fn inherited() -> bool {
    // SAFETY: a plain integer that nginx writes before it reads its first configuration.
    unsafe { ngx_inherited != 0 }
}

/// Whether this worker is on its way out, at once or when its last request ends.
pub(crate) fn exiting() -> bool {
    // SAFETY: plain integers that nginx's signal handlers and its one thread write.
    unsafe { ngx_exiting != 0 || ngx_quit != 0 || ngx_terminate != 0 }
}

pub(crate) fn pid() -> u32 {
    // SAFETY: a plain integer that nginx writes in each process after fork.
    (unsafe { ngx_pid }) as u32
}

/// The process that made this one; of a worker its master.
pub(crate) fn parent() -> u32 {
    // SAFETY: a plain integer that nginx writes at start and in each process after fork.
    (unsafe { ngx_parent }) as u32
}

/// The index of this process in the master's table: unique among the living.
pub(crate) fn slot() -> usize {
    // SAFETY: a plain integer that nginx writes in each process after fork.
    usize::try_from(unsafe { ngx_process_slot }).unwrap_or(0)
}

/// The end of the master's table of processes; those of old generations are below it.
pub(crate) fn table_end() -> usize {
    // SAFETY: a plain integer that nginx's master writes as it forks.
    usize::try_from(unsafe { ngx_last_process }).unwrap_or(0)
}

/// The number of this worker, from 0; during a reload an old and a new one share it.
pub(crate) fn number() -> usize {
    // SAFETY: a plain integer that nginx writes in each worker.
    unsafe { ngx_worker }
}

/// nginx's cached time.
#[inline]
pub(crate) fn clock() -> Clock {
    // SAFETY: nginx sets the pointer in ngx_time_init, before any module is called; the slot it
    // points at is not written for the next 64 updates.
    let now = unsafe { *ngx_cached_time };
    let secs = now.sec as u64;
    Clock { secs: secs as u32, msec: secs * 1000 + now.msec as u64 }
}

/// When a process was started, in the kernel's ticks since boot; 0 where /proc does not say.
///
/// Together with the pid it names a process for good, since pids come back.
pub(crate) fn started(pid: u32) -> u64 {
    stat(pid).map_or(0, |(_, start)| start)
}

/// Whether the process that was started then still lives.
pub(crate) fn alive(pid: u32, start: u64) -> bool {
    let Ok(target) = libc::pid_t::try_from(pid) else { return false };
    if target <= 0 {
        return false;
    }
    // SAFETY: signal 0 is sent to nobody; the kernel only checks that the process exists.
    let found = unsafe { libc::kill(target, 0) } == 0
        || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if !found {
        return false;
    }
    match stat(pid) {
        // A zombie holds no request any more.
        Some((b'Z' | b'X', _)) => false,
        Some((_, now)) => start == 0 || now == 0 || now == start,
        // No /proc, or hidden: what kill said.
        None => true,
    }
}

/// Does something with the rights of the user that workers run as; both 0 where nobody changes them.
///
/// For a master that is about to end: what it makes is to be the workers' after the next start.
pub(crate) fn as_user<T>(user: (u32, u32), act: impl FnOnce() -> T) -> T {
    // SAFETY: no pointers. The group goes first and comes back last, while there are the rights to.
    let changed = user != (0, 0)
        && unsafe {
            libc::geteuid() == 0 && libc::setegid(user.1) == 0 && libc::seteuid(user.0) == 0
        };
    let done = act();
    if changed {
        // SAFETY: as above; the saved ids are still root's.
        unsafe {
            libc::seteuid(0);
            libc::setegid(0);
        }
    }
    done
}

/// Whether a worker could make files in a directory; `None` where that cannot be told.
///
/// `user` is what nginx makes its workers when it runs as root; otherwise they stay what it is.
pub(crate) fn may_write(directory: &Path, user: (u32, u32)) -> Option<bool> {
    // SAFETY: no arguments, no failure.
    let me = unsafe { libc::geteuid() };
    let (uid, gid) = if me == 0 { (user.0, Some(user.1)) } else { (me, None) };
    let meta = fs::metadata(directory).ok()?;
    let mode = meta.mode();
    let has = |bits: u32| mode & bits == bits;
    if uid == 0 || has(0o003) {
        Some(true)
    } else if meta.uid() == uid {
        Some(has(0o300))
    } else if gid == Some(meta.gid()) {
        Some(has(0o030))
    } else if has(0o030) {
        // The user may be one of that group.
        None
    } else {
        Some(false)
    }
}

/// State and start time of /proc/PID/stat; its second field may hold blanks and parentheses.
fn stat(pid: u32) -> Option<(u8, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = text.iter().rposition(|&c| c == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The state is field 3, the start time is field 22.
    Some((state, fields.nth(18)?.parse().ok()?))
}
