//! Divergences: what may differ between a recording and its repetition.

use rollhouse_core::{GameResult, Interruption, Outcome, Verdict};
use serde::{Serialize, Serializer};

/// The first difference between a recording and its repetition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// The first step that may differ; 0 is the reset.
    pub from: u64,
    /// The last step that may be the first to differ; equal to `from` where the recording names it.
    pub to: u64,
    /// Name of the value that differs: `state`, `return`, `terminated`, `truncated`, `result`, `score`, `reward`,
    /// `dynamics`, `recording`, `panic`, `call`, `action`, or the name of an observation's or info's element.
    pub field: String,
    /// The value as it was recorded.
    pub recorded: Value,
    /// The value as it was recomputed.
    pub replayed: Value,
}

/// A recorded or recomputed value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// There is no value.
    Nothing,
    /// A flag, such as `terminated`.
    Flag(bool),
    /// A hash; in JSON its digits, because 64 bits do not survive JSON readers as a number.
    #[serde(serialize_with = "as_digits")]
    Hash(u64),
    /// A number.
    Number(f64),
    /// Text, such as `the env panicked`.
    Text(String),
}

/// Returns a hash as it is printed everywhere: state hashes have 32 bits, dynamics hashes 64.
pub fn hash_digits(hash: u64) -> String {
    u32::try_from(hash).map_or_else(|_| format!("{hash:016x}"), |hash| format!("{hash:08x}"))
}

fn as_digits<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&hash_digits(*hash))
}

/// The end of an episode as it was recorded.
pub(crate) struct Ending {
    pub(crate) length: u64,
    pub(crate) outcome: Outcome,
    pub(crate) hash: Option<u32>,
    pub(crate) total_reward: Option<f64>,
    pub(crate) verdict: Verdict,
}

/// The result of a step that was taken again.
pub(crate) struct Replayed {
    pub(crate) terminated: bool,
    /// Whether the env or the time limit truncated the episode.
    pub(crate) truncated: bool,
    pub(crate) hash: u32,
    /// The return up to this step.
    pub(crate) total_reward: f64,
    /// What the env says of the episode, if this is its last step.
    pub(crate) verdict: Verdict,
}

impl Ending {
    /// Returns the first difference of the last step; `agreed` is the last age at which a hash agreed.
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
        if let Some(divergence) = self.verdict_differs(replayed.verdict) {
            return Some(divergence);
        }
        let recorded = self.total_reward.filter(|_| has_return(self.outcome, self.hash))?;
        (recorded.to_bits() != replayed.total_reward.to_bits())
            .then(|| differs(1, t, "return", Value::Number(recorded), Value::Number(replayed.total_reward)))
    }

    /// Returns the difference of result or score, where they were recorded: envs may have come to say them later.
    fn verdict_differs(&self, replayed: Verdict) -> Option<Divergence> {
        let (recorded, t) = (self.verdict, self.length);
        if recorded.result() != GameResult::None && recorded.result() != replayed.result() {
            let [recorded, replayed] = [recorded, replayed].map(|verdict| {
                verdict.result().word().map_or(Value::Nothing, |word| Value::Text(word.into()))
            });
            return Some(differs(t, t, "result", recorded, replayed));
        }
        let score = recorded.score()?;
        (replayed.score().map(f64::to_bits) != Some(score.to_bits())).then(|| {
            let replayed = replayed.score().map_or(Value::Nothing, Value::Number);
            differs(t, t, "score", Value::Number(score), replayed)
        })
    }
}

impl Replayed {
    /// Returns the divergence of the state at age `t`, whose hash should be `recorded`.
    pub(crate) fn state_differs(&self, agreed: u64, t: u64, recorded: u32) -> Option<Divergence> {
        (self.hash != recorded).then(|| {
            let (recorded, replayed) = (Value::Hash(recorded.into()), Value::Hash(self.hash.into()));
            differs(agreed + 1, t, "state", recorded, replayed)
        })
    }
}

/// Checks that the repetition goes on after step `t`, as the episode did.
pub(crate) fn went_on(agreed: u64, t: u64, replayed: &Replayed) -> Option<Divergence> {
    let field = if replayed.terminated { "terminated" } else { "truncated" };
    let over = replayed.terminated || replayed.truncated;
    over.then(|| differs(agreed + 1, t, field, Value::Flag(false), Value::Flag(true)))
}

/// Returns the divergence of an env that panicked after `step` steps.
pub(crate) fn panicked(step: u64) -> Divergence {
    differs(step, step, "panic", Value::Nothing, Value::Text("the env panicked".into()))
}

/// Returns the divergence of a recorded action, the one after `step` steps, that is none of the env's.
pub(crate) fn no_action(step: u64) -> Divergence {
    let none = Value::Text("no action of the env's space".into());
    differs(step + 1, step + 1, "action", none, Value::Nothing)
}

/// Returns the divergence of an env that refuses a call after `step` steps that it took before.
pub(crate) fn refused_call(step: u64, method: String) -> Divergence {
    let refused = Value::Text("the env refuses it".into());
    differs(step + 1, step + 1, "call", Value::Text(method), refused)
}

pub(crate) fn differs(from: u64, to: u64, field: &str, recorded: Value, replayed: Value) -> Divergence {
    Divergence { from, to, field: field.to_owned(), recorded, replayed }
}

/// Returns whether the recorded return means something. An episode that a begin cancelled without an end has neither
/// return nor hash; a crash leaves the return as far as it had come, which a repetition reaches too.
pub(crate) fn has_return(outcome: Outcome, end_hash: Option<u32>) -> bool {
    end_hash.is_some() || outcome != Outcome::Interrupted(Interruption::Cancelled)
}
