//! A node's and a trainer's half of one memory, each on a thread, as two processes have them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rollhouse_arena::{
    Answer, Arena, ArenaIdent, AttachedArena, BatchColumns, DEFAULT_RING_BYTES, Expected, FrameNotes,
    LaneNote, Patience, PeerError, ReadyLanes, Request, ServeError, ServingEnd, Share, SharedArena,
    TrainerError,
};
use rollhouse_core::{ColumnMut, ColumnSpec, DType, Role};

const LANES: usize = 5;
const IDENT: ArenaIdent = ArenaIdent { term: 3, counter: 9, autoreset: 1 };

fn columns() -> BatchColumns {
    let column = |dtype, shape: &[usize], role| ColumnSpec {
        path: String::new(),
        dtype,
        shape: shape.to_vec(),
        names: vec![],
        role,
    };
    BatchColumns {
        action: column(DType::F32, &[3], Role::Action),
        obs: vec![column(DType::F32, &[3], Role::Obs), column(DType::U8, &[2, 2], Role::Obs)],
        infos: vec![column(DType::I64, &[], Role::Info)],
        final_obs: true,
    }
}

/// A node whose env adds each lane's action to its observation; its reward is the sum of the action, and its info the
/// number of steps.
struct Node {
    shared: SharedArena,
    arena: Arena,
    share: Share,
}

impl Node {
    fn new() -> Self {
        let (shared, placement) = SharedArena::create(&columns(), LANES, IDENT, DEFAULT_RING_BYTES).unwrap();
        let range: Range<usize> = 0..LANES;
        let ranges = std::slice::from_ref(&range);
        let (arena, mut shares) = Arena::new(&columns(), LANES, ranges, Patience::NONE, placement).unwrap();
        Self { shared, arena, share: shares.remove(0) }
    }

    fn attach(&mut self, generation: u64) -> (ServingEnd, AttachedArena) {
        let end = self.shared.attach(generation, self.arena.frames()).unwrap();
        let [outputs, inputs] = files(&self.shared, &end);
        let trainer = AttachedArena::open(outputs, inputs, &expected(&columns(), generation)).unwrap();
        (end, trainer)
    }

    fn step(&mut self, end: &mut ServingEnd) {
        end.copy_actions(self.arena.actions_mut());
        self.arena.start();
        self.share.begin().unwrap().with_block(&(0..LANES), |rows| {
            let actions = rows.actions.as_f32().unwrap();
            let previous: Vec<f32> = rows.previous_obs.columns().next().unwrap().as_f32().unwrap().to_vec();
            let obs = rows.obs[0].as_f32_mut().unwrap();
            for ((obs, action), previous) in obs.iter_mut().zip(actions).zip(previous) {
                *obs = previous + action;
            }
            for (reward, action) in rows.rewards.iter_mut().zip(actions.chunks(3)) {
                *reward = f64::from(action.iter().sum::<f32>());
            }
        });
        self.arena.wait(None).unwrap();
        end.answer_frame(&self.arena.frame(), &[], &FrameNotes::default());
    }

    fn reset(&mut self, end: &mut ServingEnd) {
        let reset = end.reset_columns();
        self.arena.start();
        self.share.begin().unwrap().with_block(&(0..LANES), |rows| {
            let obs = rows.obs[0].as_f32_mut().unwrap();
            for (lane, obs) in obs.chunks_mut(3).enumerate() {
                obs.fill(reset.seeds[lane].unwrap_or(0) as f32);
            }
            for (flag, begins) in rows.reset.iter_mut().zip(&reset.mask) {
                *flag = u8::from(*begins);
            }
        });
        self.arena.wait(None).unwrap();
        end.answer_frame(&self.arena.frame(), &[], &FrameNotes::default());
    }

    /// Serves until the trainer says nothing for so long that the test has ended.
    fn serve(mut self, mut end: ServingEnd, requests: u32) -> JoinHandle<(Self, ServingEnd)> {
        thread::spawn(move || {
            for _ in 0..requests {
                match end.wait(soon(), || true).unwrap() {
                    Request::Step => self.step(&mut end),
                    Request::Reset => self.reset(&mut end),
                    other => panic!("{other:?} was not asked for"),
                }
            }
            (self, end)
        })
    }
}

fn files(shared: &SharedArena, end: &ServingEnd) -> [OwnedFd; 2] {
    [shared.as_fd(), end.inputs_fd()].map(|fd| fd.try_clone_to_owned().unwrap())
}

fn expected(columns: &BatchColumns, generation: u64) -> Expected<'_> {
    Expected { columns, lanes: LANES, ident: IDENT, generation }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

fn ask(trainer: &mut AttachedArena) -> Answer {
    trainer.wait(soon(), || true).unwrap()
}

#[test]
fn a_trainer_steps_lanes_and_reads_their_rows_in_place() {
    let mut node = Node::new();
    let (end, mut trainer) = node.attach(1);
    let steps = 2_000;
    let node = node.serve(end, steps + 1);
    trainer.post_reset(&[Some(1), None, Some(7), None, None], &[true, true, true, true, false]);
    assert_eq!(ask(&mut trainer), Answer::Frame);
    assert_eq!(trainer.frame().reset(), [1, 1, 1, 1, 0]);
    assert_eq!(trainer.frame().obs(0).as_f32().unwrap()[6..9], [7.0; 3]);
    let [outputs, inputs] = trainer.addresses();
    for step in 0..steps {
        let actions = trainer.actions_mut();
        let rollhouse_core::ColumnMut::F32(actions) = actions else { panic!("actions are singles") };
        assert!(inputs.contains(&actions.as_ptr().addr()));
        actions.fill((step % 2) as f32);
        trainer.post_step();
        assert_eq!(ask(&mut trainer), Answer::Frame);
        let frame = trainer.frame();
        assert_eq!(frame.number(), u64::from(step) + 2);
        let obs = frame.obs(0).as_f32().unwrap();
        assert!(outputs.contains(&obs.as_ptr().addr()));
        assert_eq!(obs[6], 7.0 + step.div_ceil(2) as f32);
        assert_eq!(frame.rewards(), [3.0 * f64::from(step % 2); LANES]);
    }
    node.join().unwrap();
}

#[test]
fn a_refusal_moves_nothing_and_carries_its_note() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    assert_eq!(end.poll(), Ok(None));
    trainer.post_step();
    assert_eq!(end.poll(), Ok(Some(Request::Step)));
    end.refuse(b"action 9 of lane 2");
    assert_eq!(end.poll(), Ok(None));
    assert_eq!(ask(&mut trainer), Answer::Refused(b"action 9 of lane 2".to_vec()));
    assert_eq!(trainer.frame().number(), 0);
    let node = node.serve(end, 1);
    trainer.post_step();
    assert_eq!(ask(&mut trainer), Answer::Frame);
    assert_eq!(trainer.frame().number(), 1);
    node.join().unwrap();
}

#[test]
fn a_request_that_is_held_lets_lanes_and_commands_by_and_is_answered_later() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    trainer.post_step();
    assert_eq!(end.poll(), Ok(Some(Request::Step)));
    end.hold();
    assert_eq!((end.poll(), end.is_held()), (Ok(None), true), "it is not returned again");
    trainer.send_command(b"pause", soon(), || true).unwrap();
    assert_eq!(end.wait(soon(), || true), Ok(Request::Command));
    let mut command = Vec::new();
    assert!(end.next_command(&mut command).unwrap());
    assert!(!trainer.is_answered());
    node.step(&mut end);
    assert_eq!((ask(&mut trainer), end.is_held()), (Answer::Frame, false));
    trainer.post_step();
    assert_eq!(end.poll(), Ok(Some(Request::Step)), "the next one has the next number");
}

#[test]
fn a_request_for_the_newest_rows_says_which_lanes_are_given_an_action() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    trainer.post_reset(&[], &[]);
    assert_eq!(end.poll(), Ok(Some(Request::Reset)));
    node.reset(&mut end);
    assert_eq!(ask(&mut trainer), Answer::Frame);
    trainer.action_row_mut(3).as_f32_mut().unwrap().fill(2.0);
    for acting in [&[3][..], &[]] {
        trainer.post_latest(acting);
        assert_eq!(end.poll(), Ok(Some(Request::Latest)));
        assert_eq!(end.acting_lanes(), acting);
        assert_eq!(end.copy_actions_of(&[3]).as_ref().as_f32(), Some(&[2.0; 3][..]));
        node.step(&mut end);
        assert_eq!(ask(&mut trainer), Answer::Frame);
    }
}

#[test]
fn lost_lanes_are_told_with_the_frame_and_forgotten_when_they_are_back() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    for lost in [&[(1, 3), (4, 4)][..], &[(4, 4)], &[]] {
        trainer.post_step();
        assert_eq!(end.wait(soon(), || true), Ok(Request::Step));
        node.arena.start();
        drop(node.share.begin());
        node.arena.wait(None).unwrap();
        end.answer_frame(&node.arena.frame(), lost, &FrameNotes::default());
        assert_eq!(ask(&mut trainer), Answer::Frame);
        assert_eq!(trainer.lost(), lost);
    }
}

/// What goes beside a frame.
type Notes = (Vec<[u8; 32]>, Vec<[u8; 8]>);

fn notes_of(trainer: &AttachedArena) -> Notes {
    let (mut began, mut hashes) = (vec![9], vec![9]);
    trainer.frame_notes(&mut began, &mut hashes).unwrap();
    (began.as_chunks().0.to_vec(), hashes.as_chunks().0.to_vec())
}

#[test]
fn what_goes_beside_a_frame_is_seen_with_it_and_stays_whole_until_the_second_next_one() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let mut answer = |node: &mut Node, trainer: &mut AttachedArena, (began, hashes): &Notes, take: bool| {
        trainer.post_step();
        assert_eq!(end.wait(soon(), || true), Ok(Request::Step));
        node.arena.start();
        drop(node.share.begin());
        node.arena.wait(None).unwrap();
        end.answer_frame(&node.arena.frame(), &[], &FrameNotes { began, hashes });
        if take {
            assert_eq!(ask(trainer), Answer::Frame);
        }
    };
    let first = (vec![[1; 32], [2; 32]], vec![[3; 8]]);
    let all = (vec![[5; 32]; LANES], vec![[6; 8]; LANES]);
    for notes in [&first, &(Vec::new(), Vec::new()), &(Vec::new(), vec![[4; 8]]), &all] {
        answer(&mut node, &mut trainer, notes, true);
        assert_eq!(notes_of(&trainer), *notes);
    }
    // The node goes on to the next frame, and dies before the trainer has seen its answer.
    answer(&mut node, &mut trainer, &first, false);
    trainer.forget_request();
    assert_eq!(notes_of(&trainer), all);
    assert_eq!(trainer.frame().number(), 4);
}

#[test]
fn what_goes_beside_the_rows_of_single_lanes_is_theirs_alone() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let notes = [
        LaneNote { began: Some([7; 32]), hash: None },
        LaneNote { began: None, hash: Some(u32::MAX) },
        LaneNote { began: Some([8; 32]), hash: Some(5) },
    ];
    for (turn, wanted) in [notes, [LaneNote::default(); 3]].into_iter().enumerate() {
        trainer.send(&[0, 2, 3]);
        assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
        let mut sent = Vec::new();
        end.take_sent(&mut sent).unwrap();
        end.put_lane_notes(&sent, &wanted);
        end.answer_lanes(&sent).unwrap();
        assert_eq!(
            trainer.wait_lanes(3, &mut Vec::new(), soon(), || true),
            Ok(ReadyLanes::Ready(3)),
            "turn {turn}"
        );
        for (lane, wanted) in [0, 2, 3].into_iter().zip(wanted) {
            let note = trainer.lane_note(lane);
            assert_eq!((note.began, note.hash), (wanted.began, wanted.hash), "lane {lane}");
        }
        let silent = trainer.lane_note(1);
        assert_eq!((silent.began, silent.hash), (None, None));
    }
}

#[test]
fn a_node_that_goes_away_says_so_with_its_next_answer() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    for leaving in [false, true, true] {
        end.show_leaving(leaving);
        let served = node.serve(end, 1);
        trainer.post_step();
        assert_eq!(ask(&mut trainer), Answer::Frame);
        assert_eq!(trainer.is_leaving(), leaving);
        (node, end) = served.join().unwrap();
    }
}

#[test]
fn the_actions_that_were_posted_can_be_copied_while_the_node_has_them() {
    let mut node = Node::new();
    let (_end, mut trainer) = node.attach(1);
    let values: Vec<f32> = (0..3 * LANES).map(|element| element as f32 + 0.5).collect();
    trainer.actions_mut().as_f32_mut().unwrap().copy_from_slice(&values);
    trainer.post_step();
    let mut copied = vec![0; trainer.action_bytes()];
    trainer.copy_actions(&mut copied);
    assert_eq!(copied, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn lanes_are_sent_and_received_as_they_are_done() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    for (lane, value) in [(3, 5.0), (0, 2.0), (2, 9.0)] {
        trainer.action_row_mut(lane).as_f32_mut().unwrap().fill(value);
    }
    trainer.send(&[3, 0, 2]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    let mut sent = Vec::new();
    end.take_sent(&mut sent).unwrap();
    assert_eq!(sent, [0, 2, 3]);
    assert_eq!(end.copy_actions_of(&[2, 0]).as_ref().as_f32().unwrap(), [9.0, 9.0, 9.0, 2.0, 2.0, 2.0]);
    end.lane_rows().rewards.as_f64_mut().unwrap()[2] = 9.0;
    end.answer_lanes(&[2]).unwrap();
    let mut ready = Vec::new();
    assert_eq!(trainer.wait_lanes(1, &mut ready, soon(), || true), Ok(ReadyLanes::Ready(1)));
    assert_eq!((ready.as_slice(), trainer.outstanding()), (&[2][..], 2));
    assert_eq!(trainer.lane_row(2).reward(), 9.0);
    // The other two: one is refused, one comes.
    end.refuse_lanes(&[0], b"no");
    end.answer_lanes(&[3]).unwrap();
    let refused = trainer.wait_lanes(1, &mut ready, soon(), || true).unwrap();
    assert_eq!(refused, ReadyLanes::Refused { lanes: vec![0], note: b"no".to_vec() });
    assert_eq!((ready.as_slice(), trainer.outstanding()), (&[2, 3][..], 0));
    trainer.send(&[0]);
    end.take_sent(&mut sent).unwrap();
    assert_eq!(sent, [0]);
}

#[test]
fn lanes_that_are_sent_while_others_are_under_way_are_taken_and_each_send_is_counted() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let (mut sent, mut ready) = (Vec::new(), Vec::new());
    trainer.send(&[1]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    assert_eq!((end.take_sent(&mut sent), sent.as_slice()), (Ok(1), &[1][..]));
    trainer.send(&[3]);
    trainer.send(&[]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    assert_eq!((end.take_sent(&mut sent), sent.as_slice()), (Ok(2), &[3][..]));
    end.answer_lanes(&[3]).unwrap();
    assert_eq!(trainer.wait_lanes(1, &mut ready, soon(), || true), Ok(ReadyLanes::Ready(1)));
    assert_eq!(
        (ready.as_slice(), trainer.is_outstanding(1), trainer.is_outstanding(3)),
        (&[3][..], true, false)
    );
    // One is done while another is refused, which is told apart.
    trainer.send(&[3]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    assert_eq!(end.take_sent(&mut sent), Ok(1));
    end.refuse_lanes(&[3], b"no");
    end.answer_lanes(&[1]).unwrap();
    let refused = trainer.wait_lanes(2, &mut ready, soon(), || true).unwrap();
    assert_eq!(refused, ReadyLanes::Refused { lanes: vec![3], note: b"no".to_vec() });
    assert_eq!((ready.as_slice(), trainer.outstanding()), (&[3, 1][..], 0));
}

#[test]
fn a_trainer_that_attaches_again_learns_which_lanes_need_not_be_sent_again() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let (mut sent, mut ready) = (Vec::new(), Vec::new());
    trainer.send(&[0, 2]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    end.take_sent(&mut sent).unwrap();
    end.answer_lanes(&[0, 2]).unwrap();
    // This one comes too late.
    trainer.send(&[1]);
    drop(end);
    let mut end = node.shared.attach(2, node.arena.frames()).unwrap();
    assert_eq!((trainer.take_done(&mut ready), ready.as_slice()), (Ok(2), &[0, 2][..]));
    let [outputs, inputs] = files(&node.shared, &end);
    trainer.renew(outputs, inputs, &expected(&columns(), 2)).unwrap();
    trainer.send(&[1]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    assert_eq!((end.take_sent(&mut sent), sent.as_slice()), (Ok(1), &[1][..]));
}

/// Symptom: rows that the node was writing were handed out as slices, which is undefined. Cause: the rows of all lanes
/// were one frame, whichever were outstanding. Fix: a row is handed out lane by lane, and only once it was received.
#[test]
fn the_row_of_a_lane_that_was_not_received_is_not_handed_out() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let shows = |trainer: &AttachedArena, lane| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trainer.lane_row(lane).reward())).is_ok()
    };
    trainer.send(&[0, 1, 2]);
    assert_eq!([0, 1, 2, 3].map(|lane| shows(&trainer, lane)), [false, false, false, true]);
    assert_eq!(end.wait(soon(), || true), Ok(Request::Lanes));
    end.take_sent(&mut Vec::new()).unwrap();
    end.answer_lanes(&[1]).unwrap();
    end.refuse_lanes(&[2], b"no");
    let mut ready = Vec::new();
    while trainer.outstanding() > 1 {
        trainer.wait_lanes(1, &mut ready, soon(), || true).unwrap();
    }
    assert_eq!([0, 1, 2, 3].map(|lane| shows(&trainer, lane)), [false, true, true, true]);
    // What the node does to a lane that is given up is not known.
    trainer.forget_request();
    assert_eq!([0, 1, 2, 3].map(|lane| shows(&trainer, lane)), [false, true, true, true]);
}

#[test]
fn actions_are_copied_into_a_column_of_their_own_type_alone() {
    let mut node = Node::new();
    let (end, mut trainer) = node.attach(1);
    trainer.actions_mut().as_f32_mut().unwrap().fill(1.5);
    let mut singles = [0.0; 3 * LANES];
    end.copy_actions(ColumnMut::F32(&mut singles));
    assert_eq!(singles, [1.5; 3 * LANES]);
    let mut integers = [0; 3 * LANES];
    let copy = std::panic::AssertUnwindSafe(|| end.copy_actions(ColumnMut::I32(&mut integers)));
    assert!(std::panic::catch_unwind(copy).is_err());
}

#[test]
fn commands_travel_both_ways_in_order_and_wait_for_room() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let most = DEFAULT_RING_BYTES / 4;
    let server = thread::spawn(move || {
        let (mut command, mut served) = (Vec::new(), 0);
        while served < 200 {
            assert_eq!(end.wait(soon(), || true), Ok(Request::Command));
            while end.next_command(&mut command).unwrap() {
                command.reverse();
                end.answer_command(&command, soon(), || true).unwrap();
                served += 1;
            }
        }
    });
    let command = |number: usize| {
        let length = [0, 3, 4, 5, 1000, most][number % 6];
        (0..length).map(|byte| (byte * 7 + number) as u8).collect::<Vec<_>>()
    };
    let mut answer = Vec::new();
    // Two under way: neither ring has room for much more.
    trainer.send_command(&command(0), soon(), || true).unwrap();
    for number in 0..200 {
        if number + 1 < 200 {
            trainer.send_command(&command(number + 1), soon(), || true).unwrap();
        }
        trainer.next_answer(&mut answer, soon(), || true).unwrap();
        answer.reverse();
        assert_eq!(answer, command(number));
    }
    server.join().unwrap();
    let error = trainer.send_command(&vec![0; most + 1], soon(), || true).unwrap_err();
    assert!(matches!(error, TrainerError::Ring(_)), "{error:?}");
}

#[test]
fn who_is_gone_or_closed_or_late_is_named() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    assert_eq!(end.wait(None, || false), Err(ServeError::Gone));
    assert_eq!(end.wait(Some(Instant::now()), || true), Err(ServeError::TimedOut));
    trainer.post_step();
    assert_eq!(trainer.wait(None, || false), Err(TrainerError::Gone));
    assert_eq!(trainer.wait(Some(Instant::now()), || true), Err(TrainerError::TimedOut));
    end.remote().close(5);
    assert_eq!(trainer.wait(None, || true), Err(TrainerError::Closed { code: 5 }));
}

#[test]
fn a_node_that_closes_wakes_a_trainer_that_sleeps() {
    let mut node = Node::new();
    let (end, mut trainer) = node.attach(1);
    trainer.post_step();
    let remote = end.remote();
    // Asked before it sleeps for the first time; woken or not, it then looks within a slice.
    let (asked, told) = std::sync::mpsc::sync_channel(1);
    let sleeper = thread::spawn(move || {
        trainer.wait(None, || {
            let _ = asked.try_send(());
            true
        })
    });
    told.recv().unwrap();
    remote.close(1);
    assert_eq!(sleeper.join().unwrap(), Err(TrainerError::Closed { code: 1 }));
}

#[test]
fn a_trainer_that_attaches_again_goes_on_where_the_last_one_was() {
    let mut node = Node::new();
    let (mut end, mut first) = node.attach(1);
    first.actions_mut().as_f32_mut().unwrap().fill(1.0);
    first.post_step();
    assert_eq!(end.wait(soon(), || true), Ok(Request::Step));
    // The step is done and answered, but the trainer dies before it looks.
    node.step(&mut end);
    assert_eq!(node.shared.attach(2, 1).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    drop(end);
    let (end, mut second) = node.attach(2);
    assert_eq!((second.answered(), second.frame().number()), (1, 1));
    assert_eq!(second.frame().obs(0).as_f32().unwrap()[0], 1.0);
    let node = node.serve(end, 1);
    second.actions_mut().as_f32_mut().unwrap().fill(1.0);
    second.post_step();
    assert_eq!(ask(&mut second), Answer::Frame);
    assert_eq!(second.frame().obs(0).as_f32().unwrap()[0], 2.0);
    // The first trainer is told, and what it writes goes nowhere.
    assert_eq!(first.wait(soon(), || true), Err(TrainerError::TakenOver { generation: 2 }));
    node.join().unwrap();
}

#[test]
fn requests_out_of_turn_and_of_unknown_kinds_end_the_attachment() {
    let mut node = Node::new();
    let (mut end, trainer) = node.attach(1);
    drop(trainer);
    let raw = rollhouse_arena::SharedMemory::attach(end.inputs_fd().try_clone_to_owned().unwrap()).unwrap();
    let store = |at: usize, value| raw.word(at).store(value, std::sync::atomic::Ordering::SeqCst);
    store(256, 2);
    let wrong = PeerError::RequestNumber { given: 2, answered: 0 };
    assert_eq!(end.wait(soon(), || true), Err(ServeError::Peer(wrong)));
    store(256, 1);
    store(264, 77);
    assert_eq!(end.wait(soon(), || true), Err(ServeError::Peer(PeerError::RequestKind(77))));
}

#[test]
fn a_trainer_goes_on_at_the_same_addresses_when_it_attaches_again() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let address = |trainer: &mut AttachedArena| trainer.actions_mut().as_f32_mut().unwrap().as_ptr().addr();
    let before = address(&mut trainer);
    trainer.actions_mut().as_f32_mut().unwrap().fill(1.0);
    trainer.post_step();
    assert_eq!(end.wait(soon(), || true), Ok(Request::Step));
    node.step(&mut end);
    drop(end);
    // The answer was never looked at.
    let end = node.shared.attach(2, node.arena.frames()).unwrap();
    let [outputs, inputs] = files(&node.shared, &end);
    trainer.renew(outputs, inputs, &expected(&columns(), 2)).unwrap();
    assert_eq!((trainer.answered(), trainer.frame().number()), (1, 1));
    assert_eq!(address(&mut trainer), before);
    let node = node.serve(end, 1);
    trainer.actions_mut().as_f32_mut().unwrap().fill(2.0);
    trainer.post_step();
    assert_eq!(trainer.wait(soon(), || true), Ok(Answer::Frame));
    assert_eq!(trainer.frame().rewards(), [6.0; LANES]);
    let (mut node, end) = node.join().unwrap();
    drop(end);
    // Another session's memory, or an attachment that is over, is not taken for it.
    let mut other = Node::new();
    let foreign = other.shared.attach(3, 0).unwrap();
    let [outputs, inputs] = files(&other.shared, &foreign);
    let error = trainer.renew(outputs, inputs, &expected(&columns(), 3)).unwrap_err();
    assert_eq!(error.to_string(), "the session has moved to other memory");
    let end = node.shared.attach(3, node.arena.frames()).unwrap();
    let [outputs, inputs] = files(&node.shared, &end);
    let error = trainer.renew(outputs, inputs, &expected(&columns(), 4)).unwrap_err();
    assert_eq!(error.to_string(), "`generation` of the outputs file is 3, 4 is wanted");
}

#[test]
fn a_node_that_waits_for_a_second_hardly_runs() {
    let ran = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let mut node = Node::new();
    let (mut end, _trainer) = node.attach(1);
    let before = ran();
    assert_eq!(end.wait(Some(Instant::now() + Duration::from_secs(1)), || true), Err(ServeError::TimedOut));
    let ran = ran() - before;
    assert!(ran < Duration::from_millis(20), "ran for {ran:?} of a second");
}

#[test]
fn a_node_beside_lanes_waits_for_a_send_only_while_the_trainer_waits_for_none() {
    let mut node = Node::new();
    let (mut end, mut trainer) = node.attach(1);
    let (mut sent, mut ready) = (Vec::new(), Vec::new());
    let later = || Instant::now() + Duration::from_secs(60);
    // A trainer that has never said for how many lanes it waits is taken to wait.
    assert!(end.is_waited_for());
    for _ in 0..3 {
        trainer.send(&[0, 1, 2, 3]);
        assert_eq!(end.wait_beside_lanes(later(), true, || true), Ok(Some(Request::Lanes)));
        end.take_sent(&mut sent).unwrap();
        let waits = |trainer: &mut AttachedArena, ready: &mut Vec<u32>| {
            trainer.wait_lanes(2, ready, Some(Instant::now()), || true)
        };
        for lane in [0, 1] {
            assert_eq!(waits(&mut trainer, &mut ready), Err(TrainerError::TimedOut));
            // It comes back at once, though nothing is asked for.
            assert_eq!(end.wait_beside_lanes(later(), false, || true), Ok(None));
            assert!(end.is_waited_for());
            end.answer_lanes(&[lane]).unwrap();
        }
        assert!(!end.is_waited_for());
        assert_eq!(end.wait_beside_lanes(Instant::now(), false, || true), Ok(None));
        assert_eq!(waits(&mut trainer, &mut ready), Ok(ReadyLanes::Ready(2)));
        // A node that sleeps for a send is woken by a trainer that waits for more, and by a send.
        thread::scope(|scope| {
            let roused = scope.spawn(|| end.wait_beside_lanes(later(), false, || true));
            assert_eq!(waits(&mut trainer, &mut ready), Err(TrainerError::TimedOut));
            assert_eq!(roused.join().unwrap(), Ok(None));
        });
        end.answer_lanes(&[2, 3]).unwrap();
        assert_eq!(waits(&mut trainer, &mut ready), Ok(ReadyLanes::Ready(2)));
        thread::scope(|scope| {
            let roused = scope.spawn(|| end.wait_beside_lanes(later(), false, || true));
            trainer.send(&[4]);
            assert_eq!(roused.join().unwrap(), Ok(Some(Request::Lanes)));
        });
        end.take_sent(&mut sent).unwrap();
        end.answer_lanes(&[4]).unwrap();
        trainer.wait_lanes(1, &mut ready, soon(), || true).unwrap();
    }
}
