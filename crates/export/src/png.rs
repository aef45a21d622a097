//! Writes a step of an episode as a PNG.

use std::io::{self, Write};
use std::sync::Arc;

use png::{BitDepth, ColorType, Encoder, EncodingError};
use rollhouse_env::{Image, Registry};
use rollhouse_replay::Episode;

use crate::error::ExportError;
use crate::pictures::Pictures;
use crate::settings::Settings;

pub(crate) fn write(
    settings: &Settings,
    registry: &Registry,
    episode: &Arc<Episode>,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut pictures = Pictures::new(settings, registry, episode)?;
    let (_, image) = pictures.at(settings.at.unwrap_or(episode.info.length))?;
    encode(&image, out)
}

/// Writes a picture as a PNG.
pub(crate) fn encode(image: &Image, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut encoder = Encoder::new(out, image.width() as u32, image.height() as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failure)?;
    writer.write_image_data(image.pixels()).map_err(failure)?;
    writer.finish().map_err(failure)
}

fn failure(error: EncodingError) -> ExportError {
    ExportError::Write(match error {
        EncodingError::IoError(error) => error,
        error => io::Error::other(error),
    })
}
