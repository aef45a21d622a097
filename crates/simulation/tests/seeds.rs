//! Hundreds of courses of events in which everything goes wrong.
//!
//! `ROLLHOUSE_SEED=n` plays the one seed again; `ROLLHOUSE_TELL=1` tells what happens in it.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use crate::play;

use std::collections::BTreeMap;
use std::time::Duration;

use play::{Counted, play_all, seeds};
use rollhouse_simulation::{FaultKinds, Setup, World};

const TIME: Duration = Duration::from_secs(45);

fn setup(seed: u64, kinds: FaultKinds) -> Setup {
    Setup { seed, time: TIME, kinds, link: None, bug: None, tell: play::tells() }
}

#[test]
fn whatever_goes_wrong_no_invariant_is_broken() {
    let counted = play_all("seeds", "whatever_goes_wrong_no_invariant_is_broken", SEEDS, |seed| {
        World::new(setup(seed, FaultKinds::ALL)).live()
    });
    // The seeds are not all alike: each of these happened somewhere, else the invariants were checked in vain.
    for what in SEEN {
        assert!(seeds(SEEDS).len() == 1 || counted.has(what), "never seen: {what}; {counted:?}");
    }
    eprintln!("{counted:?}");
}

#[test]
fn what_the_owner_of_lanes_that_go_on_elsewhere_saw_end_is_in_the_store_whatever_becomes_of_processes() {
    let name =
        "what_the_owner_of_lanes_that_go_on_elsewhere_saw_end_is_in_the_store_whatever_becomes_of_processes";
    let kinds = FaultKinds { disks: false, ..FaultKinds::ALL };
    let counted = play_all("seeds", name, 100, |seed| World::new(setup(seed, kinds)).live());
    assert!(seeds(100).len() == 1 || counted.has("session resumed elsewhere"), "{counted:?}");
}

/// A coordinator's folder is restored from a copy, whose term is older or that of a coordinator which nodes have seen: none
/// of those takes orders of it, its status says so, and with the term that it names everything goes on. Without partitions,
/// so that no owner waits longer for another place than its log lasts.
#[test]
fn after_a_restore_of_the_coordinators_folder_no_term_is_obeyed_twice_and_all_goes_on_with_the_term_it_names()
{
    let name = "after_a_restore_of_the_coordinators_folder_no_term_is_obeyed_twice_and_all_goes_on_with_the_term_it_names";
    let kinds = FaultKinds { restores: true, disks: false, network: false, ..FaultKinds::ALL };
    let counted = play_all("seeds", name, 100, |seed| World::new(setup(seed, kinds)).live());
    for what in ["folder restored", "coordinator was behind", "batch stepped"] {
        assert!(seeds(100).len() == 1 || counted.has(what), "never seen: {what}; {counted:?}");
    }
}

#[test]
fn without_faults_nothing_is_asked_twice_nobody_is_refused_but_for_room_and_all_is_recorded() {
    let name = "without_faults_nothing_is_asked_twice_nobody_is_refused_but_for_room_and_all_is_recorded";
    let counted: Counted = play_all("seeds", name, 20, |seed| {
        let link = Some(rollhouse_simulation::LINKS[seed as usize % 3]);
        World::new(Setup { link, ..setup(seed, FaultKinds::NONE) }).live()
    });
    for never in [
        "request repeated",
        "session lost",
        "step given up",
        "lease ended",
        "segment refused",
        "step refused",
        "node refused a session",
    ] {
        assert!(!counted.has(never), "{never} without faults: {counted:?}");
    }
    assert!(seeds(20).len() == 1 || counted.has("batch stepped") && counted.has("segment stored"));
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    let trace = |seed| World::new(setup(seed, FaultKinds::ALL)).live();
    let mut traces = BTreeMap::new();
    for seed in 0..6 {
        let (one, other) = (trace(seed), trace(seed));
        assert_eq!(
            (one.trace, one.events, one.counted),
            (other.trace, other.events, other.counted),
            "seed {seed}"
        );
        assert_eq!(traces.insert(one.trace, seed), None, "two seeds have one trace");
    }
}

const SEEDS: u64 = 500;

/// What has to be met among so many seeds.
const SEEN: [&str; 44] = [
    "answer nobody waits for",
    "attach refused",
    "attached by memory",
    "batch stepped",
    "busy",
    "call to a node without an answer",
    "clock jumped",
    "clock on the wall set",
    "disk fault",
    "drained",
    "episode set aside",
    "harm refused",
    "killed",
    "lanes taken as they were done",
    "lease ended",
    "node refused a session",
    "owner vanished before its answer",
    "partition",
    "paused",
    "pool closed",
    "pool opened",
    "pool shipped",
    "pools of a revoked owner closed",
    "power cut",
    "process could not start",
    "quota",
    "refused as revoked",
    "request hastened",
    "request repeated",
    "segment known",
    "segment refused",
    "segment stored",
    "session closed as a stray",
    "session lost",
    "session moved",
    "session moved with the request that its node cannot record",
    "session resumed elsewhere",
    "some lanes sent",
    "step refused",
    "stepped by memory",
    "stream replaced",
    "told that a node's port is closed",
    "token revoked",
    "trainer forges",
];
