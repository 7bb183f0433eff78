//! CRC-32C (Castagnoli), eight bytes at a step: the checksum of lines of the state file; and the
//! CRC-32 that nginx hashes keys with.

/// The checksum of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// The checksum of what has the checksum `sum`, followed by these bytes.
pub fn extend(sum: u32, bytes: &[u8]) -> u32 {
    update(&TABLES, sum, bytes)
}

/// The CRC-32 (IEEE) of some bytes, as `ngx_crc32_long`.
pub fn crc32(bytes: &[u8]) -> u32 {
    extend32(0, bytes)
}

/// The CRC-32 of what has the CRC-32 `sum`, followed by these bytes.
pub fn extend32(sum: u32, bytes: &[u8]) -> u32 {
    update(&TABLES32, sum, bytes)
}

#[inline(always)]
fn update(tables: &[[u32; 256]; 8], sum: u32, bytes: &[u8]) -> u32 {
    let mut crc = !sum;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(crc);
        crc = 0;
        for (i, table) in tables.iter().enumerate() {
            crc ^= table[(word >> (56 - 8 * i)) as usize & 0xff];
        }
    }
    for &byte in rest {
        crc = crc >> 8 ^ tables[0][((crc ^ u32::from(byte)) & 0xff) as usize];
    }
    !crc
}

/// `TABLES[n][b]`: the checksum of byte b followed by n zero bytes.
static TABLES: [[u32; 256]; 8] = tables(0x82f6_3b78);
/// The same of CRC-32.
static TABLES32: [[u32; 256]; 8] = tables(0xedb8_8320);

const fn tables(polynomial: u32) -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[n - 1][byte];
            tables[n][byte] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums_of_rfc_3720_hold() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        let table: [(&[u8], u32); 6] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&up, 0x46dd_794e),
            (&down, 0x113f_db5c),
        ];
        for (bytes, sum) in table {
            assert_eq!(crc32c(bytes), sum);
            let (before, after) = bytes.split_at(bytes.len() / 3);
            assert_eq!(extend(crc32c(before), after), sum);
        }
    }
    #[test]
    fn crc_32_is_the_one_of_zlib() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
        assert_eq!(extend32(crc32(b"12345"), b"6789"), 0xcbf4_3926);
    }
}
