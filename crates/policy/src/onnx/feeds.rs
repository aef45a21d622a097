//! What the inputs of a file are filled with: columns of observations, action masks, beginnings, and state.

use rollhouse_core::{ColumnRef, ColumnSpec, DType, EnvSpec, StepColumn, StepColumns, StepColumnsError};

use super::BindError;
use super::errors::shown;
use super::file::{OnnxFile, Port};
use super::layout::Layout;
use crate::inputs::{Inputs, copy};

/// An input, and what it gets.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) port: Port,
    pub(super) layout: Layout,
    pub(super) feed: Feed,
}

/// What an input gets of each lane.
#[derive(Debug, Clone)]
pub(super) enum Feed {
    /// All numbers of the observation.
    Numbers(Inputs),
    /// One column of the observation.
    Column(Column),
    /// Which choices are allowed; all where the env does not say it.
    Mask,
    /// Whether an episode begins.
    Began,
    /// What the state's output of this place in [`Feeds::states`] gave in the step before.
    State(usize),
}

/// A column as an input has it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) at: usize,
    elements: usize,
    /// Places of the elements, where their axes have another order.
    order: Option<Vec<u32>>,
}

/// The inputs of a file for an env.
#[derive(Debug, Clone)]
pub(super) struct Feeds {
    pub(super) inputs: Vec<Input>,
    /// Names of the outputs that are a lane's state, and what they have of a lane.
    pub(super) states: Vec<(String, Layout)>,
}

impl Feeds {
    /// Finds out what a file's inputs get in an env: by what its metadata say (`rollhouse.input.NAME`), else by names and shapes.
    ///
    /// # Errors
    /// An input is nothing that the env gives.
    pub(super) fn of(file: &OnnxFile, env: &EnvSpec) -> Result<Self, BindError> {
        if !env.observation_space.counted().is_empty() {
            return Err(BindError::Counted);
        }
        let (mut feeds, mut seen) = (Self { inputs: Vec::new(), states: Vec::new() }, Vec::new());
        for port in &file.inputs {
            let said = file.metadata.get(&format!("rollhouse.input.{}", port.name)).map(String::as_str);
            if !feeds.take_beside(file, env, port, said)? {
                seen.push((port, said));
            }
        }
        let columns = env.obs_columns();
        let alone = seen.len() == 1;
        for (port, said) in seen {
            feeds.inputs.push(of_observation(port, said, (env, &columns), alone)?);
        }
        Ok(feeds)
    }

    /// Takes an input that gets no part of the observation.
    fn take_beside(
        &mut self,
        file: &OnnxFile,
        env: &EnvSpec,
        port: &Port,
        said: Option<&str>,
    ) -> Result<bool, BindError> {
        let mut add = |layout, feed| {
            self.inputs.push(Input { port: port.clone(), layout, feed });
            Ok(true)
        };
        let is =
            |what: &str, names: &[&str]| said == Some(what) || said.is_none() && names.contains(&&*port.name);
        if is("mask", &MASKS) {
            let choices = env.action_space.choices().unwrap_or(0) as usize;
            let layout = Layout::of(port, &[choices]).filter(|_| choices > 0);
            return add(layout.ok_or_else(|| unfit(port, env))?, Feed::Mask);
        }
        if is("began", &BEGINNINGS) {
            return add(Layout::of(port, &[]).ok_or_else(|| unfit(port, env))?, Feed::Began);
        }
        let output = match said.and_then(|said| said.strip_prefix("state:")) {
            Some(name) => file.outputs.iter().find(|output| output.name == name),
            None if said.is_none() => file.outputs.iter().find(|output| is_next(&port.name, &output.name)),
            None => None,
        };
        let Some(output) = output else { return Ok(false) };
        let layout = Layout::of_state(port).ok_or_else(|| unfit(port, env))?;
        if file.passes(&output.name, &port.name) {
            // It is given back as it came, and so stays at zeros.
            return add(layout, Feed::State(usize::MAX));
        }
        let added = add(layout.clone(), Feed::State(self.states.len()));
        self.states.push((output.name.clone(), layout));
        added
    }

    /// Returns a column for each state, named as its input where that is a name for a column.
    ///
    /// # Errors
    /// There are more states than columns, or the states of a lane are longer than a row of columns.
    pub(super) fn state_columns(&self) -> Result<StepColumns, StepColumnsError> {
        let of = |name: &str, layout: &Layout| {
            let shape = layout.row().to_vec();
            StepColumn { name: name.to_owned(), dtype: DType::F32, shape }
        };
        let inputs = self.inputs.iter().filter_map(|input| match input.feed {
            Feed::State(at) => Some((&*input.port.name, &self.states.get(at)?.1)),
            _ => None,
        });
        let columns: Vec<_> = inputs.map(|(name, layout)| of(name, layout)).collect();
        StepColumns::new(columns).or_else(|_| {
            let numbered = self.states.iter().enumerate();
            StepColumns::new(numbered.map(|(at, (_, layout))| of(&format!("state_{at}"), layout)).collect())
        })
    }

    /// Returns whether the policy has to know which lanes begin an episode.
    pub(super) fn is_recurrent(&self) -> bool {
        !self.states.is_empty() || self.inputs.iter().any(|input| matches!(input.feed, Feed::Began))
    }

    /// Returns whether an input gets the action mask.
    pub(super) fn takes_mask(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input.feed, Feed::Mask))
    }
}

/// Returns whether an output is what an input gets in the next step, by their names: `h_in` and `h_out`, `state_ins` and
/// `state_outs`, `state_in_0` and `state_out_0`, `x` and `next_x`.
fn is_next(input: &str, output: &str) -> bool {
    if output.strip_prefix("next_") == Some(input) {
        return true;
    }
    let word = |word: &str| match word {
        "in" => Some("out"),
        "ins" => Some("outs"),
        _ => None,
    };
    let (from, to): (Vec<_>, Vec<_>) = (input.split('_').collect(), output.split('_').collect());
    let mut changed = 0;
    let alike = |(from, to): (&&str, &&str)| {
        let next = word(from) == Some(to);
        changed += usize::from(next);
        next || from == to
    };
    from.len() == to.len() && from.iter().zip(&to).all(alike) && changed == 1
}

/// Returns the input of a part of the observation; `alone` says whether it is the only one.
fn of_observation(
    port: &Port,
    said: Option<&str>,
    (env, columns): (&EnvSpec, &[ColumnSpec]),
    alone: bool,
) -> Result<Input, BindError> {
    let all = || {
        let inputs = Inputs::all_of(&env.observation_space);
        let layout = Layout::of(port, &[inputs.count()])?;
        Some((layout, Feed::Numbers(inputs)))
    };
    let column = |at: usize| {
        let (layout, column) = Column::of(port, at, columns.get(at)?)?;
        Some((layout, Feed::Column(column)))
    };
    let named = |name: &str| columns.iter().position(|column| column.path == name);
    let found = match said {
        Some("obs") => all(),
        Some(said) => said.strip_prefix("obs:").and_then(named).and_then(column),
        None => by_name(&port.name, columns).and_then(column).or_else(|| {
            let numbered = port.name.strip_prefix("obs_").and_then(|number| number.parse().ok());
            let fitting = || {
                let mut fitting = (0..columns.len()).filter_map(column);
                fitting.next().filter(|_| fitting.next().is_none())
            };
            let whole = if alone { all() } else { None };
            whole.or_else(|| numbered.and_then(column)).or_else(fitting)
        }),
    };
    let (layout, feed) = found.ok_or_else(|| unfit(port, env))?;
    Ok(Input { port: port.clone(), layout, feed })
}

/// Returns the column of that name: its keys may be joined by `_` or `.`, and `observation` or `obs` may stand before them.
fn by_name(name: &str, columns: &[ColumnSpec]) -> Option<usize> {
    let plain = |name: &str| name.replace(['/', '.'], "_");
    let short = ["observation_", "observations_", "obs_"].iter().find_map(|before| name.strip_prefix(before));
    let is = |column: &ColumnSpec| {
        let path = plain(&column.path);
        !path.is_empty() && (path == plain(name) || short.is_some_and(|short| path == plain(short)))
    };
    columns.iter().position(is)
}

impl Column {
    /// Returns how an input has a column; `None` if it does not fit.
    fn of(port: &Port, at: usize, column: &ColumnSpec) -> Option<(Layout, Self)> {
        let elements = column.elements();
        let plain = |order| Self { at, elements, order };
        if let Some(layout) = Layout::of(port, &column.shape) {
            return Some((layout, plain(None)));
        }
        let [a, b, c] = column.shape[..] else { return None };
        // Channels last in the env and first in the file, or the other way round.
        if let Some(layout) = Layout::of(port, &[c, a, b]) {
            let order = (0..c)
                .flat_map(|z| (0..a).flat_map(move |x| (0..b).map(move |y| ((x * b + y) * c + z) as u32)));
            return Some((layout, plain(Some(order.collect()))));
        }
        let layout = Layout::of(port, &[b, c, a])?;
        let order =
            (0..b).flat_map(|y| (0..c).flat_map(move |z| (0..a).map(move |x| ((x * b + y) * c + z) as u32)));
        Some((layout, plain(Some(order.collect()))))
    }

    /// Writes the rows of the column.
    pub(super) fn write(&self, column: ColumnRef<'_>, rows: usize, out: &mut Vec<f32>) {
        out.resize(rows * self.elements, 0.0);
        let Some(order) = &self.order else {
            return copy(column, self.elements, out.chunks_exact_mut(self.elements.max(1)));
        };
        fn each<T: Copy>(from: &[T], order: &[u32], out: &mut [f32], single: impl Fn(T) -> f32) {
            for (from, to) in from.chunks_exact(order.len()).zip(out.chunks_exact_mut(order.len())) {
                to.iter_mut().zip(order).for_each(|(to, at)| *to = single(from[*at as usize]));
            }
        }
        match column {
            ColumnRef::U8(from) => each(from, order, out, f32::from),
            ColumnRef::F32(from) => each(from, order, out, |number| number),
            ColumnRef::F64(from) => each(from, order, out, |number| number as f32),
            ColumnRef::I32(from) => each(from, order, out, |number| number as f32),
            ColumnRef::I64(from) => each(from, order, out, |number| number as f32),
        }
    }
}

fn unfit(port: &Port, env: &EnvSpec) -> BindError {
    let columns = env.obs_columns();
    let shown_column = |column: &ColumnSpec| match &*column.path {
        "" => format!("{:?}", column.shape),
        path => format!("`{}` {:?}", shown(path), column.shape),
    };
    let gives: Vec<String> = columns.iter().take(MOST_SHOWN).map(shown_column).collect();
    BindError::Input { name: shown(&port.name), shape: port.shown_shape(), gives: gives.join(", ") }
}

/// Names of inputs that get action masks.
const MASKS: [&str; 3] = ["action_masks", "action_mask", "mask"];

/// Names of inputs that get whether an episode begins.
const BEGINNINGS: [&str; 4] = ["is_init", "episode_start", "episode_starts", "reset"];

/// The most columns that a message names.
const MOST_SHOWN: usize = 8;
