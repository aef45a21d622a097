//! Admission: the check whether a requested pool is within every bound.

use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_ENV_KWARGS_BYTES, MAX_LANES, MAX_OPTIONS};
use rollhouse_core::{AutoresetMode, Goal, OverShare, RecordRule, SeedSchedule, SharedBound};
use rollhouse_wire::limits::{MAX_LABELS, MAX_NAME_BYTES};
use rollhouse_wire::{LaneSettings, OpenPool, Refusal, RefusalCode};

use crate::event::Asker;
use crate::limits::{MAX_OWNER_SESSIONS, RETRY_AFTER};
use crate::membership::{length, out_of_bounds};
use crate::owner_holdings::Holding;

/// Checks each field that has a bound. Nodes check the options, because they know the env's schema.
pub(crate) fn check(request: &OpenPool) -> Result<(), Refusal> {
    if !(1..=MAX_LANES).contains(&(request.lanes as usize)) {
        return Err(out_of_bounds("lanes", u64::from(request.lanes), 1, MAX_LANES));
    }
    let settings = &request.settings;
    length("env", &settings.env, MAX_ENV_ID_BYTES)?;
    if settings.env_kwargs.len() > MAX_ENV_KWARGS_BYTES {
        let bytes = settings.env_kwargs.len() as u64;
        return Err(out_of_bounds("the length of env_kwargs in bytes", bytes, 0, MAX_ENV_KWARGS_BYTES));
    }
    let source = settings.env.source();
    if settings.deterministic.is_some() && !source.is_learned() {
        return Err(Refusal::new(
            RefusalCode::BadRequest,
            format!("deterministic is for Python envs, and `{}` is none: it says so itself", settings.env),
        ));
    }
    if !settings.env_kwargs.is_empty() && !source.is_learned() {
        let message =
            format!("env_kwargs are for Python envs, and `{}` is none: it has options", settings.env);
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    if source.steps_together() {
        check_together(settings)?;
    }
    if settings.options.len() > MAX_OPTIONS {
        return Err(out_of_bounds("options", settings.options.len() as u64, 0, MAX_OPTIONS));
    }
    settings.options.keys().try_for_each(|name| length("an option's name", name, MAX_NAME_BYTES))?;
    if let RecordRule::Sample { probability } = settings.record
        && !(0.0..=1.0).contains(&probability)
    {
        let message = format!("record.probability is {probability}, must be 0 to 1");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    if let Some(collect) = &settings.collect {
        length("collect.policy", &collect.policy, MAX_NAME_BYTES)?;
        if matches!(collect.goal, Goal::Batches(0) | Goal::Episodes(0)) {
            return Err(Refusal::new(RefusalCode::BadRequest, "collect.goal is 0, at least 1 is needed"));
        }
    }
    if request.labels.len() > MAX_LABELS {
        return Err(out_of_bounds("labels", request.labels.len() as u64, 0, MAX_LABELS));
    }
    for (label, value) in &request.labels {
        length("a label", label, MAX_NAME_BYTES)?;
        length("a label's value", value, MAX_NAME_BYTES)?;
    }
    Ok(())
}

/// Refuses what lanes that step together do not do.
fn check_together(settings: &LaneSettings) -> Result<(), Refusal> {
    let refused = match () {
        () if settings.autoreset != AutoresetMode::NextStep => {
            format!(
                "autoreset {} is refused: on nodes they have {}",
                settings.autoreset.name(),
                AutoresetMode::NextStep.name()
            )
        }
        () if settings.max_episode_steps.is_some() => {
            "max_episode_steps is refused: give the env its time limit in env_kwargs".to_owned()
        }
        () if settings.deterministic == Some(true) => {
            "deterministic is refused: none starts an episode alone".to_owned()
        }
        () if matches!(settings.seeds, SeedSchedule::PerEpisode { .. }) => {
            "a seed of each episode's own is refused: their env resets them".to_owned()
        }
        () => return Ok(()),
    };
    let message = format!("the lanes of `{}` step together: {refused}", settings.env);
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

/// The sessions and lanes that an owner asks for on top of those it has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct More {
    pub(crate) pools: u64,
    pub(crate) sessions: usize,
    pub(crate) lanes: u32,
}

/// Checks whether the owner may have that much more.
///
/// # Errors
/// `Quota` if the owner could not have the lanes even if it had no others. `Busy` if it may have them when others of
/// its own have ended: those of a killed trainer end with their lease.
pub(crate) fn check_share(asker: &Asker, has: Holding, more: More) -> Result<(), Refusal> {
    let busy = |message: String| Err(Refusal::busy(message, RETRY_AFTER.as_millis() as u64));
    let owner = asker.owner.as_str();
    let bound = SharedBound::POOLS;
    let (taken, share) = (has.pools, bound.share(asker.admin, has.of_owners, has.of_operators));
    if more.pools > 0 && taken + more.pools > share {
        let others = has.of_owners + has.of_operators;
        return busy(OverShare { bound, claimant: owner.into(), taken, share, others }.to_string());
    }
    if has.sessions + more.sessions > MAX_OWNER_SESSIONS {
        let Holding { sessions, .. } = has;
        return busy(format!(
            "`{owner}` has {sessions} sessions and asks for {} more, at most {MAX_OWNER_SESSIONS} are allowed",
            more.sessions
        ));
    }
    let Some(most) = asker.max_lanes else { return Ok(()) };
    if more.lanes > most {
        let message = format!("`{owner}` asks for {} lanes, its quota is {most}", more.lanes);
        return Err(Refusal::new(RefusalCode::Quota, message));
    }
    if has.lanes + u64::from(more.lanes) > u64::from(most) {
        return busy(format!(
            "`{owner}` has {} lanes and asks for {} more, its quota is {most}; those of a trainer that was killed end with \
             their lease",
            has.lanes, more.lanes
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rollhouse_core::RunId;
    use rollhouse_wire::Spread;

    use super::*;

    fn refusal(env: &str, change: impl FnOnce(&mut LaneSettings)) -> Option<String> {
        let mut settings = LaneSettings {
            env: env.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: Default::default(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::Continue,
            record: RecordRule::None,
            collect: None,
            replay: None,
            step_columns: Default::default(),
        };
        change(&mut settings);
        let pool = RunId::from_u128(1);
        let request = OpenPool { pool, lanes: 4, settings, labels: Default::default(), spread: Spread::Pack };
        check(&request).err().map(|refusal| refusal.message)
    }

    type Change = fn(&mut LaneSettings);

    #[test]
    fn what_lanes_that_step_together_do_not_do_is_refused_by_name() {
        let changes: [(&str, Change); 4] = [
            ("autoreset SameStep", |settings| settings.autoreset = AutoresetMode::SameStep),
            ("max_episode_steps", |settings| settings.max_episode_steps = Some(0)),
            ("deterministic", |settings| settings.deterministic = Some(true)),
            ("a seed of each episode", |settings| settings.seeds = SeedSchedule::PerEpisode { run_seed: 1 }),
        ];
        for (word, change) in changes {
            let together = refusal("vector:envpool:Pong-v5", change).unwrap();
            assert!(together.contains(word) && together.contains("step together"), "{together}");
            assert_eq!(refusal("gymnasium:CartPole-v1", change), None);
        }
        assert_eq!(refusal("vector:envpool:Pong-v5", |_| {}), None);
    }
}
