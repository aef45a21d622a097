//! Bytes as lower-case hexadecimal digits.

/// Appends the digits of `bytes`.
pub(crate) fn encode(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(u32::from(nibble), 16));
        }
    }
}

/// Fills `out` from hexadecimal digits; `None` unless `text` is exactly its digits in lower or upper case.
pub(crate) fn decode(text: &str, out: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != out.len() * 2 {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sequence_of_bytes_reads_back(bytes: [u8; 16]) {
            let mut text = String::new();
            super::encode(&bytes, &mut text);
            let mut back = [0; 16];
            prop_assert_eq!(super::decode(&text, &mut back), Some(()));
            prop_assert_eq!(back, bytes);
            prop_assert_eq!(super::decode(&text[1..], &mut back), None);
        }
    }
}
