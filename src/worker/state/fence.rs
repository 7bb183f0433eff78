//! The lock file of a state file: who may write it, also between two masters.
//!
//! Its bytes are locked, its content is empty. Byte 0 is held for moments, by whoever becomes the
//! writer or puts a new snapshot in the old one's place. One byte more stands for each zone in
//! some master's memory: its workers hold it together, so that everybody can tell whether a zone
//! that writes the file has anybody left to do so.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use peerage_shm::point;

use super::file;
use crate::ffi::lock::{self, Hold};

pub(super) struct Fence {
    file: File,
    path: PathBuf,
}

impl Fence {
    /// Opens the lock file of a state file, and makes it where it is missing.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        let path = file::beside(state, ".lock");
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
                .open(&path)
        };
        file::refuse_odd(&path)?;
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                file::make_directory(state)?;
                open()
            }
            other => other,
        }?;
        Ok(Self { file, path })
    }

    /// Whether the file that is locked is still the one that others open.
    pub(super) fn is_current(&self) -> bool {
        let (Ok(mine), Ok(there)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return false;
        };
        (mine.dev(), mine.ino()) == (there.dev(), there.ino())
    }

    /// Becomes the one that may replace files; false while somebody else is.
    pub(super) fn try_enter(&self) -> io::Result<bool> {
        if !lock::try_lock(&self.file, WRITER, Hold::Alone)? {
            return Ok(false);
        }
        point!("fence.entered");
        Ok(true)
    }

    pub(super) fn leave(&self) -> io::Result<()> {
        lock::unlock(&self.file, WRITER)
    }

    /// Says that this process works on a zone and stays.
    pub(super) fn attend(&self, instance: u64) -> io::Result<()> {
        // Nobody holds it alone.
        lock::try_lock(&self.file, byte(instance), Hold::Shared).map(|_| ())
    }

    /// Says that it does no more.
    pub(super) fn withdraw(&self, instance: u64) -> io::Result<()> {
        lock::unlock(&self.file, byte(instance))
    }

    /// Whether another process works on a zone and stays.
    pub(super) fn is_attended(&self, instance: u64) -> io::Result<bool> {
        lock::is_held(&self.file, byte(instance))
    }
}

/// The byte that stands for a zone.
const fn byte(instance: u64) -> u64 {
    1 + (instance & ((1 << 40) - 1))
}

const WRITER: u64 = 0;
