//! A snapshot on disk: written aside and renamed, read whole, set aside when it is damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use peerage_core::crc;
use peerage_shm::point;

/// A new content on its way; dropped before [`Draft::commit`], it leaves nothing behind.
pub(super) struct Draft {
    file: File,
    path: PathBuf,
    temp: PathBuf,
    sum: u32,
}

impl Draft {
    /// Opens a new file beside `path`, with mode 0600. Makes the directory if only that is
    /// missing.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        refuse_odd(path)?;
        let temp = beside(path, &format!(".tmp-{}", std::process::id()));
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&temp)
        };
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temp)?;
                open()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(path)?;
                open()
            }
            other => other,
        }?;
        Ok(Self { file, path: path.to_owned(), temp, sum: 0 })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sum = crc::extend(self.sum, bytes);
        Ok(())
    }

    /// Has the disk take it and reads it back.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.file.seek(SeekFrom::Start(0))?;
        let (mut sum, mut text) = (0, vec![0; 64 << 10]);
        loop {
            match self.file.read(&mut text)? {
                0 => break,
                n => sum = crc::extend(sum, &text[..n]),
            }
        }
        if sum == self.sum { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    /// Puts the new content, settled, in the old one's place.
    pub(super) fn replace(self) -> io::Result<Identity> {
        refuse_odd(&self.path)?;
        point!("draft.settled");
        fs::rename(&self.temp, &self.path)?;
        point!("draft.renamed");
        sync_directory(&self.path)?;
        point!("draft.replaced");
        Ok(Identity::of(&self.file.metadata()?))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a commit the name is gone already; what fails here was reported before.
        let _ = fs::remove_file(&self.temp);
    }
}

/// Opens a file for reading; `None` where there is none.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    refuse_odd(path)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path);
    match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Reads the whole file; `None` where there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// What tells two snapshots apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    file: (u64, u64),
    written: (i64, i64),
    pub(super) bytes: u64,
}

impl Identity {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            written: (meta.mtime(), meta.mtime_nsec()),
            bytes: meta.len(),
        }
    }
}

/// Which snapshot lies there now; `None`: there is none.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|meta| Identity::of(&meta))
}

/// Writes a new file beside a state file, for the owner of the directory.
pub(super) fn write_beside(path: &Path, suffix: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let to = beside(path, suffix);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to)?;
    if let Ok(meta) = fs::metadata(directory(path)) {
        // Who may not give it away is who writes state files.
        let _ = fchown(&file, Some(meta.uid()), Some(meta.gid()));
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(to)
}

/// Keeps a damaged file under another name too, so that the next write does not destroy what
/// people may still need.
///
/// It also stays where it is until then: what is good in it may be all there is.
pub(super) fn set_aside(path: &Path, stamp: &str) -> io::Result<PathBuf> {
    let mut aside = beside(path, &format!(".damaged-{stamp}"));
    let mut n = 1;
    while fs::symlink_metadata(&aside).is_ok() {
        aside = beside(path, &format!(".damaged-{stamp}-{n}"));
        n += 1;
    }
    fs::hard_link(path, &aside).or_else(|_| fs::rename(path, &aside))?;
    Ok(aside)
}

/// Removes what writers of these pids have left.
pub(super) fn sweep(path: &Path, has_left: impl Fn(u32) -> bool) {
    let Some(name) = path.file_name() else { return };
    let mut prefix = name.as_encoded_bytes().to_vec();
    prefix.extend_from_slice(b".tmp-");
    let Ok(entries) = fs::read_dir(directory(path)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.as_encoded_bytes().strip_prefix(&prefix[..]) else { continue };
        let pid = std::str::from_utf8(pid).ok().and_then(|pid| pid.parse().ok());
        if has_left(pid.unwrap_or(0)) {
            // A file that stays costs room only.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The directory that holds the file.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the directory of a state file, if only that is missing.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    let made = directory(path);
    fs::DirBuilder::new().mode(0o700).create(made)?;
    sync_directory(made)
}

/// Has the disk take which files there are.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

/// Refuses what is there and is no regular file; a symbolic link is not followed.
pub(super) fn refuse_odd(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => Err(io::Error::from_raw_os_error(libc::ELOOP)),
        Ok(meta) if meta.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(meta) if !meta.is_file() => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The name of a file that belongs to a state file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
