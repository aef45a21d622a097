//! What a session answers to its owner's requests.

use std::time::Duration;

mod sending;

use super::*;
use proptest::prelude::*;
use rollhouse_core::{
    AutoresetMode, Claimant, Clock, ColumnRef, OptionValue, Outcome, Pace, RecordRule, RunId, SeedSchedule,
    StepColumns,
};
use rollhouse_engine::EngineConfig;
use rollhouse_env::Registry;
use rollhouse_replay::testing::{DrivenRecorder, Faults, FaultyDisk};
use rollhouse_replay::{OnOutage, RecorderConfig};
use rollhouse_wire::{HEADER_BYTES, Incarnation, LaneSettings, LostLane, OpenSession, Secret, SessionId};

fn asked(env: &str, lanes: u32, autoreset: AutoresetMode) -> OpenSession {
    OpenSession {
        session: SessionId { pool: RunId::from_u128(1), index: 0 },
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: Secret::from_bytes([0; 16]),
        owner: "trainer".to_owned(),
        operates: false,
        first_lane: 0,
        lanes,
        pool_lanes: lanes,
        replaces: false,
        resume: None,
        settings: LaneSettings {
            env: env.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: Default::default(),
            autoreset,
            max_episode_steps: None,
            seeds: SeedSchedule::PerEpisode { run_seed: 3 },
            record: RecordRule::None,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
    }
}

fn session_of(open: &OpenSession) -> OwnedSession {
    let plan = SessionPlan::of(open, &Registry::builtin(), "test 1").unwrap();
    OwnedSession::make(Arc::new(plan), None).unwrap()
}

pub(crate) fn cartpole(lanes: u32, autoreset: AutoresetMode) -> OwnedSession {
    session_of(&asked("CartPole-v1", lanes, autoreset))
}

fn request(kind: FrameKind, number: u32, columns: usize, sidecar: usize) -> FrameHeader {
    FrameHeader { kind, flags: 0, number, columns: columns as u32, sidecar: sidecar as u32 }
}

/// An answer taken apart.
struct Read {
    header: FrameHeader,
    columns: ColumnBuffer,
    sidecar: Vec<u8>,
}

fn read(answer: &[u8]) -> Read {
    let (header, rest) = answer.split_at(HEADER_BYTES);
    let header = FrameHeader::decode(header.try_into().unwrap()).unwrap();
    let (columns, sidecar) = rest.split_at(header.columns as usize);
    assert_eq!(sidecar.len(), header.sidecar as usize);
    let mut buffer = ColumnBuffer::default();
    buffer.resize(columns.len());
    buffer.bytes_mut().copy_from_slice(columns);
    Read { header, columns: buffer, sidecar: sidecar.to_vec() }
}

fn refusal(answer: &[u8]) -> Refusal {
    let answer = read(answer);
    assert_eq!(answer.header.kind, FrameKind::Refused);
    control::decode(&answer.sidecar).unwrap()
}

fn do_it(session: &mut OwnedSession, header: FrameHeader, request: &FrameRequest) -> Bytes {
    session.check(header).unwrap();
    session.handle(header, request).unwrap()
}

pub(crate) fn reset(session: &mut OwnedSession, number: u32) -> Bytes {
    do_it(session, request(FrameKind::Reset, number, 0, 0), &FrameRequest::default())
}

fn reset_lanes(session: &mut OwnedSession, number: u32, lanes: &ResetLanes) -> Result<Bytes, RequestFault> {
    let mut sidecar = Vec::new();
    control::encode(lanes, &mut sidecar).unwrap();
    sidecar.drain(..4);
    let header = request(FrameKind::Reset, number, 0, sidecar.len());
    session.check(header).unwrap();
    session.handle(header, &FrameRequest { columns: ColumnBuffer::default(), sidecar })
}

pub(crate) fn step(session: &mut OwnedSession, number: u32, actions: &[i64]) -> Bytes {
    let places = session.layout.actions(session.lanes(), false).unwrap();
    let mut columns = ColumnBuffer::default();
    columns.resize(places.bytes);
    columns.bytes_mut()[places.actions].copy_from_slice(ColumnRef::I64(actions).bytes());
    let header = request(FrameKind::Step, number, places.bytes, 0);
    do_it(session, header, &FrameRequest { columns, sidecar: Vec::new() })
}

fn send(
    session: &mut OwnedSession,
    number: u32,
    lanes: &[u32],
    actions: &[i64],
) -> Result<Bytes, RequestFault> {
    let places = session.layout.actions(lanes.len(), true).unwrap();
    let mut columns = ColumnBuffer::default();
    columns.resize(places.bytes);
    columns.bytes_mut().fill(0);
    columns.set_count(&places.count, lanes.len() as u32);
    columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
    columns.bytes_mut()[places.actions].copy_from_slice(ColumnRef::I64(actions).bytes());
    let header = request(FrameKind::Send, number, places.bytes, 0);
    session.check(header)?;
    session.handle(header, &FrameRequest { columns, sidecar: Vec::new() })
}

#[test]
fn steps_give_the_rows_an_engine_gives_byte_by_byte() {
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let lanes = 70;
        let mut session = cartpole(lanes as u32, autoreset);
        let mut engine = Engine::new(
            &Registry::builtin().get("CartPole-v1").unwrap(),
            EngineConfig {
                autoreset: session.plan.engine.autoreset,
                schedule: SeedSchedule::PerEpisode { run_seed: 3 },
                ..EngineConfig::new(lanes)
            },
            None,
        )
        .unwrap();
        engine.reset(&Reset::all()).unwrap();
        reset(&mut session, 1);
        let mut last_observations = 0;
        for number in 2..200 {
            let actions: Vec<i64> = (0..lanes as i64).map(|lane| (lane + i64::from(number)) % 2).collect();
            let answer = read(&step(&mut session, number, &actions));
            engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions);
            let frame = engine.step().unwrap();
            let over = frame.terminated().contains(&1) || frame.truncated().contains(&1);
            let final_obs = over && autoreset == AutoresetMode::SameStep;
            assert_eq!(answer.header.flags, u8::from(final_obs) * FrameHeader::FINAL_OBS);
            let places = session.layout.batch(lanes, final_obs).unwrap();
            assert_eq!(answer.columns.bytes().len(), places.bytes);
            let bytes = |place: &std::ops::Range<usize>| answer.columns.bytes()[place.clone()].to_vec();
            assert_eq!(bytes(&places.obs[0]), frame.obs(0).bytes());
            assert_eq!(bytes(&places.rewards), ColumnRef::F64(frame.rewards()).bytes());
            assert_eq!(bytes(&places.terminated), frame.terminated());
            assert_eq!(bytes(&places.truncated), frame.truncated());
            assert_eq!(bytes(&places.reset), frame.reset());
            if final_obs {
                assert_eq!(bytes(&places.final_obs[0]), frame.final_obs(0).bytes());
                last_observations += 1;
            }
            assert!(answer.sidecar.is_empty());
        }
        assert_eq!(last_observations > 0, autoreset == AutoresetMode::SameStep);
        assert_eq!(session.stats().unwrap(), engine.stats().unwrap());
    }
}

#[test]
fn repeating_the_last_number_gives_the_same_answer_and_moves_nothing() {
    let mut session = cartpole(3, AutoresetMode::NextStep);
    reset(&mut session, 1);
    let first = step(&mut session, 2, &[0, 1, 0]);
    let steps = session.stats().unwrap().steps;
    // Even if it says something else: the number decides.
    assert_eq!(step(&mut session, 2, &[1, 1, 1]), first);
    assert_eq!(reset(&mut session, 2), first);
    assert_eq!(session.stats().unwrap().steps, steps);
}

#[test]
fn numbers_that_do_not_follow_are_out_of_order() {
    let mut session = cartpole(1, AutoresetMode::NextStep);
    let bytes = session.layout.actions(1, false).unwrap().bytes;
    for number in [0, 2, 3, u32::MAX] {
        let fault = session.check(request(FrameKind::Step, number, bytes, 0)).unwrap_err();
        assert_eq!(fault, RequestFault::OutOfOrder { given: number, last: 0 });
    }
    reset(&mut session, 1);
    assert_eq!(session.check(request(FrameKind::Step, 1, bytes, 0)), Ok(()));
    assert_eq!(session.check(request(FrameKind::Step, 2, bytes, 0)), Ok(()));
    assert!(session.check(request(FrameKind::Step, 3, bytes, 0)).is_err());
    session.answer.number = u32::MAX;
    assert_eq!(session.check(request(FrameKind::Step, 1, bytes, 0)), Ok(()));
}

#[test]
fn what_the_engine_refuses_is_answered_and_nothing_has_moved() {
    let mut session = cartpole(2, AutoresetMode::NextStep);
    let refused = refusal(&step(&mut session, 1, &[0, 1]));
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (RefusalCode::BadRequest, "step before the first reset")
    );
    let before = reset(&mut session, 2);
    let refused = refusal(&step(&mut session, 3, &[0, 7]));
    assert_eq!(refused.message, "action 7 of lane 1 is not an integer from 0 to 1");
    let refused = refusal(&send(&mut session, 4, &[1, 1], &[0, 0]).unwrap());
    assert_eq!(refused.code, RefusalCode::BadRequest);
    assert_eq!(session.stats().unwrap().steps, 0);
    // The state is still that of the reset: a partial reset of nothing shows it again.
    let none = ResetLanes { seeds: vec![], mask: vec![0, 0], ..ResetLanes::default() };
    let again = reset_lanes(&mut session, 5, &none).unwrap();
    let obs = session.layout.batch(2, false).unwrap().obs[0].clone();
    assert_eq!(read(&again).columns.bytes()[obs.clone()], read(&before).columns.bytes()[obs]);
}

#[test]
fn some_lanes_are_answered_in_ascending_order_with_their_count() {
    let mut session = cartpole(8, AutoresetMode::SameStep);
    reset(&mut session, 1);
    let answer = read(&send(&mut session, 2, &[5, 2, 7], &[0, 1, 1]).unwrap());
    assert_eq!(answer.header.kind, FrameKind::Rows);
    let places = session.layout.rows(3, false).unwrap();
    assert_eq!(answer.columns.bytes().len(), places.bytes);
    assert_eq!(answer.columns.count(), Some(3));
    assert_eq!(answer.columns.lanes(&places.lanes), [2, 5, 7]);
    let rewards = answer.columns.column(&places.rewards, rollhouse_core::DType::F64);
    assert_eq!(rewards.as_f64().unwrap(), [1.0; 3]);
    // Lockstep goes on from there.
    let answer = read(&step(&mut session, 3, &[0; 8]));
    assert_eq!(answer.header.kind, FrameKind::Batch);
    assert_eq!(session.stats().unwrap().steps, 11);
}

#[test]
fn a_lane_that_is_lost_is_noted_and_truncated_in_the_row_in_which_it_was_lost() {
    let mut open = asked("test/Faulty-v0", 2, AutoresetMode::NextStep);
    open.settings.options.insert("panic_at".to_owned(), OptionValue::Int(2));
    let mut session = session_of(&open);
    reset(&mut session, 1);
    let fine = read(&step(&mut session, 2, &[0, 1]));
    assert!(fine.sidecar.is_empty());
    let places = session.layout.batch(2, false).unwrap();
    for (number, truncated) in [(3, [1, 1]), (4, [0, 0])] {
        let answer = read(&step(&mut session, number, &[0, 1]));
        let notes: Notes = control::decode(&answer.sidecar).unwrap();
        let outcome = Outcome::Interrupted(Interruption::Crashed).code();
        assert_eq!(notes.lost, [0, 1].map(|lane| LostLane { lane, outcome }));
        assert_eq!(answer.columns.bytes()[places.truncated.clone()], truncated);
    }
}

#[test]
fn a_reset_that_contradicts_the_session_is_refused_or_a_fault() {
    let mut session = cartpole(2, AutoresetMode::NextStep);
    let seeded = ResetLanes { seeds: vec![Some(1), None], mask: vec![], ..ResetLanes::default() };
    assert_eq!(refusal(&reset_lanes(&mut session, 1, &seeded).unwrap()).code, RefusalCode::BadRequest);
    let short = ResetLanes { seeds: vec![], mask: vec![1], ..ResetLanes::default() };
    assert_eq!(refusal(&reset_lanes(&mut session, 2, &short).unwrap()).code, RefusalCode::BadRequest);
    let odd = ResetLanes { seeds: vec![], mask: vec![1, 2], ..ResetLanes::default() };
    assert_eq!(reset_lanes(&mut session, 3, &odd), Err(RequestFault::Reset));
    let rubbish = FrameRequest { columns: ColumnBuffer::default(), sidecar: vec![0xc1; 9] };
    assert_eq!(session.handle(request(FrameKind::Reset, 3, 0, 9), &rubbish), Err(RequestFault::Reset));
}

#[test]
fn a_session_whose_batches_are_larger_than_a_frame_or_that_has_too_many_lanes_is_refused() {
    let mut open = asked("CartPole-v1", MAX, AutoresetMode::SameStep);
    const MAX: u32 = crate::MAX_SESSION_LANES;
    assert!(SessionPlan::of(&open, &Registry::builtin(), "test 1").is_ok());
    open.lanes = MAX + 1;
    open.pool_lanes = MAX + 1;
    let refused = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap_err();
    assert_eq!(refused.message, "lanes = 32769; a session has 1 to 32768");
}

proptest! {
    #[test]
    fn headers_of_wrong_lengths_kinds_and_flags_are_faults(
        kind in prop::sample::select(vec![
            FrameKind::Reset, FrameKind::Step, FrameKind::Send, FrameKind::Batch, FrameKind::Rows, FrameKind::Refused,
            FrameKind::Resume, FrameKind::Resumed, FrameKind::Hasten,
        ]),
        columns in 0u32..400, sidecar in 0u32..3, flags in 0u8..2,
    ) {
        let session = cartpole(8, AutoresetMode::NextStep);
        let header = FrameHeader { kind, flags, number: 1, columns, sidecar };
        let fits = match kind {
            FrameKind::Reset => columns == 0,
            FrameKind::Step => columns == 64 && sidecar == 0,
            // A count and a column of numbers besides.
            FrameKind::Send => columns <= 8 + 32 + 64,
            FrameKind::Resume => sidecar == 0,
            _ => false,
        };
        prop_assert_eq!(session.check(header).is_ok(), fits && flags == 0);
    }

    #[test]
    fn columns_of_any_bytes_move_lanes_that_exist_or_none(
        mut bytes in prop::collection::vec(any::<u8>(), 0..=104), count in prop::option::of(0u32..12)
    ) {
        if let (Some(count), Some(first)) = (count, bytes.first_chunk_mut()) {
            *first = count.to_le_bytes();
        }
        let mut session = cartpole(8, AutoresetMode::NextStep);
        reset(&mut session, 1);
        let mut columns = ColumnBuffer::default();
        columns.resize(bytes.len());
        columns.bytes_mut().copy_from_slice(&bytes);
        let header = request(FrameKind::Send, 2, bytes.len(), 0);
        session.check(header).unwrap();
        match session.handle(header, &FrameRequest { columns, sidecar: Vec::new() }) {
            Ok(answer) => prop_assert!(read(&answer).header.number == 2),
            Err(fault) => prop_assert!(matches!(fault, RequestFault::Lanes { .. }), "{fault:?}"),
        }
    }
}

/// A disk, and a recorder that has stepping wait while that takes nothing.
pub(crate) fn waiting_for_the_disk() -> (FaultyDisk, DrivenRecorder) {
    let disk = FaultyDisk::new();
    let config = RecorderConfig { on_outage: OnOutage::Wait, ..RecorderConfig::default() };
    let dir = std::path::Path::new("/spool");
    let driven = DrivenRecorder::open(Arc::new(disk.clone()), dir, config, 1, Duration::ZERO).unwrap();
    (disk, driven)
}

/// The disk takes nothing any more, and the recorder has noticed.
pub(crate) fn fill(disk: &FaultyDisk, session: &mut OwnedSession, driven: &mut DrivenRecorder) {
    disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
    session.engine.flush().unwrap();
    driven.turn(Duration::from_secs(1));
}

/// Two lanes of CartPole that are recorded there.
pub(crate) fn recorded(driven: &DrivenRecorder) -> OwnedSession {
    recorded_for(driven, "trainer")
}

/// Two lanes of CartPole of that owner that are recorded there.
fn recorded_for(driven: &DrivenRecorder, owner: &str) -> OwnedSession {
    let mut open = asked("CartPole-v1", 2, AutoresetMode::NextStep);
    open.owner = owner.to_owned();
    open.settings.record = RecordRule::All;
    let plan = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap();
    OwnedSession::make(Arc::new(plan), Some(Arc::clone(driven.recorder()))).unwrap()
}

/// A trainer that attached by memory before its first reset was given up as hung when the disk was slow for longer
/// than the deadline: whoever watched its thread knew of no recording, as there had been none when it was lent.
#[test]
fn whoever_watches_a_session_sees_that_it_waits_for_a_recording_that_began_meanwhile() {
    let disk = Arc::new(FaultyDisk::new());
    let dir = std::path::Path::new("/spool");
    let driven = DrivenRecorder::open(disk, dir, RecorderConfig::default(), 1, Duration::ZERO).unwrap();
    let mut session = recorded(&driven);
    let watch = session.recording_watch();
    assert!(!watch.is_behind());
    fall_behind(&mut session);
    assert!(watch.is_behind());
}

/// Records until the recorder is behind: nothing takes what is recorded.
pub(crate) fn fall_behind(session: &mut OwnedSession) {
    reset(session, 1);
    let mut number = 2;
    while !session.recording().unwrap().is_behind() {
        step(session, number, &[0, 1]);
        session.engine.flush().unwrap();
        number += 1;
    }
}

#[test]
fn a_session_whose_disk_is_full_is_refused_by_name_moves_nothing_and_goes_on_when_there_is_room() {
    let (disk, mut driven) = waiting_for_the_disk();
    let mut session = recorded(&driven);
    reset(&mut session, 1);
    step(&mut session, 2, &[0, 1]);
    fill(&disk, &mut session, &mut driven);
    for number in 3..6 {
        let refused = refusal(&step(&mut session, number, &[0, 1]));
        assert_eq!((refused.code, refused.retry_after_ms), (RefusalCode::Busy, Some(DISK_RETRY_MS)));
        assert!(refused.leave && refused.message.starts_with("no space left on the disk: "), "{refused}");
    }
    assert_eq!(session.stats().unwrap().steps, 2, "one batch of two lanes");
    // One that has not begun is refused as well.
    assert_eq!(refusal(&reset(&mut recorded(&driven), 1)).code, RefusalCode::Busy);
    disk.set_faults(Faults::default());
    driven.turn(Duration::from_secs(12));
    let answer = read(&step(&mut session, 6, &[0, 1]));
    assert_eq!(answer.header.kind, FrameKind::Batch);
    assert_eq!(session.stats().unwrap().steps, 4);
}

/// Symptom: with its spool full a node held a step up in its middle, and its owner heard nothing until the timeout. Cause:
/// only a disk that takes nothing was looked at before a request. Fix: a spool that takes nothing is, too.
#[test]
fn a_session_whose_spool_is_full_is_refused_and_may_leave_until_there_is_room() {
    let (_disk, driven) = waiting_for_the_disk();
    let mut session = recorded(&driven);
    driven.recorder().hold(true);
    assert!(refusal(&reset(&mut session, 1)).leave, "also before it has begun");
    driven.recorder().hold(false);
    reset(&mut session, 2);
    driven.recorder().hold(true);
    let refused = refusal(&step(&mut session, 3, &[0, 1]));
    assert_eq!((refused.code, refused.leave), (RefusalCode::Busy, true));
    assert!(refused.message.contains("spool.limit"), "{refused}");
    driven.recorder().hold(false);
    assert_eq!(read(&step(&mut session, 4, &[0, 1])).header.kind, FrameKind::Batch);
}

/// Symptom: one owner's recordings filled the spool, and every owner's steps were refused until the store took them.
/// Cause: the recorder was held as a whole. Fix: it is held by owner, and what others hand over is written meanwhile.
#[test]
fn an_owner_that_has_its_share_of_the_spool_is_refused_by_name_and_another_is_recorded() {
    let (_disk, mut driven) = waiting_for_the_disk();
    let ada = Claimant::owner("ada");
    let (mut adas, mut bobs) = (recorded_for(&driven, "ada"), recorded_for(&driven, "bob"));
    reset(&mut adas, 1);
    reset(&mut bobs, 1);
    driven.recorder().hold_owner(&ada, true);
    let refused = refusal(&step(&mut adas, 2, &[0, 1]));
    assert_eq!((refused.code, refused.leave), (RefusalCode::Busy, true));
    assert!(refused.message.contains("of `ada`'s") && refused.message.contains("spool.limit"), "{refused}");
    assert!(refusal(&reset(&mut recorded_for(&driven, "ada"), 1)).leave, "also before it has begun");
    for number in 2..400 {
        assert_eq!(read(&step(&mut bobs, number, &[0, 1])).header.kind, FrameKind::Batch);
        bobs.engine.flush().unwrap();
        driven.turn(Duration::from_millis(u64::from(number)));
    }
    let status = driven.recorder().status();
    assert!(status.recorded.episodes > 0, "what is not held is written");
    let owners: Vec<&str> = status.open_owned.iter().map(|(owner, _)| owner.name()).collect();
    assert_eq!(owners, ["bob"], "of the other nothing was taken");
    driven.recorder().hold_owner(&ada, false);
    assert_eq!(read(&step(&mut adas, 3, &[0, 1])).header.kind, FrameKind::Batch);
    adas.engine.flush().unwrap();
    driven.turn(Duration::from_secs(1));
    assert!(driven.recorder().status().open_owned.has(&ada));
}

/// Symptom: a reset by a command waited for a full disk, and with it whatever came after. Cause: requests alone asked
/// the recorder whether it takes anything. Fix: the command asks too.
#[test]
fn a_reset_by_a_command_is_refused_while_the_disk_is_full() {
    let (disk, mut driven) = waiting_for_the_disk();
    let mut session = recorded(&driven);
    reset(&mut session, 1);
    step(&mut session, 2, &[0, 1]);
    fill(&disk, &mut session, &mut driven);
    let ask = |session: &mut OwnedSession, method: &str| {
        let answer = session.command(Envelope::command(7, method, &rollhouse_engine::Nothing {}).unwrap());
        answer.error.map(|refusal| (refusal.code, refusal.retry_after_ms))
    };
    assert_eq!(ask(&mut session, ResetMethod::NAME), Some((RefusalCode::Busy, Some(DISK_RETRY_MS))));
    assert_eq!(ask(&mut session, "statistics"), None, "what is not recorded is done");
    disk.set_faults(Faults::default());
    driven.turn(Duration::from_secs(12));
    assert_eq!(ask(&mut session, ResetMethod::NAME), None);
}

/// Live lanes of CartPole, which tick by the clock of their owner.
pub(super) fn live(lanes: u32) -> OwnedSession {
    let mut open = asked("CartPole-v1", lanes, AutoresetMode::NextStep);
    open.settings.pace = Some(Pace { hz: 25.0, clock: Clock::Agent });
    let mut session = session_of(&open);
    session.attend(None);
    session
}

#[test]
fn live_lanes_have_no_rows_before_their_first_reset_and_name_what_is_not_for_them() {
    let mut session = live(2);
    let latest = |number| request(FrameKind::Latest, number, 0, 0);
    let ask = |session: &mut OwnedSession, header| do_it(session, header, &FrameRequest::default());
    let refused = refusal(&ask(&mut session, latest(1)));
    assert_eq!((refused.code, &*refused.message), (RefusalCode::BadRequest, "step before the first reset"));
    assert_eq!(refusal(&step(&mut session, 2, &[0, 1])).code, RefusalCode::BadRequest);
    assert_eq!(read(&reset(&mut session, 3)).header.kind, FrameKind::Batch);
    for (number, kind) in [(4, FrameKind::Policy), (5, FrameKind::Resume), (6, FrameKind::Memory)] {
        let refused = refusal(&ask(&mut session, request(kind, number, 0, 0)));
        assert_eq!(refused.code, RefusalCode::Unsupported, "{kind:?}");
    }
    assert_eq!(read(&step(&mut session, 7, &[0, 1])).header.kind, FrameKind::Batch);
    assert_eq!(refusal(&step(&mut session, 8, &[0, 2])).code, RefusalCode::BadRequest, "no action of its");
    assert_eq!(read(&ask(&mut session, latest(9))).header.kind, FrameKind::Batch);
    let mut waiting = cartpole(2, AutoresetMode::NextStep);
    reset(&mut waiting, 1);
    assert_eq!(refusal(&ask(&mut waiting, latest(2))).code, RefusalCode::Unsupported);
}

/// Symptom: of lanes that were under way between two requests, rows were gone once a session had been looked after. Cause: what
/// takes the rows of live lanes took those of any. Fix: lanes without a pace do not tick.
#[test]
fn lanes_without_a_pace_that_are_under_way_keep_their_rows_for_their_request() {
    let mut session = cartpole(2, AutoresetMode::NextStep);
    reset(&mut session, 1);
    session.post(&[1], ColumnRef::I64(&[0])).unwrap();
    assert!(!session.tick().unwrap());
    assert_eq!(session.engine.recv(1, Duration::ZERO).unwrap().lanes, [1]);
}
