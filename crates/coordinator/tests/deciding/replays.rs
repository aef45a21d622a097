//! Recorded episodes are placed where they can be shown, and nowhere else.

use rollhouse_coordinator::{Event, Reply};
use rollhouse_core::{LaneState, RecordRule};
use rollhouse_wire::{OpenPool, PoolOpened, Refusal, RefusalCode, ReplayOf};

use crate::deciding::stage::{Stage, asker, open_pool, spec};

const NAME: &str = "k3f9q2tz-17-203";

fn replay(dynamics: u64, full: bool) -> OpenPool {
    let mut open = open_pool(1);
    open.settings.record = RecordRule::None;
    open.settings.replay = Some(ReplayOf { episode: NAME.to_owned(), dynamics, full });
    open
}

fn open(stage: &mut Stage, open: OpenPool) -> Result<PoolOpened, Refusal> {
    let ticket = stage.ticket();
    match stage.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(open) }) {
        Some(Reply::PoolOpened(opened)) => Ok(*opened),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_action_log_is_placed_on_a_node_that_has_its_env_as_it_was_recorded() {
    let mut stage = Stage::new(1, &[]);
    stage.join_of("old", 7);
    stage.join_of("new", spec().dynamics_hash);
    let opened = open(&mut stage, replay(7, false)).unwrap();
    assert_eq!(opened.sessions[0].node, "old");
    let listed = stage.cluster.sessions().sessions;
    let shown = listed[0].report.replay.clone().unwrap();
    assert_eq!(
        (shown.episode.as_str(), shown.state),
        (NAME, LaneState::Loading),
        "its node has not told yet"
    );
}

#[test]
fn an_action_log_that_no_node_recomputes_is_refused_with_both_hashes() {
    let mut stage = Stage::new(1, &[]);
    stage.join_of("old", 7);
    stage.join_of("new", 8);
    let refused = open(&mut stage, replay(9, false)).unwrap_err();
    assert_eq!(refused.code, RefusalCode::BadRequest);
    for hash in [7, 8, 9u64] {
        assert!(refused.message.contains(&format!("{hash:016x}")), "{refused}");
    }
    assert!(stage.opened.is_empty());
    let mut unknown = replay(9, false);
    unknown.settings.env = "Nothing-v0".into();
    assert_eq!(open(&mut stage, unknown).unwrap_err().code, RefusalCode::NotFound);
}

#[test]
fn what_was_recorded_in_full_is_placed_on_any_node() {
    let mut stage = Stage::new(1, &["one"]);
    let opened = open(&mut stage, replay(9, true)).unwrap();
    assert_eq!((opened.sessions[0].node.as_str(), opened.spec.dynamics_hash), ("one", 9));
}

#[test]
fn a_node_that_has_no_room_for_another_replay_leaves_it_to_the_next() {
    let mut stage = Stage::new(1, &["one", "two"]);
    stage.full.push("two");
    assert_eq!(open(&mut stage, replay(spec().dynamics_hash, false)).unwrap().sessions[0].node, "one");
    stage.full.push("one");
    let mut again = replay(spec().dynamics_hash, false);
    again.pool = rollhouse_core::RunId::from_u128(8);
    assert_eq!(open(&mut stage, again).unwrap_err().code, RefusalCode::Busy);
}

/// A node of an earlier version passes over what it does not know, and would make a lane that is stepped.
#[test]
fn a_node_that_knows_of_no_recorded_episodes_is_passed_over_and_what_it_made_is_closed() {
    let mut stage = Stage::new(1, &["one", "two"]);
    stage.old.push("two");
    let opened = open(&mut stage, replay(spec().dynamics_hash, false)).unwrap();
    assert_eq!(opened.sessions[0].node, "one");
    let made: Vec<_> = stage.opened.iter().filter(|(node, _)| *node == "two").copied().collect();
    assert_eq!(stage.closed, made);
    stage.old.push("one");
    let mut again = replay(spec().dynamics_hash, false);
    again.pool = rollhouse_core::RunId::from_u128(8);
    let refused = open(&mut stage, again).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Unsupported, "{refused}");
}
