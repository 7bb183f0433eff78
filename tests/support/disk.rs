//! A disk and a clock that misbehave on demand, see disk.c.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::conf::Conf;

/// What can be asked for, in the order of disk.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Each fsync takes so many ms.
    SlowMs,
    /// The fsync of that number from now fails.
    SyncAt,
    /// The rename of that number from now fails.
    RenameAt,
    /// Bytes that can still be written once it is full.
    Room,
    /// Whether it is full, 0 or 1.
    Full,
    /// Seconds that the wall clock is off.
    Clock,
    /// How many fsyncs there were.
    Syncs,
    /// The inode of the file whose fsync failed.
    Bad,
    /// How many fsyncs of that file there were since.
    Again,
}

/// The disk under `{prefix}/state` of one nginx, and its clock.
#[derive(Debug)]
pub struct Disk {
    control: File,
    directory: PathBuf,
}

impl Disk {
    /// A conf whose state file is to be `{prefix}/state/main.json`.
    pub fn of(conf: Conf) -> (Conf, Self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/disk.c");
        let library = conf.prefix().join("disk.so");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(cc.status().expect("cc is installed").success());
        let conf = conf.file("control", [0; 8 * 16]);
        let path = conf.prefix().join("control");
        let control = File::options().read(true).write(true).open(&path).expect("it was made");
        let directory = conf.prefix().join("state");
        let conf = conf
            .env("LD_PRELOAD", library.display())
            .env("DISK_CONTROL", path.display())
            .env("DISK_PATH", directory.display());
        (conf, Self { control, directory })
    }

    pub fn set(&self, fault: Fault, value: i64) {
        let at = 8 * fault as u64;
        self.control.write_all_at(&value.to_ne_bytes(), at).expect("it can be written");
    }

    pub fn get(&self, fault: Fault) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, 8 * fault as u64).expect("it can be read");
        i64::from_ne_bytes(bytes)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn snapshot(&self) -> PathBuf {
        self.directory.join("main.json")
    }

    /// Numbers of the journals, in order.
    pub fn journals(&self) -> Vec<u64> {
        let Ok(names) = fs::read_dir(&self.directory) else { return Vec::new() };
        let names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let number = |name: String| name.strip_prefix("main.json.journal-")?.parse().ok();
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}
