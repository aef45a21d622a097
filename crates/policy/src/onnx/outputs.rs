//! What the outputs of a file are: actions as they are, what actions are drawn from, a value.

use rollhouse_core::{EnvSpec, Space};

use super::BindError;
use super::errors::shown;
use super::file::{DETERMINISTIC, OnnxFile, Port};
use crate::ModelError;
use crate::sampling::Head;

/// The outputs of a file for an env, as places in its list.
#[derive(Debug, Clone)]
pub(super) struct Outputs {
    /// What actions are taken or drawn from, and how.
    pub(super) action: usize,
    pub(super) head: Head,
    /// Logarithms of standard deviations, or the deviations themselves, beside means.
    pub(super) spread: Option<(usize, Spread)>,
    pub(super) value: Option<usize>,
    pub(super) log_prob: Option<usize>,
}

/// What an output says of how far actions spread around their means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    LogStd,
    Std,
}

/// What an output is by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Actions,
    /// Logits, or means with what they spread beside or behind them.
    Outputs,
    /// Values of actions, of which the greatest is taken.
    Greedy,
    Means,
    Spread(Spread),
    Value,
    LogProb,
    Unknown,
}

impl Part {
    /// Names by which outputs are known, in lower case.
    const NAMES: [(Self, &'static [&'static str]); 8] = [
        (Self::Actions, &["actions", "action", "discrete_actions", "continuous_actions"]),
        (Self::Outputs, &["output", "outputs", "logits", "action_logits", "action_dist_inputs"]),
        (Self::Greedy, &["q_values", "q", "q_value", "action_value"]),
        (Self::Means, &["mean", "means", "mu", "loc", "action_mean"]),
        (Self::Spread(Spread::LogStd), &["log_std", "log_stds", "action_log_std"]),
        (Self::Spread(Spread::Std), &["std", "scale", "sigma", "action_std"]),
        (Self::Value, &["value", "values", "state_value", "vf", "critic"]),
        (Self::LogProb, &["log_prob", "log_probs", "action_log_prob", "sample_log_prob"]),
    ];

    /// Words of the metadata of a file: `rollhouse.output.NAME` is one of them.
    const WORDS: [(Self, &'static str); 8] = [
        (Self::Actions, "actions"),
        (Self::Outputs, "logits"),
        (Self::Greedy, "q_values"),
        (Self::Means, "mean"),
        (Self::Spread(Spread::LogStd), "log_std"),
        (Self::Spread(Spread::Std), "std"),
        (Self::Value, "value"),
        (Self::LogProb, "log_prob"),
    ];

    fn of(file: &OnnxFile, port: &Port) -> Self {
        if let Some(said) = file.metadata.get(&format!("rollhouse.output.{}", port.name)) {
            let known = Self::WORDS.iter().find(|(_, word)| word == said);
            return known.map_or(Self::Unknown, |(part, _)| *part);
        }
        let name = port.name.to_lowercase();
        let name = name.strip_prefix(DETERMINISTIC).unwrap_or(&name);
        let known = Self::NAMES.iter().find(|(_, names)| names.contains(&name));
        known.map_or(Self::Unknown, |(part, _)| *part)
    }
}

impl Outputs {
    /// Finds out what a file's outputs are in an env: by what its metadata say, else by names, types and how many numbers of a lane
    /// each has (`None` for one that is not asked for).
    ///
    /// # Errors
    /// No output is something of which the env's actions can be made.
    pub(super) fn of(file: &OnnxFile, sizes: &[Option<usize>], env: &EnvSpec) -> Result<Self, BindError> {
        let mut parts: Vec<Part> = file.outputs.iter().map(|port| Part::of(file, port)).collect();
        for (part, size) in parts.iter_mut().zip(sizes) {
            if size.is_none() {
                *part = Part::Unknown;
            }
        }
        let place = |wanted: Part| parts.iter().position(|part| *part == wanted);
        let spread = [Spread::LogStd, Spread::Std]
            .into_iter()
            .find_map(|kind| place(Part::Spread(kind)).map(|at| (at, kind)));
        let (mut value, mut log_prob) = (place(Part::Value), place(Part::LogProb));
        // What has no name that is known comes first.
        let first = || (0..parts.len()).find(|&at| sizes[at].is_some() && parts[at] == Part::Unknown);
        let chosen = [Part::Means, Part::Outputs, Part::Greedy, Part::Actions];
        let (at, part) = chosen
            .into_iter()
            .find_map(|part| place_fitting(&parts, part, sizes, file, env).map(|at| (at, part)))
            .or_else(|| first().map(|at| (at, Part::Unknown)))
            .ok_or_else(|| none(file, sizes, env))?;
        if part == Part::Unknown && value.is_none() && log_prob.is_none() {
            // The recipe of Stable-Baselines3: actions, values and log-probabilities, in that order and without names.
            let numbers =
                |at: usize| sizes.get(at).copied().flatten() == Some(1) && parts[at] == Part::Unknown;
            if at == 0 && sizes.len() == 3 && numbers(1) && numbers(2) {
                (value, log_prob) = (Some(1), Some(2));
            }
        }
        let single = |place: Option<usize>| place.filter(|at| sizes[*at] == Some(1));
        let (value, log_prob) = (single(value), single(log_prob));
        let port = &file.outputs[at];
        let size = sizes[at].unwrap_or(0);
        let elements = env.action_space.elements();
        if env.action_space.parts().is_some() {
            return Err(BindError::Model(Box::new(ModelError::Parts)));
        }
        let is_quantity = env.action_space.choices().is_none();
        let taken = match part {
            Part::Means | Part::Outputs | Part::Greedy if !is_quantity => false,
            Part::Means | Part::Outputs | Part::Greedy => spread.is_none() && size == elements,
            _ if is_quantity => spread.is_none() && size == elements,
            _ => size == elements && (!port.of.is_float() || part == Part::Actions),
        };
        if taken {
            let head = Head::taken(&env.action_space, false);
            return Ok(Self { action: at, head, spread: None, value, log_prob });
        }
        if !is_quantity && !port.of.is_float() && env.action_space.choices() == Some(size as u64) {
            let head = Head::taken(&env.action_space, true);
            return Ok(Self { action: at, head, spread: None, value, log_prob });
        }
        let spread = spread.filter(|_| is_quantity && size == elements);
        let outputs = if spread.is_some() { 2 * elements } else { size };
        let squashed = file.metadata.get("squashed").is_some_and(|said| said == "true");
        let head = Head::of(&env.action_space, outputs, None, squashed);
        let head = head.map_err(|_| none(file, sizes, env))?;
        Ok(Self { action: at, head, spread, value, log_prob: None })
    }

    /// Returns whether the greatest output is taken where nothing else is asked for.
    pub(super) fn is_greedy(file: &OnnxFile) -> bool {
        let parts: Vec<Part> = file.outputs.iter().map(|port| Part::of(file, port)).collect();
        parts.contains(&Part::Greedy) && ![Part::Outputs, Part::Means].iter().any(|part| parts.contains(part))
    }
}

/// Returns the place of the output that is such a part. Of several, as files with actions of both kinds have them, it is the one
/// with as many numbers as an action, of quantities for quantities.
fn place_fitting(
    parts: &[Part],
    wanted: Part,
    sizes: &[Option<usize>],
    file: &OnnxFile,
    env: &EnvSpec,
) -> Option<usize> {
    let elements = env.action_space.elements();
    let is_quantity = matches!(&env.action_space, Space::Box(_)) && env.action_space.choices().is_none();
    let all = || (0..parts.len()).filter(|&at| parts[at] == wanted);
    let kind = |at: &usize| {
        let name = &file.outputs[*at].name;
        !name.ends_with(if is_quantity { "discrete_actions" } else { "continuous_actions" })
    };
    all().filter(kind).find(|&at| sizes[at] == Some(elements)).or_else(|| all().find(kind))
}

fn none(file: &OnnxFile, sizes: &[Option<usize>], env: &EnvSpec) -> BindError {
    let has = file.outputs.iter().zip(sizes).filter_map(|(port, size)| Some((port, (*size)?)));
    let has: Vec<String> =
        has.take(8).map(|(port, size)| format!("`{}` {size}", shown(&port.name))).collect();
    let elements = env.action_space.elements();
    let needs = match env.action_space.choices() {
        Some(choices) => format!("{elements} of actions, or {choices} of logits"),
        None => format!("{elements} of actions or means, or {} of means and deviations", 2 * elements),
    };
    BindError::Outputs { has: has.join(", "), needs }
}
