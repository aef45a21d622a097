//! Segments in which single values are changed and every checksum is right again, as only somebody writes them who means
//! harm: reading them refuses or gives something, and never panics. Sums that overflow panic in a development build, and in
//! a release build of this crate too.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use rollhouse_core::RecordRule;
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Disk, Query, Replays, SegmentSummary, Sort, SortKey, segment_path};

use crate::stage::Play;

const DIR: &str = "/forged";
const HEADER_BYTES: usize = 64;

/// One change in a record.
#[derive(Debug, Clone)]
enum Change {
    /// Of a number of its header, as docs/replay-format.md has them: offset and bytes.
    Header { field: (usize, usize), value: u64 },
    /// Of its payload: what stands at a share of it is overwritten.
    Payload { at: u16, bytes: Vec<u8> },
}

/// Offset and bytes of what a header has beside mark, version, kind and checksums, but for the payload's length.
const FIELDS: [(usize, usize); 8] = [(10, 2), (16, 4), (20, 4), (24, 4), (28, 4), (32, 8), (40, 8), (48, 4)];

fn values() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..300,
        prop::sample::select(vec![
            u64::MAX,
            u64::MAX - 1,
            1 << 63,
            (1 << 63) - 1,
            1 << 32,
            (1 << 32) - 1,
            1 << 31
        ]),
        any::<u64>(),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        (prop::sample::select(FIELDS.to_vec()), values())
            .prop_map(|(field, value)| Change::Header { field, value }),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 1..3))
            .prop_map(|(at, bytes)| Change::Payload { at, bytes }),
        // The greatest number of a variable length, and what overflows it.
        (any::<u16>(), 1usize..11).prop_map(|(at, length)| Change::Payload { at, bytes: vec![0xFF; length] }),
    ]
}

/// Genuine segments of several shapes.
static GENUINE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let small = |env| Play { lanes: 3, ..Play::new(env, 90) };
    let plays = [
        small("CartPole-v1"),
        Play { record: RecordRule::Trace, noted: true, ..small("MountainCarContinuous-v0") },
        Play { per_episode: false, max_steps: 20, noted: true, ..small("Acrobot-v1") },
        Play { record: RecordRule::Sample { probability: 0.5 }, ..small("GridBreakout-v0") },
    ];
    let bytes = |play: &Play| {
        let disk = FaultyDisk::new();
        crate::stage::play(Arc::new(disk.clone()), Path::new(DIR), play);
        disk.read(&segment_path(Path::new(DIR), 1)).unwrap()
    };
    plays.iter().map(bytes).collect()
});

/// Where the records of a segment begin, and how long their payloads are.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
        let payload = u32::from_le_bytes(header[12..16].try_into().unwrap()) as usize;
        found.push((at, payload));
        at += HEADER_BYTES + payload;
    }
    found
}

fn forge(bytes: &mut [u8], record: usize, change: &Change) {
    let records = records(bytes);
    let (at, length) = records[record % records.len()];
    match change {
        Change::Header { field: (offset, size), value } => {
            let to = at + offset;
            bytes[to..to + size].copy_from_slice(&value.to_le_bytes()[..*size]);
        }
        Change::Payload { at: share, bytes: new } if length > 0 => {
            let from = usize::from(*share) % length;
            let payload = &mut bytes[at + HEADER_BYTES..at + HEADER_BYTES + length];
            payload[from..].iter_mut().zip(new).for_each(|(old, new)| *old = *new);
        }
        Change::Payload { .. } => {}
    }
    let crc = crc32c::crc32c(&bytes[at + HEADER_BYTES..at + HEADER_BYTES + length]);
    bytes[at + 52..at + 56].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[at..at + 60]);
    bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
}

/// Everything that is done with a segment.
fn read(bytes: Vec<u8>) {
    let disk = FaultyDisk::new();
    let path = segment_path(Path::new(DIR), 1);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, bytes);
    let file = disk.open(&path).unwrap();
    if let Ok(summary) = SegmentSummary::read(1, &*file) {
        let _ended = (summary.finished(&*file), summary.digests(&*file));
        let _told = (summary.bytes(), summary.episodes(), summary.is_whole());
    }
    let replays = Replays::open_scanning(Arc::new(disk), Path::new(DIR)).unwrap();
    let _figures = (replays.count(), replays.stats(), replays.incomplete());
    for key in [SortKey::Name, SortKey::Return, SortKey::Length, SortKey::Started] {
        let sort = Sort { key, descending: true };
        let _first = replays.list(&Query { sort, limit: Some(2), ..Query::default() });
    }
    for info in replays.list(&Query::default()).unwrap_or_default() {
        let _named = (replays.find(info.name).is_ok(), info.seed());
        if let Ok(episode) = replays.load(&info) {
            let _steps = episode.recompute(&Registry::builtin());
        }
    }
    let _verified = replays.verify_all(&Registry::builtin(), |_| ());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_segment_whose_values_are_forged_under_right_checksums_is_read_without_a_panic(
        genuine in any::<prop::sample::Index>(),
        forged in prop::collection::vec((any::<u16>(), changes()), 1..4),
    ) {
        let mut bytes = genuine.get(&GENUINE).clone();
        for (record, change) in &forged {
            forge(&mut bytes, usize::from(*record), change);
        }
        read(bytes);
    }
}
