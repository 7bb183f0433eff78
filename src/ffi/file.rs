//! A file that nginx opens with its configuration, and anew at USR1: a log.

use std::io;
use std::ptr::NonNull;

use nginx_sys::ngx_open_file_t;

/// An open file; lives as long as the configuration that names it.
pub(crate) struct File(NonNull<ngx_open_file_t>);

impl File {
    /// Takes what nginx gave for a name.
    ///
    /// # Safety
    ///
    /// - `file` is in the list of open files of the cycle that owns the result
    pub(super) unsafe fn from_raw(file: NonNull<ngx_open_file_t>) -> Self {
        Self(file)
    }

    /// Appends in one write, as nginx's own logs do.
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: as `from_raw` says; nginx's one thread changes the descriptor, at USR1, and
        // opens the file for appending.
        let written = unsafe {
            let fd = self.0.as_ref().fd;
            libc::write(fd, bytes.as_ptr().cast(), bytes.len())
        };
        match usize::try_from(written) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Its path.
    pub(crate) fn name(&self) -> String {
        // SAFETY: as in `append`; the name lives in the pool of the cycle.
        String::from_utf8_lossy(unsafe { self.0.as_ref() }.name.as_bytes()).into_owned()
    }
}
