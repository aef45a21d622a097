//! Every message as bytes, one file each under `golden/openra/`.
//!
//! `ROLLHOUSE_WRITE_GOLDEN=1 cargo test -p rollhouse-codec --test all golden::` writes them. Once a version
//! is released they stay as they are. `golden/openra/README.md` says what they were compared with.

use std::path::PathBuf;

use super::samples::samples;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/openra")
}

#[test]
fn every_message_has_the_bytes_it_always_had() {
    let samples = samples();
    let write = std::env::var_os("ROLLHOUSE_WRITE_GOLDEN").is_some();
    for sample in &samples {
        let path = folder().join(format!("{}.bin", sample.name));
        if write {
            std::fs::write(&path, &sample.bytes).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(kept == sample.bytes, "{} differs from what is written now", sample.name);
    }
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let kept = files.filter(|path| path.extension().is_some_and(|extension| extension == "bin")).count();
    assert_eq!(kept, samples.len(), "every file belongs to a message");
}

#[test]
fn every_message_reads_back_and_unknown_fields_are_passed_over() {
    // Field 1000: a number, and 1001: a text.
    let unknown = [0xc0, 0x3e, 0x07, 0xca, 0x3e, 0x01, b'x'];
    for sample in samples() {
        assert_eq!((sample.reads)(&sample.bytes).as_ref(), Ok(&sample.bytes), "{}", sample.name);
        for newer in [[&unknown[..], &sample.bytes].concat(), [&sample.bytes[..], &unknown].concat()] {
            assert_eq!(
                (sample.reads)(&newer).as_ref(),
                Ok(&sample.bytes),
                "{} of a newer version",
                sample.name
            );
        }
    }
}
