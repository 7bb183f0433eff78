//! Reading the state file at start, and what `nginx -t` says about it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use peerage_core::damage::{Damage, DamageKind, Part};
use peerage_core::snapshot::Loaded;

use super::source::{self, Tail, Whole};
use super::{file, journal};
use crate::ffi::log::{Level, Log};
use crate::ffi::process;

/// What was found at start.
pub(crate) struct Found {
    pub(crate) loaded: Loaded,
    /// Something in the files is not as it was written: they are to be written anew.
    pub(crate) is_damaged: bool,
}

/// What tells whether anybody writes the files after they were read; to be asked before.
pub(crate) fn seen(path: &Path) -> u64 {
    journal::fingerprint(path)
}

/// Reads the files into which an earlier run has written; `None` where there are none.
///
/// Of a damaged file a copy is kept and what is good in it is used. Makes the directory when only
/// that is missing, for the user that workers run as; an existing one is left as it is.
pub(crate) fn load(path: &Path, user: (u32, u32), log: Log<'_>) -> Option<Found> {
    let name = path.display();
    if file::identity(path).is_none() && journal::numbers(path).unwrap_or_default().is_empty() {
        prepare(path, user, log);
        return None;
    }
    let Whole { replica, damages, .. } = match source::read(path, Tail::Whole) {
        Ok(whole) => whole,
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
    let lacks = replica.lacks();
    let loaded = replica.into_loaded();
    let mut is_damaged = false;
    for damage in &damages {
        is_damaged |= report(path, damage, loaded.upstreams.len(), log);
    }
    if let Some(revision) = lacks.filter(|_| !is_damaged) {
        is_damaged = true;
        log.write(
            Level::Alert,
            0,
            format_args!(
                "state file \"{name}\" is used up to revision {revision}, its journals end earlier"
            ),
        );
    }
    Some(Found { loaded, is_damaged })
}

/// Makes the directory of a state file, for the user that workers run as, if only that is missing.
pub(crate) fn prepare(path: &Path, user: (u32, u32), log: Log<'_>) {
    if let Err(error) = make_directory(file::directory(path), user) {
        let (errno, name) = (error.raw_os_error().unwrap_or(0), path.display());
        log.write(
            Level::Warn,
            errno,
            format_args!("directory of state file \"{name}\" is missing and cannot be made"),
        );
    }
}

/// Says what is wrong with a file and keeps a copy; false where only the last record was cut off,
/// as by a crash while it was written.
fn report(path: &Path, damage: &Damage, used: usize, log: Log<'_>) -> bool {
    let Damage { part, line, kind, text } = damage;
    let (what, path) = match part {
        Part::Snapshot => ("state file", path.to_owned()),
        Part::Journal(number) => ("journal of state file", journal::path(path, *number)),
    };
    let name = path.display();
    if *kind == DamageKind::Torn && *part != Part::Snapshot {
        // Where the next journal goes on before it, nothing is missing.
        log.write(Level::Warn, 0, format_args!("{what} \"{name}\" ends in line {line}: {text}"));
        return false;
    }
    let how = match kind {
        DamageKind::Torn => "ends early",
        DamageKind::Damaged => "is damaged",
        DamageKind::Format => "cannot be read",
        DamageKind::Gap => "does not go on where the one before it ends",
    };
    log.write(
        Level::Alert,
        0,
        format_args!("{what} \"{name}\" {how}: {text} in line {line}, {used} upstreams are used"),
    );
    set_aside(&path, log);
    true
}

/// What [`load`] would use; says and changes nothing.
pub(crate) fn peek(path: &Path) -> Option<Loaded> {
    source::read(path, Tail::Whole).ok().map(|whole| whole.replica.into_loaded())
}

/// Keeps what was read, not all of which is in the zone, before the next snapshot leaves it out.
pub(crate) fn keep_copy(path: &Path, loaded: &Loaded, log: Log<'_>) {
    let name = path.display();
    // In its place again, it is used without the journals that there are now.
    let newest = journal::numbers(path).unwrap_or_default().last().copied().unwrap_or(0);
    let bytes = loaded.to_bytes(newest + 1);
    match file::write_beside(path, &format!(".left-{}", stamp()), &bytes) {
        Ok(copy) => log.write(
            Level::Crit,
            0,
            format_args!("state file \"{name}\" is kept as \"{}\"", copy.display()),
        ),
        Err(error) => log.write(
            Level::Crit,
            error.raw_os_error().unwrap_or(0),
            format_args!("state file \"{name}\" cannot be copied"),
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
