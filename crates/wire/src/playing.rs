//! What owners send to sessions whose lanes play by a policy on the node, and what they get beside the rows.

use std::time::Duration;

use rollhouse_core::{StepColumns, bounded_list};
use rollhouse_policy::Sampling;
use serde::{Deserialize, Serialize};

use crate::Notes;

/// A request to play, from the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaySteps {
    /// Number of steps, at least 1. The answer may have fewer, and then has at least one.
    pub steps: u32,
    /// How many steps the lanes have taken since they were reset: what is random about the actions depends on it.
    pub at: u64,
    /// What the owner has measured since an earlier request; one session of a pool has it, for all.
    #[serde(default, skip_serializing_if = "PolicyLags::is_empty")]
    pub lags: PolicyLags,
}

/// How far what a learner is given lags behind its policy, measured where it learns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyLags {
    /// Of each fragment that was returned, by how many updates its oldest action is older than the newest policy.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded_list::<_, MAX_POLICY_LAGS, _>"
    )]
    pub data: Vec<u32>,
    /// Of each update, the microseconds until all nodes had it, with those for which it waited for fragments under way.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded_list::<_, MAX_POLICY_LAGS, _>"
    )]
    pub publishing_us: Vec<u64>,
}

impl PolicyLags {
    /// Returns whether nothing was measured.
    pub const fn is_empty(&self) -> bool {
        self.data.is_empty() && self.publishing_us.is_empty()
    }

    /// Notes that a fragment was returned whose oldest action is so many updates old. What is more than a message takes is left out.
    pub fn returned(&mut self, updates: u32) {
        if self.data.len() < MAX_POLICY_LAGS {
            self.data.push(updates);
        }
    }

    /// Notes that all nodes have an update after that time. What is more than a message takes is left out.
    pub fn published(&mut self, after: Duration) {
        if self.publishing_us.len() < MAX_POLICY_LAGS {
            self.publishing_us.push(u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        }
    }
}

/// A policy, from the owner: its file is beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyGiven {
    /// The name that is recorded with the episodes that it plays; of a built-in policy, which has no file, its own.
    pub name: String,
    /// The version of the weights, which every step has that they choose.
    pub version: u64,
    /// The seed of what is random about it.
    pub seed: u64,
    /// How it draws actions; absent for what its file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Whether the owner keeps what the policy remembers of lanes, and gives it back where they go on elsewhere; else policies that
    /// remember something are refused. Absent from earlier owners, which do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_states: bool,
}

/// What the node says of a policy that it follows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PolicyTaken {
    /// What the policy notes of each step: a column of the fragments each.
    #[serde(default)]
    pub columns: StepColumns,
    /// Columns of what it remembers of each lane, at the end of each answer; absent if it remembers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<StepColumns>,
}

/// Notes of a node beside a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FragmentNotes {
    /// Number of steps.
    pub steps: u32,
    /// The version of the policy that chose the actions.
    pub version: u64,
    /// The rows that have last observations, ascending: the step in the fragment, times the lanes of the session, and the lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finals: Vec<u32>,
    /// What is to be noted of its steps, in their order. Steps of which nothing is are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<StepNotes>,
}

/// Notes beside one step of a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepNotes {
    /// The step, counted in the fragment.
    pub step: u32,
    /// What a batch of that step would have beside it.
    pub notes: Notes,
}

/// Most lags of a kind in one message.
const MAX_POLICY_LAGS: usize = 256;
