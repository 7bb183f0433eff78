//! What a client looks at, and what it makes of it: right, wrong, or as before a lost call.

use crate::support::*;

use super::client::{Client, Step, wrong};
use super::model::*;
use super::site::Site;

impl Client {
    /// Reads what was touched, each on a fresh connection, and the hosts; it must be as expected.
    pub(crate) fn look(&mut self, site: &Site, names: &[String]) -> Step {
        for name in names {
            self.until_right(site, |client| {
                let (status, shown) = client.read(site, &format!("upstreams/{name}"))?;
                let now = Instant::now();
                let wrong = client.wrong_upstream(&client.world, name, status, &shown, now);
                if wrong.is_none() && status == 200 {
                    client.ids_of(site, name, &shown)?;
                }
                Ok(wrong.map(|wrong| format!("{name}: {wrong}")))
            })?;
        }
        if names.is_empty() {
            for ip in self.kit.hosts.clone() {
                self.until_right(site, |client| {
                    client.wrong_host(site, &client.world.clone(), &ip)
                })?;
            }
        }
        Ok(())
    }

    /// Once; as long as zones move, until it is so.
    fn until_right(
        &mut self,
        site: &Site,
        mut wrong_now: impl FnMut(&mut Self) -> Step<Option<String>>,
    ) -> Step {
        let begin = Instant::now();
        loop {
            let still = site.still();
            let Some(text) = wrong_now(self)? else { return Ok(()) };
            if (still.is_some() && site.still() == still) || begin.elapsed() > secs(8) {
                return wrong(text);
            }
            let_pass(ms(100));
        }
    }

    fn wrong_upstream(
        &self,
        world: &World,
        name: &str,
        status: u16,
        shown: &Value,
        now: Instant,
    ) -> Option<String> {
        match (world.upstreams.get(name), status) {
            (None, 404) => None,
            (None, 200) => Some("is there, and must not be".into()),
            (Some(up), 200) => up.wrong(shown, &world.hosts, now),
            (Some(_), 404) => Some("is not there".into()),
            _ => Some(format!("{status} {shown}")),
        }
    }

    fn wrong_host(&mut self, site: &Site, world: &World, ip: &str) -> Step<Option<String>> {
        let (status, shown) = self.read(site, &format!("hosts/{ip}"))?;
        let now = Instant::now();
        let state = &shown["admin"]["state"];
        Ok(match world.hosts.get(ip) {
            _ if status != 200 && status != 404 => Some(format!("{status} {shown}")),
            None if status == 404 || state == "up" => None,
            Some(admin) if *state == admin.state.word() || admin.unsure(now) => None,
            expected => Some(format!("host {ip} is {shown}, expected {expected:?}")),
        })
    }

    /// A server keeps its id as long as it is the same, and no other ever has it.
    fn ids_of(&mut self, site: &Site, name: &str, shown: &Value) -> Step {
        let Some(up) = self.world.upstreams.get(name) else { return Ok(()) };
        for server in &up.servers {
            let mut all = shown["servers"].as_array().into_iter().flatten();
            let id =
                all.find(|shown| shown["server"] == *server.addr).and_then(|s| s["id"].as_u64());
            let Some(id) = id else { return wrong(format!("{name}: no id in {shown}")) };
            let known = *self.ids.entry(server.born).or_insert(id);
            let mine = (self.index, server.born);
            let owner = *site.ids.lock().unwrap().entry(id).or_insert(mine);
            if known != id || owner != mine {
                return wrong(format!(
                    "{name}: {} has id {id}, had {known}; the id is that of {owner:?}, not {mine:?}",
                    server.addr
                ));
            }
        }
        Ok(())
    }

    /// Finds out what became of a call that was lost: all of it or nothing.
    pub(crate) fn resolve(&mut self, site: &Site) -> Step {
        let Some((other, since)) = self.pending.clone() else { return Ok(()) };
        if since.elapsed() > secs(40) {
            return wrong("no answer for 40 s".into());
        }
        let now = Instant::now();
        let still = site.still();
        self.world.settle(now);
        let mut why = Vec::new();
        for world in [self.world.clone(), other] {
            match self.all_wrong(site, &world)? {
                None => {
                    self.pending = None;
                    self.enter(world);
                    self.post(site);
                    return Ok(());
                }
                Some(text) => why.push(text),
            }
        }
        if still.is_none() || site.still() != still {
            return Ok(()); // again
        }
        wrong(format!("neither as before nor as after a call that was lost: {why:?}"))
    }

    fn all_wrong(&mut self, site: &Site, world: &World) -> Step<Option<String>> {
        let names: Vec<String> = self.kit.own().chain(&self.kit.shared).cloned().collect();
        for name in names {
            let (status, shown) = self.read(site, &format!("upstreams/{name}"))?;
            if let Some(text) = self.wrong_upstream(world, &name, status, &shown, Instant::now()) {
                return Ok(Some(format!("{name}: {text}")));
            }
        }
        for ip in self.kit.hosts.clone() {
            if let Some(text) = self.wrong_host(site, world, &ip)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// What is wrong in a listing of everything. A call that was lost has been resolved before.
    pub(crate) fn wrong_listing(&self, listing: &Value) -> Option<String> {
        let now = Instant::now();
        self.kit.own().chain(&self.kit.shared).find_map(|name| {
            let shown = &listing[name];
            let status = if shown.is_null() { 404 } else { 200 };
            let wrong = self.wrong_upstream(&self.world, name, status, shown, now)?;
            Some(format!("client {}, {name}: {wrong}\n{}", self.index, self.traced(name)))
        })
    }

    /// Takes for true what a crash has left: of each upstream any state since `from`, and the
    /// last one where nothing may be lost.
    pub(crate) fn after_crash(
        &mut self,
        site: &Site,
        listing: &Value,
        from: Option<Instant>,
    ) -> Result<(), String> {
        let now = Instant::now();
        self.world.settle(now);
        let current = self.world.clone();
        let mut worlds: Vec<World> =
            self.pending.take().map(|(world, _)| world).into_iter().collect();
        worlds.push(current);
        for (at, world) in self.history.iter().rev() {
            let Some(from) = from else { break };
            worlds.push(world.clone());
            if *at <= from {
                break;
            }
        }
        let mut next = World::default();
        for ip in self.kit.hosts.clone() {
            let shown = site.get(&format!("hosts/{ip}"))?;
            let state = shown["admin"]["state"].as_str().unwrap_or("up").to_owned();
            let found = worlds.iter().map(|world| world.hosts.get(&ip).cloned()).find(|admin| {
                let expected = admin.as_ref().map_or("up", |admin| admin.state.word());
                let unsure = admin.as_ref().is_some_and(|admin| admin.unsure(now));
                expected == state || (unsure && state == "up")
            });
            let Some(found) = found else {
                return Err(format!("host {ip} is {state} after a crash"));
            };
            next.hosts.extend(found.map(|admin| (ip, admin)));
        }
        for name in self.kit.own().chain(&self.kit.shared) {
            let shown = &listing[name];
            let status = if shown.is_null() { 404 } else { 200 };
            let mut why = Vec::new();
            let found = worlds.iter().find(|world| {
                let mut world = World { hosts: next.hosts.clone(), ..(*world).clone() };
                world.settle(now);
                let wrong = self.wrong_upstream(&world, name, status, shown, now);
                why.extend(wrong.clone());
                wrong.is_none()
            });
            let Some(found) = found else {
                return Err(format!(
                    "client {}, {name} is none of what it was since then: {why:?}\n{}",
                    self.index,
                    self.traced(name)
                ));
            };
            if let Some(up) = found.upstreams.get(name) {
                next.upstreams.insert(name.clone(), up.clone());
            }
        }
        self.ids.clear();
        self.revision = 0;
        self.tags.clear();
        self.enter(next);
        Ok(())
    }
}
