//! Bytes from strangers at every boundary of the protocol.
//!
//! Each target takes any bytes and checks that what is read is read right. They run over the files in `corpus/`
//! and `golden/` and over what chance makes of those: briefly here, longer with `PROPTEST_CASES=1000000`. A find
//! becomes a file in `corpus/`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rollhouse_core::msgpack::Message;
use rollhouse_core::{BoxSpace, DType, Determinism, EnvSource, EnvSpec, Space};
use rollhouse_wire::limits::{
    MAX_COMMAND_BYTES, MAX_CONTROL_BYTES, MAX_FRAME_BYTES, MAX_METHOD_BYTES, MAX_SIDECAR_BYTES,
};
use rollhouse_wire::{
    Answer, Attached, ClusterStatus, ColumnBuffer, CommandsOpened, EnvList, Envelope, FrameHeader,
    FrameLayout, HEADER_BYTES, HeartbeatTaken, LookAnswer, NodeList, Notes, PoolOpened, PoolStatus, Refusal,
    Registered, Request, ResetLanes, SendLanes, SessionEnd, SessionList, SessionOpened, SessionReplaced,
    Shipped, SoFar, StoreData, StoreListing, WatchGrant, WatchOpened, Welcome, control,
};

/// A header is refused, or says exactly what its bytes say, and its lengths are within their limits.
fn header(bytes: &[u8]) {
    let Some((first, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = FrameHeader::decode(*first) {
        assert_eq!(header.encode(), *first);
        assert!(header.columns as usize <= MAX_FRAME_BYTES && header.sidecar as usize <= MAX_SIDECAR_BYTES);
    }
}

/// A message as it stands on a stream, of every type that is read there.
fn message(bytes: &[u8]) {
    let Some((word, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Ok(length) = control::length(*word, MAX_CONTROL_BYTES) else { return };
    assert!(length <= MAX_CONTROL_BYTES);
    body(&rest[..length.min(rest.len())]);
}

/// What follows a length word, or is a sidecar.
fn body(bytes: &[u8]) {
    reads::<Request>(bytes);
    reads::<Answer<Welcome>>(bytes);
    reads::<Answer<PoolOpened>>(bytes);
    reads::<Answer<PoolStatus>>(bytes);
    reads::<Answer<ClusterStatus>>(bytes);
    reads::<Answer<NodeList>>(bytes);
    reads::<Answer<EnvList>>(bytes);
    reads::<Answer<SessionList>>(bytes);
    reads::<Answer<Registered>>(bytes);
    reads::<Answer<HeartbeatTaken>>(bytes);
    reads::<Answer<Shipped>>(bytes);
    reads::<Answer<SessionOpened>>(bytes);
    reads::<Answer<SessionEnd>>(bytes);
    reads::<Answer<Attached>>(bytes);
    reads::<Answer<CommandsOpened>>(bytes);
    reads::<Answer<WatchOpened>>(bytes);
    reads::<Answer<WatchGrant>>(bytes);
    reads::<LookAnswer>(bytes);
    reads::<SoFar>(bytes);
    envelope(bytes);
    reads::<Answer<SessionReplaced>>(bytes);
    reads::<Answer<StoreListing>>(bytes);
    reads::<Answer<StoreData>>(bytes);
    reads::<ResetLanes>(bytes);
    reads::<SendLanes>(bytes);
    reads::<Notes>(bytes);
    reads::<Refusal>(bytes);
}

/// An envelope is refused, or within its limits and written as it was read.
fn envelope(bytes: &[u8]) {
    if let Ok(read) = Envelope::decode(bytes) {
        assert!(bytes.len() <= MAX_COMMAND_BYTES && (1..=MAX_METHOD_BYTES).contains(&read.method.len()));
        // What has fields that are not known is shorter when it is written.
        let written = read.encode().expect("what was read is within the limits");
        assert_eq!(Envelope::decode(&written).expect("what was written is read"), read);
        if let Ok(params) = read.payload::<ResetLanes>() {
            assert!(params.mask.len() <= MAX_COMMAND_BYTES);
        }
    }
}

/// Whatever is read can be written, and reads the same again. Compared as bytes, so that a NaN is equal to itself.
fn reads<T: Message>(bytes: &[u8]) {
    if let Ok(read) = control::decode::<T>(bytes) {
        let mut first = Vec::new();
        if control::encode(&read, &mut first).is_ok() {
            let again: T = control::decode(&first[4..]).expect("what was written is read");
            let mut second = Vec::new();
            control::encode(&again, &mut second).expect("what was read is written");
            assert_eq!(first, second);
        }
    }
}

/// The columns of a frame over some lanes, as a node reads them: the count is checked against the bytes first.
fn named_lanes(bytes: &[u8]) {
    let layout = FrameLayout::of(&spec());
    let mut buffer = ColumnBuffer::default();
    buffer.resize(bytes.len());
    buffer.bytes_mut().copy_from_slice(bytes);
    let Some(places) = buffer.count().and_then(|count| layout.actions(count as usize, true)) else { return };
    if places.bytes == bytes.len() {
        assert_eq!(buffer.lanes(&places.lanes).len() as u32, buffer.count().unwrap());
        let _actions = buffer.column(&places.actions, layout.action.dtype);
    }
}

fn spec() -> EnvSpec {
    let bounds = BoxSpace {
        low: vec![0.0; 3].into(),
        high: vec![1.0; 3].into(),
        shape: vec![3],
        dtype: DType::F32,
        choices: false,
        parts: None,
        own: None,
    };
    EnvSpec {
        id: "Example-v0".into(),
        source: EnvSource::BuiltIn,
        summary: String::new(),
        observation_space: Space::Box(bounds).into(),
        action_space: Space::discrete(2),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: 0,
    }
}

fn files(folder: &str) -> Vec<Vec<u8>> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .map(|p| std::fs::read(p).unwrap())
        .collect()
}

fn seeds() -> Vec<Vec<u8>> {
    ["golden", "corpus/control", "corpus/envelope", "corpus/header"].into_iter().flat_map(files).collect()
}

/// A seed with some bytes changed, cut, doubled or put in from another.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let seeds = seeds();
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
            bytes.truncate(MAX_MUTATED);
        }
        bytes
    })
}

const MAX_MUTATED: usize = 64 << 10;

fn all(bytes: &[u8]) {
    header(bytes);
    message(bytes);
    body(bytes);
    body(bytes.get(4..).unwrap_or_default());
    named_lanes(bytes);
}

#[test]
fn the_corpus_is_read_or_refused() {
    let seeds = seeds();
    assert!(seeds.len() > 40, "{} files", seeds.len());
    seeds.iter().for_each(|bytes| all(bytes));
}

#[test]
fn nothing_in_the_corpus_of_bad_messages_is_a_request() {
    for bytes in files("corpus/control") {
        let read = control::decode::<Request>(&bytes[4..]);
        assert!(read.is_err(), "{read:?}");
    }
    for bytes in files("corpus/envelope") {
        assert!(Envelope::decode(&bytes[4..]).is_err());
    }
    for bytes in files("corpus/header") {
        assert!(FrameHeader::decode(bytes[..HEADER_BYTES].try_into().unwrap()).is_err());
    }
}

proptest! {
    #[test]
    fn changed_seeds_are_read_or_refused(bytes in mutated()) {
        all(&bytes);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
        all(&bytes);
    }

    #[test]
    fn arbitrary_headers_are_read_or_refused(bytes: [u8; HEADER_BYTES]) {
        header(&bytes);
    }
}
