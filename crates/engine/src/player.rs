//! Lanes that a policy plays on the node, step by step.

use std::fmt;
use std::time::Duration;

use rollhouse_core::{AutoresetMode, ColumnSpec, EnvSpec, Interruption, Role, StepColumns};
use rollhouse_policy::{Act, ActError, LaneMemory, LaneStates, Model, ModelError, Policy};

use crate::fragment::FragmentColumns;
use crate::{Engine, Fragment, StepError};

/// A policy that plays all lanes of an engine together, and the step that it is in.
///
/// ```text
/// chosen from the newest frame --begun--> under way --all lanes are done--> shown, chosen from that frame ...
/// ```
pub struct Player {
    policy: Box<dyn Policy>,
    columns: StepColumns,
    /// Columns of what it remembers of each lane.
    states: StepColumns,
    /// Info channels with the action that was taken and with the version of the policy, of an env that reports them.
    reports: (Option<usize>, Option<usize>),
    /// Steps that the lanes have taken since they were reset: what is drawn depends on it.
    step: u64,
    /// Whether a step is under way.
    stepping: bool,
    /// Of each column that the policy notes, its place among those that are recorded.
    recorded: Vec<Option<usize>>,
    /// Lanes that were lost after the last step, ascending.
    lost: Vec<u32>,
    /// Lanes whose episode the policy has given up in the last step, ascending.
    given_up: Vec<u32>,
}

/// Reason for which lanes could not be played. The lanes stand where they stood before the step.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlayError {
    /// The engine refused the step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The policy chose no action.
    #[error(transparent)]
    Act(#[from] ActError),
}

impl Player {
    /// Makes the policy of a model for the lanes of an engine. `run_seed` decides what is random about it.
    ///
    /// # Errors
    /// The model cannot play in the env's spaces.
    pub fn new(engine: &Engine, model: &dyn Model, run_seed: u64) -> Result<Self, ModelError> {
        let spec = engine.entry().spec();
        let policy = model.make(spec, run_seed)?;
        Ok(Self {
            policy,
            columns: model.columns(spec),
            states: model.states(spec),
            reports: (spec.action_taken(), spec.channel(Role::PolicyVersion)),
            step: 0,
            stepping: false,
            recorded: Vec::new(),
            lost: Vec::new(),
            given_up: Vec::new(),
        })
    }

    /// Has the lanes go on by another model, from the next step on.
    ///
    /// # Errors
    /// As [`Player::new`]; they go on by the one they had.
    pub fn follow(&mut self, engine: &Engine, model: &dyn Model, run_seed: u64) -> Result<(), ModelError> {
        let next = Self::new(engine, model, run_seed)?;
        let Self { policy, step, stepping, lost, given_up, .. } = std::mem::replace(self, next);
        if let Some(memory) = policy.memory() {
            self.policy.recall(memory.clone());
        }
        (self.step, self.stepping, self.lost, self.given_up) = (step, stepping, lost, given_up);
        Ok(())
    }

    /// Returns whether the policies of a model note and remember what its own does.
    pub fn is_like(&self, model: &dyn Model, env: &EnvSpec) -> bool {
        let of_model = (&model.columns(env), &model.states(env), model.is_recurrent(env));
        (&self.columns, &self.states, self.is_recurrent()) == of_model
    }

    /// Returns the columns of its fragments.
    pub fn columns(&self, engine: &Engine) -> FragmentColumns {
        let batch = Engine::columns(engine.entry(), engine.autoreset());
        let states = self.is_recurrent().then(|| self.states.specs().to_vec());
        FragmentColumns { batch, notes: self.columns.specs().to_vec(), states }
    }

    /// Returns the columns that the policy notes of each step.
    pub const fn notes(&self) -> &StepColumns {
        &self.columns
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        self.policy.name()
    }

    /// Returns the version of the weights.
    pub fn version(&self) -> u64 {
        self.policy.version()
    }

    /// Returns the lanes whose episode ended in the last step because the policy could choose no action, ascending.
    pub fn given_up(&self) -> &[u32] {
        &self.given_up
    }

    /// Returns whether what it chooses depends on what lanes have shown before in their episodes.
    pub fn is_recurrent(&self) -> bool {
        self.policy.is_recurrent()
    }

    /// Returns the columns of what the policy remembers of each lane.
    pub const fn states(&self) -> &StepColumns {
        &self.states
    }

    /// Returns what the policy remembers of the lanes before it chooses their next actions; `None` if it is not recurrent.
    ///
    /// # Errors
    /// As [`Engine::frame`].
    pub fn memory(&mut self, engine: &mut Engine) -> Result<Option<LaneStates>, StepError> {
        if !self.is_recurrent() {
            return Ok(None);
        }
        engine.forget_before_episodes(&mut *self.policy)?;
        let first = engine.config.first_lane;
        Ok(self.policy.memory().map(|memory| memory.copy(first..first + engine.lanes() as u32)))
    }

    /// Has the policy go on with what another, elsewhere, has remembered of the engine's lanes. Returns false if that is nothing of
    /// these lanes and states.
    pub fn recall(&mut self, engine: &Engine, lanes: LaneStates) -> bool {
        let (count, states) = (lanes.began.len(), self.states.specs());
        let mut rows = states.iter().zip(&lanes.rows);
        let fits = count == engine.lanes()
            && states.len() == lanes.rows.len()
            && rows.all(|(spec, rows)| rows.len() == count * spec.elements());
        let memory = LaneMemory::of(engine.config.first_lane, lanes).filter(|_| fits);
        memory.is_some_and(|memory| {
            self.policy.recall(memory);
            true
        })
    }

    /// Says how many steps the lanes have taken since they were reset.
    pub const fn stand_at(&mut self, step: u64) {
        self.step = step;
    }

    /// Plays until the fragment is full, in as many calls as it takes. Waits for late lanes for at most `patience` in each step.
    /// Returns whether it is full.
    ///
    /// # Errors
    /// See [`PlayError`]; the fragment has the steps before.
    pub fn play(
        &mut self,
        engine: &mut Engine,
        fragment: &mut Fragment,
        patience: Duration,
    ) -> Result<bool, PlayError> {
        while fragment.steps() < fragment.room() {
            if !self.step(engine, fragment, patience)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Plays one step, in as many calls as it takes, and adds it to a fragment that has room for it. Waits for late lanes for at
    /// most `patience`. Returns whether the step is done.
    ///
    /// # Errors
    /// See [`PlayError`]; the fragment has the steps before.
    pub fn step(
        &mut self,
        engine: &mut Engine,
        fragment: &mut Fragment,
        patience: Duration,
    ) -> Result<bool, PlayError> {
        if !self.stepping {
            self.choose(engine, fragment)?;
            engine.begin_step()?;
            self.stepping = true;
        }
        if !engine.finish(patience)? {
            return Ok(false);
        }
        self.stepping = false;
        self.take(engine, fragment)?;
        Ok(true)
    }
}

impl Player {
    /// Has the policy choose every lane's next action from the newest frame, and notes what it says of that.
    fn choose(&mut self, engine: &mut Engine, fragment: &mut Fragment) -> Result<(), PlayError> {
        if fragment.steps() == 0 {
            fragment.begin(&engine.frame()?);
            if let Some(memory) = self.memory(engine)? {
                fragment.remember(&(0..engine.lanes()), &memory.rows);
            }
            self.look_for_recorded(engine);
            engine.set_policy_version(self.policy.version());
        }
        self.given_up = engine.act(&mut *self.policy, self.step)?;
        for (noted, place) in self.policy.notes().iter().zip(&self.recorded) {
            if let Some(place) = *place {
                engine.note(place, None, noted.as_ref())?;
            }
        }
        let actions = engine.actions()?;
        fragment.choose(actions.as_ref(), self.policy.notes(), self.policy.version());
        Ok(())
    }

    /// Takes what came of the step.
    fn take(&mut self, engine: &mut Engine, fragment: &mut Fragment) -> Result<(), PlayError> {
        self.step += 1;
        if engine.lost() + self.lost.len() > 0 {
            self.look_for_lost(engine)?;
        }
        let same_step = engine.autoreset() == AutoresetMode::SameStep;
        let (actions, versions) = self.reports;
        let frame = engine.frame()?;
        fragment.step(&frame, same_step, &self.lost);
        if !self.given_up.is_empty() {
            let lanes = || self.given_up.iter().map(|&lane| lane as usize);
            fragment.lose(fragment.steps() - 1, lanes(), lanes());
        }
        if actions.is_some() || versions.is_some() {
            let versions = versions.and_then(|channel| frame.info(channel).as_i64());
            fragment.report(actions.map(|channel| frame.info(channel)), versions);
        }
        Ok(())
    }

    /// Finds out which lanes are lost, and marks the rows of those that were not at the last look as truncated.
    #[cold]
    fn look_for_lost(&mut self, engine: &mut Engine) -> Result<(), StepError> {
        let lost = (0..engine.lanes() as u32).filter(|&lane| engine.is_lost(lane as usize));
        let before = std::mem::replace(&mut self.lost, lost.collect());
        let new: Vec<u32> =
            self.lost.iter().copied().filter(|lane| before.binary_search(lane).is_err()).collect();
        if new.is_empty() { Ok(()) } else { engine.mark_truncated(&new) }
    }

    /// Finds the columns that are recorded.
    fn look_for_recorded(&mut self, engine: &Engine) {
        let recorded = engine.step_columns();
        let place = |noted: &ColumnSpec| {
            let place = recorded.place(&noted.path)?;
            let spec = &recorded.specs()[place];
            (spec.dtype == noted.dtype && spec.shape == noted.shape).then_some(place)
        };
        self.recorded = self.columns.specs().iter().map(place).collect();
    }
}

impl Engine {
    /// Has a policy choose every lane's next action from the newest frame. `step` says how many steps the lanes have taken. Lanes
    /// for which it can choose none have their open episodes ended, as [`Interruption::Policy`]; returns these lanes, ascending.
    ///
    /// # Errors
    /// As [`Engine::frame`], and if the action column is not the policy's.
    pub fn act(&mut self, policy: &mut dyn Policy, step: u64) -> Result<Vec<u32>, PlayError> {
        let masked = self.entry.spec().action_mask();
        let first_lane = self.config.first_lane;
        if policy.is_recurrent() {
            self.forget_before_episodes(policy)?;
        }
        let (frame, actions) = self.frame_and_actions()?;
        let obs = frame.obs_columns();
        let mask = masked.and_then(|column| frame.info(column).as_u8());
        policy.act(Act { first_lane, step, obs: &obs, mask, actions })?;
        drop(obs);
        Ok(self.give_up(policy.failed())?)
    }

    /// Ends the open episodes of lanes, counted within the run, for which a policy could choose no action. Returns those of the
    /// batch that had one, ascending.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn give_up(&mut self, failed: &[u32]) -> Result<Vec<u32>, StepError> {
        if failed.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.config.first_lane;
        let lanes: Vec<u32> = failed.iter().map(|lane| lane - first).collect();
        self.interrupt_lanes(&lanes, Interruption::Policy)
    }

    /// Has a policy forget the lanes that begin an episode with what they show: those of rows that began one, and in SAME_STEP mode
    /// those whose episode has ended.
    fn forget_before_episodes(&mut self, policy: &mut dyn Policy) -> Result<(), StepError> {
        let first_lane = self.config.first_lane;
        let same_step = self.autoreset() == AutoresetMode::SameStep;
        let frame = self.frame()?;
        let ended = frame.terminated().iter().zip(frame.truncated()).map(|(a, b)| same_step && a | b != 0);
        for ((lane, reset), ended) in (first_lane..).zip(frame.reset()).zip(ended) {
            if ended || *reset != 0 {
                policy.begin(lane);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player")
            .field("policy", &self.policy.name())
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
