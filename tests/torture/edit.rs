//! A block whose lines are edited: what it declares, and what the merge makes of it.

use std::collections::BTreeMap;

use crate::support::*;

use super::rng::Rng;

/// The block `edit`. Its first line always stands; nobody but the conductor changes it.
#[derive(Debug)]
pub(crate) struct Edit {
    addrs: Vec<String>,
    /// Weights in the file, by the place of the line.
    file: BTreeMap<usize, u64>,
    /// The same as it was when the configuration was accepted last.
    base: BTreeMap<usize, u64>,
    /// What is in force.
    now: BTreeMap<usize, u64>,
}

impl Edit {
    pub(crate) fn new(addrs: Vec<String>) -> Self {
        let file: BTreeMap<usize, u64> = (0..addrs.len()).map(|at| (at, 2)).collect();
        Self { addrs, base: file.clone(), now: file.clone(), file }
    }

    pub(crate) fn block(&self) -> String {
        let lines =
            self.file.iter().map(|(at, w)| format!("server {} weight={w};", self.addrs[*at]));
        format!("upstream edit {{ peerage main; {} }}", lines.collect::<Vec<_>>().join(" "))
    }

    /// Edits a line or two.
    pub(crate) fn edit(&mut self, rng: &mut Rng) {
        for _ in 0..1 + rng.below(2) {
            let at = rng.below(self.addrs.len() as u64) as usize;
            match at > 0 && rng.chance(40) {
                true => self.file.remove(&at),
                false => self.file.insert(at, 2 + rng.below(4)),
            };
        }
    }

    pub(crate) fn restore(&mut self) {
        self.file = (0..self.addrs.len()).map(|at| (at, 2)).collect();
    }

    /// The configuration has been accepted: a line that was changed holds, in every other place
    /// what run time made stays.
    pub(crate) fn accepted(&mut self) {
        for at in 0..self.addrs.len() {
            let (base, file) = (self.base.get(&at), self.file.get(&at));
            match file {
                None => self.now.remove(&at),
                Some(weight) if base != file => self.now.insert(at, *weight),
                Some(_) => continue,
            };
        }
        self.base = self.file.clone();
    }

    /// Changes a server at run time: another weight, gone, or there again.
    pub(crate) fn override_one(&mut self, rng: &mut Rng, api: &Api) -> Result<(), String> {
        let at = rng.below(self.addrs.len() as u64) as usize;
        let path = format!("upstreams/edit/servers/{}", self.addrs[at]);
        let weight = 2 + rng.below(5);
        let body = json!({ "weight": weight });
        let (status, answer) = match self.now.contains_key(&at) {
            true if at > 0 && rng.chance(40) => {
                self.now.remove(&at);
                api.delete(&path)
            }
            true => {
                self.now.insert(at, weight);
                api.patch(&path, &body)
            }
            // Only what the file declares: what else there is would stay for ever.
            false if self.base.contains_key(&at) => {
                self.now.insert(at, weight);
                api.put(&path, &body)
            }
            false => return Ok(()),
        };
        let fine = (200..300).contains(&status);
        if fine { Ok(()) } else { Err(format!("{path}: {status} {answer}")) }
    }

    pub(crate) fn wrong(&self, shown: &Value) -> Option<String> {
        let servers = shown["servers"].as_array().into_iter().flatten();
        let there: BTreeMap<&str, u64> =
            servers.filter_map(|s| Some((s["server"].as_str()?, s["weight"].as_u64()?))).collect();
        let expected: BTreeMap<&str, u64> =
            self.now.iter().map(|(at, weight)| (&*self.addrs[*at], *weight)).collect();
        (there != expected).then(|| format!("edit has {there:?}, expected {expected:?}: {self:?}"))
    }
}
