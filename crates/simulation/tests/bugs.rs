//! That the invariants bite: each fault that is planted in the program is found by some seed.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use crate::play;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rollhouse_simulation::{Bug, FaultKinds, Setup, World};

/// The first seed that finds the bug, and what it says.
fn found_by(bug: Bug) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let setup = Setup {
            seed,
            time: Duration::from_secs(45),
            kinds: FaultKinds::ALL,
            link: None,
            bug: Some(bug),
            tell: play::tells(),
        };
        let failed = catch_unwind(AssertUnwindSafe(|| World::new(setup).live())).err()?;
        let said = failed.downcast_ref::<String>().cloned();
        Some((
            seed,
            said.or_else(|| failed.downcast_ref::<&str>().map(|&s| s.to_owned())).unwrap_or_default(),
        ))
    })
}

#[test]
fn every_planted_bug_is_found_by_the_invariant_it_breaks() {
    let (mut missed, mut mistaken) = (Vec::new(), Vec::new());
    for bug in Bug::ALL {
        match found_by(bug) {
            Some((seed, said)) => {
                eprintln!("{bug:?}: seed {seed}: {}", said.lines().next().unwrap_or_default());
                if !expected(bug).iter().any(|words| said.contains(words)) {
                    mistaken.push((bug, seed, said));
                }
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
    assert!(mistaken.is_empty(), "found by another invariant: {mistaken:?}");
}

/// What the invariant says that the bug breaks.
const fn expected(bug: Bug) -> &'static [&'static str] {
    match bug {
        Bug::StoreAcknowledgesBeforeSync
        | Bug::StoreForgetsToSyncNames
        | Bug::SpoolAcknowledgesBeforeSync => &["is lost", "is damaged", "contradicts"],
        Bug::ReusesTerm => &["is not greater"],
        Bug::IgnoresQuotas => &["its quota is"],
        Bug::TakesAnyAnswer => &["for an answer to request"],
        Bug::MistakesOwners => &["of what others have"],
        Bug::RevokesEverybody => &[
            "a session of another owner has gone",
            "gets a place and is revoked",
            "is closed while its owner steps it",
        ],
        Bug::ForgetsPast => &["ended twice for its owner", " ended in ", "answers other numbers"],
    }
}

const SEEDS: u64 = 60;
