//! What a Redis says: any bytes are read alike in whatever pieces they come, and whatever they say has
//! an outcome.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::redis::login::{Login, Step, Version};
use peerage_core::redis::push;
use peerage_core::redis::resp::{MAX_NEST, Parser, RespError, Value};
use peerage_core::redis::sentinel;
use peerage_core::route::reply::{app, marker, tenant};

// How long pieces are, and what is said.
fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let whole = values(std::iter::once(bytes));
    let some = values(bytes.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, some);
    let (values, _) = whole;
    let login = Login { password: Some(b"secret"), db: 1, master: true, ..Login::default() };
    for version in [Version::Two, Version::Three] {
        let mut answers = login.say(version, &mut Vec::new());
        for value in &values {
            if answers.take(value) == Step::Done {
                break;
            }
        }
    }
    for value in &values {
        assert!(nest(value) <= MAX_NEST);
        let _ = (value.with(tenant), value.with(app), value.with(marker));
        let _ = sentinel::master(value);
        if let Value::Push(items) = value {
            push::read(items);
        }
    }
});

/// All values, and what ends them.
fn values<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Value>, Option<RespError>) {
    let (mut parser, mut all) = (Parser::new(4096), Vec::new());
    for piece in pieces {
        parser.feed(piece);
        loop {
            match parser.value() {
                Ok(Some(value)) => all.push(value),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

fn nest(value: &Value) -> usize {
    match value {
        Value::List(items) | Value::Push(items) => 1 + items.iter().map(nest).max().unwrap_or(0),
        _ => 0,
    }
}
