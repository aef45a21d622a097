//! Sessions of a node over real connections: stepped by their owners, taken over, ended, recorded.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Answered, Authority, Cluster, Coordinator, Heard, Owner, Stepper, session, session_of};
use rollhouse_core::{
    AutoresetMode, ColumnRef, Goal, Interruption, OptionValue, Outcome, RecordRule, RunId, SeedSchedule,
    SharedBound, random_bits,
};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_node::{ClusterNode, Histogram, Transport};
use rollhouse_replay::{Library, Query, RealDisk, Verification};
use rollhouse_wire::limits::MAX_SHIP_BYTES;
use rollhouse_wire::{
    CallError, CloseCode, Collect, ConnectionLost, EndCause, FrameFault, FrameHeader, FrameKind, OpenSession,
    RefusalCode, Role, Secret, SessionId, StatusRequest, StreamLost,
};

fn action(lane: u32, number: u32) -> i64 {
    (random_bits(5, lane, u64::from(number)) & 1) as i64
}

fn actions(lanes: u32, number: u32) -> Vec<i64> {
    (0..lanes).map(|lane| action(lane, number)).collect()
}

/// What an engine in this process answers, as a frame's columns.
fn columns_of(stepper: &Stepper<'_>, engine: &mut Engine, same_step: bool) -> Vec<u8> {
    let frame = engine.frame().unwrap();
    let over = frame.terminated().contains(&1) || frame.truncated().contains(&1);
    let places = stepper.layout.batch(frame.lanes(), same_step && over).unwrap();
    let mut bytes = vec![0; places.bytes];
    bytes[places.obs[0].clone()].copy_from_slice(frame.obs(0).bytes());
    bytes[places.rewards].copy_from_slice(ColumnRef::F64(frame.rewards()).bytes());
    bytes[places.terminated].copy_from_slice(frame.terminated());
    bytes[places.truncated].copy_from_slice(frame.truncated());
    bytes[places.reset].copy_from_slice(frame.reset());
    if let Some(place) = places.final_obs.first() {
        bytes[place.clone()].copy_from_slice(frame.final_obs(0).bytes());
    }
    bytes
}

fn engine(lanes: usize, first_lane: u32, autoreset: AutoresetMode) -> Engine {
    let schedule = SeedSchedule::PerEpisode { run_seed: 11 };
    let config = EngineConfig { first_lane, schedule, autoreset, ..EngineConfig::new(lanes) };
    Engine::new(&Registry::builtin().get("CartPole-v1").unwrap(), config, None).unwrap()
}

/// Symptom: a coordinator that was believed when it was dialled was believed for as long as the connection lasted. Fix: each
/// heartbeat looks at its certificate again. (Their times are told in seconds: this takes two.)
#[test]
fn a_coordinator_whose_certificate_expires_is_told_nothing_more() {
    let authority = Authority::new();
    let soon = authority.identity_for(Role::Coordinator, "coordinator", Duration::from_secs(2));
    let coordinator = Coordinator::start_as(soon, &authority, SocketAddr::from(([127, 0, 0, 1], 0)));
    let node = ClusterNode::start(authority.node("n1", &coordinator)).unwrap();
    coordinator.registered();
    let why = coordinator.hear(|heard| match heard {
        Heard::Refused(why) => Some(why),
        _ => None,
    });
    assert!(why.starts_with("the certificate expired"), "{why}");
    drop(node);
}

#[test]
fn a_session_stepped_over_quic_gives_the_rows_of_an_engine_byte_by_byte() {
    let cluster = Cluster::start(|_| ());
    for (pool, mode) in [(1, AutoresetMode::NextStep), (2, AutoresetMode::SameStep)] {
        let mut open = session(pool, "CartPole-v1", 64);
        open.settings.autoreset = mode;
        open.first_lane = 36;
        open.pool_lanes = 100;
        let opened = cluster.coordinator.open(&open).unwrap();
        assert_eq!((opened.spec.id.as_str(), opened.lease_ms), ("CartPole-v1", 30_000));
        let owner = cluster.owner();
        let mut stepper = owner.attach(&open);
        assert_eq!((stepper.attached.lanes, stepper.attached.last), (64, 0));
        let mut engine = engine(64, 36, mode);
        engine.reset(&Reset::all()).unwrap();
        let same_step = mode == AutoresetMode::SameStep;
        assert_eq!(stepper.reset(1).columns, columns_of(&stepper, &mut engine, same_step));
        for number in 2..300 {
            let actions = actions(64, number);
            engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions);
            engine.step().unwrap();
            let answer = stepper.step(number, &actions);
            assert_eq!((answer.header.kind, answer.header.number), (FrameKind::Batch, number));
            assert_eq!(answer.columns, columns_of(&stepper, &mut engine, same_step), "{number}");
        }
    }
}

/// Symptom: one owner, or one viewer with a watched session's key, held all connections of a node: 3 GB, and nobody else
/// was let in. Cause: who had once been let in was known for ever, and connections were counted without regard to whose
/// they are. Fix: a connection counts to the owner whose sessions it steps for as long as it does.
#[test]
fn an_owner_with_all_connections_that_it_may_have_leaves_others_theirs_and_has_them_back_with_its_sessions() {
    let cluster = Cluster::start(|config| {
        config.serving.quic.shares = SharedBound { limit: 4, reserve: 0, ..SharedBound::CONNECTIONS };
    });
    let opened = |pool: u128, owner: &str| {
        let open = session_of(owner, pool, "CartPole-v1", 1);
        cluster.coordinator.open(&open).unwrap();
        open
    };
    let eves = [opened(1, "eve"), opened(2, "eve"), opened(3, "eve")];
    let owners = [cluster.owner(), cluster.owner(), cluster.owner()];
    let _first = owners[0].attach(&eves[0]);
    let _second = owners[1].attach(&eves[1]);
    let Err(CallError::Refused(refusal)) = owners[2].try_attach(&eves[2]).map(drop) else { panic!("taken") };
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("`eve` has 2 connections"), "{refusal}");
    let also_on_the_first = owners[0].attach(&eves[2]);
    let ada = opened(4, "ada");
    let adas = cluster.owner();
    let _adas = adas.attach(&ada);
    drop(also_on_the_first);
    cluster.coordinator.close(&eves[0]).unwrap();
    cluster.coordinator.close(&eves[2]).unwrap();
    let fifth = opened(5, "eve");
    // The node's side of a stream ends when its session has, which the coordinator may hear before.
    let again = loop {
        match owners[2].try_attach(&fifth) {
            Ok(again) => break again,
            Err(CallError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Busy),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(again.attached.lanes, 1);
}

#[test]
fn after_a_lost_connection_the_last_request_is_answered_again_and_stepping_goes_on() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 8);
    cluster.coordinator.open(&open).unwrap();
    let mut answers: Vec<Answered> = Vec::new();
    {
        let owner = cluster.owner();
        let mut stepper = owner.attach(&open);
        answers.push(stepper.reset(1));
        answers.push(stepper.step(2, &actions(8, 2)));
        owner.connection.close(CloseCode::Internal, "lost");
    }
    let owner = cluster.owner();
    let mut stepper = owner.attach(&open);
    assert_eq!(stepper.attached.last, 2);
    assert_eq!(stepper.step(2, &actions(8, 2)), answers[1]);
    let next = stepper.step(3, &actions(8, 3));
    let mut engine = engine(8, 0, AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    for number in 2..4 {
        engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions(8, number));
        engine.step().unwrap();
    }
    assert_eq!(next.columns, columns_of(&stepper, &mut engine, false));
}

#[test]
fn a_later_attachment_takes_over_and_the_earlier_stream_is_told() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 2);
    cluster.coordinator.open(&open).unwrap();
    let (first, second) = (cluster.owner(), cluster.owner());
    let mut earlier = first.attach(&open);
    earlier.reset(1);
    let mut later = second.attach(&open);
    assert_eq!(later.attached.last, 1);
    assert_eq!(earlier.hear(), Err(FrameFault::Lost(StreamLost::ByPeer(CloseCode::Replaced))));
    assert_eq!(later.step(2, &[0, 1]).header.number, 2);
}

#[test]
fn wrong_secrets_other_placements_and_unknown_sessions_are_refused() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 2);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let code = |open: &OpenSession| owner.try_attach(open).err().and_then(|error| error.refusal());
    let mut other = open.clone();
    other.secret = Secret::from_bytes([99; 16]);
    assert_eq!(code(&other), Some(RefusalCode::Unauthenticated));
    other = open.clone();
    other.incarnation.counter = 7;
    assert_eq!(code(&other), Some(RefusalCode::Stale));
    other = open.clone();
    other.session = SessionId { pool: RunId::from_u128(5), index: 0 };
    assert_eq!(code(&other), Some(RefusalCode::NotFound));
    assert_eq!(code(&open), None);
    // What nobody of an owner's role may ask for is refused before the node is asked, and counted all the same.
    let asked = owner.connection.call(StatusRequest {}, Duration::from_secs(30));
    assert_eq!(owner.block_on(asked).unwrap_err().refusal(), Some(RefusalCode::Forbidden));
    let counts = cluster.node.figures().refusals.counts();
    let words = ["forbidden", "not_found", "stale", "unauthenticated"];
    assert_eq!(counts, words.map(|word| ((word, Role::Anonymous), 1)).into());
}

#[test]
fn what_is_no_request_ends_its_connection_with_the_reason_and_others_go_on() {
    let cluster = Cluster::start(|_| ());
    let opens = [1, 2].map(|pool| session(pool, "CartPole-v1", 2));
    opens.iter().for_each(|open| drop(cluster.coordinator.open(open).unwrap()));
    let bystander = cluster.owner();
    let mut calm = bystander.attach(&opens[1]);
    calm.reset(1);
    let header = |kind, number, columns| FrameHeader { kind, flags: 0, number, columns, sidecar: 0 };
    let cases = [
        (
            header(FrameKind::Step, 9, 16),
            CloseCode::OutOfOrder,
            "request 9 is out of order: 1 was answered last, 2 is next",
        ),
        (
            header(FrameKind::Step, 2, 8),
            CloseCode::Malformed,
            "a request with 8 bytes of columns, this session's have 16",
        ),
        (
            header(FrameKind::Batch, 2, 0),
            CloseCode::Malformed,
            "a frame of kind 17 with these flags is not a request",
        ),
        (
            header(FrameKind::Send, 2, 24),
            CloseCode::Malformed,
            "a request for 0 lanes that its bytes or the session's 2 lanes do not fit",
        ),
        (
            header(FrameKind::Send, 2, 300_000),
            CloseCode::TooLong,
            "a frame with 300000 bytes of columns, the session's have at most 262144",
        ),
    ];
    for (number, (header, code, reason)) in (2..).zip(cases) {
        let owner = cluster.owner();
        let mut stepper = owner.attach(&opens[0]);
        if stepper.attached.last == 0 {
            stepper.reset(1);
        }
        stepper.put(header, &vec![0; header.columns as usize]);
        let lost = owner.block_on(owner.connection.closed());
        assert_eq!(lost, ConnectionLost::ByPeer { code, reason: reason.to_owned() });
        assert_eq!(calm.step(number, &[0, 1]).header.number, number);
    }
    assert_eq!(cluster.node.figures().malformed.get(), 5);
}

#[test]
fn sessions_of_different_envs_and_owners_share_the_workers() {
    let cluster = Cluster::start(|config| config.stepping.threads = NonZeroUsize::MIN);
    let envs = ["CartPole-v1", "test/Faulty-v0", "MountainCar-v0", "Acrobot-v1"];
    let opens: Vec<_> = (1..).zip(envs).map(|(pool, env)| session(pool, env, 4)).collect();
    opens.iter().for_each(|open| drop(cluster.coordinator.open(open).unwrap()));
    let owners: Vec<_> = opens.iter().map(|_| cluster.owner()).collect();
    let mut steppers: Vec<_> = owners.iter().zip(&opens).map(|(owner, open)| owner.attach(open)).collect();
    for number in 1..50 {
        for stepper in &mut steppers {
            let answer = if number == 1 { stepper.reset(1) } else { stepper.step(number, &[0, 1, 0, 1]) };
            assert_eq!((answer.header.kind, answer.header.number), (FrameKind::Batch, number));
        }
    }
    let report = cluster.coordinator.hear(|heard| match heard {
        cluster::Heard::Beat(beat) if beat.load.steps >= 4 * 4 * 45 => Some(beat),
        _ => None,
    });
    assert_eq!((report.changes.sessions.len(), report.load.lanes), (4, 16));
    assert!(report.changes.sessions.iter().all(|session| session.attached == Some(true)));
}

#[test]
fn with_every_thread_held_other_sessions_step_and_the_node_reports() {
    let cluster = Cluster::start(|config| config.stepping.threads = NonZeroUsize::MIN);
    let calm_open = session(9, "CartPole-v1", 4);
    cluster.coordinator.open(&calm_open).unwrap();
    let calm_owner = cluster.owner();
    let mut calm = calm_owner.attach(&calm_open);
    calm.reset(1);
    (2..10).for_each(|number| drop(calm.step(number, &[0; 4])));
    let faulty = |pool| {
        let mut open = session(pool, "test/Faulty-v0", 1);
        open.settings.options.insert("hang_at".to_owned(), OptionValue::Int(1));
        cluster.coordinator.open(&open).unwrap();
        open
    };
    let opens = [1, 2, 3].map(faulty);
    let owners = opens.each_ref().map(|_| cluster.owner());
    let mut steppers: Vec<_> = owners.iter().zip(&opens).map(|(owner, open)| owner.attach(open)).collect();
    for stepper in &mut steppers {
        stepper.reset(1);
    }
    // What was asked is sent, and connections live on, only while their runtimes are driven.
    let drive_until = |so: &dyn Fn() -> bool| {
        while !so() {
            owners.iter().chain([&calm_owner]).for_each(|owner| owner.block_on(tokio::task::yield_now()));
        }
    };
    let taken = || cluster.node.figures().threads.queue_wait.counts().iter().sum::<u64>();
    let before = taken();
    for stepper in &mut steppers {
        stepper.ask(FrameKind::Step, 2, &[0; 8]);
    }
    drive_until(&|| taken() == before + 3);
    assert_eq!((cluster.node.load().queued, cluster.node.figures().threads.busy.get()), (0, 0));
    for number in 10..30 {
        assert_eq!(calm.step(number, &[1; 4]).header.kind, FrameKind::Batch);
    }
    let beats = |beat: cluster::Heard| matches!(beat, cluster::Heard::Beat(_)).then_some(());
    (0..3).for_each(|_| cluster.coordinator.hear(beats));
}

#[test]
fn a_session_that_hangs_is_given_up_its_owner_told_and_another_thread_takes_its_place() {
    let cluster = Cluster::start(|config| {
        config.stepping.threads = NonZeroUsize::MIN;
        config.stepping.hang_deadline = Duration::from_millis(100);
    });
    let mut open = session(1, "test/Faulty-v0", 1);
    open.settings.options.insert("hang_at".to_owned(), OptionValue::Int(2));
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    stepper.step(2, &[0]);
    stepper.ask(FrameKind::Step, 3, &[0; 8]);
    assert_eq!(stepper.hear(), Err(FrameFault::Lost(StreamLost::ByPeer(CloseCode::SessionEnded))));
    let end = cluster.coordinator.end_of(&open);
    assert_eq!(end.cause, EndCause::Hung);
    assert_eq!(cluster.node.figures().threads.abandoned.get(), 1);
    let other = session(2, "test/Faulty-v0", 1);
    cluster.coordinator.open(&other).unwrap();
    assert_eq!(owner.attach(&other).reset(1).header.kind, FrameKind::Batch);
}

#[test]
fn the_open_episode_of_a_session_that_hangs_is_in_the_store_as_hung() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let mut config = authority.node("n1", &coordinator);
    config.recording.spool = Some(authority.path().join("spool"));
    config.stepping.hang_deadline = Duration::from_millis(500);
    let node = ClusterNode::start(config).unwrap();
    coordinator.registered();
    let mut open = session(1, "test/Faulty-v0", 1);
    open.settings.options.insert("hang_at".to_owned(), OptionValue::Int(40));
    open.settings.record = RecordRule::All;
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    (2..41).for_each(|number| drop(stepper.step(number, &[i64::from(number & 1)])));
    // What was recorded is handed over when nothing is asked for a while.
    let beats = |beat: cluster::Heard| matches!(beat, cluster::Heard::Beat(_)).then_some(());
    while node.recorder().unwrap().recorded.bytes == 0 {
        coordinator.hear(beats);
    }
    stepper.ask(FrameKind::Step, 41, &[0; 8]);
    assert_eq!(coordinator.end_of(&open).cause, EndCause::Hung);
    assert!(node.stop(Duration::from_secs(30)).shipped);
    let library = Library::open(Arc::new(RealDisk), &authority.store()).unwrap();
    let episodes = library.list(&Query::default()).unwrap();
    let [episode] = episodes.as_slice() else { panic!("{episodes:?}") };
    let info = &episode.info;
    assert_eq!((info.outcome, info.total_reward), (Outcome::Interrupted(Interruption::Hung), None));
    assert_eq!(info.length, 39);
}

#[test]
fn a_lease_that_is_over_ends_the_session_and_its_episodes_as_disconnected() {
    let cluster = Cluster::start(|config| config.serving.lease = Duration::from_millis(200));
    let open = session(1, "CartPole-v1", 3);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    owner.attach(&open).reset(1);
    owner.connection.close(CloseCode::Finished, "");
    owner.block_on(owner.dialer.closed());
    let end = cluster.coordinator.end_of(&open);
    assert_eq!(end.cause, EndCause::LeaseEnded);
    assert_eq!((end.done.interrupted, end.done.episodes), (3, 0));
    let disconnected = Outcome::Interrupted(Interruption::Disconnected).code();
    assert_eq!(cluster.node.figures().episodes[usize::from(disconnected)].get(), 3);
    assert_eq!(cluster.node.sessions(), 0);
}

#[test]
fn closing_tells_what_was_done_ends_the_stream_and_is_answered_the_same_again() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 3);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    (2..10).for_each(|number| drop(stepper.step(number, &[0, 1, 0])));
    let end = cluster.coordinator.close(&open).unwrap();
    assert_eq!((end.cause, end.done.steps), (EndCause::Closed, 24));
    assert_eq!(stepper.hear(), Err(FrameFault::Lost(StreamLost::ByPeer(CloseCode::SessionEnded))));
    assert_eq!(cluster.coordinator.open(&open).unwrap_err().code, RefusalCode::Stale);
    let mut unknown = open.clone();
    unknown.session.index = 3;
    assert_eq!(cluster.coordinator.close(&unknown).unwrap_err().code, RefusalCode::NotFound);
}

#[test]
fn what_is_done_for_owners_is_counted_and_timed_by_env_and_so_is_how_they_are_attached() {
    let cluster = Cluster::start(|_| ());
    let opens = [session(1, "CartPole-v1", 3), session(2, "Acrobot-v1", 2)];
    opens.iter().for_each(|open| drop(cluster.coordinator.open(open).unwrap()));
    let owner = cluster.owner();
    assert!(cluster.node.attached().is_empty(), "nobody is attached yet");
    let mut steppers = opens.each_ref().map(|open| owner.attach(open));
    assert_eq!(cluster.node.attached(), [(Transport::Quic, 2)].into());
    for (stepper, actions) in steppers.iter_mut().zip([&[0, 1, 0][..], &[0, 1]]) {
        stepper.reset(1);
        (2..10).for_each(|number| drop(stepper.step(number, actions)));
    }
    opens.iter().for_each(|open| drop(cluster.coordinator.close(open).unwrap()));
    assert!(cluster.node.attached().is_empty());
    let figures = cluster.node.figures();
    let times = |histogram: &Histogram| histogram.counts().iter().sum::<u64>();
    let seen = figures.envs.all().into_iter().map(|(env, of)| {
        (env, of.steps.get(), times(&of.requests.reset), times(&of.requests.step), times(&of.requests.send))
    });
    let wanted = [("Acrobot-v1", 16, 1, 8, 0), ("CartPole-v1", 24, 1, 8, 0)];
    let wanted = wanted.map(|(env, steps, resets, asked, sent)| (env.to_owned(), steps, resets, asked, sent));
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
    let calls = figures.calls.histograms();
    assert_eq!(calls["attach"].counts.iter().sum::<u64>(), 2);
}

#[test]
fn a_newer_placement_of_a_session_ends_the_older_one() {
    let cluster = Cluster::start(|config| config.stepping.capacity = 4);
    let older = session(1, "CartPole-v1", 4);
    cluster.coordinator.open(&older).unwrap();
    let owner = cluster.owner();
    let mut stepper = owner.attach(&older);
    stepper.reset(1);
    let mut newer = older.clone();
    newer.incarnation.counter = 2;
    cluster.coordinator.open(&newer).unwrap();
    assert_eq!(stepper.hear(), Err(FrameFault::Lost(StreamLost::ByPeer(CloseCode::SessionEnded))));
    assert_eq!(owner.attach(&newer).attached.last, 0);
}

#[test]
fn a_coordinator_that_goes_away_ends_nothing_and_is_told_what_runs_when_it_is_back() {
    let mut cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 4);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let address = cluster.coordinator.address;
    // The first one is dropped before the second is bound to its port.
    let gone = Coordinator::start(&cluster.authority);
    drop(std::mem::replace(&mut cluster.coordinator, gone));
    stepper.step(2, &[0; 4]);
    cluster.coordinator = Coordinator::start_at(&cluster.authority, address);
    assert_eq!(cluster.coordinator.registered().term, open.incarnation.term);
    let sessions = cluster.coordinator.hear(|heard| match heard {
        cluster::Heard::Beat(beat) => Some(beat.changes.sessions),
        _ => None,
    });
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].session, open.session);
    stepper.step(3, &[0; 4]);
    assert_eq!(cluster.node.figures().coordinator_lost.get(), 1);
}

#[test]
fn a_session_that_plays_by_itself_plays_the_episodes_of_its_lanes_and_reports_them() {
    let cluster = Cluster::start(|_| ());
    let mut open = session(1, "CartPole-v1", 6);
    open.first_lane = 4;
    open.pool_lanes = 10;
    open.settings.collect = Some(Collect::new("random", 1, Goal::Episodes(25)));
    cluster.coordinator.open(&open).unwrap();
    // Lanes 4 to 9 of 10: 25 episodes are three for lanes 0 to 4 and two for the others.
    let end = cluster.coordinator.end_of(&open);
    assert_eq!((end.cause, end.done.episodes), (EndCause::Finished, 3 + 5 * 2));
    assert_eq!(cluster.node.figures().finished(), 13);
    assert!(matches!(
        cluster.owner().try_attach(&open).err(),
        Some(CallError::Refused(refusal)) if refusal.code == RefusalCode::NotFound
    ));
}

#[test]
fn a_session_that_plays_by_itself_is_evicted_when_its_node_stops() {
    let Cluster { coordinator, node, authority: _authority } = Cluster::start(|_| ());
    // Its episodes never end by themselves, so each of its lanes has one open whenever it is evicted.
    let mut open = session(1, "Pendulum-v1", 6);
    open.settings.max_episode_steps = Some(0);
    open.settings.collect = Some(Collect::new("random", 1, Goal::Batches(u64::MAX)));
    coordinator.open(&open).unwrap();
    coordinator.hear(|heard| match heard {
        cluster::Heard::Beat(beat) => {
            beat.changes.sessions.first().filter(|report| report.done.steps > 0).map(|_| ())
        }
        _ => None,
    });
    let figures = Arc::clone(node.figures());
    assert_eq!(node.stop(Duration::from_secs(30)).left, 0);
    let end = coordinator.end_of(&open);
    assert_eq!((end.cause, end.done.interrupted), (EndCause::Drained, 6));
    let evicted = Outcome::Interrupted(Interruption::Evicted).code();
    assert_eq!(figures.episodes[usize::from(evicted)].get(), 6);
}

#[test]
fn connections_are_counted_while_they_are_open_and_what_they_did_afterwards() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 1);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    owner.attach(&open).reset(1);
    let figures = cluster.node.connections();
    assert_eq!((figures.owners.len(), figures.gone, figures.coordinator.is_some()), (1, None, true));
    owner.connection.close(CloseCode::Finished, "");
    owner.block_on(owner.dialer.closed());
    while !cluster.node.connections().owners.is_empty() {
        std::thread::yield_now();
    }
    assert!(cluster.node.connections().gone.is_some_and(|gone| gone.sent_packets > 0));
}

#[test]
fn a_node_that_stops_evicts_its_sessions_ships_what_was_recorded_and_tells_the_coordinator() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let spool = authority.path().join("spool");
    let mut config = authority.node("n1", &coordinator);
    config.recording.spool = Some(spool.clone());
    let node = ClusterNode::start(config).unwrap();
    coordinator.registered();
    let mut open = session(1, "CartPole-v1", 5);
    open.settings.record = RecordRule::All;
    open.first_lane = 95;
    open.pool_lanes = 100;
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    (2..120).for_each(|number| drop(stepper.step(number, &actions(5, number))));
    let report = node.stop(Duration::from_secs(30));
    assert_eq!((report.left, report.told), (0, true));
    assert!(matches!(report.recorded, Some(Ok(recorded)) if recorded.episodes > 5));
    let end = coordinator.end_of(&open);
    assert_eq!((end.cause, end.done.interrupted), (EndCause::Drained, 5));
    assert!(report.shipped);
    let library = Library::open(Arc::new(RealDisk), &authority.store()).unwrap();
    let episodes = library.list(&Query::default()).unwrap();
    let evicted = Outcome::Interrupted(Interruption::Evicted);
    assert_eq!(episodes.iter().filter(|episode| episode.info.outcome == evicted).count(), 5);
    let lanes: BTreeSet<u32> = episodes.iter().map(|episode| episode.info.name.lane).collect();
    assert_eq!(lanes, (95..100).collect());
    let mut verified = 0;
    let check = |verification: Verification| {
        assert!(verification.ok, "{verification:?}");
        verified += 1;
    };
    library.verify_all(&Registry::builtin(), check).unwrap();
    assert_eq!(verified, episodes.len());
}

#[test]
fn a_session_that_does_not_end_in_time_is_cut_off_when_its_node_stops() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let node = ClusterNode::start(authority.node("n1", &coordinator)).unwrap();
    coordinator.registered();
    let mut open = session(1, "test/Faulty-v0", 1);
    open.settings.options.insert("hang_at".to_owned(), OptionValue::Int(1));
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let taken = || node.figures().threads.queue_wait.counts().iter().sum::<u64>();
    let before = taken();
    stepper.ask(FrameKind::Step, 2, &[0; 8]);
    while taken() == before {
        owner.block_on(tokio::task::yield_now());
    }
    // Its deadline is a minute, the grace period is not.
    let report = node.stop(Duration::from_millis(300));
    assert_eq!((report.left, report.told), (1, true));
}

#[test]
fn episodes_that_have_ended_reach_the_store_although_their_session_is_stepped_no_further() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let mut config = authority.node("n1", &coordinator);
    config.recording.spool = Some(authority.path().join("spool"));
    config.recording.recorder.seal_after = Some(Duration::from_millis(100));
    let node = ClusterNode::start(config).unwrap();
    coordinator.registered();
    let mut open = session(1, "CartPole-v1", 1);
    open.settings.record = RecordRule::All;
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    // Pushed to one side again and again, the pole falls within a dozen steps.
    (2..40).for_each(|number| drop(stepper.step(number, &[0])));
    let finished = || {
        // There is no store before something was shipped.
        let Ok(library) = Library::open(Arc::new(RealDisk), &authority.store()) else { return 0 };
        let episodes = library.list(&Query::default()).unwrap();
        episodes.iter().filter(|episode| episode.info.outcome.is_finished()).count()
    };
    let beats = |beat: cluster::Heard| matches!(beat, cluster::Heard::Beat(_)).then_some(());
    let stored = (0..1_000).any(|_| {
        coordinator.hear(beats);
        finished() >= 2
    });
    assert!(stored, "{} episodes are in the store", finished());
    assert_eq!(node.sessions(), 1);
}

#[test]
fn a_node_whose_segments_no_store_would_take_does_not_start() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let mut config = authority.node("n1", &coordinator);
    config.recording.spool = Some(authority.path().join("spool"));
    config.recording.recorder.segment_bytes = MAX_SHIP_BYTES + 1;
    let refused = ClusterNode::start(config).unwrap_err().to_string();
    assert_eq!(refused, "the spool: segment_bytes = 268435457 is not between 65536 and 268435456");
}
