//! Segments made to hurt whoever reads them: what they cost, and that the rest of them is read all the same.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod stage;

use std::path::Path;
use std::sync::Arc;

use allocation_counter::measure;
use rollhouse_core::limits::{MAX_NAME_BYTES, MAX_OBS_COLUMNS, MAX_OPTIONS, MAX_ROW_ELEMENTS};
use rollhouse_core::{
    BoxSpace, ColumnSpec, CompositeSpace, DType, EnvSpec, ObservationSpace, Options, Role, Space,
};
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Disk, Query, Replays, SegmentSummary, segment_path};
use serde::Serialize;
use stage::Play;

const DIR: &str = "/hostile";
const ENV: &str = "CartPole-v1";

/// A sealed segment with one run, and that run's header as it stands in it.
fn genuine() -> (Vec<u8>, Vec<u8>) {
    let disk = FaultyDisk::new();
    stage::play(Arc::new(disk.clone()), Path::new(DIR), &Play { lanes: 4, ..Play::new(ENV, 200) });
    let bytes = disk.read(&segment_path(Path::new(DIR), 1)).unwrap();
    let length = u32::from_le_bytes(bytes[64 + 12..64 + 16].try_into().unwrap()) as usize;
    let header = bytes[2 * 64..2 * 64 + length].to_vec();
    (bytes, header)
}

fn spec() -> EnvSpec {
    Registry::builtin().get(ENV).unwrap().spec().clone()
}

/// A genuine header that says something else under `key`.
fn with(key: &str, value: &impl Serialize, other: &[u8]) -> Vec<u8> {
    let (_, header) = genuine();
    let pair = |value: &[u8]| [&rmp_serde::to_vec(key).unwrap(), value].concat();
    let said = pair(&rmp_serde::to_vec_named(value).unwrap());
    let at = header.windows(said.len()).position(|window| window == said).unwrap();
    [&header[..at], &pair(other), &header[at + said.len()..]].concat()
}

/// A genuine header whose observation space is another one.
fn observing(space: &[u8]) -> Vec<u8> {
    with("observation_space", &spec().observation_space, space)
}

/// A run record as docs/replay-format.md has it.
fn run_record(index: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x89RHrec\r\n");
    put(8, &[1, 2]);
    put(12, &(payload.len() as u32).to_le_bytes());
    put(16, &index.to_le_bytes());
    put(52, &crc32c::crc32c(payload).to_le_bytes());
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    [&header, payload].concat()
}

/// The genuine segment with these runs beside its own.
fn segment(headers: &[Vec<u8>]) -> Vec<u8> {
    let (genuine, _) = genuine();
    let (body, seal) = genuine.split_at(genuine.len() - 64);
    let records = (1..).zip(headers).map(|(index, header)| run_record(index, header));
    [body, &records.collect::<Vec<_>>().concat(), seal].concat()
}

/// Reads a segment; gives what its runs took at most, in bytes beside its own, and whether all of it was intact. The
/// episodes of the genuine run are there in any case.
fn cost(headers: &[Vec<u8>]) -> (u64, bool) {
    let disk = FaultyDisk::new();
    let path = segment_path(Path::new(DIR), 1);
    disk.create_dir(path.parent().unwrap()).unwrap();
    let bytes = segment(headers);
    disk.write(&path, bytes.clone());
    let file = disk.open(&path).unwrap();
    let mut found = None;
    let used = measure(|| found = Some(SegmentSummary::read(1, &*file).unwrap()));
    let found = found.unwrap();
    let listed = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap().list(&Query::default()).unwrap();
    assert!(found.episodes() > 10 && listed.len() as u64 >= found.episodes(), "{} listed", listed.len());
    (used.bytes_max - bytes.len() as u64, found.is_whole())
}

/// A space in a tuple of one, `depth` times, with a list of `bytes` bytes in the innermost.
fn nested(depth: usize, bytes: usize) -> Vec<u8> {
    let tuples = b"\x82\xA4kind\xA5tuple\xA6spaces\x91".repeat(depth);
    let innermost = b"\x84\xA4kind\xA8discrete\xA1n\x02\xA5start\x00\xA4more";
    [&tuples[..], innermost, &list(bytes, b"\x00")].concat()
}

/// A list of `count` times `element`.
fn list(count: usize, element: &[u8]) -> Vec<u8> {
    [&b"\xDD"[..], &(count as u32).to_be_bytes(), &element.repeat(count)].concat()
}

/// Symptom: a run header of 410 kB, nested 500 deep, took over 4 GB; the coordinator died, and again at each delivery.
/// Cause: headers were decoded without a bound of depth, by derived code that copies what is nested at every level of
/// it. Fix: one decoder with a bound of depth and bytes, and spaces read without copies.
#[test]
fn a_run_header_that_is_nested_deeply_costs_no_more_than_its_bytes() {
    for (depth, taken) in [(500, false), (9, true)] {
        let (used, whole) = cost(&[observing(&nested(depth, 400_000))]);
        assert!(whole == taken && used < 4 << 20, "depth {depth}: {used} bytes");
    }
}

/// Symptom, cause: as above, and nothing bounded what a few bytes of a header become in memory. Fix: lists are bounded by
/// what they are lists of.
#[test]
fn lists_of_a_run_header_take_no_more_memory_than_what_they_are_lists_of() {
    let many = 4_000_000;
    let discrete = b"\x83\xA4kind\xA8discrete\xA1n\x02\xA5start\x00";
    let columns = [&b"\x82\xA4kind\xA5tuple\xA6spaces"[..], &list(100_000, discrete)].concat();
    let empty =
        [&b"\x82\xA4kind\xA5tuple\xA6spaces"[..], &list(many, b"\x82\xA4kind\xA5tuple\xA6spaces\x90")];
    let scalar = [&b"\x81\xA1a"[..], &list(many, b"\x00")].concat();
    let headers = [
        observing(&columns),
        observing(&empty.concat()),
        with("observation_names", &spec().observation_names, &list(many, b"\xA0")),
        with("info_channels", &spec().info_channels, &list(many / 4, b"\x95\xA0\xA2u8\x90\x90\xA3obs")),
        with("lane_options", &[(1u32, 0u32)], &list(many, b"\x92\x00\x00")),
        with("options", &[Options::check(&spec().options, &[]).unwrap()], &list(many, b"\x80")),
        with("options", &[Options::check(&spec().options, &[]).unwrap()], &list(1, &scalar)),
    ];
    for (at, header) in headers.into_iter().enumerate() {
        let (used, whole) = cost(&[header]);
        assert!(!whole && used < 16 << 20, "header {at}: {used} bytes");
    }
}

/// Symptom, cause: as above; each of many headers may be within its bounds. Fix: what the headers of one segment take
/// together is bounded too.
#[test]
fn the_run_headers_of_a_segment_are_bounded_together() {
    // The costliest of which each byte becomes many.
    let sets =
        with("options", &[Options::check(&spec().options, &[]).unwrap()], &list(60_000, b"\x81\xA0\xC2"));
    let (used, whole) = cost(&vec![sets; 40]);
    assert!(!whole && used < 700 << 20, "{used} bytes");
}

/// A few bytes may stand for a long header, and many such records for more memory than there is.
#[test]
fn coded_headers_of_a_few_bytes_that_stand_for_long_ones_are_bounded_together() {
    let sets =
        with("options", &[Options::check(&spec().options, &[]).unwrap()], &list(60_000, b"\x81\xA0\xC2"));
    let mut coded = crc32c::crc32c(&sets).to_le_bytes().to_vec();
    for mut value in [sets.len(), sets.len(), 0, 0] {
        while value >= 0x80 {
            coded.push(value as u8 | 0x80);
            value >>= 7;
        }
        coded.push(value as u8);
    }
    let (genuine, _) = genuine();
    let (body, seal) = genuine.split_at(genuine.len() - 64);
    let mut records = run_record(1, &sets);
    for index in 2..100_000 {
        let mut record = run_record(index, &coded);
        record[28..32].copy_from_slice(&2u32.to_le_bytes());
        let crc = crc32c::crc32c(&record[..60]);
        record[60..64].copy_from_slice(&crc.to_le_bytes());
        records.extend_from_slice(&record);
    }
    let bytes = [body, &records, seal].concat();
    let mut found = None;
    let used = measure(|| found = Some(SegmentSummary::of(1, &bytes)));
    let found = found.unwrap();
    assert!(!found.is_whole() && found.episodes() > 10);
    assert!(found.runs().len() <= 2 && used.bytes_max < 700 << 20, "{} bytes", used.bytes_max);
}

/// Symptom: in a release build the row of a forged shape has 0 bytes, and what is read with it lies anywhere. Cause: the
/// products of shapes wrap. Fix: shapes are checked as they are read.
#[test]
fn shapes_whose_product_wraps_or_does_not_fit_the_bounds_are_refused() {
    let halves = vec![1 << 32, 1 << 32];
    let boxed = |low: usize, shape: &[usize]| {
        let bounds = BoxSpace {
            low: vec![0.0; low].into(),
            high: vec![1.0; low].into(),
            shape: shape.into(),
            dtype: DType::F32,
            choices: false,
            parts: None,
            own: None,
        };
        rmp_serde::to_vec_named(&Space::Box(bounds)).unwrap()
    };
    let channel = |shape: &[usize]| {
        let column = ColumnSpec {
            path: "x".into(),
            dtype: DType::F64,
            shape: shape.into(),
            names: Vec::new(),
            role: Role::Info,
        };
        rmp_serde::to_vec_named(&[column]).unwrap()
    };
    let channels = |shape: &[usize]| with("info_channels", &spec().info_channels, &channel(shape));
    for header in [
        observing(&boxed(0, &halves)),
        observing(&boxed(3, &[4])),
        observing(&boxed(1, &[MAX_ROW_ELEMENTS, MAX_ROW_ELEMENTS])),
        channels(&halves),
        channels(&[MAX_ROW_ELEMENTS + 1]),
    ] {
        assert!(!cost(&[header]).1);
    }
    for header in [observing(&boxed(4, &[2, 2])), channels(&[2, 3])] {
        assert!(cost(&[header]).1);
    }
}

#[test]
fn the_largest_headers_that_are_taken_are_read() {
    let name = "n".repeat(MAX_NAME_BYTES);
    let spaces = vec![(name, Space::discrete(2).into()); MAX_OBS_COLUMNS];
    let mut space: ObservationSpace = CompositeSpace::Dict { spaces }.into();
    for _ in 1..rollhouse_core::limits::MAX_SPACE_DEPTH {
        space = CompositeSpace::Dict { spaces: vec![("in".into(), space)] }.into();
    }
    let options: Vec<_> = (0..MAX_OPTIONS).map(|i| (format!("option-{i}"), i as f64)).collect();
    let options: std::collections::BTreeMap<_, _> = options.into_iter().collect();
    let options = rmp_serde::to_vec(&options).unwrap();
    for header in [
        observing(&rmp_serde::to_vec_named(&space).unwrap()),
        with("options", &[Options::check(&spec().options, &[]).unwrap()], &list(1000, &options)),
    ] {
        assert!(cost(&[header]).1);
    }
}

/// Symptom: a recording of 4.2 MB took 1.66 GB to import, verify or export. Cause: all chunks of an episode were held
/// decoded, at up to 96 KiB each, and what repeats was bounded by nothing. Fix: chunks beyond 16 MiB are read again where
/// they are needed, and an episode's repeated values and actions take at most 256 MiB.
#[test]
fn a_long_episode_takes_the_memory_of_its_steps_and_not_of_its_chunks() {
    let disk = FaultyDisk::new();
    let rows = 1_000_000;
    let long = Play { lanes: 1, max_steps: rows, ..Play::new("Pendulum-v1", rows) };
    stage::play(Arc::new(disk.clone()), Path::new(DIR), &long);
    let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
    let infos = replays.list(&Query::default()).unwrap();
    let longest = infos.iter().max_by_key(|info| info.length).unwrap();
    assert!(longest.length >= rows - 1, "{}", longest.length);
    let mut loaded = None;
    let used = measure(|| loaded = Some(replays.load(longest).unwrap()));
    assert_eq!(loaded.unwrap().actions.len() as u64, longest.length);
    // Its actions, one single each, as they grow, and the chunks that are held.
    let most = 2 * 4 * rows + (18 << 20);
    assert!(used.bytes_max < most, "{} bytes, {most} at most", used.bytes_max);
}
