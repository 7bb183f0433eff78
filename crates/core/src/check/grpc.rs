//! A call of `grpc.health.v1.Health/Check`: its request as bytes, and what the answer means.
//!
//! A message is a byte that says whether it is compressed, its length in four bytes, and a protocol
//! buffer: of the request field 1, a text, is the service; of the answer field 1, a number, is 1
//! where the service is serving.

use crate::check::answer::Step;
use crate::check::reason::Reason;
use crate::check::verdict::Outcome;

/// The path of the request.
pub const PATH: &str = "/grpc.health.v1.Health/Check";
/// The type of its body.
pub const CONTENT_TYPE: &str = "application/grpc";

const SERVING: u64 = 1;
/// Bytes before a message.
const PREFIX: usize = 5;
/// The longest message of an answer, in bytes: one has two, and what later versions may add.
const LONGEST: usize = 4096;

/// The body of the request; no service is the server as a whole.
pub fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(1 << 3 | LENGTH);
        varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.append(&mut message);
    body
}

/// An answer that is being judged.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// The head of an answer; `grpc_status` where it says how the call ended already.
    pub fn head(&self, status: u16, content_type: &str, grpc_status: Option<&str>) -> Step {
        if status != 200 {
            return Step::Done(Err(Reason::Status(status)));
        }
        let rest = content_type.get(CONTENT_TYPE.len()..).unwrap_or("?");
        let is_grpc = content_type.is_char_boundary(CONTENT_TYPE.len())
            && content_type[..CONTENT_TYPE.len()].eq_ignore_ascii_case(CONTENT_TYPE)
            && (rest.is_empty() || rest.starts_with(['+', ';', ' ']));
        if !is_grpc {
            return Step::Done(Err(Reason::Protocol));
        }
        match grpc_status {
            None => Step::More,
            // Without a message it cannot have gone well.
            Some(status) => Step::Done(Err(ended(status).err().unwrap_or(Reason::Protocol))),
        }
    }

    /// The next piece of the body.
    pub fn body(&mut self, piece: &[u8]) -> Step {
        if self.bytes.len() + piece.len() > PREFIX + LONGEST {
            return Step::Done(Err(Reason::Protocol));
        }
        self.bytes.extend_from_slice(piece);
        Step::More
    }

    /// The answer is whole; what its trailers say.
    pub fn end(&self, grpc_status: Option<&str>) -> Outcome {
        match grpc_status {
            None => return Err(Reason::Closed),
            Some(status) => ended(status)?,
        }
        let Some((prefix, message)) = self.bytes.split_first_chunk::<PREFIX>() else {
            return Err(Reason::Protocol);
        };
        let [compressed, len @ ..] = *prefix;
        if compressed != 0 || u32::from_be_bytes(len) as usize != message.len() {
            return Err(Reason::Protocol);
        }
        match status(message) {
            None => Err(Reason::Protocol),
            Some(SERVING) => Ok(()),
            Some(_) => Err(Reason::NotServing),
        }
    }
}

/// What a `grpc-status` says.
fn ended(status: &str) -> Outcome {
    let digits = status.bytes().all(|byte| byte.is_ascii_digit());
    match status.parse::<u8>() {
        Ok(0) if digits => Ok(()),
        Ok(status) if digits => Err(Reason::Grpc(status)),
        _ => Err(Reason::Protocol),
    }
}

const NUMBER: u8 = 0;
const EIGHT: u8 = 1;
const LENGTH: u8 = 2;
const FOUR: u8 = 5;

/// Field 1 of a message, 0 where it has none; `None` where it is no message.
fn status(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let key = number(&mut message)?;
        let skipped = match (key & 7) as u8 {
            NUMBER => {
                let value = number(&mut message)?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            EIGHT => 8,
            LENGTH => usize::try_from(number(&mut message)?).ok()?,
            FOUR => 4,
            _ => return None,
        };
        if key >> 3 == 0 || key >> 3 == 1 && key & 7 != u64::from(NUMBER) {
            return None;
        }
        message = message.get(skipped..)?;
    }
    Some(status)
}

/// Takes a number of a variable length.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        // What does not fit a number is cut off, as protocol buffers do.
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(bytes: &[u8]) -> Reply {
        let mut reply = Reply::default();
        assert_eq!(reply.body(bytes), Step::More);
        reply
    }

    #[test]
    fn a_request_names_its_service() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("a.B"), [0, 0, 0, 0, 5, 10, 3, b'a', b'.', b'B']);
        let long = request(&"x".repeat(200));
        assert_eq!(long[..8], [0, 0, 0, 0, 203, 10, 200, 1]);
    }

    #[test]
    fn only_serving_passes() {
        let table: [(&[u8], Option<&str>, Outcome); 16] = [
            (&[0, 0, 0, 0, 2, 8, 1], Some("0"), Ok(())),
            (&[0, 0, 0, 0, 2, 8, 2], Some("0"), Err(Reason::NotServing)),
            (&[0, 0, 0, 0, 0], Some("0"), Err(Reason::NotServing)),
            (&[0, 0, 0, 0, 2, 8, 1], Some("12"), Err(Reason::Grpc(12))),
            (&[], Some("5"), Err(Reason::Grpc(5))),
            (&[], Some("0"), Err(Reason::Protocol)),
            (&[], Some("-1"), Err(Reason::Protocol)),
            (&[0, 0, 0, 0, 2, 8, 1], Some("+0"), Err(Reason::Protocol)),
            (&[0, 0, 0, 0, 2, 8, 1], None, Err(Reason::Closed)),
            (&[1, 0, 0, 0, 2, 8, 1], Some("0"), Err(Reason::Protocol)),
            (&[0, 0, 0, 0, 3, 8, 1], Some("0"), Err(Reason::Protocol)),
            (&[0, 0, 0, 0, 1, 8, 1], Some("0"), Err(Reason::Protocol)),
            // Fields of a later version, of every kind, and the last value of several.
            (&[0, 0, 0, 0, 8, 8, 2, 18, 2, 8, 1, 8, 1], Some("0"), Ok(())),
            (&[0, 0, 0, 0, 7, 21, 1, 2, 3, 4, 8, 1], Some("0"), Ok(())),
            (&[0, 0, 0, 0, 2, 10, 0], Some("0"), Err(Reason::Protocol)),
            (&[0, 0, 0, 0, 2, 8, 0x81], Some("0"), Err(Reason::Protocol)),
        ];
        for (bytes, grpc_status, outcome) in table {
            assert_eq!(reply(bytes).end(grpc_status), outcome, "{bytes:?} {grpc_status:?}");
        }
    }

    #[test]
    fn a_head_may_end_the_call() {
        let none = Reply::default();
        let table = [
            (200, "application/grpc", None, Step::More),
            (200, "Application/gRPC+proto", None, Step::More),
            (200, "application/grpc; x=y", None, Step::More),
            (200, "application/grpcweb", None, Step::Done(Err(Reason::Protocol))),
            (200, "text/html", None, Step::Done(Err(Reason::Protocol))),
            (200, "", None, Step::Done(Err(Reason::Protocol))),
            (502, "text/html", None, Step::Done(Err(Reason::Status(502)))),
            (200, "application/grpc", Some("12"), Step::Done(Err(Reason::Grpc(12)))),
            (200, "application/grpc", Some("0"), Step::Done(Err(Reason::Protocol))),
        ];
        for (status, kind, grpc_status, step) in table {
            assert_eq!(none.head(status, kind, grpc_status), step, "{status} {kind}");
        }
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let mut reply = Reply::default();
        let steps: Vec<Step> = (0..5).map(|_| reply.body(&[0; 1000])).collect();
        assert_eq!(steps[3], Step::More);
        assert_eq!(steps[4], Step::Done(Err(Reason::Protocol)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), kind in "\\PC{0,24}") {
            let _ = (status(&bytes), Reply::default().head(200, &kind, None));
            let _ = Reply { bytes }.end(Some("0"));
        }

        #[test]
        fn numbers_read_back(number in any::<u64>()) {
            let mut bytes = Vec::new();
            varint(&mut bytes, number);
            prop_assert_eq!(super::number(&mut &bytes[..]), Some(number));
        }
    }
}
