//! Locks of single bytes of a file, which the kernel keeps for an open descriptor.
//!
//! They are "open file description" locks: they end with the descriptor, hence with the process,
//! however it ends, and no other descriptor of the same file disturbs them.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use libc::{F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK};

/// How a byte is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Together with others.
    Shared,
    /// By nobody else.
    Alone,
}

/// Takes a byte, if nobody else holds it in a way that forbids that; never waits.
pub(crate) fn try_lock(file: &File, at: u64, hold: Hold) -> io::Result<bool> {
    let kind = match hold {
        Hold::Shared => F_RDLCK,
        Hold::Alone => F_WRLCK,
    };
    match call(file, F_OFD_SETLK, &mut flock(kind, at)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Gives a byte back.
pub(crate) fn unlock(file: &File, at: u64) -> io::Result<()> {
    call(file, F_OFD_SETLK, &mut flock(F_UNLCK, at))
}

/// Whether anybody else holds a byte.
pub(crate) fn is_held(file: &File, at: u64) -> io::Result<bool> {
    let mut lock = flock(F_WRLCK, at);
    call(file, F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != F_UNLCK)
}

fn flock(kind: i32, at: u64) -> libc::flock {
    // SAFETY: a plain C struct of integers, for all of which zero is a value; the kernel wants
    // `l_pid` to be zero.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX - 1);
    lock.l_len = 1;
    lock
}

fn call(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: an open descriptor, a command that takes a flock, and one that lives through the
    // call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
