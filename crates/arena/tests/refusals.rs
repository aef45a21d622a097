//! Pairs of files that a trainer does not take. Whatever they hold, it is refused by name or found sound.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use proptest::prelude::*;
use rollhouse_arena::{
    ArenaIdent, AttachError, AttachedArena, BatchColumns, Expected, MIN_RING_BYTES, ServingEnd, SharedArena,
};
use rollhouse_core::{ColumnSpec, DType, Role};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};

const LANES: usize = 3;
const IDENT: ArenaIdent = ArenaIdent { term: 2, counter: 5, autoreset: 0 };
const GENERATION: u64 = 8;
const SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const ALL: SealFlags = SIZE.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Headers of 22 and 15 words stand at the files' beginnings; the column table follows the first.
const OUTPUTS_WORDS: usize = 22;
const INPUTS_WORDS: usize = 15;
const TABLE_AT: usize = 1024;

fn columns() -> BatchColumns {
    let column = |dtype, shape: &[usize], role| ColumnSpec {
        path: String::new(),
        dtype,
        shape: shape.to_vec(),
        names: vec![],
        role,
    };
    BatchColumns {
        action: column(DType::I64, &[], Role::Action),
        obs: vec![column(DType::F32, &[4], Role::Obs), column(DType::U8, &[3], Role::Obs)],
        infos: vec![],
        final_obs: false,
    }
}

/// What the two files of a sound pair hold.
struct Bytes {
    outputs: Vec<u8>,
    inputs: Vec<u8>,
}

impl Bytes {
    fn sound() -> Self {
        let (mut shared, _placement) = SharedArena::create(&columns(), LANES, IDENT, MIN_RING_BYTES).unwrap();
        let end = shared.attach(GENERATION, 0).unwrap();
        Self { outputs: content(&end, true), inputs: content(&end, false) }
    }

    fn open(&self) -> Result<AttachedArena, AttachError> {
        self.open_sealed(ALL, SIZE)
    }

    fn open_sealed(&self, outputs: SealFlags, inputs: SealFlags) -> Result<AttachedArena, AttachError> {
        open(file(&self.outputs, outputs), file(&self.inputs, inputs))
    }

    fn refusal(&self) -> String {
        self.open().unwrap_err().to_string()
    }

    fn outputs_word(&mut self, at: usize) -> &mut [u8; 8] {
        self.outputs[at..].first_chunk_mut().unwrap()
    }
}

fn open(outputs: OwnedFd, inputs: OwnedFd) -> Result<AttachedArena, AttachError> {
    let columns = columns();
    let expected = Expected { columns: &columns, lanes: LANES, ident: IDENT, generation: GENERATION };
    AttachedArena::open(outputs, inputs, &expected)
}

fn content(end: &ServingEnd, outputs: bool) -> Vec<u8> {
    let fd = if outputs { end.outputs_fd() } else { end.inputs_fd() };
    let mut bytes = vec![0; fstat(fd).unwrap().st_size as usize];
    assert_eq!(rustix::io::pread(fd, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn file(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::writev(&fd, &[IoSlice::new(bytes)]).unwrap(), bytes.len());
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Reads all that a trainer may read without having been answered.
fn read_everything(mut arena: AttachedArena) {
    let frame = arena.frame();
    assert_eq!(frame.obs(0).len(), 4 * LANES);
    assert_eq!(frame.obs(1).len(), 3 * LANES);
    let sum: f64 = frame.rewards().iter().sum();
    let flags = [frame.terminated(), frame.truncated(), frame.reset()];
    assert!(!sum.is_nan() || flags.iter().all(|flags| flags.len() == LANES));
    let rewards = (0..LANES as u32).map(|lane| arena.lane_row(lane).reward());
    assert_eq!(rewards.count(), LANES);
    assert_eq!(arena.actions_mut().as_i64_mut().unwrap().len(), LANES);
    assert!(arena.lost().len() <= LANES);
    let now = Some(std::time::Instant::now());
    let _ = arena.wait(now, || true);
    let (mut ready, mut answer) = (Vec::new(), Vec::new());
    let _ = arena.wait_lanes(1, &mut ready, now, || true);
    let (mut began, mut hashes) = (Vec::new(), Vec::new());
    if arena.frame_notes(&mut began, &mut hashes).is_ok() {
        assert!(began.len() <= LANES * 32 && hashes.len() <= LANES * 8);
    }
    let of_lanes = (0..LANES as u32).map(|lane| arena.lane_note(lane));
    assert!(of_lanes.filter(|note| note.began.is_some()).count() <= LANES);
    let _ = arena.is_leaving();
    let _ = arena.next_answer(&mut answer, now, || true);
    let _ = arena.send_command(b"hello", now, || true);
}

#[test]
fn a_sound_pair_is_taken_and_keeps_no_descriptor() {
    read_everything(Bytes::sound().open().unwrap());
}

/// Symptom: a node could have a trainer map, and the system bring in, a file of any length. Cause: the length was
/// compared with the header after the file was mapped. Fix: a file that is longer than any node lays one out is not mapped.
#[test]
fn a_file_that_is_longer_than_the_batch_can_need_is_not_mapped() {
    let bytes = Bytes::sound();
    let long = |seals| {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 1 << 30).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    for (outputs, inputs) in [(long(ALL), file(&bytes.inputs, SIZE)), (file(&bytes.outputs, ALL), long(SIZE))]
    {
        let error = open(outputs, inputs).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with("shared memory of 1073741824 bytes, at most "), "{source}");
    }
}

#[test]
fn a_file_that_lacks_a_seal_is_refused_by_the_seals_name() {
    let bytes = Bytes::sound();
    let cases = [
        (SealFlags::SHRINK, "shrinking"),
        (SealFlags::GROW, "growing"),
        (SealFlags::FUTURE_WRITE, "writing by others"),
        (SealFlags::SEAL, "further seals"),
    ];
    for (seal, name) in cases {
        let error = bytes.open_sealed(ALL.difference(seal), SIZE).unwrap_err();
        assert_eq!(error.to_string(), "the outputs file cannot be mapped");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, format!("shared memory is not sealed against {name}"));
    }
    for seal in [SealFlags::SHRINK, SealFlags::GROW] {
        let error = bytes.open_sealed(ALL, SIZE.difference(seal)).unwrap_err();
        assert_eq!(error.to_string(), "the inputs file cannot be mapped");
    }
    // What is no memfd at all.
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let error = open(null, file(&bytes.inputs, SIZE)).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "a file that cannot be sealed");
}

#[test]
fn a_truncated_file_is_refused_by_its_size() {
    let whole = Bytes::sound();
    for length in [8, 1016, 1024, whole.outputs.len() - 8] {
        let cut = Bytes { outputs: whole.outputs[..length].to_vec(), inputs: whole.inputs.clone() };
        let refusal = cut.refusal();
        assert!(refusal.contains("`file_bytes` of the outputs") || refusal.contains("`header`"), "{refusal}");
    }
    for length in [8, 1016, 1024, whole.inputs.len() - 8] {
        let cut = Bytes { outputs: whole.outputs.clone(), inputs: whole.inputs[..length].to_vec() };
        let refusal = cut.refusal();
        assert!(refusal.contains("`file_bytes` of the inputs") || refusal.contains("`header`"), "{refusal}");
    }
}

#[test]
fn another_incarnation_generation_or_version_is_refused_by_name() {
    for (at, name) in [(8, "version"), (40, "generation"), (48, "term"), (56, "counter"), (24, "lanes")] {
        let mut bytes = Bytes::sound();
        let value = u64::from_le_bytes(*bytes.outputs_word(at));
        *bytes.outputs_word(at) = (value + 1).to_le_bytes();
        let wanted = format!("`{name}` of the outputs file is {}, {value} is wanted", value + 1);
        assert_eq!(bytes.refusal(), wanted);
    }
    let mut bytes = Bytes::sound();
    bytes.inputs[32] = 7;
    assert_eq!(bytes.refusal(), "`generation` of the inputs file is 7, 8 is wanted");
}

#[test]
fn every_word_of_the_headers_and_the_table_is_checked() {
    let sound = Bytes::sound();
    let entries = u64::from_le_bytes(*sound.outputs[80..].first_chunk().unwrap()) as usize;
    let of_table = (0..entries).flat_map(|entry| (0..3).map(move |word| TABLE_AT + entry * 128 + word * 8));
    for at in (0..OUTPUTS_WORDS).map(|word| word * 8).chain(of_table) {
        let mut bytes = Bytes::sound();
        let value = u64::from_le_bytes(*bytes.outputs_word(at));
        for other in [value ^ 1, value ^ 1 << 63, value.wrapping_add(8), u64::MAX] {
            *bytes.outputs_word(at) = other.to_le_bytes();
            match bytes.open() {
                // Where details are shorter they only end sooner; nothing of them is used.
                Ok(_) => assert!(at == 96 && other <= value + 64, "{at} may be {other} as well as {value}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    for at in (0..INPUTS_WORDS).map(|word| word * 8) {
        let mut bytes = Bytes::sound();
        let word: &mut [u8; 8] = bytes.inputs[at..].first_chunk_mut().unwrap();
        *word = (u64::from_le_bytes(*word) ^ 1).to_le_bytes();
        assert!(bytes.open().is_err(), "word {at} of the inputs");
    }
}

#[test]
fn a_node_that_counts_more_notes_than_lanes_is_refused_by_the_words_name() {
    for counts in [4, 4 << 32, u64::MAX, 1 << 31] {
        let mut bytes = Bytes::sound();
        let at = u64::from_le_bytes(*bytes.outputs_word(152)) as usize;
        *bytes.outputs_word(at) = u64::to_le_bytes(counts);
        let arena = bytes.open().unwrap();
        let refused = arena.frame_notes(&mut Vec::new(), &mut Vec::new()).unwrap_err().to_string();
        assert!(
            refused.starts_with("`notes` of the node is ") && refused.ends_with("at most 3 is possible"),
            "{refused}"
        );
    }
    let mut bytes = Bytes::sound();
    let at = u64::from_le_bytes(*bytes.outputs_word(152)) as usize;
    *bytes.outputs_word(at) = u64::to_le_bytes(3 | 3 << 32);
    let (mut began, mut hashes) = (Vec::new(), Vec::new());
    bytes.open().unwrap().frame_notes(&mut began, &mut hashes).unwrap();
    assert_eq!((began.len(), hashes.len()), (3 * 32, 3 * 8));
}

#[test]
fn columns_that_overlap_are_refused() {
    let mut bytes = Bytes::sound();
    let first = *bytes.outputs_word(TABLE_AT);
    *bytes.outputs_word(TABLE_AT + 128) = first;
    assert!(bytes.refusal().starts_with("`column` of the outputs file cannot be the 9 bytes at "));
}

proptest! {
    #[test]
    fn whatever_a_pair_of_files_holds_it_is_refused_or_sound(
        changes in prop::collection::vec((any::<bool>(), 0..400usize, any::<u64>(), 0..4u8), 1..8),
    ) {
        let mut bytes = Bytes::sound();
        for (outputs, word, value, how) in changes {
            let file = if outputs { &mut bytes.outputs } else { &mut bytes.inputs };
            let words = file.len() / 8;
            let word: &mut [u8; 8] = file[word % words * 8..].first_chunk_mut().unwrap();
            let before = u64::from_le_bytes(*word);
            let value = match how {
                0 => value,
                1 => before ^ 1 << (value % 64),
                2 => before.wrapping_add(value % 256),
                _ => value % 4,
            };
            *word = value.to_le_bytes();
        }
        match bytes.open() {
            Ok(arena) => read_everything(arena),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
