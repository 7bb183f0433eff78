//! The conductor: it owns nginx, does to it what operators and machines do, and calls the pauses.

use std::sync::Mutex;

use crate::support::*;

use super::client::Client;
use super::disk::Disk;
use super::edit::Edit;
use super::rng::Rng;
use super::site::Site;

/// A configuration with its http block, for a size of the zone and the block `edit`.
pub(crate) type Http<'a> = dyn Fn(Conf, &str, &str) -> Conf + 'a;

pub(crate) struct Conductor<'a> {
    pub site: &'a Site,
    /// Before nginx: it goes first, so that nginx's directory can be removed.
    pub disk: Disk,
    pub nginx: Nginx,
    pub clients: &'a [Mutex<Client>],
    pub edit: Edit,
    pub http: Box<Http<'a>>,
    pub workers: usize,
    pub always: bool,
    pub upgrade: bool,
    /// Points at which workers are killed or stopped, where the module has them.
    pub points: Option<Vec<String>>,
    pub size: &'static str,
    /// When something was done last that may hold up the writing of the file.
    pub upset: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Reload,
    Edit,
    Override,
    BadReload,
    Resize,
    Kill,
    Stop,
    Restart,
    Crash,
    CalmCrash,
    Flush,
    Test,
    Disk,
    CalmUpgrade,
    Upgrade,
    Rollback,
}

pub(crate) type Done = Result<(), String>;

impl Conductor<'_> {
    /// Goes on until the time has come; `Err` says what is wrong.
    pub(crate) fn run(&mut self, time: Duration) -> Done {
        let mut checked = Instant::now();
        for nth in 0.. {
            if self.site.over() || self.site.elapsed() >= time {
                return Ok(());
            }
            let mut rng = Rng::of(self.site.seed, 100, nth);
            let fault = rng.weighted(&self.faults());
            self.site.note(format!("{fault:?}"));
            self.site.count(format!("{fault:?}"));
            self.strike(fault, &mut rng).map_err(|text| format!("{fault:?} ({nth}): {text}"))?;
            if checked.elapsed() > secs(10) {
                self.site.note("check");
                self.check().map_err(|text| format!("at a quiet point: {text}"))?;
                checked = Instant::now();
            }
            let_pass(ms(100 + rng.below(600)));
        }
        Ok(())
    }

    fn faults(&self) -> Vec<(u64, Fault)> {
        let when = |on: bool, n: u64| if on { n } else { 0 };
        vec![
            (14, Fault::Reload),
            (10, Fault::Edit),
            (10, Fault::Override),
            (6, Fault::BadReload),
            (8, Fault::Resize),
            (18, Fault::Kill),
            (10, Fault::Stop),
            (if self.points.is_some() { 20 } else { 6 }, Fault::Restart),
            (5, Fault::Crash),
            (4, Fault::CalmCrash),
            (6, Fault::Flush),
            (4, Fault::Test),
            (when(self.disk.can_fail(), 6), Fault::Disk),
            (4, Fault::CalmUpgrade),
            (when(self.upgrade, 8), Fault::Upgrade),
            (when(self.upgrade, 6), Fault::Rollback),
        ]
    }

    pub(crate) fn strike(&mut self, fault: Fault, rng: &mut Rng) -> Done {
        match fault {
            Fault::Reload => self.reload(),
            Fault::Edit => {
                self.edit.edit(rng);
                self.write();
                self.reload()?;
                self.edit.accepted();
                self.look_at_edit()
            }
            Fault::Override => {
                self.again(|edit, api| edit.override_one(rng, api))?;
                self.look_at_edit()
            }
            Fault::BadReload => self.bad_reload(rng),
            Fault::Resize => self.resize(rng.weighted(&SIZES)),
            Fault::Kill => self.kill_one(rng),
            Fault::Stop => self.stop_one(rng),
            Fault::Restart => self.restart(rng),
            Fault::Crash => self.crash(rng),
            Fault::CalmCrash => self.calm_crash(rng),
            Fault::Flush => self.flush(),
            Fault::Test => self.test_beside(rng.chance(50)),
            Fault::Disk => self.disk_trouble(rng),
            Fault::CalmUpgrade => {
                let mut quiet = self.quiet()?;
                quiet.resolve()?;
                self.flush()?;
                let stays = rng.chance(60);
                let done = self.upgrade(stays);
                self.told(done)?;
                self.agree(&quiet)
            }
            Fault::Upgrade => self.upgrade(true),
            Fault::Rollback => self.upgrade(false),
        }
    }

    /// As many workers as there should be, leaving ones aside.
    pub(crate) fn staffed(&self) -> Done {
        let there = within(secs(30), || self.nginx.worker_pids().len() >= self.workers);
        there.ok_or_else(|| format!("workers are missing: {:?}", self.nginx.workers()))
    }

    /// The same, and nobody is leaving.
    pub(crate) fn settled(&self) -> Done {
        let there = within(secs(30), || {
            let workers = self.nginx.workers();
            workers.len() == self.workers && workers.iter().all(|worker| !worker.leaving)
        });
        there.ok_or_else(|| format!("workers do not settle: {:?}", self.nginx.workers()))
    }

    pub(crate) fn end_outage(&self) {
        if self.points.is_none() {
            self.site.outage_ends();
        }
    }
}

const SIZES: [(u64, &str); 3] = [(1, "2m"), (1, "2500k"), (1, "3m")];
