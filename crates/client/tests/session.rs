//! What becomes of a session's requests and lanes, without anything being sent.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_client::{
    Answered, COORDINATOR_AWAY, LaneFlags, NoPlace, OnLoss, Recipe, RequestBody, Session, SessionAction,
    SessionEvent, Trouble,
};
use rollhouse_core::{AutoresetMode, Began, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_env::Registry;
use rollhouse_wire::{
    EndCause, FrameKind, Grant, Incarnation, LaneSettings, Notes, OpenPool, Refusal, RefusalCode, Secret,
    SessionReplaced, Spread,
};

const LEASE: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::from_secs(1);

fn grant(counter: u64) -> Grant {
    Grant {
        index: 0,
        incarnation: Incarnation { term: 1, counter },
        secret: Secret::from_bytes([0; 16]),
        node: format!("n{counter}"),
        address: "127.0.0.1:1".to_owned(),
        attach: None,
        first_lane: 0,
        lanes: 2,
    }
}

fn session(on_loss: OnLoss) -> Session {
    let settings = LaneSettings {
        env: "CartPole-v1".into(),
        env_kwargs: String::new(),
        deterministic: None,
        infos: Default::default(),
        pace: None,
        options: BTreeMap::new(),
        autoreset: AutoresetMode::NextStep,
        max_episode_steps: None,
        seeds: SeedSchedule::PerEpisode { run_seed: 1 },
        record: RecordRule::All,
        collect: None,
        replay: None,
        step_columns: StepColumns::default(),
    };
    let (labels, spread) = (BTreeMap::new(), Spread::default());
    let open = OpenPool { pool: RunId::from_u128(7), lanes: 2, settings, labels, spread };
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let recipe = Recipe { open, dynamics: entry.spec().dynamics_hash, on_loss, lease: LEASE };
    Session::new(Arc::new(recipe), entry.spec(), grant(1), 3)
}

fn requested(kind: FrameKind) -> SessionEvent {
    // Two actions of eight bytes each.
    let columns = if kind == FrameKind::Step { Bytes::from_static(&[0; 16]) } else { Bytes::new() };
    let body = RequestBody { kind, columns, sidecar: Bytes::new() };
    SessionEvent::Requested { body, deadline: DEADLINE }
}

fn placed(counter: u64) -> SessionEvent {
    SessionEvent::Placed(Box::new(SessionReplaced { grant: grant(counter), lease_ms: 0 }))
}

const ATTACHED: SessionEvent = SessionEvent::Attached { last: 0, logs: true };
const DONE: SessionAction = SessionAction::Done(Ok(()));
const GONE: SessionAction = SessionAction::Done(Err(Trouble::Gone));

/// Its lanes are reset and begin an episode each.
fn reset(session: &mut Session) {
    assert_eq!(session.on(NOW, requested(FrameKind::Reset)), SessionAction::Attach);
    assert_eq!(session.on(NOW, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    assert_eq!(session.on(NOW, SessionEvent::Answered), DONE);
    let mut notes = Notes::default();
    for lane in 0..2 {
        notes.put_began(&Began { lane, number: 0, start: rollhouse_core::Start::seeded(u64::from(lane)) });
    }
    note(session, &notes);
}

fn note(session: &mut Session, notes: &Notes) {
    let flags = LaneFlags { terminated: &[0; 2], truncated: &[0; 2], reset: &[1; 2] };
    session.note_batch(&Answered { now: NOW, flags, taken: None, notes }, &mut Vec::new());
}

fn lose() -> SessionEvent {
    SessionEvent::ReportedGone(EndCause::NodeLost)
}

#[test]
fn lanes_of_a_lost_node_are_resumed_elsewhere_and_the_request_made_again() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    assert_eq!(session.on(NOW, requested(FrameKind::Step)), SessionAction::Send { number: 2 });
    session.written(2);
    assert_eq!(session.on(NOW, lose()), SessionAction::Place);
    assert!(session.gone().is_some() && !session.is_out());
    // Nobody waits for it for a while, and then somebody does.
    assert_eq!(session.awaited(NOW, DEADLINE, Bytes::new), SessionAction::Place);
    assert_eq!(session.on(NOW, placed(2)), SessionAction::Attach);
    assert_eq!(session.body().unwrap().kind, FrameKind::Resume);
    assert_eq!(session.on(NOW, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    assert_eq!(session.on(NOW, SessionEvent::Answered), SessionAction::Send { number: 2 });
    assert_eq!(session.body().unwrap().kind, FrameKind::Step);
}

/// Symptom: a trainer whose lanes were placed on a node at whose address nothing answers waited 46 s. Cause: the node was
/// waited for as long as one that has lanes of his, for a lease. Fix: one that was never reached has nothing of his.
#[test]
fn a_node_that_was_never_reached_is_waited_for_shorter_than_one_that_has_lanes() {
    let waited = |session: &mut Session, mut action: SessionAction| {
        let mut now = NOW;
        loop {
            match action {
                // As long as a handshake may take.
                SessionAction::Attach => {
                    now += Duration::from_secs(5);
                    action = session.on(now, SessionEvent::Unreachable(None));
                }
                SessionAction::WaitUntil(at) => {
                    now = at;
                    action = session.on(now, SessionEvent::Woken);
                }
                done => return (now - NOW, done == SessionAction::Place),
            }
        }
    };
    let mut never = session(OnLoss::Resume);
    let attach = never.on(NOW, requested(FrameKind::Reset));
    let (took, placed_anew) = waited(&mut never, attach);
    assert!(placed_anew && took > Duration::from_secs(10) && took < Duration::from_secs(11), "{took:?}");
    // Nor is the next place waited for longer, which has got nothing either.
    let attach = never.on(NOW, placed(2));
    let (took, placed_anew) = waited(&mut never, attach);
    assert!(placed_anew && took < Duration::from_secs(11), "{took:?}");
    let mut reached = session(OnLoss::Resume);
    reset(&mut reached);
    reached.on(NOW, requested(FrameKind::Step));
    reached.written(2);
    let attach = reached.on(NOW, SessionEvent::Lost);
    let (took, placed_anew) = waited(&mut reached, attach);
    assert!(placed_anew && took >= LEASE, "{took:?}");
    let mut reports = session(OnLoss::Report);
    let attach = reports.on(NOW, requested(FrameKind::Reset));
    let (took, placed_anew) = waited(&mut reports, attach);
    assert!(!placed_anew && took >= LEASE, "{took:?}");
}

#[test]
fn a_place_that_is_not_newer_is_none() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    session.on(NOW, lose());
    assert_eq!(session.on(NOW, placed(1)), GONE);
    assert_eq!(session.grant().incarnation.counter, 1);
}

#[test]
fn a_busy_coordinator_is_asked_again_until_nobody_waits_any_more() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    session.on(NOW, lose());
    let busy = || SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY));
    let again = NOW + COORDINATOR_AWAY;
    assert_eq!(session.on(NOW, busy()), SessionAction::WaitUntil(again));
    assert_eq!(session.on(NOW, SessionEvent::Woken), SessionAction::WaitUntil(again), "too early");
    assert_eq!(session.on(again, SessionEvent::Woken), SessionAction::Place);
    assert_eq!(session.on(DEADLINE, busy()), SessionAction::Done(Err(Trouble::TimedOut)));
    // The next call goes on.
    assert_eq!(session.on(DEADLINE, requested(FrameKind::Step)), SessionAction::Place);
}

#[test]
fn a_node_that_goes_away_is_left_before_a_request_and_stepped_on_if_there_is_no_other() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    let settle = SessionEvent::Settle { reset: false };
    assert_eq!(session.on(NOW, settle), DONE, "it does not go away");
    note(&mut session, &Notes { leaving: true, ..Notes::default() });
    let settle = || SessionEvent::Settle { reset: false };
    assert_eq!(session.on(NOW, settle()), SessionAction::Place);
    assert!(session.place_request().moving && session.gone().is_none());
    assert_eq!(session.on(NOW, SessionEvent::NoPlace(NoPlace::Never("full".to_owned()))), DONE);
    assert_eq!(session.on(NOW, settle()), DONE, "not asked again at once");
    assert_eq!(session.on(NOW, requested(FrameKind::Step)), SessionAction::Send { number: 2 });
    session.written(2);
    session.on(NOW, SessionEvent::Answered);
    let later = NOW + Duration::from_secs(3);
    assert_eq!(session.on(later, settle()), SessionAction::Place);
    assert_eq!(session.on(later, placed(2)), DONE);
    assert_eq!(session.on(later, requested(FrameKind::Step)), SessionAction::Attach);
    assert!(session.is_resuming());
}

fn cannot_record() -> SessionEvent {
    SessionEvent::Refused(Refusal::busy("no space left on the disk", 500).leaving())
}

/// Symptom: a full disk of one node ended training after the client's timeout. Cause: its refusals were waited out, and
/// nothing but a node that goes away was left. Fix: they say that other nodes may do better, and lanes that can be resumed
/// leave with the request that was refused.
#[test]
fn a_node_that_cannot_record_is_left_with_the_request_and_asked_on_if_there_is_no_other() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    assert_eq!(session.on(NOW, requested(FrameKind::Step)), SessionAction::Send { number: 2 });
    session.written(2);
    assert_eq!(session.on(NOW, cannot_record()), SessionAction::Place);
    assert!(session.place_request().moving && session.gone().is_none() && !session.is_settled());
    // Nobody carried that out, and somebody does now.
    assert_eq!(session.awaited(NOW, DEADLINE, Bytes::new), SessionAction::Place);
    let full = SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY));
    assert_eq!(
        session.on(NOW, full),
        SessionAction::Send { number: 3 },
        "a refused request has another number"
    );
    session.written(3);
    let SessionAction::WaitUntil(again) = session.on(NOW, cannot_record()) else {
        panic!("not asked again at once")
    };
    assert_eq!(session.on(again, SessionEvent::Woken), SessionAction::Send { number: 4 });
    session.written(4);
    let later = NOW + Duration::from_secs(3);
    assert_eq!(session.on(later, cannot_record()), SessionAction::Place);
    assert_eq!(session.on(later, placed(2)), SessionAction::Attach);
    assert_eq!(session.body().unwrap().kind, FrameKind::Resume);
    assert_eq!(session.on(later, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    // That one cannot record either.
    assert_eq!(session.on(later, cannot_record()), SessionAction::Place);
    assert_eq!(session.on(later, placed(3)), SessionAction::Attach);
    assert_eq!(session.on(later, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    assert_eq!(session.on(later, SessionEvent::Answered), SessionAction::Send { number: 2 });
    assert_eq!(session.body().unwrap().kind, FrameKind::Step);
}

/// Symptom: lanes that were sent were shown as cut, though their node had them. Cause: a node that could not record their
/// request was to be left; others were sent meanwhile, and settling for these forgot the request. Fix: it is carried on.
#[test]
fn a_request_with_which_a_node_is_left_is_carried_on_whatever_is_settled_meanwhile() {
    for leaving in [false, true] {
        let mut session = session(OnLoss::Resume);
        reset(&mut session);
        note(&mut session, &Notes { leaving, ..Notes::default() });
        assert_eq!(session.on(NOW, requested(FrameKind::Send)), SessionAction::Send { number: 2 });
        session.written(2);
        assert_eq!(session.on(NOW, cannot_record()), SessionAction::Place);
        for now in [NOW, NOW + Duration::from_secs(3)] {
            assert_eq!(session.on(now, SessionEvent::Settle { reset: false }), DONE);
            assert_eq!(session.awaited(now, DEADLINE, Bytes::new), SessionAction::Place);
        }
        assert_eq!(session.on(NOW, placed(2)), SessionAction::Attach);
        assert_eq!(session.on(NOW, ATTACHED), SessionAction::Send { number: 1 });
        session.written(1);
        assert_eq!(session.on(NOW, SessionEvent::Answered), SessionAction::Send { number: 2 });
        assert_eq!(session.body().unwrap().kind, FrameKind::Send);
    }
}

/// Symptom: one node's full disk ended the training of a pool with `on_loss = "report"` after its timeout, though another
/// node had room, and to drain the node did not help. Cause: only lanes that are resumed left such a node. Fix: the others
/// leave it too, once it has not recorded for a while, and begin new episodes where they go.
#[test]
fn lanes_whose_loss_is_reported_wait_a_while_for_a_node_that_cannot_record_and_then_begin_anew_on_another() {
    let mut session = session(OnLoss::Report);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    let (mut now, mut number) = (NOW, 2);
    let left = loop {
        session.written(number);
        match session.on(now, cannot_record()) {
            SessionAction::WaitUntil(until) => now = until,
            action => break action,
        }
        assert!(session.is_settled());
        number += 1;
        assert_eq!(session.on(now, SessionEvent::Woken), SessionAction::Send { number });
    };
    assert_eq!(left, SessionAction::Place);
    assert!((10..15).contains(&(now - NOW).as_secs()), "{now:?}");
    assert!(session.place_request().moving && session.gone().is_none());
    // No other place: its node is asked again, and left two seconds later at the earliest.
    let full = || SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY));
    let SessionAction::Send { number } = session.on(now, full()) else { panic!("it is asked again") };
    session.written(number);
    assert!(matches!(session.on(now, cannot_record()), SessionAction::WaitUntil(_)));
    let later = now + Duration::from_secs(20);
    let SessionAction::Send { number } = session.on(later, SessionEvent::Woken) else {
        panic!("it is asked")
    };
    session.written(number);
    assert!(matches!(session.on(later, cannot_record()), SessionAction::WaitUntil(_)));
    let last = later + Duration::from_secs(10);
    let SessionAction::Send { number } = session.on(last, SessionEvent::Woken) else { panic!("it is asked") };
    session.written(number);
    assert_eq!(session.on(last, cannot_record()), SessionAction::Place);
    assert_eq!(session.on(last, placed(2)), SessionAction::Attach);
    assert_eq!(session.body().unwrap().kind, FrameKind::Resume, "the numbers of its episodes go on");
    session.on(last, ATTACHED);
    session.written(1);
    assert_eq!(session.on(last, SessionEvent::Answered), SessionAction::Send { number: 2 });
    assert_eq!(session.body().unwrap().kind, FrameKind::Step);
    assert_eq!(session.take_cut(&[0, 1]), [0, 1], "their open episodes are lost");
}

#[test]
fn lanes_whose_loss_was_reported_begin_anew_before_the_next_request() {
    let mut session = session(OnLoss::Report);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    assert_eq!(session.on(NOW, lose()), GONE);
    let settle = || SessionEvent::Settle { reset: false };
    assert_eq!(session.on(NOW, settle()), DONE, "nobody knows that they were lost");
    assert!(session.report_gone() && session.is_out());
    assert_eq!(session.on(NOW, settle()), SessionAction::Place);
    assert_eq!(session.on(NOW, placed(2)), SessionAction::Attach);
    assert_eq!(session.on(NOW, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    assert_eq!(session.on(NOW, SessionEvent::Answered), DONE);
    assert!(session.gone().is_none() && !session.is_resuming());
}

/// Symptom: a pool of several sessions, one of whose nodes was lost during the first reset, refused its next step. Cause:
/// the lost lanes began anew on a node that had never reset them. Fix: lanes that never began wait for a reset.
/// Symptom: lanes that had begun anew were shown as lost again, in the row that began their episodes. Cause: a step came
/// before their new node knew of them, and what had been reported was kept for it. Fix: it is not.
#[test]
fn lanes_whose_loss_was_reported_are_not_shown_as_lost_by_a_step_that_comes_while_they_begin_anew() {
    let mut session = session(OnLoss::Report);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    assert_eq!(session.on(NOW, lose()), GONE);
    assert!(session.report_gone());
    assert_eq!(session.on(NOW, SessionEvent::Settle { reset: false }), SessionAction::Place);
    assert_eq!(session.on(NOW, placed(2)), SessionAction::Attach);
    assert_eq!(session.on(NOW, requested(FrameKind::Step)), SessionAction::Attach);
    assert_eq!(session.on(NOW, ATTACHED), SessionAction::Send { number: 1 });
    session.written(1);
    assert_eq!(session.on(NOW, SessionEvent::Answered), SessionAction::Send { number: 2 });
    assert_eq!(session.body().unwrap().kind, FrameKind::Step);
    assert_eq!(session.take_cut(&[0, 1]), [0_u32; 0]);
}

#[test]
fn lanes_that_never_began_are_begun_anew_by_a_reset_and_not_by_a_step() {
    let mut session = session(OnLoss::Report);
    session.on(NOW, requested(FrameKind::Reset));
    assert_eq!(session.on(NOW, lose()), GONE);
    session.report_gone();
    assert_eq!(session.on(NOW, SessionEvent::Settle { reset: false }), DONE);
    assert_eq!(session.on(NOW, SessionEvent::Settle { reset: true }), SessionAction::Place);
}

#[test]
fn a_node_that_will_not_have_what_lanes_did_is_left_once_and_then_it_is_told() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    session.on(NOW, requested(FrameKind::Step));
    session.on(NOW, lose());
    let refused = || SessionEvent::Refused(Refusal::new(RefusalCode::BadRequest, "another state"));
    for (counter, next) in [(2, None), (3, Some(RefusalCode::BadRequest))] {
        session.on(NOW, placed(counter));
        session.on(NOW, ATTACHED);
        session.written(1);
        match (session.on(NOW, refused()), next) {
            (SessionAction::Place, None) => {}
            (SessionAction::Done(Err(Trouble::Refused(refusal))), Some(code)) => {
                assert_eq!(refusal.code, code)
            }
            (other, _) => panic!("{other:?} after {counter}"),
        }
    }
}

/// Posts a step in memory and answers it there.
fn step_in_memory(session: &mut Session, number: u32) {
    assert_eq!(session.posted(|actions| actions.fill(1)), number);
    assert!(session.is_busy() && session.body().is_none());
    note(session, &Notes::default());
    assert!(!session.is_busy());
}

#[test]
fn a_step_in_memory_is_a_request_only_once_it_is_waited_for() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    (2..5).for_each(|number| step_in_memory(&mut session, number));
    assert_eq!(session.posted(|actions| actions.fill(1)), 5);
    let posted = || Bytes::from_static(&[1; 16]);
    assert_eq!(session.awaited(NOW, DEADLINE, posted), SessionAction::Send { number: 5 });
    assert_eq!(session.body().unwrap().columns, posted());
    // The memory is lost, and found again by an owner that has its answer there.
    assert_eq!(session.on(NOW, SessionEvent::Lost), SessionAction::Attach);
    let attached = SessionEvent::Attached { last: 5, logs: true };
    assert_eq!(session.on(NOW, attached), SessionAction::Send { number: 5 });
    assert_eq!(session.on(NOW, SessionEvent::Answered), DONE);
    note(&mut session, &Notes::default());
    // One that nobody waits for is followed by another request, whether it was carried out or not.
    for (last, number) in [(5, 6), (6, 7)] {
        let mut session = self::session(OnLoss::Resume);
        reset(&mut session);
        (2..6).for_each(|number| step_in_memory(&mut session, number));
        session.posted(|actions| actions.fill(1));
        assert_eq!(session.on(NOW, requested(FrameKind::Reset)), SessionAction::Send { number: 7 });
        assert_eq!(session.on(NOW, SessionEvent::Lost), SessionAction::Attach);
        let found = session.on(NOW, SessionEvent::Attached { last, logs: true });
        assert_eq!(found, SessionAction::Send { number });
    }
}

#[test]
fn a_step_in_memory_whose_node_is_lost_is_made_where_its_lanes_go_on() {
    let mut session = session(OnLoss::Resume);
    reset(&mut session);
    step_in_memory(&mut session, 2);
    session.posted(|actions| actions.fill(1));
    let posted = || Bytes::from_static(&[1; 16]);
    assert_eq!(session.awaited(NOW, DEADLINE, posted), SessionAction::Send { number: 3 });
    assert_eq!(session.on(NOW, lose()), SessionAction::Place);
    session.on(NOW, placed(2));
    session.on(NOW, ATTACHED);
    session.written(1);
    assert_eq!(session.on(NOW, SessionEvent::Answered), SessionAction::Send { number: 2 });
    assert_eq!(session.body().unwrap().columns, posted());
    assert!(session.take_cut(&[0, 1]).is_empty(), "the log has both steps' beginnings");
}
