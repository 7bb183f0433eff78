//! A text looked for in what comes piece by piece.

/// Looks for a text; remembers no more than how much of it stands at the end of what came.
#[derive(Clone, Debug)]
pub(super) struct Find {
    text: Box<[u8]>,
    /// For each length of a match so far, the longest shorter one that it ends with.
    back: Box<[usize]>,
    matched: usize,
}

impl Find {
    pub(super) fn new(text: &[u8]) -> Self {
        let mut back = vec![0; text.len() + 1];
        let mut matched = 0;
        for i in 1..text.len() {
            while matched > 0 && text[matched] != text[i] {
                matched = back[matched];
            }
            matched += usize::from(text[matched] == text[i]);
            back[i + 1] = matched;
        }
        Self { text: text.into(), back: back.into(), matched: 0 }
    }

    /// Looks at what comes next; whether the text is there now.
    pub(super) fn look(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            if self.matched == self.text.len() {
                break;
            }
            while self.matched > 0 && self.text[self.matched] != byte {
                self.matched = self.back[self.matched];
            }
            self.matched += usize::from(self.text[self.matched] == byte);
        }
        self.matched == self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_the_whole_has(
            text in "[ab]{1,6}",
            body in "[ab]{0,60}",
            cuts in prop::collection::vec(1usize..9, 60),
        ) {
            let mut find = Find::new(text.as_bytes());
            let (mut at, mut found) = (0, false);
            for cut in cuts {
                let end = (at + cut).min(body.len());
                found = find.look(&body.as_bytes()[at..end]);
                prop_assert_eq!(found, body[..end].contains(&text));
                at = end;
            }
            prop_assert_eq!(found, body[..at].contains(&text));
        }
    }
}
