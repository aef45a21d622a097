//! Owners that attach by memory, over the node's socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use cluster::{Cluster, session_of};
use rollhouse_node::AttachConfig;
use rollhouse_wire::{AttachCallError, AttachMemory, OpenSession, OwnerSocket, RefusalCode, VERSION};

/// Symptom: one trainer had all places of `attach.sessions`, and every other trainer of that machine stepped over QUIC.
/// Cause: places were counted without regard to whose sessions they are. Fix: an owner has its share of them.
#[test]
fn an_owner_that_steps_all_sessions_in_memory_that_it_may_leaves_places_to_another() {
    let mut path = None;
    let cluster = Cluster::start_in(|authority, config| {
        let at = authority.path().join("attach.sock");
        config.serving.attach = Some(AttachConfig { path: at.clone(), uids: Vec::new(), sessions: 4 });
        path = Some(at);
    });
    let path = path.unwrap();
    let owner = cluster.owner();
    let attach = |pool: u128, name: &str| {
        let open = session_of(name, pool, "CartPole-v1", 1);
        cluster.coordinator.open(&open).unwrap();
        let OpenSession { session, incarnation, secret, .. } = open;
        let (pool, index) = (session.pool, session.index);
        let asked = AttachMemory { version: VERSION, pool, index, incarnation, secret, log: false };
        owner.block_on(OwnerSocket::attach(&path, false, asked, None))
    };
    let _first = attach(1, "eve").unwrap();
    let _second = attach(2, "eve").unwrap();
    let Err(AttachCallError::Refused(refusal)) = attach(3, "eve") else { panic!("it is let in") };
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("`eve` has 2 sessions attached to a node's memory"), "{refusal}");
    let _another = attach(4, "ada").unwrap();
}
