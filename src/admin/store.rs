//! A door for tests of `store`, in the faults build alone: asks what a request wishes.
//!
//! `Peerage-Store: routes;tenant=acme` asks the store "routes" for a tenant, `app=` for an app;
//! `times=` and `at_once=` are for many of them, and a `%` in a key is the number of each;
//! `give_up=` is after how many ms the asker loses patience. `track` has this worker follow the
//! store from then on, `told` says what it was told since, `untrack` ends that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use peerage_core::route::reply::Found;
use serde_json::{Value, json};

use super::answer;
use crate::ffi::conf;
use crate::ffi::global::Global;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::net::executor::{self, Handle};
use crate::net::time::{sleep, timeout};
use crate::store::{self, Invalidate, Store};

/// Answers with what came of it.
pub(super) fn handle(r: Request<'_>, wish: &[u8]) -> isize {
    let wish = String::from_utf8_lossy(wish).into_owned();
    let name = wish.split(';').next().unwrap_or_default();
    let redis = conf::main(r).store(name).expect("a test asks a store that there is");
    let store = store::of(&redis.redis);
    task::run(r, task::Body::Discard, move |_, _| {
        let found = Rc::new(RefCell::new(None));
        let wish = Wish::parse(&wish);
        let job = if wish.has("track") {
            let tracking = executor::spawn(async move { store.track(&Listener, &|| true).await });
            TOLD.get().replace((Some(tracking), Vec::new()));
            found.replace(Some(json!({})));
            None
        } else if wish.has("untrack") {
            TOLD.get().take();
            found.replace(Some(json!({})));
            None
        } else if wish.has("told") {
            found.replace(Some(json!({ "told": std::mem::take(&mut TOLD.get().borrow_mut().1) })));
            None
        } else {
            Some(executor::spawn(all(store, wish, Rc::clone(&found))))
        };
        Box::new(Asking { found, _job: job })
    })
}

/// A request that waits for its answers.
struct Asking {
    found: Answer,
    _job: Option<Handle>,
}

type Answer = Rc<RefCell<Option<Value>>>;

impl Task for Asking {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        match self.found.take() {
            Some(found) => {
                Turn::Answer(answer::json(200, Box::new(found.to_string().into_bytes())))
            }
            None => Turn::Wait(1),
        }
    }
}

/// What is asked for.
struct Wish(BTreeMap<String, String>);

impl Wish {
    fn parse(text: &str) -> Self {
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        };
        Self(text.split(';').skip(1).map(pair).collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.0.get(name).map_or(default, |text| text.parse().expect("a number"))
    }
}

/// What became of many.
#[derive(Default)]
struct Sum {
    left: Cell<u64>,
    found: RefCell<BTreeMap<String, u64>>,
    longest: Cell<u128>,
}

async fn all(store: Rc<Store>, wish: Wish, found: Answer) {
    let (wish, sum) = (Rc::new(wish), Rc::new(Sum::default()));
    sum.left.set(wish.number("times", 1));
    let jobs: Vec<Handle> = (0..wish.number("at_once", 1))
        .map(|_| executor::spawn(some(Rc::clone(&store), Rc::clone(&wish), Rc::clone(&sum))))
        .collect();
    while jobs.iter().any(|job| !job.is_over()) {
        sleep(1).await;
    }
    found.replace(Some(
        json!({ "found": *sum.found.borrow(), "longest": sum.longest.get() as u64 }),
    ));
}

async fn some(store: Rc<Store>, wish: Rc<Wish>, sum: Rc<Sum>) {
    let patience = wish.number("give_up", 60_000);
    while let Some(left) = sum.left.get().checked_sub(1) {
        sum.left.set(left);
        let began = Instant::now();
        let asked = timeout(patience, one(&store, &wish, left)).await;
        let text = asked.unwrap_or_else(|| "given up".to_owned());
        sum.longest.set(sum.longest.get().max(began.elapsed().as_millis()));
        *sum.found.borrow_mut().entry(text).or_default() += 1;
        if wish.has("pause") {
            sleep(wish.number("pause", 0)).await;
        }
    }
}

/// One answer, in words; where the key had a number, whether the answer is its own.
async fn one(store: &Rc<Store>, wish: &Wish, number: u64) -> String {
    let key = |text: &String| text.replace('%', &number.to_string());
    let own = |text: String| text.replace(&format!("-{number}"), "-N");
    if let Some(name) = wish.0.get("app") {
        let (found, value) = store.app(&key(name)).await;
        let there = |addrs: Vec<peerage_core::addr::ServerAddr>| {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            assert_eq!(value, addrs.join(",").as_bytes(), "a test writes addresses as we do");
            addrs.join(",")
        };
        return own(words(found, there));
    }
    let tenant = wish.0.get("tenant").expect("a test asks for something");
    let found = store.tenant(key(tenant).as_bytes()).await;
    own(words(found, |tenant| {
        let app = tenant.app.map_or("none".to_owned(), |app| app.name.into());
        format!("{app} {}", tenant.status)
    }))
}

fn words<T>(found: Found<T>, there: impl FnOnce(T) -> String) -> String {
    match found {
        Found::There(found) => there(found),
        Found::Absent => "absent".to_owned(),
        Found::Malformed => "malformed".to_owned(),
        Found::Down(down) => format!("down: {}", down.as_str()),
    }
}

/// What is followed, and what it told.
static TOLD: Global<RefCell<(Option<Handle>, Vec<String>)>> =
    Global::new(RefCell::new((None, Vec::new())));

/// Writes down what it is told.
struct Listener;

impl Listener {
    fn note(text: String) {
        let mut told = TOLD.get().borrow_mut();
        // Of what comes again and again, once is enough.
        if told.1.last() != Some(&text) {
            told.1.push(text);
        }
    }
}

impl Invalidate for Listener {
    fn tenant(&self, key: &[u8]) {
        Self::note(format!("tenant {}", String::from_utf8_lossy(key)));
    }

    fn app(&self, name: &[u8]) {
        Self::note(format!("app {}", String::from_utf8_lossy(name)));
    }

    fn all(&self) {
        Self::note("all".to_owned());
    }

    fn alive(&self) {
        Self::note("alive".to_owned());
    }

    fn lost(&self) {
        Self::note("lost".to_owned());
    }
}
