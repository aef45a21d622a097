//! A coordinator, nodes and trainers over a network that loses, delays, repeats and reorders, in virtual time.
//!
//! Each seed is one course of events. To replay one: `ROLLHOUSE_SIM_SEED=7 cargo test -p rollhouse-coordinator
//! --test simulation`.
#![allow(clippy::print_stderr)]

mod node;
mod random;
mod trainer;
mod world;

use std::collections::BTreeMap;

use random::Random;
use world::{Faults, World};

/// Prints how to replay a seed when its course fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay with: ROLLHOUSE_SIM_SEED={} cargo test -p rollhouse-coordinator --test simulation",
                self.0
            );
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("ROLLHOUSE_SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("ROLLHOUSE_SIM_SEED is a number")],
        Err(_) => (0..48).collect(),
    }
}

/// Runs every seed; what each counted is added up.
fn run(faults: Faults) -> BTreeMap<&'static str, u64> {
    let mut counted = BTreeMap::new();
    for seed in seeds() {
        let _replay = Replay(seed);
        let mut world = World::new(Random::new(seed), faults);
        world.live_for(120_000);
        world.calm_down();
        for (what, count) in world.counted() {
            *counted.entry(what).or_default() += count;
        }
    }
    counted
}

/// The seeds are not all alike: each of these happened somewhere, else the invariants were checked in vain.
fn assert_seen(counted: &BTreeMap<&'static str, u64>, wanted: &[&str]) {
    if seeds().len() > 1 {
        for what in wanted {
            assert!(counted.get(what).is_some_and(|&n| n > 0), "never seen: {what}; {counted:?}");
        }
    }
}

#[test]
fn without_faults_every_pool_opens_or_has_no_room_and_everything_is_given_back() {
    let counted = run(Faults::NONE);
    assert_seen(&counted, &["pool opened", "pool closed", "refused busy", "refused quota"]);
    for never in ["node refused for capacity", "node refused stale", "asked again"] {
        assert_eq!(counted.get(never), None, "{never} without faults: {counted:?}");
    }
}

#[test]
fn messages_that_are_lost_repeated_and_reordered_break_no_invariant() {
    let counted = run(Faults { network: true, ..Faults::NONE });
    assert_seen(&counted, &["pool opened", "pool closed", "asked again", "node refused stale"]);
    assert_eq!(counted.get("node refused for capacity"), None, "{counted:?}");
}

#[test]
fn nodes_that_restart_are_cut_off_and_drained_break_no_invariant() {
    let counted = run(Faults { network: true, nodes: true, ..Faults::NONE });
    assert_seen(&counted, &["pool opened", "pool closed", "node restarted", "node drained", "cut off"]);
    assert_seen(&counted, &["pool lost sessions", "node was told to close"]);
}

#[test]
fn a_coordinator_that_restarts_learns_its_pools_from_the_nodes_and_ends_none_in_use() {
    let counted = run(Faults { network: true, nodes: true, coordinator: true });
    assert_seen(&counted, &["pool opened", "pool closed", "coordinator restarted", "lease ended"]);
}
