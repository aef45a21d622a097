//! What may differ between a recording and its repetition.

use rollhouse_core::{Interruption, Outcome};
use serde::Serialize;

/// Where a recording and its repetition part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// The first step that may differ; 0 is the reset.
    pub from: u64,
    /// The last step that may be the first to differ; equal to `from` where the recording names it.
    pub to: u64,
    /// What differs: `state`, `return`, `terminated`, `truncated`, `reward`, `dynamics`, `recording`, `panic`, or
    /// the name of an observation's or info's element.
    pub field: String,
    /// As recorded.
    pub recorded: Value,
    /// As it came out now.
    pub replayed: Value,
}

/// A recorded or recomputed value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Nothing.
    Nothing,
    /// A flag.
    Flag(bool),
    /// A hash.
    Hash(u64),
    /// A number.
    Number(f64),
    /// Words.
    Text(String),
}

/// How an episode ended, as recorded.
pub(crate) struct Ending {
    pub(crate) length: u64,
    pub(crate) outcome: Outcome,
    pub(crate) hash: Option<u32>,
    pub(crate) total_reward: Option<f64>,
}

/// What came of a step when it was taken again.
pub(crate) struct Replayed {
    pub(crate) terminated: bool,
    /// By the env or by the time limit.
    pub(crate) truncated: bool,
    pub(crate) hash: u32,
    /// The return until now.
    pub(crate) total_reward: f64,
}

impl Ending {
    /// The first difference of the last step; `agreed` is the last age at which a hash agreed.
    pub(crate) fn differs(&self, agreed: u64, replayed: &Replayed) -> Option<Divergence> {
        let t = self.length;
        if let Some(divergence) = self.hash.and_then(|recorded| replayed.state_differs(agreed, t, recorded)) {
            return Some(divergence);
        }
        if self.outcome.is_finished() {
            let flags = self.outcome.flags();
            for (field, recorded, replayed) in
                [("terminated", flags.0, replayed.terminated), ("truncated", flags.1, replayed.truncated)]
            {
                if recorded != replayed {
                    return Some(differs(t, t, field, Value::Flag(recorded), Value::Flag(replayed)));
                }
            }
        }
        let recorded = self.total_reward.filter(|_| has_return(self.outcome, self.hash))?;
        (recorded.to_bits() != replayed.total_reward.to_bits())
            .then(|| differs(1, t, "return", Value::Number(recorded), Value::Number(replayed.total_reward)))
    }
}

impl Replayed {
    /// The difference of the state's hash at age `t` from the recorded one.
    pub(crate) fn state_differs(&self, agreed: u64, t: u64, recorded: u32) -> Option<Divergence> {
        (self.hash != recorded).then(|| {
            let (recorded, replayed) = (Value::Hash(recorded.into()), Value::Hash(self.hash.into()));
            differs(agreed + 1, t, "state", recorded, replayed)
        })
    }
}

/// The episode went on after step `t`; the repetition must too.
pub(crate) fn went_on(agreed: u64, t: u64, replayed: &Replayed) -> Option<Divergence> {
    let field = if replayed.terminated { "terminated" } else { "truncated" };
    let over = replayed.terminated || replayed.truncated;
    over.then(|| differs(agreed + 1, t, field, Value::Flag(false), Value::Flag(true)))
}

/// The env panicked after `step` steps.
pub(crate) fn panicked(step: u64) -> Divergence {
    differs(step, step, "panic", Value::Nothing, Value::Text("the env panicked".into()))
}

pub(crate) fn differs(from: u64, to: u64, field: &str, recorded: Value, replayed: Value) -> Divergence {
    Divergence { from, to, field: field.to_owned(), recorded, replayed }
}

/// Cancelled by a begin without an end, an episode has neither return nor hash; a crash leaves the return as far
/// as it had come, which a repetition reaches too.
pub(crate) fn has_return(outcome: Outcome, end_hash: Option<u32>) -> bool {
    end_hash.is_some() || outcome != Outcome::Interrupted(Interruption::Cancelled)
}
