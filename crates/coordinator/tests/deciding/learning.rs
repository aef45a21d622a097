//! Envs that nodes learn when they are asked for: who is asked, and that all have to agree.

use rollhouse_coordinator::{CallFailure, Event, Reply};
use rollhouse_core::RunId;
use rollhouse_core::limits::MAX_ENV_KWARGS_BYTES;
use rollhouse_wire::{Grant, LaneSettings, OpenPool, Refusal, RefusalCode, ReplaceSession, Spread};

use crate::deciding::stage::{Stage, asked, asker, open_pool};

const ENV: &str = "gymnasium:CartPole-v1";

fn of(env: &str, env_kwargs: &str, lanes: u32) -> OpenPool {
    let pool = open_pool(lanes);
    let settings = LaneSettings { env: env.into(), env_kwargs: env_kwargs.to_owned(), ..pool.settings };
    OpenPool { settings, ..pool }
}

fn open(stage: &mut Stage, request: OpenPool) -> Result<Vec<Grant>, Refusal> {
    let ticket = stage.ticket();
    match stage.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(request) }) {
        Some(Reply::PoolOpened(opened)) => Ok(opened.sessions),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn nodes(grants: &[Grant]) -> Vec<&str> {
    grants.iter().map(|grant| grant.node.as_str()).collect()
}

#[test]
fn an_env_is_asked_for_where_all_kinds_that_its_id_tells_are_hosted() {
    let mut stage = Stage::new(1, &["none"]);
    stage.join_learning("one", &["gymnasium:*", "of another form"], 5);
    stage.join_learning("both", &["gymnasium:*", "ale_py:*"], 5);
    assert_eq!(nodes(&open(&mut stage, of(ENV, "", 96)).unwrap()), ["both", "one"]);
    let mut stage = Stage::new(1, &["none"]);
    stage.join_learning("one", &["gymnasium:*"], 5);
    stage.join_learning("both", &["gymnasium:*", "ale_py:*"], 5);
    let pong = "gymnasium:ale_py:ALE/Pong-v5";
    assert_eq!(nodes(&open(&mut stage, of(pong, "{}", 48)).unwrap()), ["both"]);
    for env in ["ale_py.envs:Pong", "mazes:Maze"] {
        stage.lose("both", true);
        let refusal = open(&mut stage, OpenPool { pool: RunId::from_u128(8), ..of(env, "", 1) });
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::NotFound);
        assert!(refusal.message.contains("nodes host envs of gymnasium"), "{refusal}");
        assert!(refusal.message.contains("python.allow"), "{refusal}");
    }
    let mut stage = Stage::new(1, &["none"]);
    let refusal = open(&mut stage, of(ENV, "", 1)).unwrap_err();
    assert!(refusal.message.contains("python.interpreter"), "{refusal}");
}

#[test]
fn worlds_of_another_kind_are_asked_of_the_nodes_that_register_it() {
    let mut stage = Stage::new(1, &["none"]);
    stage.join_learning("python", &["gymnasium:*", "trial:*"], 5);
    let refusal = open(&mut stage, of("trial://Maze", "", 1)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::NotFound);
    assert!(refusal.message.contains("no node hosts worlds of the kind `trial://*`"), "{refusal}");
    stage.join_learning("worlds", &["trial://*"], 5);
    let request = OpenPool { pool: RunId::from_u128(8), ..of("trial://Maze", "{}", 1) };
    assert_eq!(nodes(&open(&mut stage, request).unwrap()), ["worlds"]);
}

#[test]
fn nodes_that_learn_other_envs_under_one_id_refuse_the_pool_with_both_hashes_and_nothing_stays_open() {
    let mut stage = Stage::new(1, &[]);
    stage.join_learning("a", &["gymnasium:*"], 0xa);
    stage.join_learning("b", &["gymnasium:*"], 0xb);
    let refusal = open(&mut stage, of(ENV, "", 96)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Internal);
    for part in ["000000000000000a", "000000000000000b", "`a`", "`b`", ENV] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert_eq!((stage.opened.len(), stage.closed.len()), (2, 2));
    // A pool that was refused stays so.
    let another = OpenPool { pool: RunId::from_u128(8), spread: Spread::Single, ..of(ENV, "", 48) };
    assert_eq!(nodes(&open(&mut stage, another).unwrap()).len(), 1, "one of them alone will do");
}

#[test]
fn lanes_of_a_lost_node_go_on_where_the_same_env_is_learned_and_nowhere_else() {
    let mut stage = Stage::new(1, &["none"]);
    stage.join_learning("a", &["gymnasium:*"], 5);
    let grants = open(&mut stage, of(ENV, "", 48)).unwrap();
    let replace = |stage: &mut Stage| {
        let asked = ReplaceSession { open: of(ENV, "", 48), dynamics: 5, ..asked(&grants[0], 48) };
        stage.replace_as("ada", asked)
    };
    stage.lose("a", false);
    assert_eq!(replace(&mut stage).unwrap_err().code, RefusalCode::Busy);
    stage.join_learning("b", &["gymnasium:*"], 6);
    let refusal = replace(&mut stage).unwrap_err();
    assert!(refusal.message.contains("0000000000000006"), "{refusal}");
    stage.join_learning("c", &["gymnasium:*"], 5);
    let mut placed = replace(&mut stage);
    while placed.as_ref().is_err_and(|refusal| refusal.code == RefusalCode::Busy) {
        placed = replace(&mut stage);
    }
    assert_eq!(placed.unwrap().grant.node, "c");
}

/// Symptom: a step of lanes whose node was lost ended after the owner's timeout, of 60 s, where the other node could not import
/// their env. Cause: whatever a node said, lanes had no other place *yet*. Fix: what no node will do is refused as the node says it.
#[test]
fn lanes_of_an_env_that_no_other_node_imports_are_refused_at_once_with_the_reason() {
    let mut stage = Stage::new(1, &["none"]);
    stage.join_learning("a", &["gymnasium:*"], 5);
    let grants = open(&mut stage, of(ENV, "", 48)).unwrap();
    stage.join_learning("b", &["gymnasium:*"], 5);
    let failed = Refusal::new(RefusalCode::NotFound, "the import failed: No module named 'pygame'");
    stage.liars.insert("b", CallFailure::Refused(failed));
    stage.lose("a", false);
    let replace = |stage: &mut Stage| {
        let asked = ReplaceSession { open: of(ENV, "", 48), dynamics: 5, ..asked(&grants[0], 48) };
        stage.replace_as("ada", asked)
    };
    let refusal = replace(&mut stage).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::NotFound);
    assert!(refusal.message.contains("node `b`: the import failed: No module named 'pygame'"), "{refusal}");
    // One that is full may have room later.
    stage.join_learning("c", &["gymnasium:*"], 5);
    stage.full.push("c");
    assert_eq!(replace(&mut stage).unwrap_err().code, RefusalCode::Busy);
    stage.full.clear();
    assert_eq!(replace(&mut stage).unwrap().grant.node, "c");
}

#[test]
fn arguments_are_bounded_and_for_learned_envs_alone() {
    let mut stage = Stage::new(1, &["a"]);
    let long = "x".repeat(MAX_ENV_KWARGS_BYTES + 1);
    for (env, kwargs) in [("CartPole-v1", "{}"), (ENV, long.as_str())] {
        let refusal = open(&mut stage, of(env, kwargs, 1)).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::BadRequest);
        assert!(refusal.message.contains("env_kwargs"), "{refusal}");
    }
}
