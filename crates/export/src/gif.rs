//! Writes an episode as a GIF.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use gif::{DisposalMethod, Encoder, EncodingError, Frame, Repeat};
use rollhouse_env::Registry;
use rollhouse_replay::Episode;

use crate::error::ExportError;
use crate::film::{Change, Film, SAME};
use crate::pictures::{Pictures, fps_of, steps_of};
use crate::settings::Settings;
use crate::watch::{Watch, tell_at_once};

pub(crate) fn write(
    settings: &Settings,
    registry: &Registry,
    episode: &Arc<Episode>,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let mut pictures = Pictures::new(settings, registry, episode)?;
    let length = episode.info.length;
    let mut film = Film::of(&mut pictures, length)?;
    let (width, height) = (pictures.size().width() as u16, pictures.size().height() as u16);
    let mut encoder =
        Encoder::new(out, width, height, &film.palette().colours().concat()).map_err(failure)?;
    encoder.set_repeat(Repeat::Infinite).map_err(failure)?;
    let hundredths = HUNDREDTHS / fps_of(settings, registry, episode);
    // The picture that is shown, and from when on: how long it is shows when another follows.
    let mut shown: Option<(Change, u64)> = None;
    let mut due = 0;
    for (index, t) in (0u64..).zip(steps_of(length, settings.every)) {
        tell_at_once(watch, t)?;
        due = (index as f64 * hundredths).round() as u64;
        if let Some(change) = film.add(&pictures.at(t)?.1)
            && let Some((before, since)) = shown.replace((change, due))
        {
            encoder.write_frame(&frame(before, due - since)).map_err(failure)?;
        }
    }
    if let Some((last, since)) = shown {
        encoder.write_frame(&frame(last, due - since + LAST_HUNDREDTHS)).map_err(failure)?;
    }
    encoder.into_inner().map(|_| ()).map_err(failure)
}

/// Makes the frame of a change of the picture that is shown for that many hundredths of a second.
fn frame(change: Change, hundredths: u64) -> Frame<'static> {
    let Change { left, top, width, height, pixels } = change;
    Frame {
        delay: hundredths.clamp(1, u64::from(u16::MAX)) as u16,
        dispose: DisposalMethod::Keep,
        transparent: Some(SAME),
        left: left as u16,
        top: top as u16,
        width: width as u16,
        height: height as u16,
        buffer: Cow::Owned(pixels),
        ..Frame::default()
    }
}

fn failure(error: EncodingError) -> ExportError {
    ExportError::Write(match error {
        EncodingError::Io(error) => error,
        error => io::Error::other(error),
    })
}

const HUNDREDTHS: f64 = 100.0;

/// Time for which the last picture stays before the film begins again, in hundredths of a second.
const LAST_HUNDREDTHS: u64 = 100;
