//! SSL contexts that are made when they are first needed, and again when their files change.

use std::cell::RefCell;
use std::fs;
use std::time::SystemTime;

use peerage_core::recent::Recent;

use super::error::Error;
use crate::ffi::global::Global;
use crate::ffi::tls::{Files, Trust};

/// A context, and when the files were written that it was made of.
struct Made(Trust, Vec<Option<SystemTime>>);

static MADE: Global<RefCell<Option<Recent<Files, Made>>>> = Global::new(RefCell::new(None));

/// The context of these files, as they are now.
///
/// A worker may be unable to read a key that the master can: such a context is made while the
/// configuration is read, by [`Trust::new`].
pub(crate) fn of(files: &Files) -> Result<Trust, Error> {
    let written = written(files);
    let mut made = MADE.get().borrow_mut();
    let made = made.get_or_insert_with(|| Recent::new(MAX));
    if let Some(Made(trust, then)) = made.get(files)
        && *then == written
    {
        return Ok(trust.clone());
    }
    all(files).try_for_each(regular)?;
    let trust = Trust::new(files)?;
    made.put(files.clone(), Made(trust.clone(), written));
    Ok(trust)
}

/// Forgets all; connections keep theirs.
pub(crate) fn forget() {
    drop(MADE.get().take());
}

fn written(files: &Files) -> Vec<Option<SystemTime>> {
    all(files).map(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok()).collect()
}

fn all(files: &Files) -> impl Iterator<Item = &String> {
    let pair = files.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
    files.ca.iter().chain(pair)
}

/// Refuses what may have no end, or none to read from: opening a pipe would hold the process for
/// ever, and paths come over the API too.
fn regular(path: &String) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(Error::File(format!("\"{path}\": not a regular file"))),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::File(format!("\"{path}\": {error}"))),
    }
}

/// Contexts of a process, at most; one takes some 100 KB with the authorities of a system.
const MAX: usize = 64;
