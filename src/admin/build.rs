//! Which build runs, and which one the module's file holds now.
//!
//! After the file was replaced, a reload keeps the running code: people want to see both.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::ffi::global::Global;
use crate::log::{Level, Log};

/// The running build.
pub(crate) const RUNNING: &str = env!("PEERAGE_BUILD");

/// Found in the file, in front of its build.
const MARK: &[u8] = b"peerage build \x01";

/// Mark and build, as they lie in the file.
#[used]
static MARKED: &str = concat!("peerage build \x01", env!("PEERAGE_BUILD"));

/// File, size and time of the last look, and what was found.
type Looked = (u64, u64, i64, Option<String>);

static LAST: Global<RefCell<Option<Looked>>> = Global::new(RefCell::new(None));

/// Warns where a reload has not brought the build that is in the file.
pub(crate) fn check(log: Log<'_>) {
    if let (Some(path), Some(other)) = (path(), on_disk().filter(|build| build != RUNNING)) {
        log.write(
            Level::Warn,
            0,
            format_args!(
                "module file \"{path}\" holds build {other}, build {RUNNING} goes on to run until \
                 nginx is restarted or upgraded"
            ),
        );
    }
}

/// The build in the module's file; `None` where it cannot be told.
pub(super) fn on_disk() -> Option<String> {
    let path = path()?;
    let meta = fs::metadata(&path).ok()?;
    let (file, size, time) = (meta.ino(), meta.len(), meta.mtime());
    let mut last = LAST.get().borrow_mut();
    if let Some((of, had, at, build)) = &*last
        && (*of, *had, *at) == (file, size, time)
    {
        return build.clone();
    }
    let bytes = fs::read(&path).ok()?;
    let build = bytes.windows(MARK.len()).enumerate().find_map(|(at, text)| {
        let build = bytes.get(at + MARK.len()..at + MARK.len() + RUNNING.len())?;
        let hex = build.iter().all(u8::is_ascii_hexdigit);
        (text == MARK && hex).then(|| String::from_utf8_lossy(build).into_owned())
    });
    *last = Some((file, size, time, build.clone()));
    build
}

/// The file that this code was loaded from.
fn path() -> Option<String> {
    let here = MARKED.as_ptr().addr();
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        let path = rest.split_once('/')?.1;
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        (from..to).contains(&here).then(|| format!("/{path}"))
    })
}
