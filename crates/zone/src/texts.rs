//! The texts of an upstream as they lie in the zone: a block of their own, read by requests.
//!
//! Its first word has their lengths, 16 bits each; the texts follow, one after the other.

use peerage_core::template::Template;
use peerage_core::texts::Texts;
use peerage_shm::Region;

use crate::choice::Target;
use crate::layout::{Blob, Table};
use crate::worker::Worker;

/// Bytes of the lengths.
const HEAD: usize = 8;

/// The block's bytes; none where there is no text.
pub(crate) fn encode(texts: &Texts) -> Vec<u8> {
    if texts.is_empty() {
        return Vec::new();
    }
    let Texts { hash_key, host, tls_name } = texts;
    let all = [
        hash_key.as_ref().map_or("", Template::as_str),
        host.as_deref().unwrap_or_default(),
        tls_name.as_deref().unwrap_or_default(),
    ];
    let mut bytes = vec![0; HEAD];
    for (place, text) in bytes.chunks_exact_mut(2).zip(all) {
        // The rules of the fields leave 255 bytes each, and no text that is empty.
        place.copy_from_slice(&(text.len() as u16).to_le_bytes());
    }
    bytes.extend(all.iter().flat_map(|text| text.bytes()));
    bytes
}

/// The texts of a block; `None` where it does not read back.
pub(crate) fn read(region: &Region, blob: Blob) -> Option<Texts> {
    if blob.len == 0 {
        return Some(Texts::default());
    }
    let bytes = blob.read(region);
    let (head, mut rest) = bytes.split_at_checked(HEAD)?;
    let mut texts = lengths(head).map(|len| {
        let (text, after) = rest.split_at_checked(len)?;
        rest = after;
        std::str::from_utf8(text).ok()
    });
    let mut next = || texts.next()?.map(|text| (!text.is_empty()).then(|| text.to_owned()));
    let (hash_key, host, tls_name) = (next()?, next()?, next()?);
    let hash_key = hash_key.map(|text| Template::parse(&text)).transpose().ok()?;
    Some(Texts { hash_key, host, tls_name })
}

fn lengths(head: &[u8]) -> impl Iterator<Item = usize> {
    let (pairs, _) = head.as_chunks::<2>();
    pairs.iter().map(|&pair| u16::from_le_bytes(pair).into())
}

impl Worker {
    /// The texts of an upstream as they are now; `None`: there is no such upstream.
    pub fn texts(&self, target: &Target<'_>) -> Option<Texts> {
        let _section = self.enter();
        read(self.region(), self.table_of(target)?.texts())
    }

    /// Appends the text of an upstream's `hash_key`; `false`: it has none, or is not there.
    pub fn hash_key(&self, target: &Target<'_>, out: &mut Vec<u8>) -> bool {
        let _section = self.enter();
        let Some(blob) = self.table_of(target).map(Table::texts) else { return false };
        if blob.len == 0 {
            return false;
        }
        let mut head = Vec::with_capacity(HEAD);
        self.region().read_bytes(blob.at, 0, HEAD, &mut head);
        let len = lengths(&head).next().unwrap_or(0);
        self.region().read_bytes(blob.at, 1, len, out);
        len != 0
    }

    fn table_of(&self, target: &Target<'_>) -> Option<Table> {
        self.find(target)?.1.table(self.zone())
    }
}

#[cfg(test)]
mod tests {
    use peerage_shm::{AtomicU64, Ref};

    use super::*;

    #[test]
    fn a_block_reads_back() {
        let words: &'static [AtomicU64] = Vec::leak((0..512).map(AtomicU64::new).collect());
        let region = Region::new(words);
        let key = |text: &str| Some(Template::parse(text).expect("a text with variables"));
        for texts in [
            Texts { hash_key: key("$uri"), host: Some("a".into()), tls_name: Some("b.c".into()) },
            Texts { hash_key: None, host: None, tls_name: Some("x".repeat(255)) },
            Texts { hash_key: key(&"é".repeat(127)), host: None, tls_name: None },
            Texts::default(),
        ] {
            let bytes = encode(&texts);
            let blob = Blob { at: Ref::from_raw(3), len: bytes.len() as u32 };
            region.write_bytes(blob.at, 0, &bytes);
            assert_eq!(read(&region, blob), Some(texts));
        }
    }
}
