//! The coordinator over loopback: what peers ask and are answered.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod enrolling;
mod reading;
mod revoking;
mod stage;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rollhouse_coordinator::{CoordinatorError, DataError, Stopped};
use rollhouse_core::SharedBound;
use rollhouse_wire::limits::MAX_OPEN_REQUESTS;
use rollhouse_wire::{
    Attach, CallError, CloseCode, ClosePool, CloseSession, ClusterStatus, ConnectionLost, Done, Drain,
    EnvPlace, Incarnation, JoinTerms, ListAfter, NodeState, PoolOpened, PoolStatus, PoolStatusRequest,
    RefusalCode, ReplaceSession, Request, Role, Secret, SessionId, Ship, Shipped, StatusRequest, StoreData,
    StoreList, StoreListing, StoreRead, StoreRepair,
};
use stage::{PATIENCE, Stage, pool_of, spec};
use tracing::Level;

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_pool_opens_on_a_node_is_seen_and_closes() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        assert_eq!(node.register(4096).await.unwrap().term, 1);
        let trainer = stage.holder(coordinator.address(), Role::Trainer).await;
        let request = trainer.pool(4096);
        let opened: PoolOpened = trainer.ask(request.clone()).await.unwrap();
        assert_eq!((opened.spec, opened.lease_ms), (spec(), 30_000));
        let asked = node.sessions();
        assert_eq!(opened.sessions.len(), 4);
        for grant in &opened.sessions {
            let open = asked.iter().find(|open| open.incarnation == grant.incarnation).unwrap();
            assert_eq!((open.first_lane, open.lanes), (grant.first_lane, grant.lanes));
            assert_eq!(open.secret, grant.secret);
            assert_eq!((&*grant.node, &grant.address), ("node-a", &node.address()));
        }
        let again: PoolOpened = trainer.ask(request.clone()).await.unwrap();
        assert_eq!(again.sessions, opened.sessions, "asking again gives the same answer");
        let status: ClusterStatus = trainer.ask(StatusRequest {}).await.unwrap();
        assert_eq!((status.pools, status.sessions, status.lanes, status.capacity), (1, 4, 4096, 4096));
        let sessions = trainer.ask(ListAfter::<SessionId>::default()).await.unwrap();
        assert_eq!(sessions.sessions.len(), 4);
        let closed: PoolStatus = trainer.ask(ClosePool { pool: request.pool }).await.unwrap();
        assert_eq!((closed.open, closed.done.steps), (0, 4 * 7));
        assert!(node.sessions().is_empty());
    });
    assert_eq!(coordinator.stop(PATIENCE), Stopped::InOrder);
}

#[test]
fn every_role_may_ask_for_what_it_may_and_for_nothing_else() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    let incarnation = Incarnation { term: 1, counter: 1 };
    // About a pool of its own: that of another is a matter of owners.
    let requests = |peer: &stage::Peer| {
        let session = SessionId { pool: rollhouse_wire::new_pool_id(peer.connection.known_as()), index: 0 };
        [
            Request::Status(StatusRequest {}),
            Request::Nodes(ListAfter::default()),
            Request::Envs(ListAfter::default()),
            Request::Sessions(ListAfter::default()),
            Request::PoolStatus(PoolStatusRequest { pool: session.pool, keep: false }),
            Request::OpenPool(pool_of("nobody", 1)),
            Request::ClosePool(ClosePool { pool: session.pool }),
            Request::Drain(Drain { node: "nobody".to_owned() }),
            Request::CloseSession(CloseSession { session, incarnation }),
            Request::Attach(Attach {
                pool: session.pool,
                index: 0,
                incarnation,
                secret: Secret::from_bytes([0; 16]),
                log: false,
            }),
            Request::StoreList(StoreList { path: String::new(), after: String::new() }),
            Request::StoreRead(StoreRead { path: "nothing".to_owned(), offset: 0, bytes: 1 }),
            Request::StoreRepair(StoreRepair { path: "nothing".to_owned() }),
        ]
    };
    let mut refused_for_role = 0;
    on_a_runtime(async {
        for role in [Role::Viewer, Role::Trainer, Role::Admin, Role::Node, Role::Join] {
            let peer = match role {
                Role::Node => None,
                Role::Join => {
                    let (_, token) = stage.join_token(JoinTerms::new(1));
                    Some(stage.connect(coordinator.address(), &token).await)
                }
                _ => Some(stage.holder(coordinator.address(), role).await),
            };
            let node = stage.node(coordinator.address(), "node-a").await;
            let peer = peer.as_ref().unwrap_or(node.peer());
            for request in &requests(peer) {
                let asked = peer.connection.ask(request, None, PATIENCE).await;
                let refused = asked.err().and_then(|error| error.refusal());
                let forbidden = refused == Some(RefusalCode::Forbidden);
                refused_for_role += u64::from(forbidden);
                assert_eq!(
                    forbidden,
                    !role.may(request),
                    "{} asks for {}: {refused:?}",
                    role.word(),
                    request.word()
                );
            }
        }
    });
    assert_eq!(coordinator.figures().unwrap().refused("forbidden"), refused_for_role);
}

#[test]
fn a_draining_node_is_told_so_and_neither_gets_new_sessions_nor_offers_envs() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let mut node = stage.node(coordinator.address(), "node-a").await;
        node.register(64).await.unwrap();
        assert!(!node.beat().await.unwrap().drain);
        let admin = stage.holder(coordinator.address(), Role::Admin).await;
        let offered = admin.ask(ListAfter::<EnvPlace>::default()).await.unwrap();
        let [env] = &offered.envs[..] else { panic!("{offered:?}") };
        assert_eq!((env.dynamics_hash, env.nodes, env.free_lanes), (Some(spec().dynamics_hash), 1, 64));
        let drain = |node: &str| Drain { node: node.to_owned() };
        let _done: Done = admin.ask(drain("node-a")).await.unwrap();
        assert_eq!(admin.ask(drain("node-b")).await.unwrap_err().code, RefusalCode::NotFound);
        assert!(node.beat().await.unwrap().drain);
        let nodes = admin.ask(ListAfter::<String>::default()).await.unwrap();
        assert_eq!(nodes.nodes[0].state, NodeState::Draining);
        assert!(admin.ask(ListAfter::<EnvPlace>::default()).await.unwrap().envs.is_empty());
        assert!(admin.ask(admin.pool(1)).await.is_err());
        assert!(node.sessions().is_empty());
    });
}

#[test]
fn a_restarted_coordinator_has_a_greater_term_and_learns_its_pools_from_the_nodes() {
    let stage = Stage::new();
    let first = stage.coordinator();
    let (id, token) = stage.token(Role::Trainer, None);
    let request = pool_of(&format!("trainer:{id}"), 64);
    let sessions = std::cell::RefCell::new(Vec::new());
    let port = std::cell::RefCell::new(None);
    on_a_runtime(async {
        let node = stage.node(first.address(), "node-a").await;
        node.register(64).await.unwrap();
        let trainer = stage.connect(first.address(), &token).await;
        let _opened: PoolOpened = trainer.ask(request.clone()).await.unwrap();
        sessions.replace(node.sessions());
        port.replace(Some(node.hold_port()));
    });
    assert_eq!((first.term(), first.stop(PATIENCE)), (1, Stopped::InOrder));
    let second = stage.coordinator();
    on_a_runtime(async {
        let trainer = stage.connect(second.address(), &token).await;
        let ask = PoolStatusRequest { pool: request.pool, keep: false };
        let unknown = trainer.ask(ask).await.unwrap_err();
        assert_eq!(unknown.code, RefusalCode::Busy, "its nodes may still come: {unknown}");
        let mut node = stage.node(second.address(), "node-a").await;
        node.take_over(sessions.take());
        let registered = node.register(64).await.unwrap();
        assert_eq!((registered.term, registered.known), (2, 0), "it has to be told everything");
        assert_eq!(node.beat().await.unwrap().close, []);
        let status: PoolStatus = trainer.ask(ask).await.unwrap();
        assert_eq!(status.open, 1);
        let stale = trainer.ask(request.clone()).await.unwrap_err();
        assert_eq!(stale.code, RefusalCode::Stale, "its grants are known to its owner only: {stale}");
        let closed: PoolStatus = trainer.ask(ClosePool { pool: request.pool }).await.unwrap();
        assert_eq!(closed.open, 0);
        assert!(node.sessions().is_empty());
    });
}

#[test]
fn quotas_hold_for_each_token_and_a_revoked_one_is_of_no_more_use() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        node.register(1000).await.unwrap();
        let (id, token) = stage.token(Role::Trainer, Some(100));
        let trainer = stage.connect(coordinator.address(), &token).await;
        let other = stage.connect(coordinator.address(), &stage.token(Role::Trainer, Some(100)).1).await;
        let mine = trainer.pool(60);
        let _opened: PoolOpened = trainer.ask(mine.clone()).await.unwrap();
        let refusal = trainer.ask(trainer.pool(41)).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Busy, "{refusal}");
        let refusal = trainer.ask(trainer.pool(101)).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Quota, "{refusal}");
        let _opened: PoolOpened = other.ask(other.pool(100)).await.unwrap();
        let refusal = other.ask(ClosePool { pool: mine.pool }).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Forbidden, "two tokens of one name are two owners");
        stage.tokens.revoke(&id, SystemTime::now()).unwrap();
        trainer.connection.closed().await;
        let _status: ClusterStatus = other.ask(StatusRequest {}).await.unwrap();
    });
    let figures = coordinator.figures().unwrap();
    for code in ["busy", "quota", "forbidden", "unauthenticated"] {
        assert_eq!(figures.refused(code), 1, "{code}");
    }
}

#[test]
fn a_segment_that_a_node_ships_is_acknowledged_listed_and_read() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    let segment = recorded(&stage);
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        let ship = Ship {
            spool: "aaaaaaaa".to_owned(),
            segment: 1,
            bytes: segment.len() as u64,
            crc: crc32c::crc32c(&segment),
            owned: Vec::new(),
        };
        let send = async |ship: Ship, bytes: &[u8]| -> Result<Shipped, RefusalCode> {
            let mut call = node.peer().connection.open(&Request::Ship(ship)).await.unwrap();
            // A store that needs no bytes stops them.
            let _sent = call.send.write_all(bytes).await;
            let _finished = call.finish();
            call.answer().await.map_err(|error: rollhouse_wire::CallError| error.refusal().unwrap())
        };
        let wrong = Ship { crc: !ship.crc, ..ship.clone() };
        assert_eq!(send(wrong, &segment).await, Err(RefusalCode::Busy), "it may arrive whole the next time");
        assert_eq!(send(ship.clone(), &segment).await, Ok(Shipped::Durable));
        assert_eq!(send(ship, &segment).await, Ok(Shipped::Known));
        let viewer = stage.holder(coordinator.address(), Role::Viewer).await;
        let path = "node-a-aaaaaaaa/segments".to_owned();
        let listing: StoreListing =
            viewer.ask(StoreList { path: path.clone(), after: String::new() }).await.unwrap();
        assert_eq!(listing.entries.len(), 1);
        let path = format!("{path}/{}", listing.entries[0].name);
        let read = StoreRead { path, offset: 8, bytes: 1 << 20 };
        let mut call = viewer.connection.open(&Request::StoreRead(read)).await.unwrap();
        let data: StoreData = call.answer().await.unwrap();
        assert_eq!((data.bytes as usize, data.file_bytes), (segment.len() - 8, segment.len() as u64));
        let mut bytes = vec![0; data.bytes as usize];
        call.receive.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, segment[8..]);
    });
    assert_eq!(coordinator.figures().unwrap().store.received, 1);
}

/// Ships a segment that is set aside. Returns a request for all of it.
async fn set_aside(node: &stage::Node) -> Request {
    // What is damaged can be read as well.
    let bytes = vec![7; 1 << 20];
    let crc = crc32c::crc32c(&bytes);
    let ship =
        Ship { spool: "aaaaaaaa".to_owned(), segment: 1, bytes: bytes.len() as u64, crc, owned: Vec::new() };
    let mut call = node.peer().connection.open(&Request::Ship(ship)).await.unwrap();
    call.send.write_all(&bytes).await.unwrap();
    call.finish().unwrap();
    let shipped: Shipped = call.answer().await.unwrap();
    assert_eq!(shipped, Shipped::Quarantined);
    let path = format!("quarantine/node-a-aaaaaaaa.0000000001-{crc:08x}/segments/0000000001.seg");
    Request::StoreRead(StoreRead { path, offset: 0, bytes: 1 << 20 })
}

/// Symptom: one peer had 256 requests under way on each of its connections, and the coordinator's memory was its. Cause:
/// requests were bounded by connection alone. Fix: shares by owner. What keeps them under way here are pools that open on a
/// node which does not answer: an answer that has begun counts no more, so that leaving it unread fills nothing.
#[test]
fn one_who_has_as_many_requests_under_way_as_it_may_is_refused_more_and_keeps_nobody_else_waiting() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let mut node = stage.mute_node(coordinator.address(), "node-a").await;
        node.register(4096).await.unwrap();
        node.beat().await.unwrap();
        let (_, token) = stage.token(Role::Trainer, None);
        let other = stage.holder(coordinator.address(), Role::Viewer).await;
        let bound = SharedBound::REQUESTS;
        let share = (bound.limit - bound.reserve).div_ceil(2) as usize;
        let mut under_way = Vec::new();
        while under_way.len() < share {
            let peer = stage.connect(coordinator.address(), &token).await;
            let mut calls = Vec::new();
            for _ in 0..MAX_OPEN_REQUESTS.min(share - under_way.len()) {
                let mut call = peer.connection.open(&Request::OpenPool(peer.pool(1))).await.unwrap();
                call.finish().unwrap();
                calls.push(call);
            }
            let begun = under_way.len() + calls.len();
            let peer = Arc::new(peer);
            under_way.extend(calls.into_iter().map(|call| (Arc::clone(&peer), call)));
            // Its heartbeats go on, so that it does not count as lost.
            loop {
                node.beat().await.unwrap();
                let status: ClusterStatus = other.ask(StatusRequest {}).await.unwrap();
                if status.pools as usize == begun {
                    break;
                }
            }
        }
        let greedy = stage.connect(coordinator.address(), &token).await;
        let refusal = greedy.ask(StatusRequest {}).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Busy);
        assert!(refusal.message.contains("requests under way at a coordinator"), "{refusal}");
        let _status: ClusterStatus = other.ask(StatusRequest {}).await.unwrap();
        node.beat().await.unwrap();
        drop(under_way);
        while greedy.ask(StatusRequest {}).await.is_err() {}
    });
}

/// Symptom: a viewer that asked for eight parts of recordings and did not read them blocked the store for everybody, for
/// as long as he stayed. Cause: each of the eight places at the disk was held until what had been read there was sent.
/// Fix: a place is held while a piece is read, and no longer.
#[test]
fn readers_that_do_not_read_hold_up_nobody_else() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        let (bytes, read) = (vec![7; 1 << 20], set_aside(&node).await);
        let slow = [
            stage.narrow_holder(coordinator.address(), Role::Viewer).await,
            stage.narrow_holder(coordinator.address(), Role::Viewer).await,
        ];
        let mut unread = Vec::new();
        for peer in &slow {
            for _ in 0..4 {
                let mut call = peer.connection.open(&read).await.unwrap();
                call.finish().unwrap();
                let data: StoreData = call.answer().await.unwrap();
                assert_eq!(data.bytes, 1 << 20);
                unread.push(call);
            }
            // Another is not answered before one of these is read, and stands in nobody's way.
            let mut further = peer.connection.open(&read).await.unwrap();
            further.finish().unwrap();
            unread.push(further);
        }
        let other = stage.holder(coordinator.address(), Role::Viewer).await;
        for _ in 0..3 {
            let mut call = other.connection.open(&read).await.unwrap();
            call.finish().unwrap();
            let data: StoreData = call.answer().await.unwrap();
            let mut got = vec![0; data.bytes as usize];
            call.receive.read_exact(&mut got).await.unwrap();
            assert!(got == bytes);
        }
        // And one that reads after all gets everything.
        let mut late = unread.remove(0);
        let mut got = vec![0; 1 << 20];
        late.receive.read_exact(&mut got).await.unwrap();
        assert!(got == bytes);
    });
}

/// The bytes of a segment with episodes.
fn recorded(stage: &Stage) -> Vec<u8> {
    use crate::stage::{Play, play};
    let dir = stage.path().join("spool");
    play(
        std::sync::Arc::new(rollhouse_replay::RealDisk),
        &dir,
        &Play { lanes: 4, ..Play::new("CartPole-v1", 100) },
    );
    std::fs::read(rollhouse_replay::segment_path(&dir, 1)).unwrap()
}

// What tells the operator is called by whatever has something to say: a panic in it, or a long wait, is one there.

#[test]
fn a_panic_in_what_decides_ends_the_coordinator_as_failed_and_the_next_one_takes_a_greater_term() {
    let stage = Stage::new();
    let panics = |_: Level, line: &str| assert!(!line.contains("has joined"), "in the actor of the cluster");
    let coordinator = stage.start_telling(panics).unwrap();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        node.register(8).await.unwrap();
        let lost = node.peer().connection.closed().await;
        assert!(matches!(lost, ConnectionLost::ByPeer { code: CloseCode::ShuttingDown, .. }), "{lost:?}");
    });
    assert!(coordinator.wait_failed(PATIENCE));
    let term = coordinator.term();
    drop(coordinator);
    let next = stage.coordinator();
    assert_eq!(next.term(), term + 1);
    on_a_runtime(async {
        assert_eq!(stage.node(next.address(), "node-a").await.register(8).await.unwrap().term, term + 1);
    });
}

#[test]
fn while_what_decides_is_stuck_figures_say_so_and_afterwards_what_was_asked_is_answered() {
    let stage = Stage::new();
    let (let_go, go) = sync_channel::<()>(0);
    let go = Mutex::new(go);
    let stuck = move |_: Level, line: &str| {
        if line.contains("has joined") {
            go.lock().recv().unwrap();
        }
    };
    let coordinator = stage.start_telling(stuck).unwrap();
    on_a_runtime(async {
        let mut node = stage.node(coordinator.address(), "node-a").await;
        node.register(8).await.unwrap();
        while coordinator.figures().is_none_or(|figures| figures.alive) {
            tokio::task::yield_now().await;
        }
        let beaten = node.beat();
        let going_on = async { let_go.send(()).unwrap() };
        assert_eq!(tokio::join!(biased; beaten, going_on).0.unwrap().number, 1);
        while !coordinator.figures().unwrap().alive {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(coordinator.stop(PATIENCE), Stopped::InOrder);
}

#[test]
fn a_panic_while_a_request_is_answered_costs_that_request_alone() {
    let stage = Stage::new();
    let panics =
        |_: Level, line: &str| assert!(!line.contains("refused a request"), "while a request is answered");
    let coordinator = stage.start_telling(panics).unwrap();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        node.register(8).await.unwrap();
        // Not for a node to ask, which is told when it is read; nobody has that pool, which is found when it is answered.
        let asked = node.peer().connection.call(pool_of("node-a", 1), PATIENCE).await;
        assert!(matches!(asked, Err(CallError::Lost(_))), "{asked:?}");
        let trainer = stage.holder(coordinator.address(), Role::Trainer).await;
        let (large, small) = (trainer.pool(1 << 20), trainer.pool(1));
        let asked = trainer.connection.call(large, PATIENCE).await;
        assert!(matches!(asked, Err(CallError::Lost(_))), "{asked:?}");
        trainer.ask(small).await.unwrap();
        assert_eq!(node.sessions().len(), 1);
    });
    assert_eq!(coordinator.stop(PATIENCE), Stopped::InOrder);
}

/// Symptom: who knew the id of another owner's pool opened one of his own under it, while the coordinator did not know
/// the pool or after that had been forgotten, and the other one's sessions were refused then. Fix: an id has its owner
/// in it.
#[test]
fn nobody_opens_a_pool_or_places_a_session_under_the_id_of_anothers_pool() {
    let stage = Stage::new();
    let coordinator = stage.coordinator();
    on_a_runtime(async {
        let node = stage.node(coordinator.address(), "node-a").await;
        node.register(8).await.unwrap();
        let trainer = stage.holder(coordinator.address(), Role::Trainer).await;
        let other = stage.holder(coordinator.address(), Role::Trainer).await;
        let open = trainer.pool(1);
        let replace = ReplaceSession {
            open: open.clone(),
            index: 0,
            incarnation: Incarnation { term: 1, counter: 1 },
            first_lane: 0,
            lanes: 1,
            dynamics: spec().dynamics_hash,
            moving: false,
            node: String::new(),
            replaces: false,
        };
        let refused = other.ask(open.clone()).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::BadRequest, "{refused}");
        let refused = other.ask(replace).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::BadRequest, "{refused}");
        assert!(refused.message.starts_with("pool: "), "{refused}");
        assert!(node.sessions().is_empty());
        trainer.ask(open).await.unwrap();
    });
}

/// Symptom: the log said what was refused, and not to whom. Fix: a line has the asker's role, name and address.
#[test]
fn a_line_of_the_log_about_a_refusal_says_whose_request_it_was() {
    let stage = Stage::new();
    let (told, lines) = sync_channel(64);
    let tell = move |level: Level, line: &str| drop(told.try_send((level, line.to_owned())));
    let coordinator = stage.start_telling(tell).unwrap();
    on_a_runtime(async {
        let trainer = stage.holder(coordinator.address(), Role::Trainer).await;
        let large = trainer.pool(1 << 20);
        let asked = trainer.connection.call(large, PATIENCE).await;
        assert!(matches!(asked, Err(CallError::Refused(_))), "{asked:?}");
    });
    let (level, line) = lines.iter().find(|(_, line)| line.contains("refused a request")).unwrap();
    assert_eq!(level, Level::WARN);
    assert!(line.contains("request of trainer `") && line.contains("` at 127.0.0.1:"), "{line}");
}

#[test]
fn a_second_coordinator_on_the_folder_is_refused() {
    let stage = Stage::new();
    let first = stage.coordinator();
    let error = stage.start().unwrap_err();
    assert!(matches!(error, CoordinatorError::Data(DataError::Held { .. })), "{error}");
    assert!(!first.wait_failed(Duration::ZERO));
}

/// Symptom: a coordinator that was stopped as soon as it had started panicked (`no reactor running`). Cause: an actor that
/// had not begun is begun when it is dropped, which was after its event loop. Fix: it leaves before that ends.
#[test]
fn a_coordinator_that_is_stopped_as_soon_as_it_has_started_stops_in_order() {
    let stage = Stage::new();
    for _ in 0..20 {
        assert_eq!(stage.coordinator().stop(Duration::ZERO), Stopped::InOrder);
    }
}
