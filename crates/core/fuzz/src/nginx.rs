//! How nginx reads the path of a request line.

/// `$uri` of a raw path, as ngx_http_parse_complex_uri computes it; `None` where it answers 400.
pub fn uri(path: &[u8], merge_slashes: bool) -> Option<Vec<u8>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Usual,
        Slash,
        Dot,
        DotDot,
    }
    /// Back over `/..` and the segment before it.
    fn up(out: &mut Vec<u8>) -> Option<()> {
        out.truncate(out.len().checked_sub(3)?);
        let slash = out.iter().rposition(|&b| b == b'/')?;
        out.truncate(slash + 1);
        Some(())
    }
    let (mut out, mut state, mut rest) = (Vec::new(), State::Usual, path.iter());
    if path.first() != Some(&b'/') {
        return None;
    }
    while let Some(&raw) = rest.next() {
        let byte = match raw {
            b'%' => {
                let mut digit = || (*rest.next()? as char).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            raw => raw,
        };
        if byte == 0 {
            return None;
        }
        state = match (state, byte) {
            (State::Slash, b'/') => {
                if !merge_slashes {
                    out.push(byte);
                }
                continue;
            }
            (State::Dot, b'/') => {
                out.pop();
                state = State::Slash;
                continue;
            }
            (State::DotDot, b'/') => {
                up(&mut out)?;
                state = State::Slash;
                continue;
            }
            (_, b'/') => State::Slash,
            (State::Slash, b'.') => State::Dot,
            (State::Dot, b'.') => State::DotDot,
            _ => State::Usual,
        };
        out.push(byte);
    }
    match state {
        State::Usual | State::Slash => {}
        State::Dot => drop(out.pop()),
        State::DotDot => up(&mut out)?,
    }
    Some(out)
}
