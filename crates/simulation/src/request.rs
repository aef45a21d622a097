//! Requests for pools.

use std::collections::BTreeMap;

use rollhouse_core::{AutoresetMode, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_wire::{LaneSettings, OpenPool, Spread, pool_id_of};

use crate::cast::{ENV, LATE_ENV};
use crate::context::Context;

/// Returns a request for a pool, as trainers of that owner make it.
pub(crate) fn a_pool(owner: &str, ctx: &mut Context<'_>) -> OpenPool {
    let id = u128::from(ctx.random.bits()) << 64 | u128::from(ctx.random.bits());
    let spread = if ctx.random.chance(500) { Spread::Even } else { Spread::Pack };
    OpenPool {
        pool: pool_id_of(owner, RunId::from_u128(id)),
        lanes: ctx.random.within(1, 9) as u32,
        settings: LaneSettings {
            env: if ctx.random.chance(LATE_PER_MILLE) { LATE_ENV } else { ENV }.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: BTreeMap::new(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: Some(9),
            seeds: SeedSchedule::PerEpisode { run_seed: id as u64 },
            record: RecordRule::All,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
        labels: BTreeMap::new(),
        spread,
    }
}

/// Pools whose lanes are sent some at a time, of a thousand.
const LATE_PER_MILLE: u64 = 400;
