//! Links from a machine room's to one that loses a quarter of its packets, with and without partitions.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

mod play;

use std::time::Duration;

use play::play_all;
use rollhouse_simulation::{FaultKinds, LINKS, Setup, World};

fn setup(seed: u64, index: usize, kinds: FaultKinds) -> Setup {
    Setup {
        seed,
        time: Duration::from_secs(45),
        kinds,
        link: Some(LINKS[index]),
        bug: None,
        tell: play::tells(),
    }
}

#[test]
fn on_every_link_partitions_break_no_invariant_and_good_ones_recover_within_5_s() {
    let name = "on_every_link_partitions_break_no_invariant_and_good_ones_recover_within_5_s";
    let partitions = FaultKinds { network: true, ..FaultKinds::NONE };
    for (index, link) in LINKS.iter().enumerate() {
        let counted = play_all("links", name, SEEDS, |seed| {
            let outcome = World::new(setup(seed, index, partitions)).live();
            let good = link.loss_per_mille <= 50 && link.round_trip <= Duration::from_millis(200);
            assert!(
                !good || outcome.recovered_in <= FIVE_SECONDS,
                "{}: {:?}",
                link.name,
                outcome.recovered_in
            );
            outcome
        });
        eprintln!(
            "{}: recovered within {:?}, {} episodes",
            link.name, counted.recovered_in, counted.episodes
        );
        assert!(play::seeds(SEEDS).len() == 1 || counted.has("partition") && counted.has("batch stepped"));
    }
}

#[test]
fn on_every_link_everything_may_go_wrong() {
    for index in 0..LINKS.len() {
        play_all("links", "on_every_link_everything_may_go_wrong", 4, |seed| {
            World::new(setup(1000 + seed, index, FaultKinds::ALL)).live()
        });
    }
}

const SEEDS: u64 = 25;
const FIVE_SECONDS: Duration = Duration::from_secs(5);
