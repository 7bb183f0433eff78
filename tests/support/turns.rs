//! How much CPU time the turns of an nginx's event loops take, see turns.c.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::conf::Conf;

/// The turns of one nginx.
#[derive(Debug)]
pub struct Turns {
    words: File,
}

impl Turns {
    pub fn of(conf: Conf) -> (Conf, Self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/turns.c");
        let library = conf.prefix().join("turns.so");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(cc.status().expect("cc is installed").success());
        let conf = conf.file("turns", [0; 16]);
        let path = conf.prefix().join("turns");
        let words = File::options().read(true).write(true).open(&path).expect("it was made");
        let conf = conf.env("LD_PRELOAD", library.display()).env("TURNS_FILE", path.display());
        (conf, Self { words })
    }

    /// The longest turn while `act` goes on, and how many there were.
    pub fn during<T>(&self, act: impl FnOnce() -> T) -> (T, Duration, u64) {
        self.words.write_all_at(&[0; 16], 0).expect("it can be written");
        let done = act();
        let mut words = [[0; 8]; 2];
        for (at, word) in (0..).step_by(8).zip(&mut words) {
            self.words.read_exact_at(word, at).expect("it can be read");
        }
        let [longest, turns] = words.map(u64::from_ne_bytes);
        (done, Duration::from_nanos(longest), turns)
    }
}
