//! The journals beside a snapshot: files that are only ever appended to, one after the other.
//!
//! A writer makes its own; none goes on in a file that another one, or itself before a failure,
//! has begun. Their numbers rise; a snapshot says from which on they are needed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use peerage_core::journal::Head;
use peerage_shm::point;

use super::file;

/// A journal that this process writes.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Something is in it beside its first line.
    is_used: bool,
}

impl Journal {
    /// Makes the journal of that number, on the disk for good.
    pub(super) fn create(state: &Path, number: u64, head: &[u8]) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path(state, number))?;
        let mut journal = Self { file, path: path(state, number), is_used: false };
        point!("file.created");
        let begun = journal.append(head).and_then(|()| file::sync_directory(state));
        journal.is_used = false;
        match begun {
            Ok(()) => Ok(journal),
            Err(error) => {
                // Tried again under another number.
                journal.give_up();
                Err(error)
            }
        }
    }

    /// Keeps it whatever comes.
    pub(super) const fn keep(&mut self) {
        self.is_used = true;
    }

    /// Ends it after a failure. Nobody needs one in which nothing is: tries may go on for days.
    pub(super) fn give_up(self) {
        if !self.is_used {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Adds whole lines, on the disk for good.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            // Somebody removed it.
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.file.write_all(lines)?;
        point!("file.appended");
        self.file.sync_data()?;
        point!("file.synced");
        self.is_used = true;
        Ok(())
    }
}

/// The path of a journal.
pub(super) fn path(state: &Path, number: u64) -> PathBuf {
    file::beside(state, &format!("{INFIX}{number}"))
}

/// Numbers of the journals there are, in order.
pub(super) fn numbers(state: &Path) -> io::Result<Vec<u64>> {
    let Some(name) = state.file_name() else { return Ok(Vec::new()) };
    let mut prefix = name.as_encoded_bytes().to_vec();
    prefix.extend_from_slice(INFIX.as_bytes());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(file::directory(state))? {
        let name = entry?.file_name();
        let number = name.as_encoded_bytes().strip_prefix(&prefix[..]);
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        numbers.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The first line of the newest journal that has one, the highest number, and how many there are.
pub(super) fn newest(state: &Path) -> io::Result<(u64, u32, Option<Head>)> {
    let numbers = match numbers(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let highest = numbers.last().copied().unwrap_or(0);
    let many = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    for &number in numbers.iter().rev() {
        let mut line = Vec::new();
        match open(state, number) {
            Ok(file) => BufReader::new(file).read_until(b'\n', &mut line)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(head) = Head::read(&line) {
            return Ok((highest, many, Some(head)));
        }
    }
    Ok((highest, many, None))
}

/// Opens a journal for reading.
pub(super) fn open(state: &Path, number: u64) -> io::Result<File> {
    file::open(&path(state, number))?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Removes journals that the snapshot does not need.
pub(super) fn remove_before(state: &Path, number: u64) {
    for old in numbers(state).unwrap_or_default() {
        if old < number {
            // One that stays costs room only: readers do not look at it.
            let _ = fs::remove_file(path(state, old));
            point!("file.removed");
        }
    }
}

/// What tells whether anybody has written since: all files, their lengths and times.
pub(super) fn fingerprint(state: &Path) -> u64 {
    let mut names = vec![state.to_owned()];
    names.extend(numbers(state).unwrap_or_default().into_iter().map(|n| path(state, n)));
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in names {
        let Ok(meta) = fs::symlink_metadata(&name) else { continue };
        let times = [meta.mtime() as u64, meta.mtime_nsec() as u64];
        for value in [meta.ino(), meta.len()].into_iter().chain(times) {
            for byte in value.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    // 0 stands for none.
    hash | 1
}

const INFIX: &str = ".journal-";
