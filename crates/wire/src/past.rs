//! Records of what lanes did on another node, in the columns of a resume frame.
//!
//! Records follow each other without gaps; each is a multiple of 8 bytes long, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | lane of the session |
//! | 4 | 1 | kind: 1 began, 2 played, 3 stood, 4 lost, 5 called, 6 given |
//! | 5 | 1 | flags: bit 0 a buffered half, bit 1 held; others zero. called: bytes of the method's name, at most 64 |
//! | 6 | 2 | zero |
//! | 8 | 4 | played: actions that follow; called: bytes of the payload; given: of the options; stood: the hash; began, lost: the half, or zero |
//! | 12 | 4 | zero |
//! | 16 | 24 | began, lost only: number of the episode, seed, words drawn (u64 each) |
//!
//! Actions follow a record of kind 2 as a column does, name and payload, both UTF-8, one of kind 5, and options, a msgpack
//! map by name in its shortest form, one of kind 6; each is filled up with zeros to a multiple of 8 bytes. Actions without an
//! element have no bytes; a record has at most 262,144 of them.

use std::collections::BTreeMap;

use rollhouse_core::limits::{MAX_CALL_BYTES, MAX_GIVEN_OPTIONS_BYTES, MAX_METHOD_NAME_BYTES};
use rollhouse_core::{
    Call, ColumnData, ColumnRef, ColumnSpec, OptionValue, Options, Past, PastEvent, PlayedActions, Start,
    msgpack,
};

use crate::limits::MAX_PAST_BYTES;

/// The reason why bytes are not records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PastError {
    /// The bytes end within a record.
    #[error("a cut-off record of the past at byte {at}")]
    Cut {
        /// Offset at which the record begins.
        at: usize,
    },
    /// A record has a kind or flags that no version knows, something in the bytes that must be zero, or more actions without
    /// an element than one may have.
    #[error("no record of the past at byte {at}")]
    Unknown {
        /// Offset at which the record begins.
        at: usize,
    },
}

/// Appends a record.
pub fn put_past(out: &mut Vec<u8>, lane: u32, event: &PastEvent) {
    let (kind, flags, word, numbers) = match event {
        PastEvent::Began { number, start } => {
            (BEGAN, half_flag(*start), half(*start), numbers(*number, *start))
        }
        PastEvent::Played(_) => (PLAYED, 0, 0, None),
        // Names and payloads are bounded where they come from.
        PastEvent::Called(call) => (CALLED, call.method.len() as u8, call.payload.len() as u32, None),
        PastEvent::Given(_) => (GIVEN, 0, 0, None),
        PastEvent::Stood(hash) => (STOOD, 0, *hash, None),
        PastEvent::Lost { next, start, held } => {
            (LOST, half_flag(*start) | (u8::from(*held) * HELD), half(*start), numbers(*next, *start))
        }
    };
    if let PastEvent::Played(PlayedActions { count, actions }) = event {
        return put_played(out, lane, actions.as_ref(), *count);
    }
    if let PastEvent::Given(options) = event {
        let bytes = options_bytes(options);
        put_head(out, lane, kind, flags, bytes.len() as u32);
        out.extend_from_slice(&bytes);
        return out.resize(out.len().next_multiple_of(8), 0);
    }
    put_head(out, lane, kind, flags, word);
    for number in numbers.into_iter().flatten() {
        out.extend_from_slice(&number.to_le_bytes());
    }
    if let PastEvent::Called(Call { method, payload }) = event {
        out.extend_from_slice(method.as_bytes());
        out.extend_from_slice(payload.as_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
    }
}

/// Returns the bytes of options in a record.
pub fn options_bytes(options: &BTreeMap<String, OptionValue>) -> Vec<u8> {
    // They are plain values with names; nothing in them can fail to be written.
    rmp_serde::to_vec_named(options).unwrap_or_default()
}

/// Appends a record of `count` actions.
pub fn put_played(out: &mut Vec<u8>, lane: u32, actions: ColumnRef<'_>, count: usize) {
    // A frame has less than 2^32 bytes.
    put_head(out, lane, PLAYED, 0, count as u32);
    out.extend_from_slice(actions.bytes());
    out.resize(out.len().next_multiple_of(8), 0);
}

fn put_head(out: &mut Vec<u8>, lane: u32, kind: u8, flags: u8, word: u32) {
    out.extend_from_slice(&lane.to_le_bytes());
    out.extend_from_slice(&[kind, flags, 0, 0]);
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

const fn half_flag(start: Start) -> u8 {
    if start.half.is_some() { HALF } else { 0 }
}

const fn half(start: Start) -> u32 {
    match start.half {
        Some(half) => half,
        None => 0,
    }
}

const fn numbers(number: u64, start: Start) -> Option<[u64; 3]> {
    Some([number, start.seed, start.words])
}

/// Reads all records of `bytes`, whose actions are rows of that column. Takes about as much memory as the bytes.
///
/// # Errors
/// See [`PastError`].
pub fn read_past(bytes: &[u8], action: &ColumnSpec) -> Result<Vec<Past>, PastError> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (record, length) = read_record(bytes, at, action)?;
        records.push(record);
        at += length;
    }
    Ok(records)
}

fn read_record(bytes: &[u8], at: usize, action: &ColumnSpec) -> Result<(Past, usize), PastError> {
    let rest = &bytes[at..];
    let (cut, unknown) = (PastError::Cut { at }, PastError::Unknown { at });
    let (head, rest) = rest.split_first_chunk::<HEAD_BYTES>().ok_or(cut)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (lane, kind, flags, value) = (word(0), head[4], head[5], word(8));
    let known = match kind {
        BEGAN => HALF,
        LOST => HALF | HELD,
        CALLED => u8::MAX,
        _ => 0,
    };
    if flags & !known != 0 || head[6..8] != [0; 2] || head[12..] != [0; 4] {
        return Err(unknown);
    }
    let numbered = || {
        let (numbers, _) = rest.split_first_chunk::<24>().ok_or(cut)?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let half = (flags & HALF != 0).then_some(value);
        let [number, seed, words] = [0, 1, 2].map(|index| u64::from_le_bytes(numbers[index]));
        Ok((number, Start { seed, words, half }))
    };
    let (what, length) = match kind {
        BEGAN => {
            let (number, start) = numbered()?;
            (PastEvent::Began { number, start }, HEAD_BYTES + 24)
        }
        PLAYED => {
            let count = value as usize;
            if action.row_bytes() == 0 && count > MAX_PAST_BYTES {
                return Err(unknown);
            }
            let length = count.checked_mul(action.row_bytes()).ok_or(cut)?;
            let filled = length.checked_next_multiple_of(8).ok_or(cut)?;
            let mut actions = ColumnData::zeros(action.dtype, 0);
            let taken = rest.get(..filled).is_some() && actions.extend_le(&rest[..length]);
            if !taken {
                return Err(cut);
            }
            (PastEvent::Played(PlayedActions { count, actions }), HEAD_BYTES + filled)
        }
        CALLED => {
            let (call, filled) = read_call(rest, flags.into(), value as usize, (cut, unknown))?;
            (PastEvent::Called(call), HEAD_BYTES + filled)
        }
        GIVEN => {
            let (options, filled) = read_options(rest, value as usize, (cut, unknown))?;
            (PastEvent::Given(options), HEAD_BYTES + filled)
        }
        STOOD => (PastEvent::Stood(value), HEAD_BYTES),
        LOST => {
            let (next, start) = numbered()?;
            (PastEvent::Lost { next, start, held: flags & HELD != 0 }, HEAD_BYTES + 24)
        }
        _ => return Err(unknown),
    };
    Ok((Past { lane, what }, length))
}

/// Reads a call whose name and payload have those lengths; returns it with the bytes that it fills.
fn read_call(
    rest: &[u8],
    name: usize,
    payload: usize,
    (cut, unknown): (PastError, PastError),
) -> Result<(Call, usize), PastError> {
    if name == 0 || name > MAX_METHOD_NAME_BYTES || payload > MAX_CALL_BYTES {
        return Err(unknown);
    }
    let filled = (name + payload).next_multiple_of(8);
    let texts = rest.get(..filled).ok_or(cut)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| unknown);
    let call = Call { method: text(&texts[..name])?, payload: text(&texts[name..name + payload])? };
    Ok((call, filled))
}

/// Reads options of so many bytes; returns them with the bytes that they fill.
fn read_options(
    rest: &[u8],
    length: usize,
    (cut, unknown): (PastError, PastError),
) -> Result<(BTreeMap<String, OptionValue>, usize), PastError> {
    if length > MAX_GIVEN_OPTIONS_BYTES {
        return Err(unknown);
    }
    let filled = length.next_multiple_of(8);
    let bytes = &rest.get(..filled).ok_or(cut)?[..length];
    let options: Options = msgpack::decode(bytes, MAX_GIVEN_OPTIONS_BYTES).map_err(|_| unknown)?;
    let options = options.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    // Each set of options has one record.
    if options_bytes(&options) == bytes { Ok((options, filled)) } else { Err(unknown) }
}

const HEAD_BYTES: usize = 16;
const BEGAN: u8 = 1;
const PLAYED: u8 = 2;
const STOOD: u8 = 3;
const LOST: u8 = 4;
const CALLED: u8 = 5;
const GIVEN: u8 = 6;
const HALF: u8 = 1;
const HELD: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{Distribution, Space};

    fn action() -> ColumnSpec {
        let spec = rollhouse_core::EnvSpec {
            id: "x".into(),
            source: rollhouse_core::EnvSource::BuiltIn,
            summary: String::new(),
            observation_space: Space::f32_box(&[0.0], &[1.0]).into(),
            action_space: Space::f32_box(&[0.0; 3], &[1.0; 3]),
            observation_names: vec![],
            action_names: vec![],
            max_episode_steps: None,
            determinism: rollhouse_core::Determinism::Deterministic,
            methods: Vec::new(),
            options: vec![],
            info_channels: vec![],
            dynamics_hash: 0,
        };
        spec.action_column()
    }

    #[test]
    fn actions_without_an_element_are_counted_and_have_a_limit() {
        let none = ColumnSpec { shape: vec![0], ..action() };
        let event = |count| PastEvent::Played(PlayedActions { count, actions: ColumnData::F32(Vec::new()) });
        for (count, wanted) in [(0, true), (7, true), (MAX_PAST_BYTES, true), (MAX_PAST_BYTES + 1, false)] {
            let mut bytes = Vec::new();
            put_past(&mut bytes, 3, &event(count));
            let read = read_past(&bytes, &none);
            let expected = Ok(vec![Past { lane: 3, what: event(count) }]);
            assert_eq!(read, if wanted { expected } else { Err(PastError::Unknown { at: 0 }) }, "{count}");
        }
    }

    fn starts() -> impl Strategy<Value = Start> {
        (any::<u64>(), any::<u64>(), any::<Option<u32>>()).prop_map(|(seed, words, half)| Start {
            seed,
            words,
            half,
        })
    }

    fn events() -> impl Strategy<Value = PastEvent> {
        prop_oneof![
            (any::<u64>(), starts()).prop_map(|(number, start)| PastEvent::Began { number, start }),
            (0usize..5).prop_map(|count| PastEvent::Played(PlayedActions {
                count,
                actions: ColumnData::F32(vec![0.5; count * 3])
            })),
            any::<u32>().prop_map(PastEvent::Stood),
            prop::collection::btree_map(
                "[a-z]{1,9}",
                prop_oneof![
                    any::<i64>().prop_map(OptionValue::Int),
                    "[a-z]{0,20}".prop_map(OptionValue::Text),
                    Just(OptionValue::Drawn(Distribution::Uniform([0.5, 2.0]))),
                ],
                0..4
            )
            .prop_map(PastEvent::Given),
            ("[a-z]{1,64}", ".{0,40}")
                .prop_map(|(method, payload)| PastEvent::Called(Call { method, payload })),
            (any::<u64>(), starts(), any::<bool>()).prop_map(|(next, start, held)| PastEvent::Lost {
                next,
                start,
                held
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_put_is_read_and_a_cut_is_seen(
            events in prop::collection::vec((any::<u32>(), events()), 0..12), cut in 1usize..40,
        ) {
            let mut bytes = Vec::new();
            events.iter().for_each(|(lane, event)| put_past(&mut bytes, *lane, event));
            prop_assert!(bytes.len().is_multiple_of(8));
            let records = read_past(&bytes, &action()).unwrap();
            let read: Vec<_> = records.into_iter().map(|record| (record.lane, record.what)).collect();
            prop_assert_eq!(&read, &events);
            if let Some(shorter) = bytes.len().checked_sub(cut) {
                let read = read_past(&bytes[..shorter], &action());
                prop_assert!(read.is_err() || read.unwrap().len() < events.len());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..6, any::<u8>()], 0..200)) {
            if let Ok(records) = read_past(&bytes, &action()) {
                let mut again = Vec::new();
                records.iter().for_each(|record| put_past(&mut again, record.lane, &record.what));
                prop_assert_eq!(again.len(), bytes.len());
            }
        }
    }
}
