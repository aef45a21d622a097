//! Lanes as a trainer has them, whatever carries them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_client::{MethodError, Pool, StepError};
use rollhouse_core::{
    AutoresetMode, Began, ColumnData, ColumnRef, Interruption, Outcome, Past, PastEvent, PlayedActions,
};
use rollhouse_engine::{
    AttributeValue, CommandError, CommandLanes, Engine, EngineConfig, GetAttributes, GetParams, LaneRange,
    LogEvent, Method, Nothing, Received, Reset, Schema, SchemaAnswer, SetAttributes, SetParams, Statistics,
    StatisticsAnswer, StepError as EngineError, Timings,
};
use rollhouse_env::{EnvEntry, ImageSize};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Recorder, RunRecorder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::carriers::LaneOrder;
use super::rows::{Row, Shape};

/// Far longer than anything takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine, and all that its owner keeps to go on with another one.
pub(crate) struct InProcess {
    pub(crate) engine: Engine,
    pub(crate) entry: Arc<EnvEntry>,
    pub(crate) config: EngineConfig,
    pub(crate) past: Vec<Past>,
    pub(crate) lost: Vec<u32>,
    pub(crate) recorder: Option<(Recorder, RunRecorder, FaultyDisk)>,
    /// Whether lanes are waited for on their descriptor.
    pub(crate) sleeps: bool,
}

/// Lanes of a node's session, or of two.
pub(crate) struct OnNodes {
    pub(crate) pool: Pool,
}

pub(crate) enum Held {
    InProcess(Box<InProcess>),
    OnNodes(Box<OnNodes>),
}

pub(crate) struct Lanes {
    pub(crate) held: Held,
    autoreset: AutoresetMode,
    shape: Shape,
    /// The newest rows.
    pub(crate) rows: Vec<Row>,
}

impl InProcess {
    /// Notes what was played, and what the engine says of it.
    fn note(&mut self, rows: Option<(&[i64], &[Row])>) {
        let played = |(lane, (&action, _)): (u32, (&i64, &Row))| Past {
            lane,
            what: PastEvent::Played(PlayedActions { count: 1, actions: ColumnData::I64(vec![action]) }),
        };
        if let Some((actions, rows)) = rows {
            let stepped = (0..).zip(actions.iter().zip(rows)).filter(|(_, (_, row))| row.flags[2] == 0);
            self.past.extend(stepped.map(played));
        }
        let mut events = Vec::new();
        self.engine.take_log(&mut events);
        let past = events.into_iter().map(|event| match event {
            LogEvent::Began(Began { lane, number, start }) => {
                Past { lane, what: PastEvent::Began { number, start } }
            }
            LogEvent::Hash { lane, hash } => Past { lane, what: PastEvent::Stood(hash) },
        });
        self.past.extend(past);
    }

    /// Marks the rows of lanes that this step has lost as truncated, as owners of engines do.
    fn mark_losses(&mut self) {
        let before = std::mem::take(&mut self.lost);
        self.lost =
            (0..self.config.lanes as u32).filter(|&lane| self.engine.is_lost(lane as usize)).collect();
        let new: Vec<u32> = self.lost.iter().copied().filter(|lane| !before.contains(lane)).collect();
        self.engine.mark_truncated(&new).unwrap();
    }

    fn step(&mut self) -> Result<(), EngineError> {
        if !self.sleeps {
            return self.engine.step().map(drop);
        }
        self.engine.begin_step()?;
        self.finish();
        Ok(())
    }

    fn reset(&mut self, reset: &Reset) -> Result<(), String> {
        if !self.sleeps {
            return self.engine.reset(reset).map(drop).map_err(|error| chain(&error));
        }
        self.engine.begin_reset(reset).map_err(|error| chain(&error))?;
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        while !self.engine.finish(Duration::ZERO).unwrap() {
            self.sleep();
        }
    }

    fn recv(&mut self, min: usize) -> Received {
        let patience = if self.sleeps { Duration::ZERO } else { PATIENCE };
        loop {
            match self.engine.recv(min, patience) {
                Err(EngineError::TimedOut) if self.sleeps => self.sleep(),
                received => return received.unwrap(),
            }
        }
    }

    /// Sleeps on the descriptor of the lanes until there is something to look at.
    fn sleep(&mut self) {
        let now = Instant::now();
        let until = self.engine.arm(now).unwrap();
        let left = until.map_or(PATIENCE, |until| until.saturating_duration_since(now));
        if left.is_zero() {
            return;
        }
        let descriptor = self.engine.descriptor().expect("late lanes have a descriptor");
        let fds = &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let woken = poll(fds, Some(&Timespec::try_from(left).unwrap())).unwrap();
        assert!(woken > 0 || until.is_some(), "nobody has woken the sleeper");
    }

    /// Gives the lanes' past to a new engine, which takes the place of this one.
    pub(crate) fn go_on_elsewhere(&mut self) {
        let mut engine = Engine::new(&self.entry, self.config.clone(), None).unwrap();
        engine.keep_log().unwrap();
        engine.replay(self.past.clone()).unwrap();
        self.engine = engine;
    }

    fn ask<M: Method>(&mut self, params: M::Params) -> Result<M::Answer, String> {
        M::run(&mut CommandLanes::of(&mut self.engine), params).map_err(|error| error.to_string())
    }
}

impl Lanes {
    pub(crate) fn new(held: Held, asked: &LaneOrder, shape: Shape) -> Self {
        Self { held, autoreset: asked.autoreset, shape, rows: Vec::new() }
    }

    pub(crate) fn reset(&mut self, reset: &Reset) -> &[Row] {
        self.try_reset(reset).unwrap()
    }

    /// Resets lanes, or returns why nothing was.
    pub(crate) fn try_reset(&mut self, reset: &Reset) -> Result<&[Row], String> {
        self.rows = match &mut self.held {
            Held::InProcess(lanes) => {
                lanes.reset(reset)?;
                let rows = self.shape.rows(&lanes.engine.frame().unwrap());
                lanes.note(None);
                rows
            }
            Held::OnNodes(lanes) => self.shape.rows(&lanes.pool.reset(reset).map_err(|error| chain(&error))?),
        };
        Ok(&self.rows)
    }

    pub(crate) fn step(&mut self, actions: &[i64]) -> Result<&[Row], String> {
        self.rows = match &mut self.held {
            Held::InProcess(lanes) => {
                lanes.engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(actions);
                lanes.step().map_err(|error| error.to_string())?;
                lanes.mark_losses();
                let rows = self.shape.rows(&lanes.engine.frame().unwrap());
                let taken = self.shape.taken(&rows);
                lanes.note(Some((taken.as_deref().unwrap_or(actions), &rows)));
                rows
            }
            Held::OnNodes(lanes) => {
                lanes.pool.actions().as_i64_mut().unwrap().copy_from_slice(actions);
                self.shape.rows(&lanes.pool.step().map_err(|error: StepError| error.to_string())?)
            }
        };
        Ok(&self.rows)
    }

    /// Begins anew the episodes of lanes that are over and are not begun by a step; every second time with seeds.
    pub(crate) fn reset_those_that_are_over(&mut self, number: u64) -> bool {
        let mask: Vec<bool> = self.rows.iter().map(Row::is_over).collect();
        if self.autoreset != AutoresetMode::Disabled || !mask.contains(&true) {
            return false;
        }
        let seeds = if number.is_multiple_of(2) { Vec::new() } else { vec![Some(number); mask.len()] };
        self.reset(&Reset { seeds, mask, ..Reset::default() });
        true
    }

    pub(crate) fn send(&mut self, lanes: &[u32], actions: &[i64]) {
        match &mut self.held {
            Held::InProcess(held) => held.engine.send(lanes, ColumnRef::I64(actions)).unwrap(),
            Held::OnNodes(held) => held.pool.send(lanes, ColumnRef::I64(actions)).unwrap(),
        }
    }

    pub(crate) fn recv(&mut self, min: usize) -> Vec<(u32, Row)> {
        let received = match &mut self.held {
            Held::InProcess(lanes) => {
                let mut received = lanes.recv(min);
                // As owners of engines do.
                let lost = received.lanes.iter().map(|&lane| lanes.engine.is_lost(lane as usize));
                received.truncated.iter_mut().zip(lost).for_each(|(cut, lost)| *cut |= u8::from(lost));
                received
            }
            Held::OnNodes(lanes) => lanes.pool.recv(min, PATIENCE).unwrap(),
        };
        self.shape.received(&received)
    }

    /// The actions that were taken in these rows, of lanes that report them.
    pub(crate) fn taken(&self, rows: &[Row]) -> Vec<i64> {
        self.shape.taken(rows).expect("the lanes report what they took")
    }

    /// Why a lane is lost.
    pub(crate) fn loss(&self, lane: usize) -> Option<Outcome> {
        match &self.held {
            Held::InProcess(lanes) => lanes.engine.loss(lane).map(Outcome::Interrupted),
            Held::OnNodes(lanes) => lanes.pool.loss(lane),
        }
    }

    /// The lanes that are lost, each with the cause.
    pub(crate) fn lost(&self) -> Vec<(usize, Interruption)> {
        let cause = |lane| match self.loss(lane)? {
            Outcome::Interrupted(cause) => Some((lane, cause)),
            other => panic!("lane {lane} is lost as {other:?}"),
        };
        (0..self.rows.len()).filter_map(cause).collect()
    }

    /// What was counted of the lanes of all sessions; of the timings the number of batches.
    pub(crate) fn statistics(&mut self) -> Vec<StatisticsAnswer> {
        let answers = match &mut self.held {
            Held::InProcess(lanes) => vec![lanes.ask::<Statistics>(Nothing {}).unwrap()],
            Held::OnNodes(lanes) => lanes.pool.statistics().unwrap(),
        };
        let untimed = |answer: StatisticsAnswer| StatisticsAnswer {
            timings: Timings { batches: answer.timings.batches, ..Timings::default() },
            ..answer
        };
        answers.into_iter().map(untimed).collect()
    }

    pub(crate) fn schema(&mut self) -> SchemaAnswer {
        match &mut self.held {
            Held::InProcess(lanes) => lanes.ask::<Schema>(Nothing {}).unwrap(),
            Held::OnNodes(lanes) => lanes.pool.schema().unwrap(),
        }
    }

    pub(crate) fn get(&mut self, name: &str) -> Result<Vec<AttributeValue>, String> {
        let lanes = LaneRange { first: 0, count: self.rows.len() as u32 };
        match &mut self.held {
            Held::InProcess(held) => {
                Ok(held.ask::<GetAttributes>(GetParams { name: name.to_owned(), lanes })?.values)
            }
            Held::OnNodes(lanes) => lanes.pool.get_attr(name).map_err(said),
        }
    }

    pub(crate) fn set(&mut self, name: &str, values: &[AttributeValue]) -> Result<(), String> {
        let lanes = LaneRange { first: 0, count: self.rows.len() as u32 };
        match &mut self.held {
            Held::InProcess(held) => {
                let params = SetParams { name: name.to_owned(), lanes, values: values.to_vec() };
                held.ask::<SetAttributes>(params).map(drop)
            }
            Held::OnNodes(lanes) => lanes.pool.set_attr(name, values).map_err(said),
        }
    }

    pub(crate) fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, String> {
        match &mut self.held {
            Held::InProcess(lanes) => {
                let called = lanes.engine.call(lane, method, payload);
                called.map_err(|error| CommandError::from(error).to_string())
            }
            Held::OnNodes(lanes) => lanes.pool.call_method(lane, method, payload).map_err(said),
        }
    }

    /// The pixels of a lane's picture.
    pub(crate) fn picture(&mut self, lane: usize) -> Vec<u8> {
        let image = match &mut self.held {
            Held::InProcess(lanes) => {
                lanes.engine.render(lane, Some(ImageSize::new(48, 32).unwrap())).unwrap()
            }
            Held::OnNodes(lanes) => lanes.pool.render(lane..lane + 1, Some((48, 32))).unwrap().remove(0),
        };
        image.into_pixels()
    }

    pub(crate) const fn is_in_process(&self) -> bool {
        matches!(self.held, Held::InProcess(_))
    }

    pub(crate) fn set_policy_version(&mut self, version: u64) {
        match &mut self.held {
            Held::InProcess(lanes) => lanes.engine.set_policy_version(version),
            Held::OnNodes(lanes) => lanes.pool.set_policy_version(version).unwrap(),
        }
    }
}

/// An error with all of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// What a refusal says, without the id of the call.
fn said(error: MethodError) -> String {
    match error {
        MethodError::Refused { refusal, .. } => {
            refusal.message.split(" (call=").next().unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    }
}
