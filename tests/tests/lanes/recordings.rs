//! What is recorded of lanes.

use std::collections::BTreeMap;

use rollhouse_core::{OptionValue, RecordRule};
use rollhouse_engine::{LaneOptions, Reset};
use rollhouse_env::Registry;
use rollhouse_replay::{Library, Query};

use super::carriers::{LANES, LaneOrder, Pair};
use super::{Both, Lanes, Suite, between, call, low};

pub(super) fn what_is_recorded_is_what_a_kernel_records(pair: Pair) {
    for (env, record) in [
        ("CartPole-v1", RecordRule::All),
        ("CartPole-v1", RecordRule::Trace),
        ("test/Called-v0", RecordRule::All),
        ("test/Faulty-v0", RecordRule::All),
    ] {
        let suite = Suite::start(pair);
        let options = if env == "CartPole-v1" { low(between(-0.05, -0.01)) } else { Vec::new() };
        let mut both = suite.open(&LaneOrder { options, record, limit: Some(50), ..LaneOrder::of(env) });
        both.reset(&Reset::seeded(11, LANES));
        both.play(40);
        both.lanes.set_policy_version(3);
        both.kernels.set_policy_version(3);
        for _ in 0..40 {
            if env == "test/Called-v0" {
                call(&mut both);
            }
            both.play(1);
        }
        if env == "CartPole-v1" {
            // From here on two thirds of the lanes have options of their own, some of them distributions.
            let of_each = (0..LANES).map(|lane| match lane % 3 {
                1 => OptionValue::Float(-0.001 * lane as f64),
                _ => between(-0.03, -0.02),
            });
            let options = LaneOptions::from([("low".to_owned(), of_each.collect())]);
            let mask = (0..LANES).map(|lane| lane % 3 > 0).collect();
            both.reset(&Reset { options, mask, ..Reset::default() });
            both.play(60);
        }
        both.ask(Lanes::statistics);
        let Both { lanes, kernels, what, .. } = both;
        let found = suite.stand.recorded(lanes, episodes);
        let wanted = suite.kernels.recorded(kernels, episodes);
        assert!(wanted.len() > LANES, "{}", wanted.len());
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{what}");
        for (name, episode) in wanted {
            assert_eq!(found[&name], episode, "{what}, lane and number {name:?}");
        }
    }
}

/// All that was recorded of each episode, by lane and number. It is verified with kernels.
pub(super) fn episodes(library: &Library) -> BTreeMap<(u32, u64), String> {
    let verified =
        |found: rollhouse_replay::Verification| assert!(found.ok && found.note.is_none(), "{found:?}");
    library.verify_all(&Registry::builtin(), verified).unwrap();
    let listed = library.list(&Query::default()).unwrap();
    let episodes = listed.into_iter().map(|listed| {
        let episode = listed.folder.load(&listed.info).unwrap();
        let info = &episode.info;
        let versions: Vec<u64> = (0..info.length).map(|step| episode.policy_versions.of_step(step)).collect();
        let ended = (info.outcome, info.length, info.total_reward, info.result, info.score);
        let hashes = (&episode.windows, episode.end_hash);
        let played = (info.start, info.options(), &episode.actions, &episode.calls, &episode.steps);
        ((info.name.lane, info.name.number), format!("{ended:?} {hashes:?} {played:?} versions {versions:?}"))
    });
    episodes.collect()
}
