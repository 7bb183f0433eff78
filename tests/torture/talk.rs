//! How a client talks to the API: it says what is refused for now again, keeps a trace, and knows
//! when an answer may be missing.

use crate::support::*;

use super::client::{Client, Step, Trouble, wrong};
use super::site::Site;

impl Client {
    pub(crate) fn read(&mut self, site: &Site, path: &str) -> Step<(u16, Value)> {
        self.send(site, &site.api.request("GET", path, None), "")
    }

    pub(crate) fn call(
        &mut self,
        site: &Site,
        api: &Api,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Step<(u16, Value)> {
        let text = body.map(Value::to_string).unwrap_or_default();
        self.send(site, &api.request(method, path, body), &format!("{method} {path} {text}"))
    }

    /// One call; while others write or zones move, again.
    pub(crate) fn send(
        &mut self,
        site: &Site,
        request: &Request,
        said: &str,
    ) -> Step<(u16, Value)> {
        let begin = Instant::now();
        loop {
            let answer = request.send(site.api.addr());
            let at = site.elapsed().as_secs_f64();
            if !said.is_empty() {
                let status = answer.as_ref().map_or(0, |reply| reply.status);
                self.trace.push_back(format!("{at:8.3} {said} -> {status}"));
                if self.trace.len() > 200 {
                    self.trace.pop_front();
                }
            }
            let Ok(reply) = answer else { return self.lost(site, begin, said) };
            let value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
            let again = ["busy", "moving", "not-writer", "not-ready"]
                .iter()
                .any(|code| value["type"] == format!("urn:peerage:{code}"));
            site.count(format!("{}", reply.status));
            if !(reply.status == 503 && again) {
                return Ok((reply.status, value));
            }
            if begin.elapsed() > secs(30) {
                return wrong(format!("{said}: refused for 30 s: {value}"));
            }
            let_pass(ms(100));
        }
    }

    pub(crate) fn lost<T>(&self, site: &Site, begin: Instant, said: &str) -> Step<T> {
        if site.excused(begin) {
            return Err(Trouble::Lost);
        }
        wrong(format!("{said}: no answer within {:?}, and nobody was killed", begin.elapsed()))
    }

    /// The last calls that name an upstream, hosts and batches among them.
    pub(crate) fn traced(&self, name: &str) -> String {
        let about =
            |line: &&String| [name, "batch", "hosts/"].iter().any(|word| line.contains(word));
        let lines: Vec<&String> = self.trace.iter().filter(about).collect();
        let tail = lines.len().saturating_sub(20);
        lines[tail..].iter().map(|line| line.as_str()).collect::<Vec<_>>().join("\n")
    }
}
