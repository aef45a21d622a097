//! What a session answers to requests that send lanes, of which some take long.

use rollhouse_env::EnvEntry;
use rollhouse_env::testing::{Timing, late};
use rollhouse_wire::SendLanes;

use super::*;

const LANES: u32 = 8;

/// A session of CartPole whose lanes finish late, reset.
fn late_session(timing: Timing) -> OwnedSession {
    let registry = Registry::empty();
    let kernel = Registry::builtin().get("CartPole-v1").unwrap();
    let entry: EnvEntry = Arc::into_inner(late(&kernel, timing)).unwrap();
    registry.register(entry).unwrap();
    let open = asked("CartPole-v1", LANES, AutoresetMode::NextStep);
    let plan = SessionPlan::of(&open, &registry, "test 1").unwrap();
    let mut session = OwnedSession::make(Arc::new(plan), None).unwrap();
    reset(&mut session, 1);
    session
}

/// Begins a request to send lanes, each with the action 1, that waits for `min` of them.
fn begin(session: &mut OwnedSession, number: u32, lanes: &[u32], min: u32) -> Option<Bytes> {
    let (mut sidecar, places) = (Vec::new(), session.layout.actions(lanes.len(), true).unwrap());
    control::encode(&SendLanes { min }, &mut sidecar).unwrap();
    sidecar.drain(..4);
    let mut columns = ColumnBuffer::default();
    columns.resize(places.bytes);
    columns.bytes_mut().fill(0);
    columns.set_count(&places.count, lanes.len() as u32);
    columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
    let actions = vec![1; lanes.len()];
    columns.bytes_mut()[places.actions].copy_from_slice(ColumnRef::I64(&actions).bytes());
    let header = request(FrameKind::Send, number, places.bytes, sidecar.len());
    session.check(header).unwrap();
    session.begin(header, &FrameRequest { columns, sidecar }).unwrap()
}

/// Returns the lanes of an answer with rows.
fn lanes_of(session: &OwnedSession, answer: &[u8]) -> Vec<u32> {
    let answer = read(answer);
    assert_eq!(answer.header.kind, FrameKind::Rows);
    let count = answer.columns.count().unwrap() as usize;
    let places = session.layout.rows(count, false).unwrap();
    assert_eq!(places.bytes, answer.columns.bytes().len());
    answer.columns.lanes(&places.lanes).to_vec()
}

/// Waits for the answer to the request that was begun.
fn gathered(session: &mut OwnedSession, begun: Option<Bytes>) -> Bytes {
    begun.unwrap_or_else(|| {
        loop {
            if let Some(answer) = session.gather(Duration::from_millis(1), false) {
                return answer;
            }
        }
    })
}

#[test]
fn lanes_are_answered_as_they_are_done_and_none_is_stepped_twice() {
    let mut session = late_session(Timing { seed: 3, last: Some(2), ..Timing::default() });
    let all: Vec<u32> = (0..LANES).collect();
    let (mut left, mut number) = (all.clone(), 2);
    while left.len() > 1 {
        let begun = begin(&mut session, number, &left, 3u32.min(left.len() as u32 - 1));
        let answer = gathered(&mut session, begun);
        let done = lanes_of(&session, &answer);
        assert!(!done.is_empty() && done.is_sorted() && !done.contains(&2), "{done:?} of {left:?}");
        // Asked again it is the same, and nothing moves.
        assert_eq!(begin(&mut session, number, &all, 1), Some(answer));
        left.retain(|lane| !done.contains(lane));
        number += 1;
    }
    assert_eq!(left, [2]);
    let begun = begin(&mut session, number, &left, 1);
    let answer = gathered(&mut session, begun);
    assert_eq!(lanes_of(&session, &answer), [2]);
    assert_eq!(session.stats().unwrap().steps, u64::from(LANES));
}

#[test]
fn a_hastened_request_is_answered_with_what_is_done_and_others_go_on_beside_what_is_not() {
    let mut session = late_session(Timing { seed: 3, hangs: Some((2, 0)), ..Timing::default() });
    assert_eq!(begin(&mut session, 2, &[2], 1), None);
    assert_eq!(session.gather(Duration::from_millis(1), false), None);
    assert!(session.is_gathering());
    let nothing = session.gather(Duration::ZERO, true).unwrap();
    assert_eq!(lanes_of(&session, &nothing), [0u32; 0]);
    assert!(!session.is_gathering());
    for number in 3..9 {
        let begun = begin(&mut session, number, &[1, 2, 5], 2);
        let answer = gathered(&mut session, begun);
        assert_eq!(lanes_of(&session, &answer), [1, 5]);
    }
    // What would end it is refused, and what is told beside it is not.
    let command = Envelope::command(7, "statistics", &()).unwrap();
    let refused = session.command(command).error.unwrap();
    assert_eq!((refused.code, refused.retry_after_ms.is_some()), (RefusalCode::Busy, true));
    assert_eq!(session.stats().unwrap().steps, 12);
    session.hand_over(Duration::MAX).unwrap();
    assert_eq!(session.engine.outstanding(), 1);
}

#[test]
fn a_refusal_is_about_lanes_that_were_not_under_way() {
    let mut session = late_session(Timing { seed: 3, hangs: Some((2, 0)), ..Timing::default() });
    assert_eq!(begin(&mut session, 2, &[2], 0).map(|answer| lanes_of(&session, &answer)), Some(Vec::new()));
    let answer = begin(&mut session, 3, &[2, LANES], 1).unwrap();
    assert_eq!(refusal(&answer).code, RefusalCode::BadRequest);
    assert!(session.engine.is_outstanding(2));
    let begun = begin(&mut session, 4, &[2, 7], 1);
    let answer = gathered(&mut session, begun);
    assert_eq!(lanes_of(&session, &answer), [7]);
}

#[test]
fn lanes_that_finish_within_the_call_are_answered_by_it() {
    let mut session = cartpole(LANES, AutoresetMode::NextStep);
    reset(&mut session, 1);
    let answer = begin(&mut session, 2, &[1, 4, 6], 1).unwrap();
    assert_eq!(lanes_of(&session, &answer), [1, 4, 6]);
}
