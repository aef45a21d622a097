//! Engines whose batches lie in memory that a trainer maps.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rollhouse_arena::{
    Answer, ArenaError, ArenaIdent, AttachedArena, Expected, Frame, FrameNotes, MIN_RING_BYTES, PeerError,
    ReadyLanes, Request, ResetColumns, ServeError, ServingEnd, SharedArena, SharedMemory,
};
use rollhouse_core::{AutoresetMode, ColumnData, ColumnMut, random_bits};
use rollhouse_engine::{ConfigError, Engine, EngineConfig, Received, Reset};
use rollhouse_env::{EnvEntry, Registry};

const LANES: usize = 70;
const GENERATION: u64 = 1;

struct Node {
    shared: SharedArena,
    engine: Engine,
}

impl Node {
    fn new(entry: &Arc<EnvEntry>, config: EngineConfig) -> Self {
        let columns = Engine::columns(entry, config.autoreset);
        let ident = ident(config.autoreset);
        let (shared, placement) = SharedArena::create(&columns, config.lanes, ident, MIN_RING_BYTES).unwrap();
        Self { shared, engine: Engine::on(placement, entry, config, None).unwrap() }
    }

    /// Serves until the trainer is gone or breaks the protocol; gives why, and the engine.
    fn serve(mut self, mut end: ServingEnd, gone: Arc<AtomicBool>) -> JoinHandle<(ServeError, Engine)> {
        thread::spawn(move || {
            let error = loop {
                if let Err(error) = self.serve_one(&mut end, &gone) {
                    break error;
                }
            };
            (error, self.engine)
        })
    }

    fn serve_one(&mut self, end: &mut ServingEnd, gone: &AtomicBool) -> Result<(), ServeError> {
        let alive = || !gone.load(Ordering::SeqCst);
        // A trainer that never lets the node sleep is asked for here.
        if !alive() {
            return Err(ServeError::Gone);
        }
        match end.wait(None, alive)? {
            Request::Step => {
                end.copy_actions(self.engine.actions().unwrap());
                match self.engine.step() {
                    Ok(frame) => end.answer_frame(&frame, &[], &FrameNotes::default()),
                    Err(error) => end.refuse(error.to_string().as_bytes()),
                }
            }
            Request::Reset => {
                let ResetColumns { seeds, mask } = end.reset_columns();
                match self.engine.reset(&Reset { seeds, mask, ..Reset::default() }) {
                    Ok(frame) => end.answer_frame(&frame, &[], &FrameNotes::default()),
                    Err(error) => end.refuse(error.to_string().as_bytes()),
                }
            }
            Request::Lanes => self.serve_lanes(end).map_err(ServeError::Peer)?,
            Request::Latest => end.refuse(b"no live lanes"),
            Request::Command => {
                let mut command = Vec::new();
                while end.next_command(&mut command).map_err(ServeError::Peer)? {
                    let soon = Instant::now() + Duration::from_millis(1);
                    match end.answer_command(&command, Some(soon), alive) {
                        // What a trainer does not take is its loss.
                        Ok(()) | Err(ServeError::TimedOut) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    fn serve_lanes(&mut self, end: &mut ServingEnd) -> Result<(), PeerError> {
        let mut lanes = Vec::new();
        end.take_sent(&mut lanes)?;
        if lanes.is_empty() {
            return Ok(());
        }
        let actions = end.copy_actions_of(&lanes);
        if let Err(error) = self.engine.send(&lanes, actions.as_ref()) {
            end.refuse_lanes(&lanes, error.to_string().as_bytes());
            return Ok(());
        }
        let received = self.engine.recv(lanes.len(), Duration::from_secs(60)).unwrap();
        put_rows(end, &received);
        end.answer_lanes(&received.lanes)
    }
}

fn put_rows(end: &mut ServingEnd, received: &Received) {
    let mut rows = end.lane_rows();
    for (index, &lane) in received.lanes.iter().enumerate() {
        let lane = lane as usize;
        let put = |columns: &mut [ColumnMut<'_>], from: &[ColumnData]| {
            for (column, from) in columns.iter_mut().zip(from) {
                let elements = from.len() / received.lanes.len();
                let mut row = column.slice(lane * elements, (lane + 1) * elements);
                assert!(row.copy_from(from.row(index, elements).unwrap()));
            }
        };
        put(&mut rows.obs, &received.obs);
        put(&mut rows.infos, &received.infos);
        put(&mut rows.final_obs, &received.final_obs);
        rows.rewards.as_f64_mut().unwrap()[lane] = received.rewards[index];
        rows.terminated.as_u8_mut().unwrap()[lane] = received.terminated[index];
        rows.truncated.as_u8_mut().unwrap()[lane] = received.truncated[index];
        rows.reset.as_u8_mut().unwrap()[lane] = received.reset[index];
    }
}

fn ident(autoreset: AutoresetMode) -> ArenaIdent {
    ArenaIdent { term: 1, counter: 1, autoreset: autoreset.code() }
}

fn entry() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

fn config(autoreset: AutoresetMode) -> EngineConfig {
    EngineConfig { autoreset, ..EngineConfig::new(LANES) }
}

fn attach(node: &mut Node, autoreset: AutoresetMode) -> (ServingEnd, AttachedArena) {
    let end = node.shared.attach(GENERATION, node.engine.frames()).unwrap();
    let [outputs, inputs] = [end.outputs_fd(), end.inputs_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
    let columns = Engine::columns(&entry(), autoreset);
    let ident = ident(autoreset);
    let expected = Expected { columns: &columns, lanes: LANES, ident, generation: GENERATION };
    (end, AttachedArena::open(outputs, inputs, &expected).unwrap())
}

fn act(actions: &mut ColumnMut<'_>, step: u64) {
    for (lane, action) in (0..).zip(actions.as_i64_mut().unwrap()) {
        *action = (random_bits(5, lane, step) & 1) as i64;
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

fn same(a: Frame<'_>, b: Frame<'_>, final_obs: bool) {
    assert_eq!((a.number(), a.obs(0), a.rewards()), (b.number(), b.obs(0), b.rewards()));
    assert_eq!((a.terminated(), a.truncated(), a.reset()), (b.terminated(), b.truncated(), b.reset()));
    if final_obs {
        assert_eq!(a.final_obs(0), b.final_obs(0));
    }
}

#[test]
fn a_seeded_run_over_memory_is_the_embedded_one() {
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let mut node = Node::new(&entry(), config(autoreset));
        let (end, mut trainer) = attach(&mut node, autoreset);
        let (remote, gone) = (end.remote(), Arc::new(AtomicBool::new(false)));
        let serving = node.serve(end, Arc::clone(&gone));
        let mut embedded = Engine::new(&entry(), config(autoreset), None).unwrap();
        let final_obs = autoreset == AutoresetMode::SameStep;
        let seeds: Vec<_> = (0..LANES as u64).map(|lane| Some(lane + 4)).collect();
        trainer.post_reset(&seeds, &[]);
        assert_eq!(trainer.wait(soon(), || true), Ok(Answer::Frame));
        same(trainer.frame(), embedded.reset(&Reset::seeded(4, LANES)).unwrap(), final_obs);
        for step in 0..3_000 {
            act(&mut trainer.actions_mut(), step);
            act(&mut embedded.actions().unwrap(), step);
            trainer.post_step();
            assert_eq!(trainer.wait(soon(), || true), Ok(Answer::Frame));
            same(trainer.frame(), embedded.step().unwrap(), final_obs);
        }
        gone.store(true, Ordering::SeqCst);
        remote.rouse();
        assert_eq!(serving.join().unwrap().0, ServeError::Gone);
    }
}

#[test]
fn a_bad_action_is_refused_by_name_and_the_next_one_steps() {
    let mut node = Node::new(&entry(), config(AutoresetMode::NextStep));
    let (mut end, mut trainer) = attach(&mut node, AutoresetMode::NextStep);
    let gone = AtomicBool::new(false);
    let mut ask = |trainer: &mut AttachedArena| {
        node.serve_one(&mut end, &gone).unwrap();
        trainer.wait(soon(), || true).unwrap()
    };
    trainer.post_step();
    assert_eq!(ask(&mut trainer), Answer::Refused(b"step before the first reset".to_vec()));
    trainer.post_reset(&[], &[]);
    assert_eq!(ask(&mut trainer), Answer::Frame);
    trainer.actions_mut().as_i64_mut().unwrap()[66] = 2;
    trainer.post_step();
    let Answer::Refused(note) = ask(&mut trainer) else { panic!("action 2 was taken") };
    assert!(String::from_utf8(note).unwrap().starts_with("action 2 of lane 66 "));
    trainer.actions_mut().as_i64_mut().unwrap()[66] = 1;
    trainer.post_step();
    assert_eq!(ask(&mut trainer), Answer::Frame);
    assert_eq!(trainer.frame().number(), 2);
}

#[test]
fn lanes_sent_over_memory_show_the_rows_of_lockstep() {
    let mut node = Node::new(&entry(), config(AutoresetMode::NextStep));
    let (mut end, mut trainer) = attach(&mut node, AutoresetMode::NextStep);
    let gone = AtomicBool::new(false);
    let mut embedded = Engine::new(&entry(), config(AutoresetMode::NextStep), None).unwrap();
    embedded.reset(&Reset::seeded(1, LANES)).unwrap();
    trainer.post_reset(&(0..LANES as u64).map(|lane| Some(lane + 1)).collect::<Vec<_>>(), &[]);
    node.serve_one(&mut end, &gone).unwrap();
    assert_eq!(trainer.wait(soon(), || true), Ok(Answer::Frame));
    for step in 0..200 {
        act(&mut trainer.actions_mut(), step);
        act(&mut embedded.actions().unwrap(), step);
        // In two parts, the later lanes first.
        let mut ready = Vec::new();
        for lanes in [40..LANES as u32, 0..40] {
            trainer.send(&lanes.clone().collect::<Vec<_>>());
            node.serve_one(&mut end, &gone).unwrap();
            let done = trainer.wait_lanes(lanes.len(), &mut ready, soon(), || true);
            assert_eq!(done, Ok(ReadyLanes::Ready(lanes.len())));
        }
        assert_eq!(ready, (40..LANES as u32).chain(0..40).collect::<Vec<_>>());
        let frame = embedded.step().unwrap();
        let elements = frame.obs(0).len() / LANES;
        for lane in 0..LANES {
            let row = trainer.lane_row(lane as u32);
            let obs = frame.obs(0).slice(lane * elements, (lane + 1) * elements);
            assert_eq!((row.obs(0), row.reward()), (obs, frame.rewards()[lane]));
            assert_eq!(
                (row.terminated(), row.truncated(), row.reset()),
                (frame.terminated()[lane], frame.truncated()[lane], frame.reset()[lane])
            );
        }
    }
}

#[test]
fn memory_laid_out_for_another_batch_is_refused() {
    let columns = Engine::columns(&entry(), AutoresetMode::NextStep);
    for (columns_for, lanes) in [(AutoresetMode::SameStep, LANES), (AutoresetMode::NextStep, LANES + 1)] {
        let (_shared, placement) =
            SharedArena::create(&columns, LANES, ident(AutoresetMode::NextStep), MIN_RING_BYTES).unwrap();
        let config = EngineConfig { autoreset: columns_for, ..EngineConfig::new(lanes) };
        let error = Engine::on(placement, &entry(), config, None).unwrap_err();
        assert!(matches!(error, ConfigError::Arena(ArenaError::Placement)), "{error:?}");
    }
}

/// Scribbles over the trainer's file: random numbers, small ones, and steps of what is there, in every word.
fn scribble(inputs: &SharedMemory, seed: u64, rounds: u64) {
    let words = inputs.len() / 8;
    for round in 0..rounds {
        let bits = random_bits(seed, 0, round);
        // The words the node waits for as often as all others together.
        let word = match bits & 7 {
            0..4 => 32 + (bits >> 8) as usize % 4,
            4 => (bits >> 8) as usize % 128,
            _ => (bits >> 8) as usize % words,
        };
        let there = inputs.word(word * 8);
        let value = match bits >> 4 & 7 {
            0 => random_bits(seed, 1, round),
            1 => u64::MAX,
            2 => 0,
            3 => 1 + (bits >> 40 & 1),
            _ => there.load(Ordering::Relaxed).wrapping_add(1 + 7 * (bits >> 41 & 1)),
        };
        there.store(value, Ordering::SeqCst);
    }
}

#[test]
fn a_node_survives_a_trainer_that_scribbles_over_every_word() {
    let mut ends = [0; 2];
    for seed in 0..300 {
        let mut node = Node::new(&entry(), config(AutoresetMode::NextStep));
        let (end, trainer) = attach(&mut node, AutoresetMode::NextStep);
        let inputs = SharedMemory::attach(end.inputs_fd().try_clone_to_owned().unwrap()).unwrap();
        drop(trainer);
        let (remote, gone) = (end.remote(), Arc::new(AtomicBool::new(false)));
        let serving = node.serve(end, Arc::clone(&gone));
        scribble(&inputs, seed, 20_000);
        gone.store(true, Ordering::SeqCst);
        remote.rouse();
        let (error, mut engine) = serving.join().expect("the node does not panic");
        match error {
            ServeError::Gone => ends[0] += 1,
            ServeError::Peer(error) => {
                assert!(!error.to_string().is_empty());
                ends[1] += 1;
            }
            ServeError::TimedOut => panic!("nothing had a deadline"),
        }
        // The engine is as sound as before.
        engine.reset(&Reset::seeded(1, LANES)).unwrap();
        engine.actions().unwrap().as_i64_mut().unwrap().fill(1);
        engine.step().unwrap();
    }
    println!("the node went on to the end {} times, and ended the attachment {} times", ends[0], ends[1]);
    assert!(ends[1] > 0);
}
