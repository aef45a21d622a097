//! A file that has been fitted to an env, loaded and tried.

use std::ops::Range;

use rollhouse_core::{ColumnData, ColumnRef, DType, EnvSpec, Space, StepColumns, split_mix64};
use rollhouse_env::Target;

use super::chain::Chains;
use super::feeds::{Feed, Feeds, Input};
use super::file::{OnnxFile, Port, RowShapes};
use super::outputs::{Outputs, Spread};
use super::runtime::{Given, Net, RunError};
use super::{BindError, Cause, Computation, OnnxError};
use crate::dense::Scratch;
use crate::sampling::write_actions;

/// A file for the spaces of an env.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) feeds: Feeds,
    pub(super) outputs: Outputs,
    /// A column for each state.
    pub(super) states: StepColumns,
    batching: Batching,
    engine: Engine,
    /// Places of the outputs that are asked for: that of actions, and what there is of deviations, values, log-probabilities and states.
    asked: Vec<usize>,
}

/// What computes a file.
#[derive(Debug)]
enum Engine {
    Runtime(Box<Net>),
    /// A file that is no more than dense layers runs as those.
    Layers(Chains),
}

/// How the lanes of a request are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batching {
    /// All at once, at least so many: a lane has the same bits among any others.
    Whole {
        /// Fewer are filled up to so many.
        least: usize,
    },
    /// One after the other: the file's own axes are of one lane, and it gives something else, or other bits, for several.
    Rows,
}

/// What a net says of lanes: rows of each.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    /// Rows of what actions are chosen from.
    pub(super) outputs: Vec<f32>,
    pub(super) values: Vec<f32>,
    pub(super) log_probs: Vec<f32>,
    /// Rows of each state.
    pub(super) states: Vec<Vec<f32>>,
    /// Rows of which it says nothing: the runtime fails on what their lanes show.
    pub(super) failed: Vec<usize>,
}

/// Rows for each input, as they are filled for a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Filled {
    rows: Vec<Vec<f32>>,
    /// What dense layers give, and their memory.
    found: Vec<Vec<f32>>,
    scratch: Scratch,
}

/// What lanes show.
#[derive(Clone, Copy)]
pub(super) struct Observed<'a> {
    pub(super) lanes: usize,
    pub(super) obs: &'a [ColumnRef<'a>],
    pub(super) mask: Option<&'a [u8]>,
    /// Whether an episode begins, of each lane; nothing if the net does not want to know.
    pub(super) began: &'a [bool],
    /// Rows of each state.
    pub(super) states: &'a [&'a [f32]],
}

impl Bound {
    /// Fits a file to an env, loads and tries it.
    ///
    /// # Errors
    /// It does not fit, or does not run.
    pub(super) fn new(file: &OnnxFile, env: &EnvSpec) -> Result<Self, BindError> {
        let feeds = Feeds::of(file, env)?;
        let states = feeds.state_columns().map_err(BindError::States)?;
        let wanted = file.wanted_outputs();
        let net = load(file, &feeds, false, RowShapes::AsTheyAre)
            .map_err(|error| BindError::Load(Cause::new(error)))?;
        let trial = Trial::new(env, &feeds);
        // The outputs of one lane say how many numbers each has.
        let all: Vec<usize> = (0..wanted.len()).collect();
        let mut one = Filled::default();
        trial.show(0..1, |shown| one.fill(&feeds, &shown));
        let found = one.run(&feeds, &net, &all, None).map_err(|error| BindError::Run(Cause::new(error)))?;
        let place = |name: &str| wanted.iter().position(|wanted| *wanted == name);
        let size = |port: &Port| {
            let is_state = feeds.states.iter().any(|(state, _)| *state == port.name);
            place(&port.name).filter(|_| !is_state).map(|at| found[at].len())
        };
        let sizes: Vec<Option<usize>> = file.outputs.iter().map(size).collect();
        let outputs = Outputs::of(file, &sizes, env)?;
        let of_output = |at: usize| place(&file.outputs[at].name).unwrap_or(0);
        let beside = [outputs.spread.map(|(at, _)| at), outputs.value, outputs.log_prob];
        let mut asked = vec![of_output(outputs.action)];
        asked.extend(beside.into_iter().flatten().map(of_output));
        asked.extend(feeds.states.iter().filter_map(|(name, _)| place(name)));
        let names: Vec<&str> = asked.iter().map(|&at| wanted[at]).collect();
        let chains = match &feeds.inputs[..] {
            [Input { port, feed: Feed::Numbers(_), .. }] => Chains::of(file, &port.name, &names),
            _ => None,
        };
        let engine = Engine::Runtime(Box::new(net));
        let mut bound = Self { feeds, outputs, states, batching: Batching::Rows, engine, asked };
        if !bound.try_chains(&trial, chains) {
            bound.try_batches(&trial, file);
        }
        Ok(bound)
    }

    /// Returns how it is computed.
    pub(super) const fn computation(&self) -> Computation {
        match (&self.engine, self.batching) {
            (Engine::Layers(_), _) => Computation::DenseLayers,
            (_, Batching::Whole { .. }) => Computation::Together,
            (_, Batching::Rows) => Computation::LaneByLane,
        }
    }

    /// Finds out whether dense layers give what the runtime does.
    fn try_chains(&mut self, trial: &Trial, chains: Option<Chains>) -> bool {
        let Some(chains) = chains else { return false };
        let Ok(alone) = self.of_trial(trial, 1) else { return false };
        let runtime = std::mem::replace(&mut self.engine, Engine::Layers(chains));
        self.batching = Batching::Whole { least: 1 };
        if self.of_trial(trial, TRIAL_LANES).is_ok_and(|all| all.is_near(&alone)) {
            return true;
        }
        (self.engine, self.batching) = (runtime, Batching::Rows);
        false
    }

    /// Finds out whether several lanes at once give what each gives alone, and the same bits among any others.
    fn try_batches(&mut self, trial: &Trial, file: &OnnxFile) {
        let Ok(alone) = self.of_trial(trial, 1) else { return };
        let has_axes = self.feeds.inputs.iter().all(|input| input.layout.has_axis());
        if has_axes && self.try_whole(trial, &alone) {
            return;
        }
        let ways = [RowShapes::AsTheyAre, RowShapes::LastFreed, RowShapes::FirstFreed];
        let ways = if file.has_row_shapes() {
            &ways[usize::from(has_axes)..]
        } else {
            &ways[usize::from(has_axes)..1]
        };
        for rows in ways {
            let Ok(whole) = load(file, &self.feeds, true, *rows) else { continue };
            let own = std::mem::replace(&mut self.engine, Engine::Runtime(Box::new(whole)));
            if self.try_whole(trial, &alone) {
                return;
            }
            self.engine = own;
        }
    }

    fn try_whole(&mut self, trial: &Trial, alone: &Said) -> bool {
        for least in [1, 2] {
            self.batching = Batching::Whole { least };
            let Ok(all) = self.of_trial(trial, TRIAL_LANES) else { break };
            if !all.is_near(alone) {
                break;
            }
            let same = |lanes: usize| self.of_trial(trial, lanes).is_ok_and(|said| said.has_bits_of(&all));
            if [1, 2, 3, 7, 16, 64].into_iter().all(same) {
                return true;
            }
        }
        self.batching = Batching::Rows;
        false
    }

    /// Returns what the net says of lanes of a trial, `at_once` together.
    fn of_trial(&self, trial: &Trial, at_once: usize) -> Result<Said, RunError> {
        let (mut all, mut filled) = (Said::default(), Filled::default());
        let mut first = 0;
        while first < TRIAL_LANES {
            let next = (first + at_once).min(TRIAL_LANES);
            let mut said = Said::default();
            trial.show(first..next, |shown| self.try_look(&shown, &mut filled, &mut said))?;
            all.outputs.extend(said.outputs);
            all.values.extend(said.values);
            all.log_probs.extend(said.log_probs);
            all.states.resize(said.states.len(), Vec::new());
            all.states.iter_mut().zip(said.states).for_each(|(all, state)| all.extend(state));
            first = next;
        }
        Ok(all)
    }

    /// Has the net look at what lanes show, and leaves what it says of them in `said`. Where the runtime fails, each lane is
    /// looked at alone, to find those on which it does.
    pub(super) fn look(&self, shown: &Observed<'_>, filled: &mut Filled, said: &mut Said) {
        if self.try_look(shown, filled, said).is_ok() {
            return;
        }
        said.clear(self.feeds.states.len());
        filled.fill(&self.feeds, shown);
        for lane in 0..shown.lanes {
            let mut of_lane = filled.lane(lane, shown.lanes);
            if self.look_at(&mut of_lane, 1, said).is_err() {
                said.fill_up(self, lane);
            }
        }
    }

    /// Has the net look at what lanes show, and leaves what it says of them in `said`.
    ///
    /// # Errors
    /// The runtime's, or if the net gives another number of numbers than it gave as it was tried.
    fn try_look(&self, shown: &Observed<'_>, filled: &mut Filled, said: &mut Said) -> Result<(), RunError> {
        said.clear(self.feeds.states.len());
        filled.fill(&self.feeds, shown);
        self.look_at(filled, shown.lanes, said)
    }

    /// Adds what the net says of the rows of some lanes.
    fn look_at(&self, filled: &mut Filled, lanes: usize, said: &mut Said) -> Result<(), RunError> {
        let net = match &self.engine {
            Engine::Runtime(net) => net,
            Engine::Layers(chains) => {
                let Filled { rows, found, scratch } = filled;
                chains.run(Target::best(), &rows[0], scratch, found);
                return self.take(found, (lanes, lanes), said);
            }
        };
        match self.batching {
            Batching::Whole { least } => {
                let of = lanes.max(least);
                filled.fill_up(lanes, of);
                let found = filled.run(&self.feeds, net, &self.asked, Some(of))?;
                self.take(&found, (lanes, of), said)
            }
            Batching::Rows => {
                for lane in 0..lanes {
                    let found = filled.lane(lane, lanes).run(&self.feeds, net, &self.asked, None)?;
                    self.take(&found, (1, 1), said)?;
                }
                Ok(())
            }
        }
    }

    /// Takes the first lanes of what the net gave for some.
    fn take(&self, found: &[Vec<f32>], (lanes, of): (usize, usize), said: &mut Said) -> Result<(), RunError> {
        let Outputs { head, spread, value, log_prob, .. } = &self.outputs;
        let mut found = found.iter();
        let mut next = |elements: usize| {
            let numbers = found.next().filter(|numbers| numbers.len() == of * elements);
            numbers.ok_or(RunError::Size)
        };
        match spread {
            None => said.outputs.extend_from_slice(&next(head.outputs())?[..lanes * head.outputs()]),
            Some((_, kind)) => {
                let elements = head.elements();
                let (means, deviations) = (next(elements)?, next(elements)?);
                let log = |number: &f32| match kind {
                    Spread::LogStd => *number,
                    Spread::Std => libm::logf(*number),
                };
                for (means, deviations) in
                    means.chunks_exact(elements).zip(deviations.chunks_exact(elements)).take(lanes)
                {
                    said.outputs.extend_from_slice(means);
                    said.outputs.extend(deviations.iter().map(log));
                }
            }
        }
        if value.is_some() {
            said.values.extend_from_slice(&next(1)?[..lanes]);
        }
        if log_prob.is_some() {
            said.log_probs.extend_from_slice(&next(1)?[..lanes]);
        }
        for ((_, layout), state) in self.feeds.states.iter().zip(&mut said.states) {
            let (elements, first) = (layout.elements(), state.len());
            state.resize(first + of * elements, 0.0);
            layout.gather(next(elements)?, of, &mut state[first..]);
            state.truncate(first + lanes * elements);
        }
        Ok(())
    }
}

/// Loads a file with any number of lanes. `whole` adds an axis of lanes to inputs that have none.
fn load(file: &OnnxFile, feeds: &Feeds, whole: bool, rows: RowShapes) -> Result<Net, OnnxError> {
    let port = |input: &Input| Port { shape: Some(input.layout.declared(whole)), ..input.port.clone() };
    let ports: Vec<Port> = feeds.inputs.iter().map(port).collect();
    let wanted = file.wanted_outputs();
    Net::load(file.write(&ports, &wanted, rows), &ports, &wanted)
}

impl Said {
    fn clear(&mut self, states: usize) {
        self.outputs.clear();
        self.values.clear();
        self.log_probs.clear();
        self.failed.clear();
        self.states.resize(states, Vec::new());
        self.states.iter_mut().for_each(Vec::clear);
    }

    /// Adds zeros for a lane of which the net says nothing.
    fn fill_up(&mut self, bound: &Bound, lane: usize) {
        let Outputs { head, value, log_prob, .. } = &bound.outputs;
        let lanes = lane + 1;
        self.outputs.resize(lanes * head.outputs(), 0.0);
        self.values.resize(if value.is_some() { lanes } else { 0 }, 0.0);
        self.log_probs.resize(if log_prob.is_some() { lanes } else { 0 }, 0.0);
        for ((_, layout), state) in bound.feeds.states.iter().zip(&mut self.states) {
            state.resize(lanes * layout.elements(), 0.0);
        }
        self.failed.push(lane);
    }

    fn numbers(&self) -> impl Iterator<Item = f32> {
        let beside = [&self.outputs, &self.values, &self.log_probs].into_iter();
        beside.chain(&self.states).flatten().copied()
    }

    fn is_near(&self, other: &Self) -> bool {
        let near = |(a, b): (f32, f32)| {
            (a - b).abs() <= NEAR * (1.0 + b.abs()) || a.is_nan() && b.is_nan() || a == b
        };
        self.numbers().count() == other.numbers().count() && self.numbers().zip(other.numbers()).all(near)
    }

    fn has_bits_of(&self, other: &Self) -> bool {
        self.numbers().map(f32::to_bits).eq(other.numbers().map(f32::to_bits))
    }
}

impl Filled {
    /// Fills the rows of all inputs.
    fn fill(&mut self, feeds: &Feeds, shown: &Observed<'_>) {
        let lanes = shown.lanes;
        self.rows.resize(feeds.inputs.len(), Vec::new());
        for (input, rows) in feeds.inputs.iter().zip(&mut self.rows) {
            let elements = input.layout.elements();
            match &input.feed {
                Feed::Numbers(inputs) => inputs.write(shown.obs, lanes, rows),
                Feed::Column(column) => column.write(shown.obs[column.at], lanes, rows),
                Feed::Mask => {
                    rows.clear();
                    match shown.mask {
                        Some(mask) => rows.extend(mask.iter().map(|allowed| f32::from(*allowed))),
                        None => rows.resize(lanes * elements, 1.0),
                    }
                    // Where nothing is allowed, as after an episode's end, all is.
                    for mask in rows.chunks_exact_mut(elements.max(1)) {
                        if mask.iter().all(|allowed| *allowed == 0.0) {
                            mask.fill(1.0);
                        }
                    }
                }
                Feed::Began => {
                    rows.clear();
                    rows.extend(shown.began.iter().map(|began| f32::from(u8::from(*began))));
                    rows.resize(lanes, 0.0);
                }
                Feed::State(at) => {
                    rows.clear();
                    rows.extend_from_slice(shown.states.get(*at).copied().unwrap_or_default());
                    rows.resize(lanes * elements, 0.0);
                }
            }
        }
    }

    /// Adds lanes like the first.
    fn fill_up(&mut self, lanes: usize, to: usize) {
        for rows in self.rows.iter_mut().filter(|_| to > lanes) {
            let elements = rows.len() / lanes.max(1);
            for _ in lanes..to {
                rows.extend_from_within(..elements);
            }
        }
    }

    /// Returns the rows of one lane.
    fn lane(&self, lane: usize, of: usize) -> Self {
        let part = |rows: &Vec<f32>| {
            let elements = rows.len() / of.max(1);
            rows[lane * elements..(lane + 1) * elements].to_vec()
        };
        Self { rows: self.rows.iter().map(part).collect(), ..Self::default() }
    }

    /// Runs a net on the rows, of so many lanes; `None` for one, with the file's own axes.
    fn run(
        &self,
        feeds: &Feeds,
        net: &Net,
        asked: &[usize],
        lanes: Option<usize>,
    ) -> Result<Vec<Vec<f32>>, RunError> {
        let mut given = Vec::with_capacity(feeds.inputs.len());
        for (input, rows) in feeds.inputs.iter().zip(&self.rows) {
            let mut spread = Vec::new();
            let moved = input.layout.spread(rows, lanes.unwrap_or(1), &mut spread);
            let numbers = if moved { spread.into() } else { (&**rows).into() };
            given.push(Given { shape: input.layout.shape(lanes), numbers });
        }
        net.run(&given, asked)
    }
}

/// Lanes with which a file is tried: observations of the env's spaces, and states, drawn at random.
struct Trial {
    /// Columns of observations, and the elements of each.
    obs: Vec<(ColumnData, usize)>,
    /// Rows of states, and the elements of each.
    states: Vec<(Vec<f32>, usize)>,
    began: Vec<bool>,
}

impl Trial {
    fn new(env: &EnvSpec, feeds: &Feeds) -> Self {
        let mut word = 0u64;
        let mut draw = move || {
            word += 1;
            (split_mix64(word) >> 11) as f64 * (0.5f64).powi(53)
        };
        let columns = env.observation_space.columns().into_iter();
        let obs = columns.map(|(_, space)| (drawn(space, &mut draw), space.elements())).collect();
        let mut state = |elements: usize| {
            let numbers = (0..elements * TRIAL_LANES).map(|_| 2.0 * draw() as f32 - 1.0);
            (numbers.collect(), elements)
        };
        let states = feeds.states.iter().map(|(_, layout)| state(layout.elements())).collect();
        Self { obs, states, began: (0..TRIAL_LANES).map(|lane| lane % 3 == 0).collect() }
    }

    /// Shows some of the lanes.
    fn show<T>(&self, lanes: Range<usize>, to: impl FnOnce(Observed<'_>) -> T) -> T {
        let mut obs = Vec::with_capacity(self.obs.len());
        for (column, elements) in &self.obs {
            obs.push(column.as_ref().slice(lanes.start * elements, lanes.end * elements));
        }
        let states = self.states.iter();
        let states: Vec<_> =
            states.map(|(rows, elements)| &rows[lanes.start * elements..lanes.end * elements]).collect();
        let (began, count) = (&self.began[lanes.clone()], lanes.len());
        to(Observed { lanes: count, obs: &obs, mask: None, began, states: &states })
    }
}

/// Draws rows of a column of observations.
fn drawn(space: &Space, draw: &mut impl FnMut() -> f64) -> ColumnData {
    let elements = space.elements();
    let mut number = |at: usize| {
        let (low, high, whole) = match space {
            Space::Discrete(space) => (space.start as f64, space.start as f64 + (space.n as f64 - 1.0), true),
            Space::Box(space) => {
                let whole = !matches!(space.dtype, DType::F32 | DType::F64);
                (space.low[at % elements], space.high[at % elements], whole)
            }
        };
        let low = if low.is_finite() { low.max(-1.0).min(high) } else { high.min(-1.0) };
        let number = low + (high.min(low + if whole { 255.0 } else { 2.0 }) - low) * draw();
        if whole { number.round() } else { number }
    };
    let numbers: Vec<f64> = (0..elements * TRIAL_LANES).map(&mut number).collect();
    let mut column = ColumnData::zeros(space.dtype(), numbers.len());
    let written = write_actions(space, &numbers, column.as_mut());
    debug_assert!(written.is_ok(), "a column of that type");
    column
}

/// Lanes with which a file is tried: more than the batches in which the first are computed again.
const TRIAL_LANES: usize = 67;

/// How far, beside its size, a number of a batch may be from that of its lane alone.
const NEAR: f32 = 1e-4;
