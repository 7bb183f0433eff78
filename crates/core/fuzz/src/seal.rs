//! Lines of a state file whose checksums are made to hold, so that what they say is read.

use peerage_core::crc::crc32c;

/// Sets right the sum of each line that has the form of one.
pub fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let mut at = 0;
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        if let Some(data) = data(line) {
            out[at + 8..at + 16].copy_from_slice(format!("{:08x}", crc32c(data)).as_bytes());
        }
        at += line.len();
    }
    out
}

/// Whether the first lines are as [`seal`] leaves them, form and sum.
pub fn is_sealed(bytes: &[u8], lines: usize) -> bool {
    let mut lines = bytes.split_inclusive(|&b| b == b'\n').take(lines);
    lines.all(|line| data(line).is_some() && seal(line) == line)
}

fn data(line: &[u8]) -> Option<&[u8]> {
    let (sum, data) = line.strip_prefix(b"{\"sum\":\"")?.split_at_checked(8)?;
    let plain = sum.iter().all(|&b| b != b'\n');
    data.strip_prefix(b"\",\"data\":")?.strip_suffix(b"}\n").filter(|_| plain)
}
