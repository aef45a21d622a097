//! Hashes of bytes.

use rollhouse_core::split_mix64;

/// Adds bytes to a hash. Where they are cut counts.
pub(crate) fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(split_mix64(hash ^ bytes.len() as u64), |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        split_mix64(hash ^ u64::from_le_bytes(word))
    })
}
