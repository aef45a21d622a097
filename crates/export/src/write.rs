//! The entry of this crate, which writes an episode out in any form.

use std::io::Write;
use std::sync::Arc;

use rollhouse_env::Registry;
use rollhouse_replay::{Episode, write_portable};

use crate::error::ExportError;
use crate::format::Format;
#[cfg(feature = "mcap")]
use crate::mcap;
#[cfg(feature = "parquet")]
use crate::parquet;
use crate::settings::Settings;
use crate::{gif, html, jsonl, npz, png};

/// Is told, now and then, how many steps of the episode are written; returning false asks to stop.
pub type Watch<'a> = dyn FnMut(u64) -> bool + 'a;

/// Writes an episode out in a form. After an error the output is not a whole file.
///
/// ```
/// use std::sync::Arc;
///
/// use rollhouse_env::Registry;
/// use rollhouse_export::{ExportError, Format, Settings, write};
/// use rollhouse_replay::Episode;
///
/// fn film(episode: &Arc<Episode>) -> Result<Vec<u8>, ExportError> {
///     let mut film = Vec::new();
///     let settings = Settings { every: 2, ..Settings::new(Format::Gif) };
///     write(&settings, &Registry::builtin(), episode, &mut film, &mut |_| true)?;
///     Ok(film)
/// }
/// ```
///
/// # Errors
/// If the form needs steps that are neither recorded nor can be recomputed, `out` fails, or `watch` asks to stop.
pub fn write(
    settings: &Settings,
    registry: &Registry,
    episode: &Arc<Episode>,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    match settings.format {
        Format::Jsonl => jsonl::write(registry, episode, out, watch),
        Format::Gif => gif::write(settings, registry, episode, out, watch),
        Format::Html => html::write(settings, registry, episode, out, watch),
        Format::Npz => npz::write(registry, episode, out, watch),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(registry, episode, out, watch),
        #[cfg(feature = "mcap")]
        Format::Mcap => mcap::write(settings, registry, episode, out, watch),
        Format::Rhr => Ok(write_portable(episode, out, |step| tell(watch, step).is_ok())?),
        Format::Png => png::write(settings, registry, episode, out),
    }
}

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
