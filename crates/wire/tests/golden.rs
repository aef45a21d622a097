//! Every message as bytes: one file each under `golden/`, and all of them for people in `golden/README.md`.
//!
//! `ROLLHOUSE_WRITE_GOLDEN=1 cargo test -p rollhouse-wire --test all golden::` writes them. Once a version is released
//! its files stay as they are: what they hold must be read forever.
//!
//! `previous/` has the messages of the version before this one, which processes of both say to each other during an upgrade
//! and a roll-back. `ROLLHOUSE_WRITE_PREVIOUS=1` makes today's the previous ones, once after each release.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

use crate::messagepack;
use crate::samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use messagepack::Value;
use rollhouse_wire::{FrameHeader, FrameKind, Request};
use samples::{Sample, policy_messages, replay_messages, requests, samples};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The whole page for people.
fn page(samples: &[Sample]) -> String {
    let mut text = String::from(
        "# Golden messages of version 1\n\nEach file is one control message as it stands on the wire: its length \
         as a little-endian u32, then msgpack. Sidecars are kept the same way here, though a frame's header has \
         their length instead. Written by `ROLLHOUSE_WRITE_GOLDEN=1 cargo test -p rollhouse-wire --test all golden::`; \
         the same test without the variable compares.\n",
    );
    for sample in samples {
        let value = Value::read(&sample.bytes[4..]).unwrap();
        writeln!(text, "\n## {}.bin\n\n{} bytes\n\n```\n{value:#}\n```", sample.name, sample.bytes.len())
            .unwrap();
    }
    let header = FrameHeader { kind: FrameKind::Step, flags: 0, number: 2, columns: 256, sidecar: 0 };
    writeln!(text, "\n## frame-header.bin\n\n{header:?}\n").unwrap();
    writeln!(text, "```\n{:02x?}\n```", header.encode()).unwrap();
    text
}

fn header() -> [u8; 16] {
    FrameHeader { kind: FrameKind::Step, flags: 0, number: 2, columns: 256, sidecar: 0 }.encode()
}

#[test]
fn every_message_has_the_bytes_it_always_had() {
    let samples = samples();
    let write = std::env::var_os("ROLLHOUSE_WRITE_GOLDEN").is_some();
    let page = page(&samples);
    let mut files: Vec<(String, Vec<u8>)> =
        samples.iter().map(|sample| (format!("{}.bin", sample.name), sample.bytes.clone())).collect();
    files.push(("frame-header.bin".into(), header().to_vec()));
    files.push(("README.md".into(), page.into_bytes()));
    for (name, bytes) in &files {
        let path = folder().join(name);
        if write {
            std::fs::write(&path, bytes).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(kept == *bytes, "{name} differs from what is written now");
    }
    let kept = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(kept, files.len(), "every file belongs to a message");
}

#[test]
fn every_message_reads_back_and_unknown_fields_are_ignored() {
    for sample in samples() {
        let bytes = &sample.bytes[4..];
        assert_eq!((sample.reads)(bytes), Ok(true), "{}", sample.name);
        let value = Value::read(bytes).unwrap();
        assert_eq!(value.write(), bytes, "{}: the printer reads all of it", sample.name);
        if let Some(newer) = newer(value) {
            assert_eq!((sample.reads)(&newer.write()), Ok(true), "{} of a newer version", sample.name);
        }
    }
}

/// The message with fields this version does not know: a number, and a nested map. `None` if it is a mere word.
fn newer(mut value: Value) -> Option<Value> {
    let Value::Map(fields) = &mut value else { panic!("{value} is no map") };
    let inner = match &mut fields[..] {
        [(Value::Text(tag), inner)] if matches!(tag.as_str(), "ok" | "refused") => match inner {
            Value::Map(inner) => inner,
            _ => return None,
        },
        _ => fields,
    };
    inner.insert(0, (Value::Text("zz_first".into()), Value::Unsigned(7)));
    let nested = Value::Map(vec![(Value::Text("a".into()), Value::List(vec![Value::Nil]))]);
    inner.push((Value::Text("zz_last".into()), nested));
    Some(value)
}

#[test]
fn every_request_has_a_golden_message_and_a_word() {
    let all = requests::requests().into_iter().chain(replay_messages::requests());
    let all = all.chain(policy_messages::requests());
    let names: Vec<&str> = all.map(|sample| sample.name).collect();
    let words: Vec<String> = Request::WORDS.iter().map(|word| format!("request-{word}")).collect();
    assert_eq!(names, words);
}

/// The messages of the previous version, by name and without their length words.
fn previous() -> BTreeMap<String, Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("previous");
    if std::env::var_os("ROLLHOUSE_WRITE_PREVIOUS").is_some() {
        for sample in samples() {
            std::fs::write(folder.join(format!("{}.bin", sample.name)), &sample.bytes).unwrap();
        }
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let messages = files.filter(|path| path.extension().is_some_and(|extension| extension == "bin"));
    let read = messages.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap().split_off(4))
    });
    read.collect()
}

/// Where a reader that knows `older` and passes over fields that it does not know finds something missing in `newer`, or
/// something of another kind, or, if values are to be the same, another value.
fn misses(older: &Value, newer: &Value, same_values: bool) -> Option<String> {
    match (older, newer) {
        (Value::Map(older), Value::Map(newer)) => older.iter().find_map(|(key, value)| {
            let Some((_, found)) = newer.iter().find(|(name, _)| name == key) else {
                return Some(format!("{key} is missing"));
            };
            misses(value, found, same_values).map(|what| format!("{key}: {what}"))
        }),
        (Value::List(older), Value::List(newer)) => {
            if same_values && older.len() != newer.len() {
                return Some(format!("{} values, not {}", newer.len(), older.len()));
            }
            older.iter().zip(newer).find_map(|(older, newer)| misses(older, newer, same_values))
        }
        // A number takes the shortest form that holds it.
        (Value::Unsigned(_) | Value::Signed(_), Value::Unsigned(_) | Value::Signed(_)) if !same_values => {
            None
        }
        // A word is a name for one of several things, and is read by its name.
        _ if older == newer => None,
        _ if !same_values && std::mem::discriminant(older) == std::mem::discriminant(newer) => None,
        _ => Some(format!("{newer} in place of {older}")),
    }
}

/// Rules of docs/protocol.md for what may change within a version of the protocol: fields may be added, none may vanish or
/// change its kind or its meaning.
#[test]
fn messages_of_the_previous_version_mean_what_they_meant_and_it_reads_ours() {
    let (previous, samples) = (previous(), samples());
    assert!(previous.len() >= 60, "{} messages", previous.len());
    for (name, bytes) in &previous {
        let ours = samples.iter().find(|sample| sample.name == name);
        let ours = ours.unwrap_or_else(|| panic!("nothing says {name} any more"));
        let theirs = Value::read(bytes).unwrap();
        let again = (ours.said_again)(bytes).unwrap_or_else(|error| panic!("{name} is not read: {error}"));
        let again = Value::read(&again).unwrap();
        assert_eq!(misses(&theirs, &again, true), None, "{name} has another meaning");
        let said = Value::read(&ours.bytes[4..]).unwrap();
        assert_eq!(misses(&theirs, &said, false), None, "{name} is not what the previous version reads");
    }
}

#[test]
fn a_field_that_vanished_or_changed_its_kind_is_found_and_one_that_was_added_is_not() {
    let field = |name: &str, value| (Value::Text(name.into()), value);
    let message = |fields: &[(Value, Value)]| Value::Map(fields.to_vec());
    let older = message(&[field("a", Value::Unsigned(1)), field("b", message(&[field("c", Value::Nil)]))]);
    let added = message(&[
        field("new", Value::Nil),
        field("a", Value::Unsigned(300)),
        field("b", message(&[field("c", Value::Nil), field("d", Value::Nil)])),
    ]);
    assert_eq!(misses(&older, &added, false), None);
    assert!(misses(&older, &added, true).is_some(), "another number");
    let vanished = message(&[field("a", Value::Unsigned(1)), field("b", message(&[]))]);
    assert!(misses(&older, &vanished, false).is_some());
    let changed =
        message(&[field("a", Value::Text("1".into())), field("b", message(&[field("c", Value::Nil)]))]);
    assert!(misses(&older, &changed, false).is_some());
}
