//! Stepping an env again with recorded actions.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, EnvSpec, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    ActionCheck, BadAction, BlockEnv, BlockStep, CallError, Ended, EnvEntry, Image, ImageSize,
    InstructionSet, LaneBlock, MakeError, RenderError, UnknownEnv,
};

use crate::code::calls::CalledAt;
use crate::code::episode::{Episode, EpisodeInfo, StepFrom};
use crate::play::divergence::{Divergence, no_action, panicked};
use crate::play::keyframes::Keyframe;
use rollhouse_core::ColumnData;

/// A block of lanes of one env with one set of options, and the columns it works on. Where some are drawn, each episode
/// has what its start says.
pub(crate) struct Simulator {
    env: BlockEnv,
    lanes: usize,
    /// The options of all lanes, if some are drawn.
    drawn: Option<Options>,
    /// Whether lanes take other options for each episode.
    takes_options: bool,
    /// Whether each episode of a recording is given its own.
    varied: bool,
    /// Lanes whose env does not work with the options of their episode.
    refused: LaneSet,
    check: ActionCheck,
    /// Lanes whose actions were none in the last step.
    without_action: LaneSet,
    pub(crate) actions: ColumnData,
    pub(crate) action_elements: usize,
    pub(crate) obs: Vec<ColumnData>,
    pub(crate) infos: Vec<ColumnData>,
    pub(crate) rewards: Vec<f64>,
    pub(crate) hashes: [u32; BLOCK_LANES],
}

/// An error: an episode cannot be simulated again.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// This program has no env of that id.
    #[error("{0}; an env of a plug-in needs the plug-in: --plugin PATH, or load_plugin in Python")]
    Unknown(UnknownEnv),
    /// The env is one of a Python package, and nobody hosts those here.
    #[error(
        "{env} is an env of a Python package, which is imported only when that is asked for: --python, or python= in Python"
    )]
    NotHosted {
        /// Id of the env.
        env: String,
    },
    /// The env of a Python package cannot be hosted: the message says why.
    #[error("{0}")]
    Learn(String),
    /// The env of that id has changed: its action or observation columns differ.
    #[error("{env} has other actions or observations than when it was recorded")]
    Changed {
        /// Id of the env.
        env: String,
    },
    /// The env's dynamics have changed.
    #[error("the env's dynamics have changed since: {recorded:016x} then, {now:016x} now")]
    Dynamics {
        /// Hash of the dynamics that were recorded.
        recorded: u64,
        /// Hash of the dynamics in this program.
        now: u64,
    },
    /// The env could not be made with the recorded options.
    #[error("the env cannot be made with the recorded options")]
    Make(#[source] MakeError),
    /// The env panicked.
    #[error("the env panicked after {steps} steps")]
    Panicked {
        /// Steps that it had taken before.
        steps: u64,
    },
    /// What was recorded as an action is none of the env's. No env is asked for what would come of it.
    #[error("the recorded action {value} after {steps} steps is not {wanted}")]
    Action {
        /// Steps that it had taken before.
        steps: u64,
        /// Value that was recorded.
        value: String,
        /// Values that the space takes.
        wanted: String,
    },
    /// The env refuses a call that it took when the episode was recorded.
    #[error("the env refuses the call of `{method}` after {steps} steps that it took then")]
    Call {
        /// Name of the method.
        method: String,
        /// Steps that it had taken before.
        steps: u64,
        /// Reason that the env gives.
        source: CallError,
    },
    /// The recording ends before the step that was asked for.
    #[error("step {step} was asked for, but the episode has {length} steps")]
    NoSuchStep {
        /// The step that was asked for.
        step: u64,
        /// Steps of the episode.
        length: u64,
    },
    /// The env cannot be put into a state that it was in.
    #[error("{env} cannot be put into the state that it was in")]
    State {
        /// Id of the env.
        env: String,
    },
    /// The env is not deterministic, and the recording lacks what cannot be recomputed.
    #[error("the env is not deterministic and its observations are not recorded")]
    NotRecorded,
    /// The env is not deterministic, so that all there is of a step is what was recorded of it.
    #[error("the env is not deterministic, and this is what was recorded")]
    NotDeterministic,
    /// The lane is watched while it plays, and its env shows no state from which another could go on.
    #[error("the env keeps its state to itself, and this is what its lane shows")]
    Hidden,
}

impl Simulator {
    /// Makes a simulator for episodes that were recorded as `spec`, in this env.
    pub(crate) fn of(
        entry: &EnvEntry,
        spec: &EnvSpec,
        options: &Options,
        lanes: usize,
    ) -> Result<Self, SimulateError> {
        let now = entry.spec();
        if now.action_column() != spec.action_column()
            || now.obs_columns() != spec.obs_columns()
            || now.recorded().info_channels != spec.info_channels
        {
            return Err(SimulateError::Changed { env: spec.id.clone() });
        }
        let first = vec![options.before_episodes(); lanes];
        let made = catch_unwind(AssertUnwindSafe(|| {
            entry.check_drawn(options)?;
            entry.make_any_block(InstructionSet::best(), &first)
        }));
        let env = made.map_err(|_| SimulateError::Panicked { steps: 0 })?.map_err(SimulateError::Make)?;
        let rows =
            |column: &rollhouse_core::ColumnSpec| ColumnData::zeros(column.dtype, column.elements() * lanes);
        Ok(Self {
            env,
            lanes,
            drawn: options.are_drawn().then(|| options.clone()),
            takes_options: entry.draws_options(),
            varied: false,
            refused: LaneSet::NONE,
            check: ActionCheck::of(&now.action_space).with_counted_of(now),
            without_action: LaneSet::NONE,
            actions: rows(&spec.action_column()),
            action_elements: spec.action_column().elements(),
            obs: spec.obs_columns().iter().map(rows).collect(),
            infos: now.info_channels.iter().map(rows).collect(),
            rewards: vec![0.0; lanes],
            hashes: [0; BLOCK_LANES],
        })
    }

    /// Begins an episode from `start` in a lane; the reset itself happens with [`Simulator::reset`].
    pub(crate) fn restore(&mut self, lane: usize, start: Start) {
        self.env.restore(lane, start);
        if let Some(options) = self.drawn.as_ref().map(|options| options.of_episode(start)) {
            self.give(lane, &options);
        }
    }

    /// Does the same for a recorded episode, with its options if [they vary](Self::vary).
    pub(crate) fn restore_of(&mut self, lane: usize, info: &EpisodeInfo) {
        self.restore(lane, info.start);
        if self.varied {
            self.give(lane, &info.options());
        }
    }

    fn give(&mut self, lane: usize, options: &Options) {
        let env = &mut self.env;
        let given = catch_unwind(AssertUnwindSafe(|| env.set_options(lane, options)));
        self.refused.remove(lane);
        self.refused.insert_if(lane, !matches!(given, Ok(Ok(()))));
    }

    /// Returns whether its lanes take other options for each episode.
    pub(crate) const fn takes_options(&self) -> bool {
        self.takes_options
    }

    /// Sets whether episodes of different options follow. Once some have, all are given theirs.
    pub(crate) const fn vary(&mut self, varied: bool) {
        self.varied |= varied;
    }

    /// Resets lanes; returns those that failed. `None` if the whole block is lost.
    pub(crate) fn reset(&mut self, lanes: LaneSet) -> Option<LaneSet> {
        let mut obs: [_; MAX_COLUMNS] = std::array::from_fn(|_| None);
        let count = self.obs.len();
        for (to, from) in obs.iter_mut().zip(&mut self.obs) {
            *to = Some(from.as_mut());
        }
        let mut obs: Vec<_> = obs.into_iter().flatten().take(count).collect();
        self.without_action = LaneSet::NONE;
        let (env, refused) = (&mut self.env, self.refused & lanes);
        let lost =
            catch_unwind(AssertUnwindSafe(|| env.reset_at_once(lanes & !refused, &mut obs, Instant::now)))
                .ok()?;
        Some(lost | refused)
    }

    /// Steps all lanes of `lanes` once. Those whose actions are none are lost by it, and their env is not asked. `None` if
    /// the whole block is lost.
    pub(crate) fn step(&mut self, lanes: LaneSet) -> Option<Ended> {
        self.without_action = LaneSet::NONE;
        if !self.check.all_good(self.actions.as_ref()) {
            let actions = self.actions.as_ref();
            let is_none = |&lane: &usize| self.check.first_bad(actions, |other| other == lane).is_some();
            self.without_action = lanes.into_iter().filter(is_none).collect();
        }
        let lanes = lanes & !self.without_action;
        let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let step = BlockStep {
            skip: LaneSet::first(self.lanes) & !lanes,
            reset: LaneSet::NONE,
            actions: self.actions.as_ref(),
            obs: &mut obs,
            infos: &mut infos,
            rewards: &mut self.rewards,
        };
        let env = &mut self.env;
        let ended = catch_unwind(AssertUnwindSafe(|| env.step_at_once(step, Instant::now))).ok()?;
        Some(Ended { lost: ended.lost | self.without_action, ..ended })
    }

    /// Returns the lanes that the last step has lost because their actions were none.
    pub(crate) const fn without_action(&self) -> LaneSet {
        self.without_action
    }

    /// Returns the error of a lane whose action is none, after `steps` steps.
    pub(crate) fn bad_action(&self, lane: usize, steps: u64) -> SimulateError {
        let bad = self.check.first_bad(self.actions.as_ref(), |other| other == lane);
        let (value, wanted) = bad.map(|bad| (bad.value, bad.wanted)).unwrap_or_default();
        SimulateError::Action { steps, value, wanted }
    }

    /// Returns what a lane has that the last step has lost, after `steps` steps.
    pub(crate) fn fault(&self, lane: usize, steps: u64) -> Divergence {
        if self.without_action.has(lane) { no_action(steps) } else { panicked(steps) }
    }

    /// Calls methods on a lane as they were called when its episode was recorded. [`SimulateError::Panicked`] says that the
    /// whole block is lost.
    pub(crate) fn call(&mut self, lane: usize, calls: &[CalledAt]) -> Result<(), SimulateError> {
        repeat(&mut *self.env, lane, calls)
    }

    /// Takes the only lane through the steps in `rows` of an episode, one after another, with the calls before each, and
    /// shows each row with its results. Allocates nothing for a step.
    pub(crate) fn run(
        &mut self,
        episode: &Episode,
        rows: Range<usize>,
        mut each: impl FnMut(usize, f64, &dyn LaneBlock, Ended, &[ColumnMut<'_>]),
    ) -> Result<(), SimulateError> {
        let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let rewards = &mut self.rewards;
        for row in rows {
            let steps = row as u64;
            let action = episode.actions.row(row, self.action_elements);
            let action = action.ok_or(SimulateError::Panicked { steps })?;
            if let Some(BadAction { value, wanted, .. }) = self.check.first_bad(action, |_| true) {
                return Err(SimulateError::Action { steps, value, wanted });
            }
            let env = &mut self.env;
            repeat(&mut **env, 0, episode.calls_after(steps))?;
            let step = BlockStep {
                skip: LaneSet::NONE,
                reset: LaneSet::NONE,
                actions: action,
                obs: &mut obs,
                infos: &mut infos,
                rewards: &mut *rewards,
            };
            match catch_unwind(AssertUnwindSafe(|| env.step_at_once(step, Instant::now))) {
                Ok(ended) if !ended.lost.has(0) => each(row, rewards[0], &**env, ended, &obs),
                _ => return Err(SimulateError::Panicked { steps }),
            }
        }
        Ok(())
    }

    /// Puts the only lane into the state of a keyframe; returns false if it does not come into exactly the state that
    /// was kept. The lane has been reset before.
    pub(crate) fn resume(&mut self, keyframe: &Keyframe) -> bool {
        let env = &mut self.env;
        let set = catch_unwind(AssertUnwindSafe(|| {
            let set = env.set_state(0, &keyframe.state).is_ok();
            env.restore(0, keyframe.position);
            set && env.state_hash(0) == keyframe.hash && env.position(0) == keyframe.position
        }));
        set.unwrap_or(false)
    }

    /// Puts the only lane into the state of the step from which an episode is known, with its observation; returns
    /// false in the same case as [`Simulator::resume`].
    pub(crate) fn go_on_from(&mut self, from: &StepFrom) -> bool {
        let keyframe = Keyframe {
            at: from.step,
            total_reward: from.total_reward,
            position: from.position,
            hash: from.hash,
            state: from.state.clone().into_boxed_slice(),
        };
        let fits = |(ours, theirs): (&ColumnData, &ColumnData)| {
            ours.as_ref().dtype() == theirs.as_ref().dtype() && ours.len() == theirs.len()
        };
        if self.obs.len() != from.obs.len() || !self.obs.iter().zip(&from.obs).all(fits) {
            return false;
        }
        self.obs.clone_from(&from.obs);
        self.resume(&keyframe)
    }

    /// Renders a picture of the lane.
    pub(crate) fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let env = &self.env;
        catch_unwind(AssertUnwindSafe(|| env.render(lane, size))).unwrap_or(Err(RenderError::Lost))
    }

    /// Describes the lane in one line of text.
    pub(crate) fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let env = &self.env;
        catch_unwind(AssertUnwindSafe(|| env.text(lane, columns))).unwrap_or(Err(RenderError::Lost))
    }

    /// Computes the hashes of the states of `lanes`.
    pub(crate) fn hash(&mut self, lanes: LaneSet) {
        self.env.state_hashes(lanes, &mut self.hashes);
    }

    /// Returns what the env says of the lane's episode, whose last step it has just made.
    pub(crate) fn verdict(&self, lane: usize) -> Verdict {
        if !self.env.has_verdicts() {
            return Verdict::default();
        }
        let env = &self.env;
        catch_unwind(AssertUnwindSafe(|| env.verdict(lane))).unwrap_or_default()
    }

    /// Returns the number of lanes.
    pub(crate) const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns why a lane was lost, if the env knows: one in another process does.
    pub(crate) fn why_lost(&mut self, lane: usize) -> Option<String> {
        let env = &mut self.env;
        catch_unwind(AssertUnwindSafe(|| env.late()?.why_lost(lane))).unwrap_or_default()
    }

    /// Makes lost lanes usable again; returns those that are.
    pub(crate) fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let env = &mut self.env;
        catch_unwind(AssertUnwindSafe(|| env.revive(lanes))).unwrap_or_default()
    }

    /// Returns the hash of the only lane's state, and the state of its random generator; `None` if the env panics.
    pub(crate) fn standing(&self) -> Option<(u32, Start)> {
        let env = &self.env;
        catch_unwind(AssertUnwindSafe(|| (env.state_hash(0), env.position(0)))).ok()
    }

    /// Returns the lane's exact state, if the env shows it.
    pub(crate) fn state(&self, lane: usize) -> Option<Vec<f64>> {
        self.env.state(lane).ok()
    }
}

/// Calls methods on a lane as they were called before.
fn repeat(env: &mut dyn LaneBlock, lane: usize, calls: &[CalledAt]) -> Result<(), SimulateError> {
    for CalledAt { step, call } in calls.iter().filter(|called| !called.call.is_note()) {
        let (method, steps) = (&call.method, *step);
        match catch_unwind(AssertUnwindSafe(|| env.call(lane, method, &call.payload))) {
            // A lane that is lost by it says so in its step.
            Ok(Ok(_) | Err(CallError::Lost)) => {}
            Err(_) => return Err(SimulateError::Panicked { steps }),
            Ok(Err(source)) => return Err(SimulateError::Call { method: method.clone(), steps, source }),
        }
    }
    Ok(())
}

const MAX_COLUMNS: usize = rollhouse_core::limits::MAX_OBS_COLUMNS;

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
