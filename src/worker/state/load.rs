//! Reading the state file at start, and what `nginx -t` says about it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use peerage_core::snapshot::{self, DamageKind, Loaded};

use super::file;
use crate::ffi::log::{Level, Log};
use crate::ffi::process;

/// Reads the file into which an earlier run has written; `None` where there is none.
///
/// A damaged file is set aside and what is good in it is used. Makes the directory when only that
/// is missing, for the user that workers run as; an existing one is left as it is.
pub(crate) fn load(path: &Path, user: (u32, u32), log: Log<'_>) -> Option<Loaded> {
    let name = path.display();
    let bytes = match file::read(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            if let Err(error) = make_directory(file::directory(path), user) {
                log.write(
                    Level::Warn,
                    error.raw_os_error().unwrap_or(0),
                    format_args!(
                        "directory of state file \"{name}\" is missing and cannot be made"
                    ),
                );
            }
            return None;
        }
        Err(error) => {
            log.write(
                Level::Alert,
                error.raw_os_error().unwrap_or(0),
                format_args!("state file \"{name}\" cannot be read"),
            );
            set_aside(path, log);
            return None;
        }
    };
    let loaded = snapshot::read(&bytes);
    if let Some(damage) = &loaded.damage {
        // A file comes into its place whole: one that ends early was cut by somebody else.
        let (line, text, used) = (damage.line, &damage.text, loaded.upstreams.len());
        let what = match damage.kind {
            DamageKind::Torn => "ends early",
            DamageKind::Damaged => "is damaged",
            DamageKind::Format => "cannot be read",
        };
        log.write(
            Level::Alert,
            0,
            format_args!(
                "state file \"{name}\" {what}: {text} in line {line}, {used} upstreams are used"
            ),
        );
        set_aside(path, log);
    }
    Some(loaded)
}

/// What [`load`] would use; says and changes nothing.
pub(crate) fn peek(path: &Path) -> Option<Loaded> {
    file::read(path).ok()?.map(|bytes| snapshot::read(&bytes))
}

/// Keeps a copy of a file of which not all is in the zone, before the next write leaves it out.
pub(crate) fn keep_copy(path: &Path, log: Log<'_>) {
    match file::copy(path, &format!(".left-{}", stamp())) {
        Ok(copy) => log.write(
            Level::Crit,
            0,
            format_args!("state file \"{}\" is kept as \"{}\"", path.display(), copy.display()),
        ),
        Err(error) => log.write(
            Level::Crit,
            error.raw_os_error().unwrap_or(0),
            format_args!("state file \"{}\" cannot be copied", path.display()),
        ),
    }
}

/// What is to be warned of at `nginx -t`; changes nothing.
pub(crate) fn check(path: &Path) -> Option<String> {
    let directory = file::directory(path);
    if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Some(format!("state file \"{}\" is not a regular file", path.display()));
    }
    let trouble = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // It is made at start if its parent is there.
            match fs::metadata(file::directory(directory)) {
                Ok(_) => return None,
                Err(_) => "is missing".to_owned(),
            }
        }
        Err(error) => format!("cannot be used: {error}"),
        Ok(meta) if !meta.is_dir() => "is not a directory".to_owned(),
        Ok(_) => return None,
    };
    Some(format!("directory \"{}\" of state file {trouble}", directory.display()))
}

fn make_directory(path: &Path, user: (u32, u32)) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    fs::DirBuilder::new().mode(0o700).create(path)?;
    // What nobody but root may give away stays ours: then workers run as this user too.
    if user != (0, 0) {
        let _ = std::os::unix::fs::chown(path, Some(user.0), Some(user.1));
    }
    Ok(())
}

fn set_aside(path: &Path, log: Log<'_>) {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        return;
    }
    match file::set_aside(path, &stamp()) {
        Ok(aside) => log.write(
            Level::Alert,
            0,
            format_args!(
                "state file \"{}\" is set aside as \"{}\"",
                path.display(),
                aside.display()
            ),
        ),
        Err(error) => log.write(
            Level::Alert,
            error.raw_os_error().unwrap_or(0),
            format_args!("state file \"{}\" cannot be set aside", path.display()),
        ),
    }
}

/// The time as part of a file's name: `20261129-210507`.
fn stamp() -> String {
    // 2026-11-29T21:05:07Z
    let time = peerage_core::time::iso(process::clock().msec);
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}
