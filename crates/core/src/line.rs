//! A line of a state file: its data as JSON, in a checksum.
//!
//! ```text
//! {"sum":"8a9136aa","data":{…}}
//! ```
//!
//! The sum is of the bytes of the data. Fields with their default value are left out; unknown
//! fields are ignored, so that a file of a later version of the same format can be read.

pub(crate) mod route;
pub(crate) mod server;
pub(crate) mod upstream;

use serde::{Deserialize, Serialize};

use crate::crc::crc32c;
use crate::damage::Fault;

/// The format that is written, and the latest that is read.
pub const FORMAT: u32 = 2;

const SUM: &[u8] = b"{\"sum\":\"";
const DATA: &[u8] = b"\",\"data\":";

/// Appends a line: the data in its checksum.
pub(crate) fn write<T: Serialize>(out: &mut Vec<u8>, data: &T) {
    wrap(out, |out| {
        // A vector takes everything and no type of a line refuses to be written.
        let _ = serde_json::to_writer(out, data);
    });
}

/// Appends a line whose data `fill` appends.
pub(crate) fn wrap(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(SUM);
    let sum_at = out.len();
    out.extend_from_slice(b"00000000");
    out.extend_from_slice(DATA);
    let from = out.len();
    fill(out);
    let sum = format!("{:08x}", crc32c(&out[from..]));
    out[sum_at..sum_at + 8].copy_from_slice(sum.as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Takes the data out of a line, if its checksum holds.
pub(crate) fn unwrap(text: &[u8]) -> Result<&[u8], Fault> {
    let text = text.strip_suffix(b"\n").ok_or_else(|| Fault::torn("the line is cut off"))?;
    let bad = || Fault::from("not a line of a state file".to_owned());
    let text = text.strip_prefix(SUM).ok_or_else(bad)?;
    let (sum, text) = text.split_at_checked(8).ok_or_else(bad)?;
    let text = text.strip_prefix(DATA).ok_or_else(bad)?;
    let data = text.strip_suffix(b"}").ok_or_else(bad)?;
    if sum != format!("{:08x}", crc32c(data)).as_bytes() {
        return Err("its checksum does not hold".to_owned().into());
    }
    Ok(data)
}

/// Reads data.
pub(crate) fn from_json<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(data).map_err(|error| error.to_string())
}

/// Reads the data of a first line, which says the format of those that follow.
pub(crate) fn first<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Fault> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = from_json(data)?;
    if format > FORMAT {
        return Err(Fault::format(format!("format {format} is later than {FORMAT}")));
    }
    Ok(from_json(data)?)
}

/// For fields that are left out where they say nothing.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
