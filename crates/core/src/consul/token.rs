//! The token of a Consul, as its file has it.

use thiserror::Error;

/// The longest token, in bytes.
pub const MAX_TOKEN: usize = 4096;

/// Why a file has no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Nothing but spaces.
    #[error("it has no token")]
    Empty,
    /// More than a token has.
    #[error("a token has at most {MAX_TOKEN} bytes")]
    TooLong,
    /// Bytes that no header may have.
    #[error("a token has printable characters of ASCII only, and no spaces")]
    Character,
}

/// Reads the token of a file: its text without the white space around it.
pub fn parse(bytes: &[u8]) -> Result<String, TokenError> {
    let token = bytes.trim_ascii();
    match token.len() {
        0 => return Err(TokenError::Empty),
        len if len > MAX_TOKEN => return Err(TokenError::TooLong),
        _ => {}
    }
    match str::from_utf8(token) {
        Ok(token) if token.bytes().all(|b| b.is_ascii_graphic()) => Ok(token.to_owned()),
        _ => Err(TokenError::Character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word() {
        assert_eq!(parse(b" 0000-1111\r\n").as_deref(), Ok("0000-1111"));
        assert_eq!(parse(b"\n"), Err(TokenError::Empty));
        assert_eq!(parse(b"a\nX-Evil: 1"), Err(TokenError::Character));
        assert_eq!(parse("é".as_bytes()), Err(TokenError::Character));
        assert_eq!(parse(&[b'a'; MAX_TOKEN + 1]), Err(TokenError::TooLong));
    }
}
