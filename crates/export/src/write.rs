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
use crate::watch::{Watch, tell};
use crate::{gif, html, jsonl, npz, png};

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
