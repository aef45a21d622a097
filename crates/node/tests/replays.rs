//! Recorded episodes as sessions of a node, and those who watch sessions and mean harm, over real connections.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Answered, Cluster, Heard, Owner, session, session_of};
use rollhouse_core::messages;
use rollhouse_core::msgpack::Message;
use rollhouse_core::{LaneState, RecordRule, SharedBound};
use rollhouse_env::{EnvEntry, MakeError, Registry};
use rollhouse_node::{AttachConfig, ClusterNodeConfig};
use rollhouse_replay::{Episode, Library, Query, RealDisk, write_portable};
use rollhouse_wire::{
    AttachCallError, AttachMemory, CallError, CloseCode, ConnectionLost, EndCause, Envelope, EnvelopeFault,
    EnvelopeReader, EnvelopeWriter, FrameKind, Incarnation, LookAnswer, LookParams, OpenSession, OpenWatch,
    OwnerSocket, PlayParams, Refusal, RefusalCode, ReplayOf, SeekParams, StepParams, StreamLost, VERSION,
};
use serde::{Deserialize, Serialize};

/// A cluster whose node records, and ships soon.
fn recording(change: impl FnOnce(&mut ClusterNodeConfig)) -> Cluster {
    Cluster::start_in(|authority, config| {
        config.recording.spool = Some(authority.path().join("spool"));
        config.recording.recorder.seal_after = Some(Duration::from_millis(50));
        change(config);
    })
}

impl Cluster {
    /// Plays an episode of CartPole to its end, has it shipped, and puts a file of it where nodes fetch it from. The
    /// episode, and what its owner was answered, from the reset on.
    fn recorded(&self) -> (Episode, Vec<Answered>) {
        let mut open = session(100, "CartPole-v1", 1);
        open.settings.record = RecordRule::All;
        self.coordinator.open(&open).unwrap();
        let owner = Owner::dial(&self.authority, &self.node);
        let mut stepper = owner.attach(&open);
        let mut answers = vec![stepper.reset(1)];
        let places = stepper.layout.batch(1, false).unwrap();
        while answers.last().unwrap().columns[places.terminated.clone()][0] == 0 {
            let number = answers.len() as u32 + 1;
            answers.push(stepper.step(number, &[i64::from(number.is_multiple_of(3))]));
        }
        self.coordinator.close(&open).unwrap();
        let query =
            Query { limit: Some(1), outcome: Some("terminated".parse().unwrap()), ..Query::default() };
        let found = loop {
            let library = Library::open(Arc::new(RealDisk), &self.authority.store());
            let listed = library.ok().and_then(|library| library.list(&query).ok()).unwrap_or_default();
            match listed.into_iter().next() {
                Some(found) => break found,
                None => std::thread::yield_now(),
            }
        };
        let episode = found.folder.load(&found.info).unwrap();
        self.put(&episode);
        (episode, answers)
    }

    fn put(&self, episode: &Episode) {
        let mut file = Vec::new();
        write_portable(episode, &mut file, |_| true).unwrap();
        std::fs::write(self.authority.store().join(episode.info.name.to_string()), file).unwrap();
    }

    /// Waits for so many heartbeats, none of which tells of an end.
    fn beats(&self, count: usize) {
        for _ in 0..count {
            let ended = self.coordinator.hear(|heard| match heard {
                Heard::Beat(beat) => Some(beat.ended),
                _ => None,
            });
            assert_eq!(ended, []);
        }
    }
}

fn replay_of(pool: u128, episode: &Episode) -> OpenSession {
    replay_for("trainer", pool, episode)
}

fn replay_for(owner: &str, pool: u128, episode: &Episode) -> OpenSession {
    let mut open = session_of(owner, pool, "CartPole-v1", 1);
    open.settings.replay = Some(ReplayOf {
        episode: episode.info.name.to_string(),
        dynamics: episode.info.dynamics(),
        full: false,
    });
    open
}

fn watch_of(open: &OpenSession) -> OpenWatch {
    let OpenSession { session, incarnation, secret, .. } = *open;
    OpenWatch { pool: session.pool, index: session.index, incarnation, key: secret.watch_key("") }
}

/// Symptom: one viewer held all 1,024 streams on which sessions of a node are watched. Cause: watchers showed a key that
/// was the session's, and were counted without regard to who they are. Fix: each has a key of its own, and owners have
/// shares.
#[test]
fn one_who_watches_on_all_streams_that_it_may_leaves_some_to_another() {
    let cluster = Cluster::start(|_| ());
    let open = session(1, "CartPole-v1", 1);
    cluster.coordinator.open(&open).unwrap();
    let owner = cluster.owner();
    let (eves, adas) = (cluster.coordinator.admit(&open, "eve"), cluster.coordinator.admit(&open, "ada"));
    assert_ne!(eves.key, adas.key);
    let mut watched = Vec::new();
    let refusal = loop {
        match Viewer::try_open(&owner, eves) {
            Ok(viewer) => watched.push(viewer),
            Err(CallError::Refused(refusal)) => break refusal,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("`eve` has"), "{refusal}");
    let bound = SharedBound::WATCHERS;
    assert_eq!(watched.len() as u64, (bound.limit - bound.reserve).div_ceil(2));
    Viewer::try_open(&owner, adas).unwrap();
    let _by_the_sessions_own_key = Viewer::open(&owner, &open);
}

/// One who watches.
pub(crate) struct Viewer<'a> {
    owner: &'a Owner,
    reader: EnvelopeReader,
    writer: EnvelopeWriter,
    asked: u64,
}

impl<'a> Viewer<'a> {
    pub(crate) fn open(owner: &'a Owner, open: &OpenSession) -> Self {
        Self::try_open(owner, watch_of(open)).unwrap()
    }

    fn try_open(owner: &'a Owner, open: OpenWatch) -> Result<Self, CallError> {
        let (_, reader, writer) = owner.block_on(owner.connection.watch(open, None))?;
        Ok(Self { owner, reader, writer, asked: 0 })
    }

    fn ask<P: Message>(&mut self, method: &str, params: &P) -> Result<LookAnswer, Refusal> {
        self.asked += 1;
        let asked = Envelope::command(self.asked, method, params).unwrap();
        let (reader, writer) = (&mut self.reader, &mut self.writer);
        let answer = self.owner.block_on(async {
            writer.write(&asked).await.unwrap();
            reader.read().await.unwrap().unwrap()
        });
        assert_eq!((answer.id, answer.method.as_str()), (self.asked, method));
        answer.error.clone().map_or_else(|| Ok(answer.payload().unwrap()), Err)
    }

    fn look(&mut self, after: u64) -> LookAnswer {
        self.look_for(after, 0)
    }

    /// Waits for a newer frame for so long.
    pub(crate) fn look_for(&mut self, after: u64, wait_ms: u32) -> LookAnswer {
        self.ask(LookParams::METHOD, &LookParams { lane: 0, after, wait_ms, picture: false }).unwrap()
    }

    /// How the stream ends.
    fn end(&mut self) -> EnvelopeFault {
        let reader = &mut self.reader;
        self.owner.block_on(async {
            loop {
                match reader.read().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ends without a reason"),
                    Err(fault) => return fault,
                }
            }
        })
    }
}

/// What is compared of answers: the numbers of the requests differ.
fn rows(answer: &Answered) -> (FrameKind, &[u8]) {
    (answer.header.kind, &answer.columns)
}

/// Params that are no method's.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Fields(BTreeMap<String, String>);

messages!(Fields);

#[test]
fn an_owner_that_attaches_is_answered_with_the_rows_that_were_recorded() {
    let cluster = recording(|_| {});
    let (episode, live) = cluster.recorded();
    let open = replay_of(1, &episode);
    let opened = cluster.coordinator.open(&open).unwrap();
    assert_eq!(opened.spec, episode.info.run.spec);
    assert_eq!(cluster.coordinator.open(&open).unwrap(), opened, "asked again, it is said again");
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let mut stepper = owner.attach(&open);
    assert_eq!((stepper.attached.last, stepper.attached.logs), (0, false));
    let mut number = 1;
    assert_eq!(rows(&stepper.reset(number)), rows(&live[0]));
    for (at, wanted) in live.iter().enumerate().skip(1) {
        number += 1;
        // Whatever the actions are.
        let answer = stepper.step(number, &[(at % 2) as i64]);
        assert_eq!(rows(&answer), rows(wanted), "step {at}");
        if at == 3 {
            let again = stepper.step(number, &[1]);
            assert_eq!(again, answer, "the last request is answered again, and moves nothing");
        }
    }
    number += 1;
    let anew = stepper.step(number, &[0]);
    let places = stepper.layout.batch(1, false).unwrap();
    assert_eq!(anew.columns[places.reset.clone()][0], 1, "behind its end it begins again");
    assert_eq!(anew.columns[places.obs[0].clone()], live[0].columns[places.obs[0].clone()]);
    number += 1;
    let sent = stepper.send(number, &[0], &[1]);
    let named = stepper.layout.rows(1, false).unwrap();
    assert_eq!(sent.header.kind, FrameKind::Rows);
    assert_eq!(sent.columns[named.obs[0].clone()], live[1].columns[places.obs[0].clone()]);
    number += 1;
    stepper.ask(FrameKind::Resume, number, &[]);
    assert_eq!(stepper.hear().unwrap().refusal().code, RefusalCode::Unsupported);
    // Who watches sees where its owner has brought it.
    let mut viewer = Viewer::open(&owner, &open);
    let seen = viewer.look(0);
    assert_eq!(seen.frame.map(|frame| frame.step), Some(1));
    assert_eq!(seen.replay.map(|standing| standing.state), Some(LaneState::Paused));
    cluster.coordinator.close(&open).unwrap();
}

/// Symptom: an attempt to attach to a replay session by memory was refused, and its owner lost its stream all the same.
/// Cause: the attempt was taken for the newest attachment before it was looked at what is attached to.
/// Fix: the table of sessions counts an attachment only when it is let in.
#[test]
fn an_attempt_to_attach_to_a_replay_by_memory_is_refused_and_sends_no_owner_away() {
    let mut path = None;
    let cluster = recording(|config| {
        let folder = config.recording.spool.as_ref().and_then(|spool| spool.parent()).unwrap();
        let at = folder.join("attach.sock");
        config.serving.attach = Some(AttachConfig { path: at.clone(), uids: Vec::new(), sessions: 4 });
        path = Some(at);
    });
    let (episode, live) = cluster.recorded();
    let open = replay_of(1, &episode);
    cluster.coordinator.open(&open).unwrap();
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let mut stepper = owner.attach(&open);
    assert_eq!(rows(&stepper.reset(1)), rows(&live[0]));
    let OpenSession { session, incarnation, secret, .. } = open;
    let (pool, index) = (session.pool, session.index);
    let asked = AttachMemory { version: VERSION, pool, index, incarnation, secret, log: false };
    let refused = owner.block_on(OwnerSocket::attach(&path.unwrap(), false, asked, None));
    let Err(AttachCallError::Refused(refusal)) = refused else { panic!("it is let in") };
    assert_eq!(refusal.code, RefusalCode::Unsupported);
    assert_eq!(rows(&stepper.step(2, &[0])), rows(&live[1]));
}

/// Symptom: processes that connected to the attach socket and said nothing kept an honest one waiting for 9 s.
/// Cause: the node accepted no further process until their deadlines had passed.
/// Fix: each has a place at once, and the oldest of the user that has most places is given up.
#[test]
fn processes_that_say_nothing_at_the_attach_socket_keep_nobody_waiting() {
    let mut path = None;
    let cluster = recording(|config| {
        let folder = config.recording.spool.as_ref().and_then(|spool| spool.parent()).unwrap();
        let at = folder.join("attach.sock");
        config.serving.attach = Some(AttachConfig { path: at.clone(), uids: Vec::new(), sessions: 4 });
        path = Some(at);
    });
    let path = path.unwrap();
    let (episode, _) = cluster.recorded();
    let open = replay_of(1, &episode);
    cluster.coordinator.open(&open).unwrap();
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let idle: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let OpenSession { session, incarnation, secret, .. } = open;
    let (pool, index) = (session.pool, session.index);
    let asked = AttachMemory { version: VERSION, pool, index, incarnation, secret, log: false };
    let answered = owner.block_on(OwnerSocket::attach(&path, false, asked, None));
    assert!(matches!(answered, Err(AttachCallError::Refused(_))), "{answered:?}");
    // Had the answer waited for the time that idle ones have, the first of them would not be connected any more: the
    // node keeps 64, and those before them have been given up.
    let mut kept = &idle[63];
    kept.set_nonblocking(true).unwrap();
    let read = std::io::Read::read(&mut kept, &mut [0]);
    assert_eq!(read.map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn a_replay_is_kept_while_it_is_watched_and_ends_with_its_lease_afterwards() {
    let cluster = recording(|config| config.serving.lease = Duration::ZERO);
    // Its own sessions end with that lease too: what is recorded is put there by another node.
    let other = recording(|_| {});
    let (episode, _) = other.recorded();
    std::fs::create_dir_all(cluster.authority.store()).unwrap();
    cluster.put(&episode);
    let open = replay_of(1, &episode);
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    // Between opening and watching it may have ended: then it is opened again.
    let mut counter = 0;
    let (open, mut viewer) = loop {
        counter += 1;
        let open = OpenSession { incarnation: Incarnation { term: 1, counter }, ..open.clone() };
        if cluster.coordinator.open(&open).is_ok()
            && let Ok(viewer) = Viewer::try_open(&owner, watch_of(&open))
        {
            break (open, viewer);
        }
    };
    let seen = viewer.look(0).frame.unwrap();
    assert_eq!(seen.step, 0);
    // Two seconds and more, in each of which the node looks for leases that are over.
    for _ in 0..45 {
        viewer.look(0);
        cluster.coordinator.hear(|heard| match heard {
            Heard::Beat(beat) => {
                assert!(beat.ended.iter().all(|end| end.incarnation != open.incarnation));
                Some(())
            }
            _ => None,
        });
    }
    drop(viewer);
    let end = cluster.coordinator.hear(|heard| match heard {
        Heard::Beat(beat) => beat.ended.into_iter().find(|end| end.incarnation == open.incarnation),
        _ => None,
    });
    assert_eq!(end.cause, EndCause::LeaseEnded);
}

#[test]
fn a_node_takes_so_many_replays_and_ends_them_when_it_drains() {
    let cluster = recording(|_| {});
    let (episode, _) = cluster.recorded();
    let bound = SharedBound::REPLAYS;
    let share = u128::from((bound.limit - bound.reserve).div_ceil(2));
    for pool in 0..share {
        cluster.coordinator.open(&replay_of(pool, &episode)).unwrap();
    }
    let refused = cluster.coordinator.open(&replay_of(share, &episode)).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Busy);
    assert!(refused.message.contains("`trainer` has 7 replays of a node"), "{refused}");
    let others = replay_for("other", share, &episode);
    cluster.coordinator.open(&others).unwrap();
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let mut viewer = Viewer::open(&owner, &replay_of(3, &episode));
    cluster.node.drain();
    assert_eq!(cluster.coordinator.end_of(&replay_of(5, &episode)).cause, EndCause::Drained);
    let EnvelopeFault::Lost(StreamLost::ByPeer(code)) = viewer.end() else { panic!("it ends so") };
    assert_eq!(code, CloseCode::SessionEnded);
}

#[test]
fn what_is_not_the_episode_that_was_asked_for_is_refused_by_the_node() {
    let cluster = recording(|_| {});
    let (episode, _) = cluster.recorded();
    let refusal = |open: &OpenSession| cluster.coordinator.open(open).unwrap_err();
    let changed = |change: &dyn Fn(&mut ReplayOf)| {
        let mut open = replay_of(1, &episode);
        change(open.settings.replay.as_mut().unwrap());
        open
    };
    let unknown = refusal(&changed(&|of| of.episode = "aaaaaaaa-0-0".to_owned()));
    assert_eq!(unknown.code, RefusalCode::NotFound);
    let other = refusal(&changed(&|of| of.dynamics ^= 1));
    assert_eq!(other.code, RefusalCode::BadRequest);
    let file = cluster.authority.store().join(episode.info.name.to_string());
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(cluster.authority.store().join("aaaaaaaa-0-0"), &whole).unwrap();
    let renamed = refusal(&changed(&|of| of.episode = "aaaaaaaa-0-0".to_owned()));
    assert!(renamed.message.contains(&episode.info.name.to_string()), "{renamed}");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [damaged.as_slice(), &whole[..whole.len() - 1], b"nothing"] {
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(refusal(&replay_of(1, &episode)).code, RefusalCode::BadRequest);
    }
    std::fs::write(&file, whole).unwrap();
    let mut many = replay_of(1, &episode);
    (many.lanes, many.pool_lanes) = (2, 2);
    assert!(refusal(&many).message.contains("has 1"));
    assert!(cluster.coordinator.open(&replay_of(1, &episode)).is_ok(), "nothing is left of what was refused");
}

#[test]
fn an_episode_of_other_dynamics_is_refused_with_both_hashes() {
    let cluster = recording(|_| {});
    let (episode, _) = cluster.recorded();
    let mut spec = episode.info.run.spec.clone();
    let recorded = spec.dynamics_hash;
    spec.dynamics_hash ^= 0xff;
    let (now, registry) = (spec.dynamics_hash, Registry::empty());
    registry
        .register(EnvEntry::per_lane(spec, |_| {
            Err::<NeverMade, _>(MakeError::Missing { lane: 0, name: "it" })
        }))
        .unwrap();
    let other = recording(|config| config.registry = Arc::new(registry));
    std::fs::create_dir_all(other.authority.store()).unwrap();
    other.put(&episode);
    let refused = other.coordinator.open(&replay_of(1, &episode)).unwrap_err();
    assert_eq!(refused.code, RefusalCode::BadRequest);
    for hash in [recorded, now] {
        assert!(refused.message.contains(&format!("{hash:016x}")), "{refused}");
    }
}

/// An env that is never made.
struct NeverMade;

impl rollhouse_env::Env for NeverMade {
    fn reset(&mut self, _: &mut rollhouse_env::Generator, _: &mut [rollhouse_core::ColumnMut<'_>]) {}

    fn step(
        &mut self,
        _: &mut rollhouse_env::Generator,
        _: rollhouse_core::ColumnRef<'_>,
        _: &mut [rollhouse_core::ColumnMut<'_>],
        _: &mut [rollhouse_core::ColumnMut<'_>],
    ) -> rollhouse_env::StepResult {
        rollhouse_env::StepResult { reward: 0.0, terminated: false, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        0
    }
}

#[test]
fn a_watcher_that_hangs_is_sent_away_and_another_goes_on() {
    let cluster = recording(|config| config.serving.watch_patience = Duration::from_millis(300));
    let (episode, _) = cluster.recorded();
    let open = replay_of(1, &episode);
    cluster.coordinator.open(&open).unwrap();
    let (hanging, asking) =
        (Owner::dial(&cluster.authority, &cluster.node), Owner::dial(&cluster.authority, &cluster.node));
    let mut hangs = Viewer::open(&hanging, &open);
    hangs.look(0);
    // Both of a replay and of lanes that somebody steps.
    let stepped = session(7, "CartPole-v1", 1);
    cluster.coordinator.open(&stepped).unwrap();
    let mut hangs_too = Viewer::open(&hanging, &stepped);
    let mut asks = Viewer::open(&asking, &open);
    let dropped = || cluster.node.figures().watching.dropped.get();
    while dropped() < 2 {
        asks.look(0);
    }
    for hung in [&mut hangs, &mut hangs_too] {
        let EnvelopeFault::Lost(StreamLost::ByPeer(code)) = hung.end() else { panic!("it ends so") };
        assert_eq!(code, CloseCode::TooSlow);
    }
    assert_eq!(asks.look(0).frame.map(|frame| frame.step), Some(0));
    assert_eq!((dropped(), cluster.node.figures().watching.watchers.get()), (2, 1));
}

#[test]
fn keys_that_are_forged_and_placements_that_are_over_are_not_watched() {
    let cluster = recording(|_| {});
    let (open, other) = (session(1, "CartPole-v1", 1), session(2, "CartPole-v1", 1));
    for open in [&open, &other] {
        cluster.coordinator.open(open).unwrap();
    }
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let right = watch_of(&open);
    let refused = |open: OpenWatch| match Viewer::try_open(&owner, open) {
        Err(CallError::Refused(refusal)) => refusal.code,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is watched"),
    };
    let unauthenticated = RefusalCode::Unauthenticated;
    assert_eq!(refused(OpenWatch { key: watch_of(&other).key, ..right }), unauthenticated);
    assert_eq!(
        refused(OpenWatch { key: open.secret, ..right }),
        unauthenticated,
        "who may step shows that otherwise"
    );
    assert_eq!(refused(OpenWatch { index: 1, ..right }), RefusalCode::NotFound);
    let incarnation = Incarnation { term: 1, counter: 9 };
    assert_eq!(refused(OpenWatch { incarnation, ..right }), RefusalCode::Stale);
    assert!(Viewer::try_open(&owner, right).is_ok());
    // The key that watches does not step.
    let stolen = OpenSession { secret: right.key, ..open };
    let Err(CallError::Refused(refusal)) = owner.try_attach(&stolen) else { panic!("it is attached to") };
    assert_eq!(refusal.code, unauthenticated);
}

#[test]
fn what_is_asked_of_a_watch_stream_and_makes_no_sense_is_refused_and_the_stream_goes_on() {
    let cluster = recording(|_| {});
    let (episode, _) = cluster.recorded();
    let (stepped, replay) = (session(1, "CartPole-v1", 1), replay_of(2, &episode));
    for open in [&stepped, &replay] {
        cluster.coordinator.open(open).unwrap();
    }
    let owner = Owner::dial(&cluster.authority, &cluster.node);
    let mut live = Viewer::open(&owner, &stepped);
    let refused = live.ask(SeekParams::METHOD, &SeekParams { step: 1 }).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Unsupported);
    let mut viewer = Viewer::open(&owner, &replay);
    let nothing = Fields::default();
    let wrong = Fields([("step".to_owned(), "three".to_owned())].into());
    assert_eq!(viewer.ask("rewind", &nothing).unwrap_err().code, RefusalCode::Unsupported);
    assert_eq!(viewer.ask(SeekParams::METHOD, &nothing).unwrap_err().code, RefusalCode::BadRequest);
    assert_eq!(viewer.ask(SeekParams::METHOD, &wrong).unwrap_err().code, RefusalCode::BadRequest);
    assert_eq!(
        viewer.ask(PlayParams::METHOD, &PlayParams { speed: 1e9 }).unwrap_err().code,
        RefusalCode::BadRequest
    );
    let look = LookParams { lane: 1, after: 0, wait_ms: 0, picture: false };
    assert_eq!(viewer.ask(LookParams::METHOD, &look).unwrap_err().code, RefusalCode::BadRequest);
    // Left out, they are what docs/protocol.md says.
    let step = viewer.ask(StepParams::METHOD, &nothing).unwrap();
    assert_eq!(step.frame.map(|frame| frame.step), Some(1));
    assert_eq!(viewer.ask(PlayParams::METHOD, &nothing).unwrap().replay.map(|s| s.speed), Some(1.0));
}

#[test]
fn what_is_no_envelope_ends_the_connection_of_a_watcher_with_the_reason() {
    let cluster = recording(|_| {});
    let open = session(1, "CartPole-v1", 1);
    cluster.coordinator.open(&open).unwrap();
    let length = |bytes: u32| bytes.to_le_bytes().to_vec();
    let cases: [(Vec<u8>, CloseCode); 4] = [
        (length(u32::MAX), CloseCode::TooLong),
        ([length(3), vec![0xc1; 3]].concat(), CloseCode::Malformed),
        ([length(1), vec![0x80]].concat(), CloseCode::Malformed),
        ([length(200), vec![0x91; 200]].concat(), CloseCode::Malformed),
    ];
    let count = cases.len() as u64;
    for (bytes, wanted) in cases {
        let owner = Owner::dial(&cluster.authority, &cluster.node);
        let mut viewer = Viewer::open(&owner, &open);
        let writer = viewer.writer.stream();
        let lost = owner.block_on(async {
            // The node may have closed before all of it is here.
            let _sent = writer.write_all(&bytes).await;
            owner.connection.closed().await
        });
        let ConnectionLost::ByPeer { code, reason } = lost else { panic!("{lost}") };
        assert_eq!(code, wanted, "{reason}");
        assert!(!reason.is_empty());
    }
    assert_eq!(cluster.node.figures().malformed.get(), count);
    cluster.beats(1);
}
