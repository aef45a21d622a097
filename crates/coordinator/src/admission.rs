//! Whether a pool that is asked for is within every bound.

use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_LANES, MAX_OPTIONS};
use rollhouse_wire::limits::{MAX_LABELS, MAX_NAME_BYTES};
use rollhouse_wire::{CollectGoal, OpenPool, RecordRule, Refusal, RefusalCode};

use crate::Asker;
use crate::membership::{length, out_of_bounds};

/// Checks each field that has a bound. Options are checked by the nodes, which know the env's schema.
pub(crate) fn check(request: &OpenPool) -> Result<(), Refusal> {
    if !(1..=MAX_LANES).contains(&(request.lanes as usize)) {
        return Err(out_of_bounds("lanes", u64::from(request.lanes), 1, MAX_LANES));
    }
    let settings = &request.settings;
    length("env", &settings.env, MAX_ENV_ID_BYTES)?;
    if settings.options.len() > MAX_OPTIONS {
        return Err(out_of_bounds("options", settings.options.len() as u64, 0, MAX_OPTIONS));
    }
    settings.options.keys().try_for_each(|name| length("an option's name", name, MAX_NAME_BYTES))?;
    if let RecordRule::Sample { probability } = settings.record
        && !(0.0..=1.0).contains(&probability)
    {
        let message = format!("record.probability is {probability}, 0 to 1 are taken");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    if let Some(collect) = &settings.collect {
        length("collect.policy", &collect.policy, MAX_NAME_BYTES)?;
        if matches!(collect.goal, CollectGoal::Batches(0) | CollectGoal::Episodes(0)) {
            return Err(Refusal::new(RefusalCode::BadRequest, "collect.goal is 0, at least 1 is taken"));
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

/// Checks that the owner may have so many lanes more than it has.
pub(crate) fn check_quota(asker: &Asker, has: u64, lanes: u32) -> Result<(), Refusal> {
    match asker.max_lanes {
        Some(most) if has + u64::from(lanes) > u64::from(most) => Err(Refusal::new(
            RefusalCode::Quota,
            format!("`{}` has {has} lanes and asks for {lanes} more, its quota is {most}", asker.owner),
        )),
        _ => Ok(()),
    }
}
