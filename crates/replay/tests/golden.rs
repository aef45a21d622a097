//! Recordings of released format versions still read and verify.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use rollhouse_env::Registry;
use rollhouse_replay::{Query, RealDisk, Replays};

#[test]
fn recordings_of_version_1_list_as_they_did_and_verify() {
    list_and_verify("v1");
}

#[test]
fn recordings_of_version_1_whose_headers_are_coded_list_as_they_did_and_verify() {
    list_and_verify("v1-coded-runs");
}

fn list_and_verify(folder: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../replays").join(folder);
    let replays = Replays::open(Arc::new(RealDisk), &dir).unwrap();
    let mut listing = String::new();
    for info in replays.list(&Query::default()).unwrap() {
        let total = info.total_reward.map_or("unknown".into(), |total| format!("{:016x}", total.to_bits()));
        writeln!(
            listing,
            "{} {} {} seed {:?} length {} return {total} {} started {}",
            info.name,
            info.env(),
            info.recorded(),
            info.seed(),
            info.length,
            info.outcome,
            info.started_ms
        )
        .unwrap();
    }
    let expected = std::fs::read_to_string(dir.join("listing.txt")).unwrap();
    assert!(listing == expected, "the listing is now:\n{listing}");
    assert_eq!(replays.damage().count(), 0);
    let mut found = 0;
    replays
        .verify_all(&Registry::builtin(), |verification| {
            found += 1;
            assert!(verification.ok, "{verification:?}");
        })
        .unwrap();
    assert_eq!(found, expected.lines().count());
}
