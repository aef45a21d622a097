//! The lanes of a pool are stepped alike, wherever they are.

use rollhouse_wire::RefusalCode;

use crate::deciding::stage::{Stage, spec};

#[test]
fn the_lanes_of_a_pool_go_to_nodes_of_the_same_dynamics_and_to_such_again_when_one_is_lost() {
    let mut stage = Stage::new(1, &["a", "b"]);
    stage.join_of("other", spec().dynamics_hash ^ 1);
    let grants = stage.open_pool(96);
    let nodes: Vec<&str> = grants.iter().map(|grant| grant.node.as_str()).collect();
    assert_eq!(nodes, ["a", "b"]);
    stage.lose("a", false);
    let refusal = stage.replace(&grants[0], 96).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy, "the other node has room, and steps otherwise");
    stage.join("c", 1);
    assert_eq!(stage.replace(&grants[0], 96).unwrap().node, "c");
}
