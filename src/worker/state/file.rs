//! A state file on disk: written aside and renamed, read whole, set aside when it is damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A new content on its way; dropped before [`Draft::commit`], it leaves nothing behind.
pub(super) struct Draft {
    file: File,
    path: PathBuf,
    temp: PathBuf,
}

impl Draft {
    /// Opens a new file beside `path`, with mode 0600. Makes the directory if only that is
    /// missing.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        refuse_odd(path)?;
        let temp = beside(path, &format!(".tmp-{}", std::process::id()));
        let open = || {
            OpenOptions::new()
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
                fs::DirBuilder::new().mode(0o700).create(directory(path))?;
                open()
            }
            other => other,
        }?;
        Ok(Self { file, path: path.to_owned(), temp })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts the new content in the old one's place, on the disk for good; `still` is asked in the
    /// last moment whether this process may.
    pub(super) fn commit(self, still: impl FnOnce() -> bool) -> io::Result<()> {
        self.file.sync_all()?;
        if !still() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        refuse_odd(&self.path)?;
        fs::rename(&self.temp, &self.path)?;
        File::open(directory(&self.path))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a commit the name is gone already; what fails here was reported before.
        let _ = fs::remove_file(&self.temp);
    }
}

/// Reads the whole file; `None` where there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    refuse_odd(path)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path);
    let mut file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The revision for which a file counts that was written whole; `None` for any other.
pub(super) fn revision(path: &Path) -> Option<u64> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let mut text = [0; 512];
    let n = file.read(&mut text).ok()?;
    let head = String::from_utf8_lossy(&text[..n]);
    let number = head.split_once("\"revision\":")?.1;
    let end = number.find(|c: char| !c.is_ascii_digit())?;
    let revision = number[..end].parse().ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE))).ok()?;
    let n = file.read(&mut text).ok()?;
    let tail = String::from_utf8_lossy(&text[..n]);
    (tail.contains("\"data\":{\"end\":") && tail.ends_with('\n')).then_some(revision)
}

/// Copies a file beside itself, under its name and `suffix`; only its owner may read the copy too.
pub(super) fn copy(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let to = beside(path, suffix);
    let mut from = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to)?;
    io::copy(&mut from, &mut file)?;
    file.sync_all()?;
    Ok(to)
}

/// Renames a damaged file, so that the next write does not destroy what people may still need.
pub(super) fn set_aside(path: &Path, stamp: &str) -> io::Result<PathBuf> {
    let mut aside = beside(path, &format!(".damaged-{stamp}"));
    let mut n = 1;
    while fs::symlink_metadata(&aside).is_ok() {
        aside = beside(path, &format!(".damaged-{stamp}-{n}"));
        n += 1;
    }
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Removes what writers that died have left.
pub(super) fn sweep(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let mut prefix = name.as_encoded_bytes().to_vec();
    prefix.extend_from_slice(b".tmp-");
    let Ok(entries) = fs::read_dir(directory(path)) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(&prefix) {
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

/// Refuses what is there and is no regular file; a symbolic link is not followed.
fn refuse_odd(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => Err(io::Error::from_raw_os_error(libc::ELOOP)),
        Ok(meta) if meta.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(meta) if !meta.is_file() => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The last line is not longer.
const LAST_LINE: u64 = 100;
