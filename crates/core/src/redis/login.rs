//! How a connection to a Redis begins: who asks, in which protocol, and of which database.
//!
//! All of it is sent at once. A server that knows no `HELLO` says so, and is asked again in the
//! older protocol. Last comes a `PING`, which a server that cannot answer look-ups does not answer
//! either: it loads its data, or has lost its master.

use super::resp::{Value, command};
use crate::route::decide::Down;
use crate::route::reply::reason;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RESP2, without pushes.
    Two,
    /// RESP3.
    Three,
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Login<'a> {
    /// Who asks.
    pub user: Option<&'a str>,
    /// Its password.
    pub password: Option<&'a [u8]>,
    /// The database.
    pub db: u32,
    /// Whether only a master will do.
    pub master: bool,
}

/// What is known by one of the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another answer is to come.
    More,
    /// The connection can be used.
    Done,
    /// It speaks only the older protocol: all is to be said anew in that.
    Older,
    /// It cannot be used.
    Refused(Down, String),
}

/// Whom the answers are for, one after the other.
#[derive(Debug)]
pub struct Answers {
    asked: Vec<Asked>,
    next: usize,
    older: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Hello,
    Plain,
    Role,
    Ping,
}

impl Login<'_> {
    /// Appends what is to be sent.
    pub fn say(&self, version: Version, out: &mut Vec<u8>) -> Answers {
        let mut asked = Vec::new();
        let mut say = |words: &[&[u8]], what| {
            command(out, words);
            asked.push(what);
        };
        let is_known = self.user.is_some() || self.password.is_some();
        let (user, password) = (self.user.map(str::as_bytes), self.password.unwrap_or_default());
        match (version, user) {
            (Version::Three, _) if !is_known => say(&[b"HELLO", b"3"], Asked::Hello),
            (Version::Three, user) => {
                let user = user.unwrap_or(b"default");
                say(&[b"HELLO", b"3", b"AUTH", user, password], Asked::Hello);
            }
            (Version::Two, _) if !is_known => {}
            (Version::Two, None) => say(&[b"AUTH", password], Asked::Plain),
            (Version::Two, Some(user)) => say(&[b"AUTH", user, password], Asked::Plain),
        }
        if self.db != 0 {
            say(&[b"SELECT", self.db.to_string().as_bytes()], Asked::Plain);
        }
        if self.master {
            say(&[b"ROLE"], Asked::Role);
        }
        say(&[b"PING"], Asked::Ping);
        Answers { asked, next: 0, older: false }
    }
}

impl Answers {
    /// Takes the next answer.
    pub fn take(&mut self, value: &Value) -> Step {
        let Some(&asked) = self.asked.get(self.next) else {
            return Step::Refused(Down::Protocol, "an answer that nobody asked for".to_owned());
        };
        self.next += 1;
        let is_last = self.next == self.asked.len();
        if self.older {
            // What was sent along comes to nothing.
            return if is_last { Step::Older } else { Step::More };
        }
        let odd = || Step::Refused(Down::Protocol, "an answer of another kind".to_owned());
        match (asked, value) {
            (Asked::Hello, Value::Error(line)) if is_older(line) => {
                self.older = true;
                Step::More
            }
            (_, Value::Error(line)) => {
                Step::Refused(reason(line), String::from_utf8_lossy(line).into_owned())
            }
            (Asked::Role, Value::List(items)) => match items.first() {
                Some(Value::Text(role)) if role == b"master" => Step::More,
                Some(Value::Text(role)) => {
                    let role = String::from_utf8_lossy(role);
                    Step::Refused(Down::MasterDown, format!("it is no master but \"{role}\""))
                }
                _ => odd(),
            },
            (Asked::Hello, Value::List(_)) => Step::More,
            (Asked::Plain, Value::Text(text)) if text == b"OK" => Step::More,
            (Asked::Ping, Value::Text(text)) if text == b"PONG" => Step::Done,
            _ => odd(),
        }
    }
}

/// Whether an error says that a server does not know `HELLO`, or not its version.
fn is_older(line: &[u8]) -> bool {
    let line = line.to_ascii_lowercase();
    line.starts_with(b"err unknown command") || line.starts_with(b"noproto")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(login: Login<'_>, version: Version) -> String {
        let mut out = Vec::new();
        login.say(version, &mut out);
        let text = String::from_utf8(out).unwrap();
        let words = text.split("\r\n").filter(|word| !word.starts_with(['$', '*']));
        words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }

    fn steps(login: Login<'_>, version: Version, values: &[&str]) -> Vec<Step> {
        let mut answers = login.say(version, &mut Vec::new());
        let value = |text: &&str| match text.split_at(1) {
            ("-", line) => Value::Error(line.into()),
            ("*", first) => Value::List(vec![Value::Text(first.into())]),
            (_, text) => Value::Text(text.into()),
        };
        values.iter().map(|text| answers.take(&value(text))).collect()
    }

    #[test]
    fn it_says_who_asks_and_of_which_database() {
        let (password, user) = (Some(&b"secret"[..]), Some("nginx"));
        let none = Login::default();
        let some = Login { password, ..none };
        let all = Login { password, user, db: 3, master: true };
        assert_eq!(said(none, Version::Three), "HELLO 3 PING");
        assert_eq!(said(some, Version::Three), "HELLO 3 AUTH default secret PING");
        assert_eq!(said(all, Version::Three), "HELLO 3 AUTH nginx secret SELECT 3 ROLE PING");
        assert_eq!(said(none, Version::Two), "PING");
        assert_eq!(said(some, Version::Two), "AUTH secret PING");
        assert_eq!(said(all, Version::Two), "AUTH nginx secret SELECT 3 ROLE PING");
    }

    #[test]
    fn the_first_answer_that_is_none_says_why() {
        let login = Login { db: 1, master: true, ..Login::default() };
        let three = |values: &[&str]| steps(login, Version::Three, values);
        let more = || Step::More;
        let (ok, pong) = (["*server", "+OK", "*master", "+PONG"], Step::Done);
        assert_eq!(three(&ok), [more(), more(), more(), pong.clone()]);
        let refused = |values: &[&str]| match three(values).pop() {
            Some(Step::Refused(down, _)) => down,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&["-NOAUTH HELLO must be called"]), Down::NoAuth);
        assert_eq!(refused(&["-WRONGPASS invalid"]), Down::WrongPass);
        assert_eq!(refused(&["*server", "-ERR DB index is out of range"]), Down::Error);
        assert_eq!(refused(&["*server", "+OK", "*slave"]), Down::MasterDown);
        assert_eq!(refused(&["*server", "+OK", "-NOPERM role"]), Down::NoPerm);
        assert_eq!(refused(&["*server", "+OK", "*master", "-LOADING"]), Down::Loading);
        assert_eq!(refused(&["+OK"]), Down::Protocol);
        assert_eq!(refused(&["*server", "+OK", "*master", "+OK"]), Down::Protocol);
        // One that is older fails at what else was sent, too.
        for hello in ["-ERR unknown command `HELLO`", "-NOPROTO unsupported protocol version"] {
            let all = three(&[hello, "-NOAUTH", "-NOAUTH", "-NOAUTH"]);
            assert_eq!(all, [more(), more(), more(), Step::Older]);
        }
        let two = steps(Login::default(), Version::Two, &["+PONG", "+PONG"]);
        assert_eq!(two[0], pong);
        assert!(matches!(two[1], Step::Refused(Down::Protocol, _)));
    }
}
