//! The password of a Redis, as its file has it.

use thiserror::Error;

/// The longest password, in bytes.
pub const MAX_PASSWORD: usize = 4096;

/// Why a file has no password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PasswordError {
    /// There is none.
    #[error("it has no password")]
    Empty,
    /// More than a password has.
    #[error("a password has at most {MAX_PASSWORD} bytes")]
    TooLong,
    /// More than a line.
    #[error("a password is one line")]
    Lines,
}

/// Reads the password of a file: its only line, without the end of the line.
pub fn parse(bytes: &[u8]) -> Result<Vec<u8>, PasswordError> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        0 => Err(PasswordError::Empty),
        len if len > MAX_PASSWORD => Err(PasswordError::TooLong),
        _ if line.contains(&b'\n') => Err(PasswordError::Lines),
        _ => Ok(line.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        assert_eq!(parse(b"a b\xff").as_deref(), Ok(&b"a b\xff"[..]));
        assert_eq!(parse(b" secret\r\n").as_deref(), Ok(&b" secret"[..]));
        assert_eq!(parse(b"\r\n"), Err(PasswordError::Empty));
        assert_eq!(parse(b"a\nb\n"), Err(PasswordError::Lines));
        assert_eq!(parse(&[b'a'; MAX_PASSWORD + 1]), Err(PasswordError::TooLong));
    }
}
