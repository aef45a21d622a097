//! Those who are not admitted any more lose what they have, without asking for anything.

use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

use rollhouse_wire::{
    CloseCode, ClusterStatus, ConnectionLost, PoolOpened, PoolStatus, PoolStatusRequest, Role, StatusRequest,
    StoreList, StoreListing,
};
use tracing::Level;

use crate::serving::on_a_runtime;
use crate::serving::stage::{Peer, Stage};

/// With which reason the coordinator has ended the connection of somebody whom it does not admit any more.
async fn sent_away(peer: &Peer) -> String {
    match peer.connection.closed().await {
        ConnectionLost::ByPeer { code: CloseCode::Refused, reason } => reason,
        other => panic!("the connection was not refused: {other}"),
    }
}

/// Symptom: a trainer with a revoked token went on stepping for 45 s and longer, and a viewer's read of the store never
/// ended. Cause: tokens were looked at again only when their holder asked the coordinator for something, and then its
/// pools stayed. Fix: the coordinator looks at the tokens of all connections and of all owners of pools four times a
/// second, ends those connections, and closes those pools at the nodes.
#[test]
fn a_revoked_token_ends_the_pools_and_the_connections_of_its_holders_and_nobody_elses() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        node.register(1000).await.unwrap();
        let (id, token) = stage.token(Role::Trainer, None);
        let (trainer, idle) = (stage.connect(at, &token).await, stage.connect(at, &token).await);
        let other = stage.holder(at, Role::Trainer).await;
        let (theirs, kept) = (trainer.pool(60), other.pool(40));
        let _opened: PoolOpened = trainer.ask(theirs.clone()).await.unwrap();
        let _opened: PoolOpened = other.ask(kept.clone()).await.unwrap();
        assert_eq!(node.sessions().len(), 2);

        stage.tokens.revoke(&id, SystemTime::now()).unwrap();
        for peer in [&trainer, &idle] {
            assert_eq!(sent_away(peer).await, "the token was revoked");
        }
        node.left(1).await;
        assert_eq!(node.sessions()[0].session.pool, kept.pool);
        let of = |pool| PoolStatusRequest { pool, keep: false };
        let admin = stage.holder(at, Role::Admin).await;
        let status: PoolStatus = admin.ask(of(theirs.pool)).await.unwrap();
        assert!(status.failures[0].contains("the token was revoked"), "{:?}", status.failures);
        let status: PoolStatus = other.ask(of(kept.pool)).await.unwrap();
        assert_eq!((status.open, status.failures), (1, Vec::new()));
    });
}

/// As above for what ends by itself, whoever holds it. (A token's time is told in seconds: this takes two.)
#[test]
fn an_expired_token_ends_what_its_holder_has() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        node.register(1000).await.unwrap();
        let soon = Some(Duration::from_secs(2));
        let trainer = stage.connect(at, &stage.token_for(Role::Trainer, None, soon).1).await;
        let _opened: PoolOpened = trainer.ask(trainer.pool(60)).await.unwrap();
        let viewer = stage.connect(at, &stage.token_for(Role::Viewer, None, soon).1).await;
        let admin = stage.connect(at, &stage.token_for(Role::Admin, None, soon).1).await;
        for peer in [&trainer, &viewer, &admin] {
            assert!(sent_away(peer).await.starts_with("the token expired"));
        }
        node.left(0).await;
    });
}

/// Symptom: who had connected with a certificate was never looked at again, however long ago its time was over. Cause:
/// certificates were checked once, in answer to hello. Fix: they are kept and checked again as tokens are; a node whose
/// certificate does not hold any more counts as lost at once.
#[test]
fn an_expired_certificate_ends_what_its_holder_has_whatever_its_role() {
    let stage = Stage::new();
    let (told, lines) = sync_channel(64);
    let tell = move |_: Level, line: &str| drop(told.try_send(line.to_owned()));
    let coordinator = stage.start_telling(tell).unwrap();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        node.register(1000).await.unwrap();
        let soon = |role, name| stage.certified_for(role, name, Duration::from_secs(2));
        let trainer = Peer::dial(soon(Role::Trainer, "ada"), at, None).await;
        let _opened: PoolOpened = trainer.ask(trainer.pool(60)).await.unwrap();
        let viewer = Peer::dial(soon(Role::Viewer, "eve"), at, None).await;
        let short = Stage::node_as(soon(Role::Node, "node-b"), at, "node-b").await;
        short.register(1000).await.unwrap();
        for peer in [&trainer, &viewer, short.peer()] {
            assert!(sent_away(peer).await.starts_with("the certificate expired"));
        }
        node.left(0).await;
    });
    assert!(lines.iter().any(|line| line.starts_with("node node-b is lost")));
}

/// A certificate that is replaced while its holder is connected costs it nothing, and neither does a file that is gone:
/// what is not known ends nobody's lanes.
#[test]
fn a_renewed_certificate_keeps_pools_and_a_lost_file_of_tokens_ends_none() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let at = coordinator.address();
        let node = stage.node(at, "node-a").await;
        node.register(1000).await.unwrap();
        let soon = stage.certified_for(Role::Trainer, "ada", Duration::from_secs(2));
        let old = Peer::dial(soon, at, None).await;
        let _opened: PoolOpened = old.ask(old.pool(60)).await.unwrap();
        let new = Peer::dial(stage.certified(Role::Trainer, "ada"), at, None).await;
        let _opened: PoolOpened = new.ask(new.pool(60)).await.unwrap();
        let holder = stage.holder(at, Role::Trainer).await;
        let _opened: PoolOpened = holder.ask(holder.pool(60)).await.unwrap();
        std::fs::remove_file(stage.path().join("tokens.json")).unwrap();
        assert!(sent_away(&old).await.starts_with("the certificate expired"));
        let listing = StoreList { path: String::new(), after: String::new() };
        let _listing: StoreListing = holder.ask(listing).await.unwrap();
        let status: ClusterStatus = new.ask(StatusRequest {}).await.unwrap();
        assert_eq!((status.pools, status.lanes, node.sessions().len()), (3, 180, 3));
    });
}
