//! Bytes from strangers: every message of what chance makes of others is refused or read, and read the same again.
//!
//! Briefly here, longer with `PROPTEST_CASES=1000000`.

use proptest::prelude::*;
use rollhouse_codec::openra::{MAX_METADATA_BYTES, TAIL_BYTES, Tail};

use super::samples::samples;

/// Whatever is read is written, and that is read and written the same.
fn all(bytes: &[u8]) {
    for sample in samples() {
        if let Ok(first) = (sample.reads)(bytes) {
            let second = (sample.reads)(&first).expect("what was written is read");
            assert_eq!(first, second, "{}", sample.name);
        }
    }
    replay(bytes);
}

/// The end of a file that may be a replay.
fn replay(bytes: &[u8]) {
    let Some((block, tail)) = bytes.split_last_chunk::<TAIL_BYTES>() else { return };
    let Ok(tail) = Tail::of(*tail, bytes.len() as u64) else { return };
    assert!(tail.block_bytes() <= MAX_METADATA_BYTES + 12 && tail.block_bytes() <= block.len());
    let _read = tail.metadata(&block[block.len() - tail.block_bytes()..]);
}

/// A sample with some bytes changed, cut, doubled or put in from another.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = samples().into_iter().map(|sample| sample.bytes).collect();
    let text = b"Root:\n\tMod: ra\nPlayer@0:\n\tName: x\n";
    let length = text.len() as i32;
    let head = [-1, 1, length].map(i32::to_le_bytes).concat();
    seeds.push([&head[..], text, &[length + 4, -2].map(i32::to_le_bytes).concat()].concat());
    let count = seeds.len();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..5), 0..8);
    (0..count, 0..count, changes).prop_map(move |(seed, other, changes)| {
        let mut bytes = seeds[seed].clone();
        for (at, byte, change) in changes {
            let at = at.index(bytes.len() + 1);
            match change {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                3 => bytes.extend_from_within(at..),
                _ => bytes.extend_from_slice(&seeds[other][at.min(seeds[other].len())..]),
            }
        }
        bytes
    })
}

#[test]
fn every_message_that_was_cut_is_refused_or_read() {
    for sample in samples() {
        for end in 0..sample.bytes.len() {
            all(&sample.bytes[..end]);
        }
    }
}

proptest! {
    #[test]
    fn what_chance_makes_of_messages_is_refused_or_read(bytes in mutated()) {
        all(&bytes);
    }

    #[test]
    fn what_chance_writes_is_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        all(&bytes);
    }
}
