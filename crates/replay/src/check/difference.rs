//! Comparing two episodes: the first step at which they differ, and in what.

use rollhouse_core::{ColumnData, ColumnSpec};
use serde::Serialize;

use crate::code::episode::Episode;
use crate::play::divergence::Value;
use crate::play::envs::Envs;
use crate::play::head::PlayedStep;
use crate::play::playback::Playback;
use crate::play::simulate::SimulateError;

/// The first step at which two episodes are not the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The step; 0 is the reset.
    pub step: u64,
    /// Values that differ at that step, in this order: the action that led to it, then its results.
    pub fields: Vec<FieldDifference>,
}

/// One value of a step that differs between two episodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldDifference {
    /// `action`, `reward`, `terminated`, `truncated`, `end` where only one of the episodes goes on after the step before,
    /// or the name of an element of the action or observation.
    pub field: String,
    /// The value in the first episode.
    pub a: Value,
    /// The value in the second episode.
    pub b: Value,
}

/// A comparison that goes through two episodes side by side until they differ. Values are compared by their bits.
#[derive(Debug)]
pub struct Comparison<'a> {
    a: Playback<'a>,
    b: Playback<'a>,
    action: ColumnSpec,
    obs: Vec<ColumnSpec>,
    /// Steps that are the same in both, the reset among them.
    same: u64,
}

/// An error: two episodes cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Their observations or actions have different forms.
    #[error("their observations or actions have different forms: one is of {a}, the other of {b}")]
    Forms {
        /// The env of the first episode.
        a: String,
        /// The env of the second episode.
        b: String,
    },
    /// The steps of one of them cannot be had.
    #[error(transparent)]
    Simulate(SimulateError),
}

impl<'a> Comparison<'a> {
    /// Begins a comparison, before the first step of both episodes.
    ///
    /// # Errors
    /// If the episodes' spaces differ, or one of them has to be recomputed and cannot be.
    pub fn new<'e>(envs: impl Into<Envs<'e>>, a: &'a Episode, b: &'a Episode) -> Result<Self, CompareError> {
        let envs = envs.into();
        let (first, second) = (&a.info.run.spec, &b.info.run.spec);
        let (mut action, obs) = (first.action_column(), first.obs_columns());
        if action != second.action_column() || obs != second.obs_columns() {
            return Err(CompareError::Forms { a: first.id.to_string(), b: second.id.to_string() });
        }
        // What it is called where it has no names of its own.
        action.path = "action".to_owned();
        let [a, b] = [a, b].map(|episode| Playback::new(envs, episode).map_err(CompareError::Simulate));
        Ok(Self { a: a?, b: b?, action, obs, same: 0 })
    }

    /// Finds the first difference of the two episodes; `None` if they are the same to their ends. Blocks for as long as
    /// it takes to recompute them.
    ///
    /// # Errors
    /// If an env panics.
    pub fn first_difference(&mut self) -> Result<Option<Difference>, CompareError> {
        loop {
            let next = |side: &mut Playback<'a>| side.next_step().map_err(CompareError::Simulate);
            let fields = match (next(&mut self.a)?, next(&mut self.b)?) {
                (None, None) => return Ok(None),
                (Some(a), Some(b)) => self.differing(&a, &b),
                (a, b) => {
                    let word =
                        |step: &Option<_>| Value::Text(if step.is_some() { GOES_ON } else { IS_OVER }.into());
                    vec![FieldDifference { field: "end".into(), a: word(&a), b: word(&b) }]
                }
            };
            if !fields.is_empty() {
                return Ok(Some(Difference { step: self.same, fields }));
            }
            self.same += 1;
        }
    }

    /// Returns how many steps after the reset are the same in both.
    pub const fn same_steps(&self) -> u64 {
        self.same.saturating_sub(1)
    }

    fn differing(&self, a: &PlayedStep, b: &PlayedStep) -> Vec<FieldDifference> {
        let mut fields = Vec::new();
        if let (Some(first), Some(second)) = (&a.action, &b.action) {
            rows_differ(&self.action, first, second, &mut fields);
        }
        let mut compare = |field: &str, same: bool, a: Value, b: Value| {
            fields.extend((!same).then(|| FieldDifference { field: field.into(), a, b }));
        };
        let number = |reward: Option<f64>| reward.map_or(Value::Nothing, Value::Number);
        let bits = |step: &PlayedStep| step.reward.map(f64::to_bits);
        compare("reward", bits(a) == bits(b), number(a.reward), number(b.reward));
        for (field, first, second) in
            [("terminated", a.terminated, b.terminated), ("truncated", a.truncated, b.truncated)]
        {
            compare(field, first == second, Value::Flag(first), Value::Flag(second));
        }
        for ((spec, first), second) in self.obs.iter().zip(&a.obs).zip(&b.obs) {
            rows_differ(spec, first, second, &mut fields);
        }
        fields
    }
}

/// Adds to `fields` every element that differs between two rows of a column.
fn rows_differ(spec: &ColumnSpec, a: &ColumnData, b: &ColumnData, fields: &mut Vec<FieldDifference>) {
    for index in 0..spec.elements() {
        if a.first_difference(index, b, index, 1).is_some() {
            let [a, b] = [a, b].map(|row| Value::Number(row.number(index)));
            fields.push(FieldDifference { field: spec.element_name(index), a, b });
        }
    }
}

const GOES_ON: &str = "goes on";
const IS_OVER: &str = "is over";
