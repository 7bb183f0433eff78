//! The upgrade of a running nginx: two masters for a while.

use std::fs;

use super::nginx::Nginx;
use super::process::{self, Signal};
use super::wait::eventually;
use super::{Duration, secs};

impl Nginx {
    /// USR2, and waits until the new master's workers are up; the old master and the new one.
    #[track_caller]
    pub fn upgrade(&self) -> (u32, u32) {
        let old = self.master_pid();
        process::signal(old, Signal::USR2);
        let file = self.path("nginx.pid");
        let new = eventually(LIMIT, || {
            let pid: u32 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            let up = pid != old && self.workers_of(pid).len() >= self.conf.workers;
            up.then_some(pid)
        });
        (old, new)
    }

    /// Masters that run, in no order.
    pub fn masters(&self) -> Vec<u32> {
        let group = process::group(self.group()).into_iter().map(|(pid, _)| pid);
        group.filter(|&pid| process::title(pid).starts_with("nginx: master process")).collect()
    }

    /// The workers of one master that take new connections.
    pub fn workers_of(&self, master: u32) -> Vec<u32> {
        let group = process::group(self.group()).into_iter();
        let group = group.filter(|(_, stat)| stat.parent == master);
        let title = |pid| process::title(pid);
        group.map(|(pid, _)| pid).filter(|&pid| title(pid) == "nginx: worker process").collect()
    }

    /// Waits until a master and all of its workers are gone.
    #[track_caller]
    pub fn gone(&self, master: u32) {
        eventually(LIMIT, || {
            let group = process::group(self.group());
            !group.iter().any(|(pid, stat)| *pid == master || stat.parent == master)
        });
    }
}

const LIMIT: Duration = secs(30);
