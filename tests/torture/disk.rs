//! The disk of the state file: a small file system of its own that fills up, or cannot be written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    mounted: bool,
    tried: bool,
}

impl Disk {
    /// At this directory, which is made. Where nothing can be mounted, an ordinary one.
    pub(crate) fn make(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=4m", "none"], &dir);
        Self { dir, mounted, tried: mounted }
    }

    pub(crate) fn can_fail(&self) -> bool {
        self.tried
    }

    /// It is left alone.
    pub(crate) fn never_fails(&mut self) {
        self.tried = false;
    }

    pub(crate) fn fill(&self) {
        // As much as there is room for: the last write is cut off.
        fs::write(self.dir.join("filler"), vec![1; 8 << 20]).ok();
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.dir.join("filler")).ok();
    }

    pub(crate) fn read_only(&self, on: bool) -> bool {
        // While a file is being written it is busy.
        let how = if on { "remount,ro" } else { "remount,rw" };
        within(secs(2), || run("mount", &["-o", how], &self.dir)).is_some()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            run("umount", &["-l"], &self.dir);
        }
    }
}

fn run(program: &str, words: &[&str], dir: &Path) -> bool {
    let out = Command::new(program).args(words).arg(dir).output();
    out.is_ok_and(|out| out.status.success())
}
