//! The record of a run's header, which every segment has that has chunks of the run.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::limits::MAX_LANES;
use rollhouse_core::msgpack::{self, DecodeError};
use rollhouse_core::{
    ColumnSpec, CompositeSpace, EnvSpec, Options, Parent, RecordRule, RunId, SeedSchedule, Space,
    StepColumns, bounded_list,
};
use serde::{Deserialize, Serialize};

use crate::code::run::{PolicyInfo, RecordKind, RunHeader, Sampling};
use crate::limits::MAX_RUN_BYTES;

/// A run as readers see it: the msgpack map in a run record. Unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Id of the run, high and low half.
    run: (u64, u64),
    /// The env as it was when the run began.
    pub spec: EnvSpec,
    /// Distinct sets of options. What is drawn for each episode is a distribution here.
    #[serde(deserialize_with = "bounded_list::<_, MAX_LANES, _>")]
    options: Vec<Options>,
    /// (lanes, index into `options`), from lane 0 on; the last holds for all lanes that follow.
    #[serde(deserialize_with = "bounded_list::<_, MAX_LANES, _>")]
    lane_options: Vec<(u32, u32)>,
    /// Lanes of the run's batch.
    pub lanes: u32,
    /// The run's seed, if every episode is seeded from run seed, lane and number.
    run_seed: Option<u64>,
    /// Gymnasium's name of the autoreset mode.
    pub autoreset: String,
    /// The time limit the engine applied.
    pub max_episode_steps: Option<u32>,
    /// Policy that chose the actions.
    pub policy: PolicyInfo,
    /// Kind of the recording: how much of an episode is kept.
    pub recorded: RecordKind,
    /// Threshold of the hash below which an episode is kept; `None` if all are kept.
    sample_below: Option<u64>,
    /// Name and version of the program that recorded.
    pub program: String,
    /// Wall clock at the start of the run, milliseconds since 1970.
    pub started_ms: u64,
    /// Episode from which every episode of the run was forked; `None` if they are no forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Arguments with which the env of a Python package was made, a JSON object; empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Number of steps from one picture of an episode to the next, as a rule; 0 if there are no pictures.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frames_every: u64,
    /// Columns in which those who chose the actions noted something of each step.
    #[serde(default, skip_serializing_if = "StepColumns::is_empty")]
    pub step_columns: StepColumns,
    /// Number that tells apart recordings of the same lanes that moved from one recorder to another, and maybe back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) placement: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RunInfo {
    /// Makes the run's record from the header that the recorder was given.
    pub(crate) fn new(header: &RunHeader) -> Self {
        let mut distinct: Vec<Options> = Vec::new();
        let mut lane_options: Vec<(u32, u32)> = Vec::new();
        for options in &header.options {
            // Only the latest sets are searched, so that every lane having its own costs no square.
            let from = distinct.len().saturating_sub(16);
            let known = distinct[from..].iter().position(|known| known == options);
            let index = known.map_or(distinct.len(), |at| from + at);
            if index == distinct.len() {
                distinct.push(options.clone());
            }
            match lane_options.last_mut() {
                Some((lanes, last)) if *last == index as u32 => *lanes += 1,
                _ => lane_options.push((1, index as u32)),
            }
        }
        let bits = header.run.as_u128();
        Self {
            run: ((bits >> 64) as u64, bits as u64),
            spec: header.spec.clone(),
            options: distinct,
            lane_options,
            lanes: header.lanes,
            run_seed: match header.schedule {
                SeedSchedule::Continue => None,
                SeedSchedule::PerEpisode { run_seed } => Some(run_seed),
            },
            autoreset: header.autoreset.clone(),
            max_episode_steps: header.max_episode_steps,
            policy: header.policy.clone(),
            recorded: RecordKind::of(header.record, &header.spec),
            sample_below: match header.record {
                RecordRule::None | RecordRule::Sample { .. } => {
                    Sampling::new(header.run, header.record).threshold()
                }
                RecordRule::All | RecordRule::Trace => None,
            },
            program: header.program.clone(),
            started_ms: header.started_ms,
            parent: header.parent,
            arguments: header.arguments.clone(),
            frames_every: 0,
            step_columns: StepColumns::default(),
            placement: 0,
        }
    }

    /// Encodes the payload of a run record.
    ///
    /// # Errors
    /// If no reader would accept it: it is too long, or something in it exceeds a bound of reading.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        // It consists of plain values with string keys; nothing in it can fail to serialise.
        let payload = rmp_serde::to_vec_named(self).unwrap_or_default();
        Self::decode(&payload).map(|_| payload)
    }

    /// Decodes the payload of a run record.
    ///
    /// # Errors
    /// If it cannot be read, or exceeds a bound.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        msgpack::decode(payload, MAX_RUN_BYTES)
    }

    /// Returns about how many bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        let texts = |names: &[String]| names.iter().map(|name| TEXT_BYTES + name.len()).sum::<usize>();
        let EnvSpec { observation_space, action_space, info_channels, .. } = &self.spec;
        let own = |space: &Space| {
            if let Space::Box(space) = space {
                space.low.numbers().len() + space.high.numbers().len()
            } else {
                0
            }
        };
        let bounds = |space: &Space| {
            let parts = match space {
                Space::Box(space) => space.parts.as_deref(),
                Space::Discrete(_) => None,
            };
            let columns = parts.map(|parts| parts.columns()).unwrap_or_default();
            own(space) + columns.iter().map(|(_, part)| own(part)).sum::<usize>()
        };
        let columns = observation_space.columns();
        let spaces = columns.iter().map(|(_, space)| bounds(space)).sum::<usize>() + bounds(action_space);
        let counted = observation_space.counted().into_iter().map(|part| match part {
            CompositeSpace::Text(text) => text.characters().len(),
            CompositeSpace::Sequence(sequence) => bounds(sequence.item()) * size_of::<f64>(),
            CompositeSpace::Dict { .. } | CompositeSpace::Tuple { .. } => 0,
        });
        let names = texts(&self.spec.observation_names)
            + texts(&self.spec.action_names)
            + info_channels.iter().map(|channel| texts(&channel.names)).sum::<usize>();
        let options = self.options.iter().map(|set| {
            set.iter().map(|(name, value)| name.len() + value.heap_bytes()).sum::<usize>()
                + set.iter().count().div_ceil(5) * NODE_BYTES
        });
        size_of::<Self>()
            + self.arguments.len()
            + spaces * size_of::<f64>()
            + counted.sum::<usize>()
            + names
            + options.sum::<usize>()
            + self
                .step_columns
                .specs()
                .iter()
                .map(|c| size_of::<ColumnSpec>() + TEXT_BYTES + c.path.len())
                .sum::<usize>()
            + self.options.len() * size_of::<Options>()
            + self.lane_options.len() * size_of::<(u32, u32)>()
    }

    /// Returns the run's id.
    pub const fn run(&self) -> RunId {
        RunId::from_u128((self.run.0 as u128) << 64 | self.run.1 as u128)
    }

    /// Returns the schedule that says which seed an episode started from.
    pub const fn schedule(&self) -> SeedSchedule {
        match self.run_seed {
            Some(run_seed) => SeedSchedule::PerEpisode { run_seed },
            None => SeedSchedule::Continue,
        }
    }

    /// Returns the options of a lane, some of which may be distributions; the empty set if the recording has none.
    pub fn options(&self, lane: u32) -> Options {
        self.options.get(self.options_index(lane)).cloned().unwrap_or_default()
    }

    /// Returns the index of the lane's options among the run's sets.
    pub(crate) fn options_index(&self, lane: u32) -> usize {
        let mut left = lane;
        let mut index = 0;
        for &(lanes, options) in &self.lane_options {
            index = options as usize;
            if left < lanes {
                break;
            }
            left -= lanes;
        }
        index
    }

    pub(crate) const fn sampling(&self) -> Sampling {
        Sampling::with_threshold(self.run(), self.sample_below)
    }

    /// Returns the low bits of the run id, which chunks carry.
    pub(crate) const fn tag(&self) -> u32 {
        self.run.1 as u32
    }
}

/// Runs whose headers were read, those that were used last: a header that is in thousands of segments is decoded once while
/// it is needed again and again, and what is kept is bounded, however many runs there are.
#[derive(Debug, Default)]
pub(crate) struct KnownRuns(Mutex<Generations>);

/// Two generations of runs: those that were used since the older ones were last dropped, and those that were used before.
#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<KnownKey, Arc<RunInfo>>,
    earlier: HashMap<KnownKey, Arc<RunInfo>>,
    /// Bytes of the recent ones.
    bytes: usize,
}

/// Id and placement of a run, and the CRC-32C of its header.
type KnownKey = (u128, u64, u32);

impl KnownRuns {
    /// Returns a run, whose header is fetched unless the run is known; `None` if it cannot be read.
    pub(crate) fn info(
        &self,
        key: KnownKey,
        header: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Arc<RunInfo>> {
        let known = {
            let runs = self.0.lock();
            match runs.recent.get(&key) {
                Some(info) => return Some(info.clone()),
                None => runs.earlier.get(&key).cloned(),
            }
        };
        // The lock is not held while the disk is read.
        let info = match known {
            Some(info) => info,
            None => Arc::new(RunInfo::decode(&header()?).ok()?),
        };
        let mut runs = self.0.lock();
        runs.bytes += info.memory();
        if runs.bytes > KNOWN_RUNS_BYTES / 2 {
            runs.earlier = std::mem::take(&mut runs.recent);
            runs.bytes = info.memory();
        }
        runs.recent.insert(key, info.clone());
        Some(info)
    }
}

/// Bytes of the runs that readers of one library keep.
const KNOWN_RUNS_BYTES: usize = 16 << 20;
/// Bytes of memory of a text beside its contents.
const TEXT_BYTES: usize = size_of::<String>();
/// Bytes of memory of a node of a tree of options, which holds five to eleven.
const NODE_BYTES: usize = 512;
