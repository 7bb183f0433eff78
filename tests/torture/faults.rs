//! What is done to nginx, each with what must hold right after it.

use std::fs;

use crate::support::*;

use super::conductor::{Conductor, Done, Fault};
use super::edit::Edit;
use super::rng::Rng;

impl Conductor<'_> {
    /// A change of the conductor's own; a worker that lost it to a kill has it asked again.
    pub(crate) fn again(&mut self, change: impl FnOnce(&mut Edit, &Api) -> Done) -> Done {
        if self.points.is_some() {
            return Ok(()); // a lost answer would leave it unsure
        }
        change(&mut self.edit, &self.site.api)
    }

    pub(crate) fn write(&mut self) {
        let (size, edit) = (self.size, self.edit.block());
        let http = &self.http;
        self.nginx.change(|conf| http(conf, size, &edit));
    }

    pub(crate) fn reload(&mut self) -> Done {
        self.upset = Instant::now();
        self.nginx.try_reload()
    }

    pub(crate) fn look_at_edit(&mut self) -> Done {
        self.flush()?;
        let begin = Instant::now();
        let path = "upstreams/edit";
        let reply = self.site.api.request("GET", path, None).send(self.site.api.addr());
        match reply {
            Ok(reply) => self.edit.wrong(&reply.json()).map_or(Ok(()), Err),
            Err(_) if self.site.excused(begin) => Ok(()),
            Err(error) => Err(format!("no answer to GET {path}: {error}")),
        }
    }

    pub(crate) fn bad_reload(&mut self, rng: &mut Rng) -> Done {
        let (size, more) = *rng.pick(&[(self.size, "torture_nonsense on;"), ("64k", "")]);
        let edit = self.edit.block();
        let http = &self.http;
        self.nginx.change(|conf| http(conf, size, &edit).http_more(more));
        let refused = self.nginx.try_reload();
        self.write();
        match refused {
            Ok(()) => Err(format!("a configuration with {size} {more:?} was accepted")),
            Err(_) => Ok(()),
        }
    }

    /// `nginx -t` beside, with a good configuration or a bad one.
    pub(crate) fn test_beside(&mut self, bad: bool) -> Done {
        if bad {
            self.nginx.change(|conf| conf.http_more("torture_nonsense on;"));
        }
        let (good, text) = self.nginx.test();
        self.write();
        if good != bad { Ok(()) } else { Err(text) }
    }

    /// Old workers act on their old zone until they are gone.
    pub(crate) fn resize(&mut self, size: &'static str) -> Done {
        self.size = size;
        self.write();
        self.site.note(size);
        self.site.moving(true);
        self.reload()?;
        self.settled()?;
        let_pass(ms(300));
        self.site.moving(false);
        Ok(())
    }

    pub(crate) fn kill_one(&mut self, rng: &mut Rng) -> Done {
        self.upset = Instant::now();
        self.site.outage();
        for _ in 0..1 + rng.below(2) {
            let workers = self.nginx.workers();
            if let Some(victim) = workers.get(rng.below(workers.len().max(1) as u64) as usize) {
                self.site.note(format!("SIGKILL for {}", victim.pid));
                signal(victim.pid, Signal::KILL);
                within(secs(10), || !alive(victim.pid)).ok_or("a killed worker lives")?;
            }
        }
        self.staffed()?;
        self.end_outage();
        // Now and then at once, before anything else makes the counts new.
        if rng.chance(30) {
            let mut quiet = self.quiet()?;
            let counts = quiet.resolve().and_then(|()| self.nobody_counts());
            self.told(counts)?;
        }
        Ok(())
    }

    /// A worker that stands still, with or without a reload meanwhile.
    pub(crate) fn stop_one(&mut self, rng: &mut Rng) -> Done {
        let workers = self.nginx.worker_pids();
        let victim = *rng.pick(&workers);
        self.site.note(format!("SIGSTOP for {victim}"));
        signal(victim, Signal::STOP);
        let reload = rng.chance(30);
        let_pass(ms(300 + rng.below(if reload { 500 } else { 2700 })));
        let done = if reload { self.reload() } else { Ok(()) };
        signal(victim, Signal::CONT);
        self.upset = Instant::now();
        done?;
        self.settled()
    }

    pub(crate) fn restart(&mut self, rng: &mut Rng) -> Done {
        if rng.chance(50) {
            self.flush()?;
        }
        let mut quiet = self.quiet()?;
        quiet.resolve()?;
        let how = if rng.chance(25) { Signal::TERM } else { Signal::QUIT };
        self.site.note(format!("{how:?}"));
        self.site.outage();
        let stopped = self.nginx.stop_within(secs(30), how);
        self.told(stopped.map(drop).ok_or_else(|| "nginx does not stop".into()))?;
        let started = self.start(rng);
        self.told(started)?;
        self.end_outage();
        self.agree(&quiet)
    }

    /// In the middle of everything. What is older than the flush is there.
    pub(crate) fn crash(&mut self, rng: &mut Rng) -> Done {
        if rng.chance(60) {
            let_pass(secs(2));
        }
        let calm = self.upset.elapsed() > secs(2);
        self.site.outage();
        let at = Instant::now();
        self.nginx.kill();
        let mut quiet = self.quiet()?;
        let_pass(ms(rng.below(300)));
        let started = self.start(rng);
        self.told(started)?;
        self.end_outage();
        let lag = if calm { ms(1500) } else { secs(5) };
        let from = (!self.always).then(|| at - lag);
        let listing = self.site.get("upstreams?fields=servers&limit=1000");
        let listing = listing.inspect_err(|text| self.site.fail(text))?;
        if !self.always {
            self.site.ids.lock().unwrap().clear();
        }
        for client in &mut quiet.clients {
            self.told(client.after_crash(self.site, &listing, from))?;
            client.post(self.site);
        }
        self.agree(&quiet)
    }

    /// After a while of nothing: not a byte may be missing.
    pub(crate) fn calm_crash(&mut self, rng: &mut Rng) -> Done {
        let mut quiet = self.quiet()?;
        quiet.resolve()?;
        let lag = if self.upset.elapsed() > secs(2) { ms(1500) } else { secs(4) };
        if !self.always {
            let_pass(lag);
        }
        self.site.outage();
        self.nginx.kill();
        let started = self.start(rng);
        self.told(started)?;
        self.end_outage();
        self.agree(&quiet)
    }

    fn start(&mut self, rng: &mut Rng) -> Done {
        self.upset = Instant::now();
        self.choose_point(rng);
        self.nginx.try_start()
    }

    /// From a restart now on, each worker dies or stops when it has passed some point so often;
    /// without chance, none does any more.
    pub(crate) fn arm(&mut self, rng: Option<&mut Rng>) {
        if self.points.is_none() {
            return;
        }
        let calm = rng.is_none();
        self.site.outage();
        match rng {
            Some(rng) => self.choose_point(rng),
            None => self.nginx.change(|conf| conf.env("PEERAGE_POINT", "none:kill:1")),
        }
        self.nginx.restart();
        if calm {
            self.site.outage_ends();
        }
    }

    fn choose_point(&mut self, rng: &mut Rng) {
        let Some(points) = &self.points else { return };
        let point = rng.pick(points);
        let how = if rng.chance(75) { "kill" } else { "stop" };
        // Reading passes some a hundred times a call; a worker must live for many calls.
        let least = match point.split('.').next() {
            Some("batch") => 3,
            Some("section") => 5000,
            _ => 40,
        };
        let often = least + rng.below(300);
        let value = format!("{point}:{how}:{often}");
        self.site.note(&value);
        self.nginx.change(|conf| conf.env("PEERAGE_POINT", value));
    }

    /// A barrier: afterwards it is on the disk.
    pub(crate) fn flush(&mut self) -> Done {
        let mut last = String::new();
        let done = within(secs(30), || {
            let begin = Instant::now();
            let request = self.site.api.request("POST", "zones/main/flush", None);
            match request.send(self.site.api.addr()) {
                Ok(reply) if reply.status == 200 => return true,
                Ok(reply) => last = reply.text(),
                Err(error) => last = format!("{error} after {:?}", begin.elapsed()),
            }
            false
        });
        done.ok_or_else(|| format!("flush: {last}"))
    }

    pub(crate) fn disk_trouble(&mut self, rng: &mut Rng) -> Done {
        let full = rng.chance(50);
        self.site.note(if full { "the disk is full" } else { "the disk is read-only" });
        match full {
            true => self.disk.fill(),
            false => drop(self.disk.read_only(true)), // where it is busy, nothing happens
        }
        let mut done = Ok(());
        for _ in 0..1 + rng.below(3) {
            let fault = *rng.pick(&[Fault::Kill, Fault::Reload, Fault::Stop]);
            self.site.note(format!("{fault:?} meanwhile"));
            done = done.and_then(|()| self.strike(fault, rng));
            let_pass(ms(200 + rng.below(1000)));
        }
        match full {
            true => self.disk.free(),
            false => {
                done = done.and_then(|()| match self.disk.read_only(false) {
                    true => Ok(()),
                    false => Err("the disk stays read-only".into()),
                })
            }
        }
        self.site.note("the disk is well");
        done?;
        self.upset = Instant::now();
        self.flush()
    }

    /// USR2, and then either of the two masters goes.
    pub(crate) fn upgrade(&mut self, stays: bool) -> Done {
        self.settled()?;
        let old = self.nginx.master_pid();
        let pids = ["nginx.pid", "nginx.pid.oldbin"].map(|name| self.nginx.path(name));
        self.site.moving(true);
        let new = within(secs(20), || {
            // nginx ignores it while the shell that started it is still its parent.
            if !pids[1].exists() {
                signal(old, Signal::USR2);
                let_pass(ms(100));
            }
            let new = fs::read_to_string(&pids[0]).ok()?.trim().parse::<u32>().ok()?;
            let up = self.nginx.workers().len() >= 2 * self.workers;
            (new != old && up && pids[1].exists()).then_some(new)
        });
        let new = new.ok_or("no new master after USR2")?;
        let_pass(ms(500));
        let goes = if stays { old } else { new };
        self.site.note(format!("QUIT for {}", if stays { "the old" } else { "the new" }));
        signal(goes, Signal::QUIT);
        let gone = within(secs(20), || {
            !alive(goes) && !pids[1].exists() && self.nginx.workers().len() == self.workers
        });
        gone.ok_or("a master does not go")?;
        self.upset = Instant::now();
        // The one that stays has what the other has written: at once, or, where its worker that
        // sees to that is stopped at a point, when it is the one that writes.
        match self.points {
            Some(_) => {
                let done = self.flush();
                self.site.moving(false);
                done
            }
            None => {
                let_pass(ms(300));
                self.site.moving(false);
                self.flush()
            }
        }
    }
}
