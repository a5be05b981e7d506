//! CRC-32C (Castagnoli) as the EROFS superblock uses it: start value all ones, no final inversion.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            // The reversed polynomial 0x1edc6f41.
            value = if value & 1 == 0 { value >> 1 } else { (value >> 1) ^ 0x82f6_3b78 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// Continues a checksum over `bytes`; start with `u32::MAX`.
pub(super) fn update(checksum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(checksum, |sum, byte| (sum >> 8) ^ TABLE[usize::from((sum as u8) ^ byte)])
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(!super::update(u32::MAX, b"123456789"), 0xe306_9283);
    }
}
