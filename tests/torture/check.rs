//! The quiet points: everybody rests, and every worker must show what the model says.

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use crate::support::*;

use super::client::Client;
use super::conductor::Conductor;
use super::edit::Edit;
use super::site::Site;

impl<'a> Conductor<'a> {
    /// Stops clients and traffic; they go on when it is dropped.
    pub(crate) fn quiet(&self) -> Result<Quiet<'a>, String> {
        let site = self.site;
        site.paused.store(true, Ordering::SeqCst);
        let clients = self.clients.iter().map(|client| client.lock().unwrap()).collect();
        let quiet = Quiet { site, clients };
        let ended = within(secs(30), || site.busy.load(Ordering::SeqCst) == 0);
        ended.map(|()| quiet).ok_or_else(|| "a request of the traffic does not end".into())
    }

    /// Says what is wrong before anybody goes on and meets what follows from it.
    pub(crate) fn told(&self, done: Result<(), String>) -> Result<(), String> {
        done.inspect_err(|text| self.site.fail(text))
    }

    /// Everything that must hold when nothing goes on.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut quiet = self.quiet()?;
        self.told(quiet.resolve().and_then(|()| self.nobody_counts()))?;
        self.agree(&quiet)?;
        let log = self.nginx.error_log();
        let lost = log.lines().find(|line| {
            let code = line.split("exited with code ").nth(1);
            line.contains("worker process") && code.is_some_and(|code| !code.starts_with('0'))
        });
        lost.map_or(Ok(()), |line| Err(format!("a worker was lost: {line}")))?;
        let alerts = self.nginx.alerts();
        if alerts.is_empty() { Ok(()) } else { Err(alerts.join("\n")) }
    }

    /// The listing of every worker is what the clients expect.
    pub(crate) fn agree(&self, quiet: &Quiet<'_>) -> Result<(), String> {
        self.told(self.all_agree(quiet))
    }

    fn all_agree(&self, quiet: &Quiet<'_>) -> Result<(), String> {
        let mut wanted: BTreeSet<u32> = self.nginx.worker_pids().into_iter().collect();
        let begin = Instant::now();
        while !wanted.is_empty() {
            if begin.elapsed() > secs(20) {
                return Err(format!("no answer of workers {wanted:?}: {:?}", self.nginx.workers()));
            }
            if self.points.is_some() {
                wanted.retain(|pid| alive(*pid));
            }
            let path = "upstreams?fields=servers&limit=1000";
            let request = self.site.each.request("GET", path, None);
            let Ok(reply) = request.send(self.site.each.addr()) else {
                if self.points.is_some() {
                    continue;
                }
                return Err("no answer to a listing".into());
            };
            let worker = reply.header("x-worker").and_then(|pid| pid.parse().ok()).unwrap_or(0);
            if !wanted.remove(&worker) {
                continue;
            }
            let listing = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
            if let Some(wrong) = quiet.wrong(&listing, &self.edit) {
                return Err(format!("worker {worker}: {wrong}"));
            }
        }
        Ok(())
    }

    /// No request is counted anywhere, and none but living workers are in the zone.
    pub(crate) fn nobody_counts(&self) -> Result<(), String> {
        let mut last = String::new();
        // Where workers die at points, a listing itself may kill one, and the next must have the
        // time to take back what it held.
        let (limit, pause) = if self.points.is_some() { (20, 2500) } else { (5, 0) };
        let clean = within(secs(limit), || {
            let_pass(ms(pause));
            let Ok(reply) = self
                .site
                .api
                .request("GET", "upstreams?fields=servers&limit=1000", None)
                .send(self.site.api.addr())
            else {
                return false;
            };
            let listing: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
            let upstreams = listing.as_object().into_iter().flatten();
            let servers = upstreams.flat_map(|(name, up)| {
                up["servers"].as_array().into_iter().flatten().map(move |server| (name, server))
            });
            let mut busy = servers.filter(|(_, s)| s["active"] != 0 || s["upgraded"] != 0);
            last = busy.next().map_or(String::new(), |(name, server)| format!("{name}: {server}"));
            last.is_empty()
        });
        clean.ok_or_else(|| format!("a request is counted while there is none: {last}"))
    }

    /// No process computes while there is nothing to do.
    pub(crate) fn nobody_spins(&self) -> Result<(), String> {
        let pids = self.nginx.worker_pids();
        let before: Vec<u64> = pids.iter().map(|pid| cpu_ticks(*pid)).collect();
        let_pass(secs(1));
        let busy =
            pids.iter().zip(before).find(|(pid, b)| cpu_ticks(**pid).saturating_sub(*b) > 30);
        busy.map_or(Ok(()), |(pid, _)| Err(format!("worker {pid} computes and has nothing to do")))
    }
}

/// As long as it lives no client does anything, and there is no traffic.
pub(crate) struct Quiet<'a> {
    site: &'a Site,
    pub clients: Vec<MutexGuard<'a, Client>>,
}

impl Quiet<'_> {
    /// Every client finds out what became of its lost call.
    pub(crate) fn resolve(&mut self) -> Result<(), String> {
        let site = self.site;
        let done = within(secs(40), || {
            site.over() || self.clients.iter_mut().all(|client| client.settled(site))
        });
        done.ok_or_else(|| "a lost call cannot be resolved".into())
    }

    pub(crate) fn wrong(&self, listing: &Value, edit: &Edit) -> Option<String> {
        let Some(all) = listing.as_object() else { return Some(format!("no listing: {listing}")) };
        let wrong = self.clients.iter().find_map(|client| client.wrong_listing(listing));
        let stray = || {
            let known = |name: &String| {
                name == "edit"
                    || self
                        .clients
                        .iter()
                        .any(|c| c.kit.own().chain(&c.kit.shared).any(|n| n == name))
            };
            all.keys().find(|name| !known(name)).map(|name| format!("{name} is nobody's"))
        };
        wrong.or_else(|| edit.wrong(&listing["edit"])).or_else(stray)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.site.paused.store(false, Ordering::SeqCst);
    }
}
