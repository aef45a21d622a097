//! Two episodes are compared step by step, and the first step at which they part is named with what differs.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use rollhouse_core::RecordRule;
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{CompareError, Comparison, Difference, Episode, Query, Replays, Value};

use crate::stage::{Play, play};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// The first episode of the first lane.
fn first_of(one: &Play) -> Episode {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let infos = replays.list(&Query { all_outcomes: true, ..Query::default() }).unwrap();
    let info = infos.iter().find(|info| info.name.lane == 0 && info.name.number == 0).unwrap();
    replays.load(info).unwrap()
}

fn compared(a: &Episode, b: &Episode) -> (Option<Difference>, u64) {
    let mut both = Comparison::new(&*REGISTRY, a, b).unwrap();
    (both.first_difference().unwrap(), both.same_steps())
}

fn fields(found: &Difference) -> Vec<&str> {
    found.fields.iter().map(|field| &*field.field).collect()
}

#[test]
fn an_episode_is_the_same_as_itself_however_it_was_recorded() {
    for env in ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0"] {
        let log = first_of(&Play { lanes: 2, ..Play::new(env, 60) });
        let trace = first_of(&Play { lanes: 2, record: RecordRule::Trace, ..Play::new(env, 60) });
        assert!(log.info.length > 0);
        assert_eq!(compared(&log, &log), (None, log.info.length), "{env}");
        assert_eq!(compared(&log, &trace), (None, log.info.length), "{env}");
    }
}

#[test]
fn what_came_of_another_start_differs_from_the_reset_on() {
    let [a, b] = [3, 4].map(|seed| first_of(&Play { lanes: 1, seed, ..Play::new("CartPole-v1", 60) }));
    let (found, same) = compared(&a, &b);
    let found = found.unwrap();
    assert_eq!((found.step, same), (0, 0));
    assert_eq!(fields(&found).len(), 4, "{found:?}");
}

#[test]
fn other_actions_are_named_at_the_step_at_which_they_were_taken() {
    for (from, action) in [(1, "action"), (7, "action")] {
        let play = Play { lanes: 1, ..Play::new("CartPole-v1", 60) };
        let (a, b) = (first_of(&play), first_of(&Play { lie_from: Some(from), ..play }));
        let (found, same) = compared(&a, &b);
        let found = found.unwrap();
        assert_eq!((fields(&found)[0], found.step), (action, same + 1), "{found:?}");
        assert!(found.step >= from && found.fields.len() > 1, "{found:?}");
    }
}

#[test]
fn an_episode_that_goes_on_differs_from_one_that_is_over_after_the_last_step_of_both() {
    let play = Play { lanes: 1, ..Play::new("Pendulum-v1", 40) };
    let (long, short) = (first_of(&play), first_of(&Play { rows: 30, ..play }));
    let (found, same) = compared(&long, &short);
    let found = found.unwrap();
    assert_eq!((fields(&found), found.step, same), (vec!["end"], short.info.length + 1, short.info.length));
    assert_eq!(found.fields[0].b, Value::Text("is over".into()));
}

#[test]
fn episodes_of_other_spaces_are_refused_with_both_envs() {
    let [a, b] = ["CartPole-v1", "Pendulum-v1"].map(|env| first_of(&Play { lanes: 1, ..Play::new(env, 20) }));
    let refused = Comparison::new(&*REGISTRY, &a, &b).unwrap_err();
    assert!(matches!(refused, CompareError::Forms { .. }));
    let message = refused.to_string();
    assert!(message.contains("CartPole-v1") && message.contains("Pendulum-v1"), "{message}");
}
