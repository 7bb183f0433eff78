//! Answers of checked servers: any bytes are judged, and alike in whatever pieces they come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::check::Check;
use peerage_core::check::answer::{Answer, BODY, Step};
use peerage_core::check::grpc::{Reply, request};
use peerage_core::check::reason::Reason;
use peerage_core::check::verdict::Outcome;

// How long pieces are, a text that is looked for or a status of gRPC up to a line feed, an answer.
fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let Ok(text) = str::from_utf8(&input[..end]) else { return };
    let bytes = input.get(end + 1..).unwrap_or_default();
    let pieces = || bytes.chunks(usize::from(piece).max(1));

    let body = format!("body={text}");
    if let Ok(check) = Check::parse(&[&body]) {
        let mut answer = Answer::new(&check);
        let status = u16::from(piece) * 3;
        let head = answer.head(status);
        assert!(head == Step::More || head == Step::Done(Err(Reason::Status(status))));
        let mut judged = None;
        for piece in pieces() {
            match answer.body(piece) {
                Step::Done(outcome) => judged = judged.or(Some(outcome)),
                Step::More => assert_eq!(judged, None),
            }
        }
        let outcome = answer.end();
        let first = &bytes[..bytes.len().min(BODY)];
        let has = first.windows(text.len()).any(|window| window == text.as_bytes());
        assert_eq!(outcome.is_ok(), has, "{text:?}");
        assert!(judged.is_none_or(|judged| judged == outcome));
    }

    let reply = |pieces: &mut dyn Iterator<Item = &[u8]>| -> Outcome {
        let mut reply = Reply::default();
        for piece in pieces {
            if let Step::Done(outcome) = reply.body(piece) {
                return outcome;
            }
        }
        reply.end(Some(text))
    };
    let whole = reply(&mut std::iter::once(bytes));
    assert_eq!(reply(&mut pieces()), whole);
    if whole.is_ok() {
        assert_eq!((text.parse(), bytes[0]), (Ok(0u8), 0));
    }
    let _ = Reply::default().head(200, text, None);

    let asked = request(text);
    assert_eq!(asked[1..5], ((asked.len() - 5) as u32).to_be_bytes());
    assert!(asked.ends_with(text.as_bytes()));
});
