//! The two files of an attached session: the places of everything in them, as a node writes them down and a trainer
//! checks them.

use std::io;
use std::ops::Range;

use rollhouse_core::{ColumnSpec, DType, Role};

use crate::bell::{Bell, Sleeping};
use crate::columns::{Allocator, BatchColumns, Place, Slot};
use crate::header::{HEADER_BYTES, LAYOUT_VERSION, Word, inputs, outputs};
use crate::mapping::WORD;
use crate::memory::ALIGNMENT;
use crate::notes::{BEGAN_BYTES, HASH_BYTES, LANE_NOTE_BYTES, frame_notes_bytes};
use crate::placement::Places;
use crate::ring::{MAX_RING_BYTES, MIN_RING_BYTES, RingPlace};
use crate::shared::ReadOnlyMemory;
use crate::words::{Words, WordsMut};

/// Identity of the session to which an arena belongs. A trainer refuses a file with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaIdent {
    /// Term of the coordinator in the session's incarnation.
    pub term: u64,
    /// Number within that term in the session's incarnation.
    pub counter: u64,
    /// Rule by which episodes begin: 0 in the next step, 1 in the same step, 2 when the trainer says so.
    pub autoreset: u64,
}

/// Places of everything in the node's file.
#[derive(Debug, Clone)]
pub(crate) struct OutputsPlan {
    pub(crate) table_at: usize,
    pub(crate) column_count: usize,
    pub(crate) details: Range<usize>,
    pub(crate) lane_records_at: usize,
    pub(crate) ready_at: usize,
    pub(crate) ready_lanes: usize,
    pub(crate) answers: RingPlace,
    pub(crate) note_at: usize,
    pub(crate) notes_at: usize,
    pub(crate) notes_bytes: usize,
    pub(crate) lane_notes_at: usize,
    pub(crate) columns_at: usize,
    pub(crate) places: Places,
    pub(crate) bytes: usize,
}

/// Places of everything in the trainer's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputsPlan {
    pub(crate) lane_seqs_at: usize,
    pub(crate) seeds_at: usize,
    pub(crate) resets_at: usize,
    pub(crate) requests: RingPlace,
    pub(crate) action: Place,
    pub(crate) bytes: usize,
}

impl OutputsPlan {
    /// Plans the file and returns the bytes of its front part too; `None` if the sizes overflow.
    pub(crate) fn new(columns: &BatchColumns, lanes: usize, ring_bytes: usize) -> Option<(Self, Vec<u8>)> {
        let of_slot = columns.of_slot();
        let column_count = of_slot.len() * SLOTS;
        let mut next = Allocator { lanes, bytes: HEADER_BYTES };
        let table_at = next.take(column_count.checked_mul(ENTRY_BYTES)?)?;
        let (details, places_of_details) = details(&of_slot, next.bytes);
        let details_at = next.take(details.len())?;
        let lane_records_at = next.take(lanes.checked_mul(LANE_RECORD_BYTES)?)?;
        let ready_lanes = lanes.checked_next_power_of_two()?;
        let ready_at = next.take(ready_lanes.checked_mul(WORD)?)?;
        let note_at = next.take(MAX_NOTE_BYTES)?;
        let notes_bytes = frame_notes_bytes(lanes)?;
        let notes_at = next.take(notes_bytes.checked_mul(FRAME_SLOTS)?)?;
        let lane_notes_at = next.take(lanes.checked_mul(LANE_NOTE_BYTES)?)?;
        let answers_at = next.take(ring_bytes)?;
        let columns_at = next.bytes;
        let places = Places::new(columns, lanes, columns_at)?;
        let table = table(&of_slot, &places, &places_of_details);
        let plan = Self {
            table_at,
            column_count,
            details: details_at..details_at + details.len(),
            lane_records_at,
            ready_at,
            ready_lanes,
            answers: RingPlace {
                data: answers_at,
                bytes: ring_bytes,
                written: outputs::ANSWERS_WRITTEN.at,
                read: inputs::ANSWERS_READ.at,
            },
            note_at,
            notes_at,
            notes_bytes,
            lane_notes_at,
            columns_at,
            bytes: places.bytes,
            places,
        };
        let mut front = table;
        front.resize(details_at - table_at, 0);
        front.extend_from_slice(&details);
        Some((plan, front))
    }

    /// Writes the header, and `front` where the table begins.
    pub(crate) fn write(&self, file: &impl WordsMut, ident: ArenaIdent, front: &[u8]) {
        file.copy_from(self.table_at, front);
        for (word, value) in self.words(ident) {
            file.store(word.at, value);
        }
    }

    fn words(&self, ident: ArenaIdent) -> [(Word, u64); 21] {
        let size = |bytes: usize| bytes as u64;
        [
            (outputs::MAGIC, outputs::MAGIC_VALUE),
            (outputs::VERSION, LAYOUT_VERSION),
            (outputs::FILE_BYTES, size(self.bytes)),
            (outputs::LANES, size(self.places.lanes)),
            (outputs::AUTORESET, ident.autoreset),
            (outputs::TERM, ident.term),
            (outputs::COUNTER, ident.counter),
            (outputs::COLUMNS_AT, size(self.columns_at)),
            (outputs::TABLE_AT, size(self.table_at)),
            (outputs::COLUMN_COUNT, size(self.column_count)),
            (outputs::DETAILS_AT, size(self.details.start)),
            (outputs::DETAILS_BYTES, size(self.details.len())),
            (outputs::LANE_RECORDS_AT, size(self.lane_records_at)),
            (outputs::READY_RING_AT, size(self.ready_at)),
            (outputs::READY_RING_LANES, size(self.ready_lanes)),
            (outputs::ANSWERS_AT, size(self.answers.data)),
            (outputs::ANSWERS_BYTES, size(self.answers.bytes)),
            (outputs::NOTE_AT, size(self.note_at)),
            (outputs::NOTES_AT, size(self.notes_at)),
            (outputs::NOTES_BYTES, size(self.notes_bytes)),
            (outputs::LANE_NOTES_AT, size(self.lane_notes_at)),
        ]
    }

    /// Reads and checks what a node wrote down. Every place is known to lie in the file when this returns.
    pub(crate) fn read(file: &ReadOnlyMemory, expected: &Expected<'_>) -> Result<Self, AttachError> {
        let check = Check { file: "outputs", words: file };
        let Expected { columns, lanes, ident, generation } = *expected;
        check.is(outputs::MAGIC, outputs::MAGIC_VALUE)?;
        check.is(outputs::VERSION, LAYOUT_VERSION)?;
        check.is(outputs::FILE_BYTES, file.len() as u64)?;
        check.is(outputs::LANES, lanes as u64)?;
        check.is(outputs::AUTORESET, ident.autoreset)?;
        check.is(outputs::TERM, ident.term)?;
        check.is(outputs::COUNTER, ident.counter)?;
        check.is(outputs::GENERATION, generation)?;
        let of_slot = columns.of_slot();
        let column_count = of_slot.len() * SLOTS;
        check.is(outputs::COLUMN_COUNT, column_count as u64)?;
        let columns_at = check.place(outputs::COLUMNS_AT, 0, HEADER_BYTES..file.len())?;
        let mut front = Regions::new(&check, HEADER_BYTES..columns_at);
        let table_at = front.word(outputs::TABLE_AT, column_count * ENTRY_BYTES)?;
        let details_bytes = check.size(outputs::DETAILS_BYTES, file.len())?;
        let details_at = front.word(outputs::DETAILS_AT, details_bytes)?;
        let lane_records_at = front.word(outputs::LANE_RECORDS_AT, lanes * LANE_RECORD_BYTES)?;
        let ready_lanes = lanes.next_power_of_two();
        check.is(outputs::READY_RING_LANES, ready_lanes as u64)?;
        let ready_at = front.word(outputs::READY_RING_AT, ready_lanes * WORD)?;
        let note_at = front.word(outputs::NOTE_AT, MAX_NOTE_BYTES)?;
        let notes_bytes = frame_notes_bytes(lanes).ok_or(AttachError::Size)?;
        check.is(outputs::NOTES_BYTES, notes_bytes as u64)?;
        let notes_at = front.word(outputs::NOTES_AT, notes_bytes * FRAME_SLOTS)?;
        let lane_notes_at = front.word(outputs::LANE_NOTES_AT, lanes * LANE_NOTE_BYTES)?;
        let ring_bytes = check.ring(outputs::ANSWERS_BYTES)?;
        let answers_at = front.word(outputs::ANSWERS_AT, ring_bytes)?;
        let mut behind = Regions::new(&check, columns_at..file.len());
        let slots = read_table(&mut behind, &of_slot, columns, table_at, lanes)?;
        let own = Places::new(columns, lanes, columns_at).ok_or(AttachError::Size)?;
        Ok(Self {
            table_at,
            column_count,
            details: details_at..details_at + details_bytes,
            lane_records_at,
            ready_at,
            ready_lanes,
            answers: RingPlace {
                data: answers_at,
                bytes: ring_bytes,
                written: outputs::ANSWERS_WRITTEN.at,
                read: inputs::ANSWERS_READ.at,
            },
            note_at,
            notes_at,
            notes_bytes,
            lane_notes_at,
            columns_at,
            places: Places { slots, bytes: file.len(), ..own },
            bytes: file.len(),
        })
    }

    /// Returns the offset of the word in a lane's record that holds the number of the lane's newest rows.
    pub(crate) const fn lane_seq(&self, lane: usize) -> usize {
        self.lane_records_at + lane * LANE_RECORD_BYTES
    }

    /// Returns the offset of the word in a lane's record that is 0, or the code of the outcome by which the lane was
    /// lost.
    pub(crate) const fn lane_lost(&self, lane: usize) -> usize {
        self.lane_seq(lane) + WORD
    }

    /// Returns the offset of the notes of the frame in a slot, which begin with a word that counts them.
    pub(crate) const fn frame_notes(&self, slot: usize) -> usize {
        self.notes_at + slot * self.notes_bytes
    }

    /// Returns where the first notes of each kind lie beside a frame in that slot, with as many bytes of them as a small batch
    /// mostly has.
    pub(crate) fn first_notes(&self, slot: usize) -> [(usize, usize); 2] {
        let (at, lanes) = (self.frame_notes(slot), self.places.lanes);
        let few = lanes.min(FEW_NOTES);
        [(at, WORD + few * BEGAN_BYTES), (at + WORD + lanes * BEGAN_BYTES, few * HASH_BYTES)]
    }

    /// Returns the offset of the note of a single lane's row.
    pub(crate) const fn lane_notes(&self, lane: usize) -> usize {
        self.lane_notes_at + lane * LANE_NOTE_BYTES
    }

    /// Returns the offset of entry `number` of the ring of ready lanes.
    pub(crate) const fn ready(&self, number: u64) -> usize {
        self.ready_at + (number as usize & (self.ready_lanes - 1)) * WORD
    }
}

impl InputsPlan {
    /// Plans the file; `None` if the sizes overflow.
    pub(crate) fn new(action: &ColumnSpec, lanes: usize, ring_bytes: usize) -> Option<Self> {
        let mut next = Allocator { lanes, bytes: HEADER_BYTES };
        let lane_seqs_at = next.take(lanes.checked_mul(WORD)?)?;
        let seeds_at = next.take(lanes.checked_mul(WORD)?)?;
        let resets_at = next.take(lanes)?;
        let requests = RingPlace {
            data: next.take(ring_bytes)?,
            bytes: ring_bytes,
            written: inputs::REQUESTS_WRITTEN.at,
            read: outputs::REQUESTS_READ.at,
        };
        let action = next.place(action)?;
        Some(Self { lane_seqs_at, seeds_at, resets_at, requests, action, bytes: next.bytes })
    }

    /// Writes the header, but for the counters.
    pub(crate) fn write(&self, file: &impl WordsMut, lanes: usize, ident: ArenaIdent, generation: u64) {
        for (word, value) in self.words(lanes, ident, generation) {
            file.store(word.at, value);
        }
    }

    fn words(&self, lanes: usize, ident: ArenaIdent, generation: u64) -> [(Word, u64); 15] {
        let size = |bytes: usize| bytes as u64;
        [
            (inputs::MAGIC, inputs::MAGIC_VALUE),
            (inputs::VERSION, LAYOUT_VERSION),
            (inputs::FILE_BYTES, size(self.bytes)),
            (inputs::LANES, size(lanes)),
            (inputs::GENERATION, generation),
            (inputs::TERM, ident.term),
            (inputs::COUNTER, ident.counter),
            (inputs::ACTIONS_AT, size(self.action.offset)),
            (inputs::ACTION_ELEMENTS, size(self.action.row_elements)),
            (inputs::ACTION_DTYPE, dtype_code(self.action.dtype)),
            (inputs::SEEDS_AT, size(self.seeds_at)),
            (inputs::RESETS_AT, size(self.resets_at)),
            (inputs::LANE_SEQS_AT, size(self.lane_seqs_at)),
            (inputs::REQUESTS_AT, size(self.requests.data)),
            (inputs::REQUESTS_BYTES, size(self.requests.bytes)),
        ]
    }

    /// Checks that a node laid the file out exactly as this trainer would have done.
    pub(crate) fn read(
        file: &impl Words,
        bytes: usize,
        expected: &Expected<'_>,
    ) -> Result<Self, AttachError> {
        let check = Check { file: "inputs", words: file };
        check.is(inputs::MAGIC, inputs::MAGIC_VALUE)?;
        check.is(inputs::VERSION, LAYOUT_VERSION)?;
        check.is(inputs::FILE_BYTES, bytes as u64)?;
        let ring_bytes = check.ring(inputs::REQUESTS_BYTES)?;
        let Expected { columns, lanes, ident, generation } = *expected;
        let plan = Self::new(&columns.action, lanes, ring_bytes).ok_or(AttachError::Size)?;
        for (word, value) in plan.words(lanes, ident, generation) {
            check.is(word, value)?;
        }
        Ok(plan)
    }
}

/// Properties of the session that a trainer was told before it attaches.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Columns of the batch.
    pub columns: &'a BatchColumns,
    /// Number of rows in the batch.
    pub lanes: usize,
    /// Identity of the session.
    pub ident: ArenaIdent,
    /// Number of this attachment.
    pub generation: u64,
}

/// Returns the maximum number of bytes that the node's file may have: the file as laid out here with the largest rings,
/// which leaves more room between its parts than any node needs. `None` if the sizes overflow.
pub(crate) fn most_output_bytes(expected: &Expected<'_>) -> Option<usize> {
    OutputsPlan::new(expected.columns, expected.lanes, MAX_RING_BYTES).map(|(plan, _)| plan.bytes)
}

/// Returns the maximum number of bytes that the trainer's file may have; `None` if the sizes overflow.
pub(crate) fn most_input_bytes(expected: &Expected<'_>) -> Option<usize> {
    InputsPlan::new(&expected.columns.action, expected.lanes, MAX_RING_BYTES).map(|plan| plan.bytes)
}

/// Reason for which a trainer does not take a pair of files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The file cannot be mapped, or lacks a seal.
    #[error("the {file} file cannot be mapped")]
    Map {
        /// Name of the file.
        file: &'static str,
        /// Error of the operating system, or the seal that is missing.
        source: io::Error,
    },
    /// A word of the header does not have the value that it has to have.
    #[error("`{word}` of the {file} file is {value}, {wanted} is wanted")]
    Word {
        /// Name of the file.
        file: &'static str,
        /// Name of the word in docs/arena-layout.md.
        word: &'static str,
        /// Value of the word.
        value: u64,
        /// Value that the word has to have.
        wanted: u64,
    },
    /// A part of the file is not aligned, does not lie where it may, or overlaps another.
    #[error("`{what}` of the {file} file cannot be the {bytes} bytes at {offset}")]
    Place {
        /// Name of the file.
        file: &'static str,
        /// Name of the part.
        what: &'static str,
        /// Offset at which the part is said to begin.
        offset: u64,
        /// Length of the part in bytes.
        bytes: u64,
    },
    /// An entry of the column table does not fit the env's columns.
    #[error("{what} of column {column} is {value:#x}, {wanted:#x} is wanted")]
    Column {
        /// Number of the entry in the table.
        column: usize,
        /// Name of the part of the entry that does not fit.
        what: &'static str,
        /// Value of the part.
        value: u64,
        /// Value that the part has to have.
        wanted: u64,
    },
    /// A later attachment of a session brought another memory than the first one.
    #[error("the session has moved to other memory")]
    OtherMemory,
    /// The columns are larger than an arena may be.
    #[error("the columns are larger than an arena may be")]
    Size,
    /// The cursors of a ring do not fit together.
    #[error("the cursors of a command ring do not fit together")]
    Ring(#[source] crate::ring::RingError),
}

/// Checks that the node's file says that it serves that attachment.
pub(crate) fn check_generation(file: &ReadOnlyMemory, generation: u64) -> Result<(), AttachError> {
    Check { file: "outputs", words: file }.is(outputs::GENERATION, generation)
}

struct Check<'a, W> {
    file: &'static str,
    words: &'a W,
}

impl<W: Words> Check<'_, W> {
    fn is(&self, word: Word, wanted: u64) -> Result<(), AttachError> {
        let value = self.words.load(word.at);
        let wrong = AttachError::Word { file: self.file, word: word.name, value, wanted };
        if value == wanted { Ok(()) } else { Err(wrong) }
    }

    fn size(&self, word: Word, most: usize) -> Result<usize, AttachError> {
        let value = self.words.load(word.at);
        usize::try_from(value).ok().filter(|&size| size <= most).ok_or(AttachError::Word {
            file: self.file,
            word: word.name,
            value,
            wanted: most as u64,
        })
    }

    fn ring(&self, word: Word) -> Result<usize, AttachError> {
        let bytes = self.size(word, MAX_RING_BYTES)?;
        let sound = bytes.is_power_of_two() && bytes >= MIN_RING_BYTES;
        let (value, wanted) = (bytes as u64, bytes.next_power_of_two().max(MIN_RING_BYTES) as u64);
        let wrong = AttachError::Word { file: self.file, word: word.name, value, wanted };
        if sound { Ok(bytes) } else { Err(wrong) }
    }

    /// Returns the place that a word names, of `bytes` bytes within `range`.
    fn place(&self, word: Word, bytes: usize, range: Range<usize>) -> Result<usize, AttachError> {
        self.lies(word.name, self.words.load(word.at), bytes, &range)
    }

    fn lies(
        &self,
        what: &'static str,
        offset: u64,
        bytes: usize,
        range: &Range<usize>,
    ) -> Result<usize, AttachError> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.checked_add(bytes);
        let inside = range.start <= at && end.is_some_and(|end| end <= range.end);
        let sound = inside && at.is_multiple_of(ALIGNMENT);
        let wrong = AttachError::Place { file: self.file, what, offset, bytes: bytes as u64 };
        if sound { Ok(at) } else { Err(wrong) }
    }
}

/// Parts of a file that must not overlap.
struct Regions<'a, W> {
    check: &'a Check<'a, W>,
    range: Range<usize>,
    taken: Vec<Range<usize>>,
}

impl<'a, W: Words> Regions<'a, W> {
    fn new(check: &'a Check<'a, W>, range: Range<usize>) -> Self {
        Self { check, range, taken: Vec::new() }
    }

    fn word(&mut self, word: Word, bytes: usize) -> Result<usize, AttachError> {
        self.take(word.name, self.check.words.load(word.at), bytes)
    }

    fn take(&mut self, what: &'static str, offset: u64, bytes: usize) -> Result<usize, AttachError> {
        let at = self.check.lies(what, offset, bytes, &self.range)?;
        let overlaps = self.taken.iter().any(|other| at < other.end && other.start < at + bytes);
        self.taken.push(at..at + bytes);
        let wrong = AttachError::Place { file: self.check.file, what, offset, bytes: bytes as u64 };
        if overlaps { Err(wrong) } else { Ok(at) }
    }
}

/// Returns the bytes that describe each column of a slot, and their ranges in the file.
fn details(of_slot: &[ColumnSpec], at: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    let put_text = |bytes: &mut Vec<u8>, text: &str| {
        // Texts come from an env's spec, which is far smaller.
        let length = u32::try_from(text.len()).unwrap_or(0);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&text.as_bytes()[..length as usize]);
    };
    for column in of_slot {
        let start = at + bytes.len();
        bytes.extend_from_slice(&(column.shape.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(column.names.len() as u32).to_le_bytes());
        column.shape.iter().for_each(|&extent| bytes.extend_from_slice(&(extent as u64).to_le_bytes()));
        put_text(&mut bytes, &column.path);
        column.names.iter().for_each(|name| put_text(&mut bytes, name));
        places.push(start..at + bytes.len());
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    }
    (bytes, places)
}

/// Returns the column table, which has an entry for each column and slot, slot after slot.
fn table(of_slot: &[ColumnSpec], places: &Places, details: &[Range<usize>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (slot, places) in places.slots.iter().enumerate() {
        let mut indices = [0u16; ROLES];
        for ((column, place), details) in of_slot.iter().zip(places.places()).zip(details) {
            let index = &mut indices[column.role as usize];
            let entry = [
                place.offset as u64,
                place.row_elements as u64,
                kind_word(column, slot, *index),
                details.start as u64,
                details.len() as u64,
            ];
            *index += 1;
            let start = bytes.len();
            entry.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes.resize(start + ENTRY_BYTES, 0);
        }
    }
    bytes
}

/// Returns an entry's third word: dtype, role, slot, place (0 is host memory) and the column's number in its role.
fn kind_word(column: &ColumnSpec, slot: usize, index: u16) -> u64 {
    let index = index.to_le_bytes();
    let dtype = dtype_code(column.dtype) as u8;
    u64::from_le_bytes([dtype, column.role as u8, slot as u8, HOST, index[0], index[1], 0, 0])
}

fn read_table<W: Words>(
    columns_of_file: &mut Regions<'_, W>,
    of_slot: &[ColumnSpec],
    columns: &BatchColumns,
    table_at: usize,
    lanes: usize,
) -> Result<[Slot; SLOTS], AttachError> {
    let words = columns_of_file.check.words;
    let mut slots = Vec::new();
    for slot in 0..SLOTS {
        let mut indices = [0u16; ROLES];
        let mut places = Vec::new();
        for (number, column) in of_slot.iter().enumerate() {
            let column_number = slot * of_slot.len() + number;
            let entry = table_at + column_number * ENTRY_BYTES;
            let is = |what, at: usize, wanted: u64| {
                let value = words.load(entry + at);
                let wrong = AttachError::Column { column: column_number, what, value, wanted };
                if value == wanted { Ok(()) } else { Err(wrong) }
            };
            let index = &mut indices[column.role as usize];
            is("elements of a row", 8, column.elements() as u64)?;
            is("kind", 16, kind_word(column, slot, *index))?;
            *index += 1;
            let bytes = lanes.checked_mul(column.row_bytes()).ok_or(AttachError::Size)?;
            let offset = columns_of_file.take("column", words.load(entry), bytes)?;
            places.push(Place::new(offset, column.elements(), column.dtype));
        }
        slots.push(Slot::from_places(columns, places).ok_or(AttachError::Size)?);
    }
    slots.try_into().map_err(|_| AttachError::Size)
}

pub(crate) const fn dtype_code(dtype: DType) -> u64 {
    match dtype {
        DType::Bool => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 3,
        DType::F32 => 4,
        DType::F64 => 5,
    }
}

/// Bell that wakes the node.
pub(crate) const NODE_BELL: Bell =
    Bell { sleeping: Sleeping(outputs::NODE_SLEEPING.at), wake: inputs::NODE_WAKE.at };

/// Bell that wakes the trainer.
pub(crate) const TRAINER_BELL: Bell =
    Bell { sleeping: Sleeping(inputs::TRAINER_SLEEPING.at), wake: outputs::TRAINER_WAKE.at };

/// Number of slots in the outputs: two for frames, one for rows of single lanes.
pub(crate) const SLOTS: usize = 3;
/// Number of those slots that hold frames.
const FRAME_SLOTS: usize = 2;
/// Number of notes of a kind that a small batch mostly has at most.
const FEW_NOTES: usize = 8;
/// Number of bytes in an entry of the column table, of which the last 64 are reserved for a device's handle.
pub(crate) const ENTRY_BYTES: usize = 128;
/// Number of bytes in a lane's record: its number and its loss.
pub(crate) const LANE_RECORD_BYTES: usize = 2 * WORD;
/// Maximum number of bytes of the text that goes with a refusal.
pub const MAX_NOTE_BYTES: usize = 4096;
/// Place of a column in the host's memory.
const HOST: u8 = 0;
/// Number of roles that a column can have.
const ROLES: usize = Role::GoneBy as usize + 1;
