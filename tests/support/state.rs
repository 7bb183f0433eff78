//! State files as a story reads and makes them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::nginx::Nginx;
use super::wait::eventually;

/// A line of a state file: the data in its checksum.
pub fn sealed(data: &str) -> String {
    format!("{{\"sum\":\"{:08x}\",\"data\":{data}}}\n", crc32c(data.as_bytes()))
}

/// The checksum, bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, &b| (0..8).fold(crc ^ u32::from(b), |crc, _| step(crc)))
}

/// All that a state file and its journals say.
pub fn written(state: &Path) -> String {
    let name = state.file_name().expect("a file").to_string_lossy().into_owned();
    let journals = files(state.parent().expect("a directory"), &format!("{name}.journal-"));
    let all = journals.into_iter().chain([state.to_owned()]);
    all.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Has a running nginx write a whole snapshot; its log must be allowed to say so.
pub fn whole(nginx: &Nginx, state: &Path) {
    eventually(Duration::from_secs(10), || fs::remove_file(state).is_ok());
    nginx.api().ok("PUT", "upstreams/whole", Some(&json!({"servers": []})));
    nginx.api().ok("DELETE", "upstreams/whole", None);
    eventually(Duration::from_secs(10), || nginx.api().post("zones/main/flush").0 == 200);
}

/// The files of a directory whose name begins so.
pub fn files(dir: &Path, begin: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).expect("the directory is there").flatten();
    let begins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    names.map(|entry| entry.path()).filter(begins).collect()
}

/// Inode, time of the last write, length and content.
pub type Identity = (u64, i64, i64, u64, Vec<u8>);

/// What `ls -li` and `sha256sum` would tell of a file.
pub fn identity(path: &Path) -> Identity {
    let meta = fs::metadata(path).unwrap();
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len(), fs::read(path).unwrap())
}
