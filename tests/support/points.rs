//! Where a worker dies or stops: the plan that a build with fault points follows, see
//! src/ffi/faults.rs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::conf::{Conf, faults_module};
use super::process::Signal;

/// One worker, the first that comes to a point for the Nth time, gets a signal there.
#[derive(Clone, Debug)]
pub struct Strike {
    pub point: String,
    pub signal: Signal,
    pub at: u64,
}

impl Strike {
    pub fn kill(point: &str, at: u64) -> Self {
        Self { point: point.into(), signal: Signal::KILL, at }
    }

    pub fn stop(point: &str, at: u64) -> Self {
        Self { point: point.into(), signal: Signal::STOP, at }
    }
}

/// The plan of one nginx.
#[derive(Debug)]
pub struct Points(File);

impl Points {
    /// A conf of [`super::Nginx::faulty`] whose workers follow a plan; nothing is planned yet.
    pub fn of(conf: Conf) -> (Conf, Self) {
        let conf = conf.file("points", [0xff; 8 * (1 + STEPS * WORDS)]);
        let path = conf.prefix().join("points");
        let file = File::options().read(true).write(true).open(&path).expect("it was made");
        let conf = conf.env("PEERAGE_POINTS", path.display()).main("env PEERAGE_POINTS;");
        (conf, Self(file))
    }

    /// Strikes that come one after the other.
    pub fn plan(&self, strikes: &[Strike]) {
        assert!(strikes.len() <= STEPS);
        self.put(0, u64::MAX);
        for (i, strike) in strikes.iter().enumerate() {
            let at = 1 + i * WORDS;
            let signal = if strike.signal == Signal::STOP { STOP } else { KILL };
            for (word, value) in [0, strike.at, signal, 0].into_iter().enumerate() {
                self.put(at + word, value);
            }
            let mut name = [0; 32];
            name[..strike.point.len()].copy_from_slice(strike.point.as_bytes());
            self.0.write_all_at(&name, 8 * (at as u64 + 4)).expect("the plan is written");
        }
        for i in strikes.len()..STEPS {
            self.put(1 + i * WORDS + 4, 0);
        }
        self.put(0, 0);
    }

    /// Nothing is planned any more.
    pub fn clear(&self) {
        self.put(0, u64::MAX);
    }

    /// Whom a strike has hit.
    pub fn struck(&self, nth: usize) -> Option<u32> {
        let step = self.get(0);
        let hit = step != u64::MAX && step > nth as u64;
        hit.then(|| self.get(1 + nth * WORDS + 3) as u32)
    }

    fn put(&self, word: usize, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), 8 * word as u64).expect("the plan is written");
    }

    fn get(&self, word: usize) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * word as u64).expect("the plan is there");
        u64::from_ne_bytes(bytes)
    }
}

/// Every point that a built module has.
pub fn known(module: &std::path::Path) -> BTreeSet<String> {
    let bytes = fs::read(module).expect("the module is built");
    let mut found = BTreeSet::new();
    for at in bytes.windows(MARK.len()).enumerate().filter(|(_, w)| *w == MARK).map(|(i, _)| i) {
        let rest = &bytes[at + MARK.len()..];
        let end = rest.iter().take(32).position(|byte| *byte == b')');
        let name = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        let is_name = |name: &&str| {
            name.contains('.') && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_' | b'.'))
        };
        found.extend(name.filter(is_name).map(str::to_owned));
    }
    found
}

/// Those of the build with fault points.
pub fn all_points() -> BTreeSet<String> {
    known(&faults_module())
}

const MARK: &[u8] = b"point!(";
const STEPS: usize = 4;
const WORDS: usize = 8;
const KILL: u64 = 9;
const STOP: u64 = 19;
