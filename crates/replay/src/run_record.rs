//! A run's header as it stands in every segment that has chunks of it.

use rollhouse_core::{EnvSpec, Options, RunId, SeedSchedule};
use serde::{Deserialize, Serialize};

use crate::run::{PolicyInfo, RecordKind, RecordMode, RunHeader, Sampling};

/// A run as readers see it: the msgpack map in a run record. Unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The run's id, high and low half.
    run: (u64, u64),
    /// The env as it was when the run began.
    pub spec: EnvSpec,
    /// Distinct sets of options.
    options: Vec<Options>,
    /// (lanes, index into `options`), from lane 0 on; the last holds for all lanes that follow.
    lane_options: Vec<(u32, u32)>,
    /// Lanes of the run's batch.
    pub lanes: u32,
    /// The run's seed, if every episode is seeded from run seed, lane and number.
    run_seed: Option<u64>,
    /// Gymnasium's name of the autoreset mode.
    pub autoreset: String,
    /// The time limit the engine applied.
    pub max_episode_steps: Option<u32>,
    /// Who chose the actions.
    pub policy: PolicyInfo,
    /// How much is kept of an episode.
    pub recorded: RecordKind,
    /// Episodes whose hash is below it are kept; all if there is none.
    sample_below: Option<u64>,
    /// Name and version of the program that recorded.
    pub program: String,
    /// Wall clock at the start of the run, milliseconds since 1970.
    pub started_ms: u64,
    /// Tells recordings of the same lanes apart that were moved from one recorder to another, and maybe back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) placement: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
const fn is_zero(placement: &u64) -> bool {
    *placement == 0
}

impl RunInfo {
    /// From what the recorder was given.
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
            recorded: RecordKind::of(header.mode, header.spec.determinism),
            sample_below: match header.mode {
                RecordMode::Sample { .. } => Sampling::new(header.run, header.mode).threshold(),
                RecordMode::All | RecordMode::Trace => None,
            },
            program: header.program.clone(),
            started_ms: header.started_ms,
            placement: 0,
        }
    }

    /// The run's id.
    pub const fn run(&self) -> RunId {
        RunId::from_u128((self.run.0 as u128) << 64 | self.run.1 as u128)
    }

    /// Which seed an episode started from.
    pub const fn schedule(&self) -> SeedSchedule {
        match self.run_seed {
            Some(run_seed) => SeedSchedule::PerEpisode { run_seed },
            None => SeedSchedule::Continue,
        }
    }

    /// The options of a lane; the empty set if the recording has none.
    pub fn options(&self, lane: u32) -> Options {
        self.options.get(self.options_index(lane)).cloned().unwrap_or_default()
    }

    /// Which of the run's sets of options a lane has.
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

    /// The low bits of the run id that chunks carry.
    pub(crate) const fn tag(&self) -> u32 {
        self.run.1 as u32
    }
}
