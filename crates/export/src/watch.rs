//! Watching how an episode is written out, so that it can be stopped.

use crate::error::ExportError;

/// Is told, now and then, how many steps of the episode are written; returning false asks to stop.
pub type Watch<'a> = dyn FnMut(u64) -> bool + 'a;

/// Tells `watch` about a step, unless too few have passed since the last that it was told about.
pub(crate) fn tell(watch: &mut Watch<'_>, step: u64) -> Result<(), ExportError> {
    if step.is_multiple_of(STEPS_BETWEEN_LOOKS) { tell_at_once(watch, step) } else { Ok(()) }
}

/// Tells `watch` about a step.
pub(crate) fn tell_at_once(watch: &mut Watch<'_>, step: u64) -> Result<(), ExportError> {
    if watch(step) { Ok(()) } else { Err(ExportError::Stopped) }
}

/// Number of steps without pictures between two looks at whether to stop: less than 10 ms.
const STEPS_BETWEEN_LOOKS: u64 = 1024;
