//! The pictures of an episode's steps.

use std::sync::Arc;

use rollhouse_core::{ColumnData, ColumnSpec, DType};
use rollhouse_env::{Image, ImageSize, Registry};
use rollhouse_replay::{Episode, PlayedStep, RecomputeError, SeekBounds, Seeker, SimulateError};

use crate::error::ExportError;
use crate::settings::{MAX_FPS, Settings, USUAL_FPS};

/// An episode with what it looks like: as the env draws itself, else as an image that is part of the observation.
#[derive(Debug)]
pub(crate) struct Pictures<'a> {
    seeker: Seeker<'a>,
    from: From,
    size: ImageSize,
}

/// Where pictures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Drawn,
    /// An observation column with images of that size and so many bytes a pixel.
    Seen {
        column: usize,
        size: ImageSize,
        channels: usize,
    },
}

impl<'a> Pictures<'a> {
    /// Those of an episode.
    ///
    /// # Errors
    /// If its steps cannot be come to, or there is no picture of them.
    pub(crate) fn new(
        settings: &Settings,
        registry: &'a Registry,
        episode: &Arc<Episode>,
    ) -> Result<Self, ExportError> {
        let seeker = Seeker::new(registry, Arc::clone(episode), &SeekBounds::default())?;
        let spec = &episode.info.run.spec;
        let drawn = registry.get(&spec.id).ok().and_then(|entry| entry.render_size());
        let (from, own) = match (drawn.filter(|_| seeker.refused().is_none()), seen(&spec.obs_columns())) {
            (Some(size), _) => (From::Drawn, size),
            (None, Some(from @ From::Seen { size, .. })) => (from, size),
            (None, _) => {
                let source = why_none(registry, episode, drawn);
                return Err(ExportError::NoPicture { env: spec.id.clone(), source });
            }
        };
        Ok(Self { seeker, from, size: settings.size.unwrap_or(own) })
    }

    /// The size of all of them.
    pub(crate) const fn size(&self) -> ImageSize {
        self.size
    }

    /// What comes to their steps.
    pub(crate) const fn seeker(&self) -> &Seeker<'a> {
        &self.seeker
    }

    /// A step, and its picture. Steps that follow each other cost least.
    ///
    /// # Errors
    /// If there is no such step, or the env panics or does not draw itself.
    pub(crate) fn at(&mut self, t: u64) -> Result<(PlayedStep, Image), ExportError> {
        let step = self.seeker.seek(t)?;
        let image = match self.from {
            From::Drawn => self.seeker.render(self.size)?,
            From::Seen { column, size, channels } => match step.obs.get(column) {
                Some(ColumnData::U8(bytes)) => scaled(bytes, size, channels, self.size)?,
                _ => return Err(rollhouse_env::RenderError::Unsupported.into()),
            },
        };
        Ok((step, image))
    }
}

/// The steps that a film has a picture of.
pub(crate) fn steps_of(length: u64, every: u64) -> impl Iterator<Item = u64> {
    let every = every.max(1);
    let last = (!length.is_multiple_of(every)).then_some(length);
    (0..=length / every).map(move |index| index * every).chain(last)
}

/// How many pictures a second a film has.
pub(crate) fn fps_of(settings: &Settings, registry: &Registry, episode: &Episode) -> f64 {
    let own = registry.get(&episode.info.run.spec.id).ok().and_then(|entry| entry.render_fps());
    let fps = match settings.fps {
        Some(fps) => f64::from(fps),
        None => f64::from(own.unwrap_or(USUAL_FPS)) / settings.every.max(1) as f64,
    };
    fps.clamp(LEAST_FPS, f64::from(MAX_FPS))
}

/// Pictures a second of the slowest film.
const LEAST_FPS: f64 = 0.25;

/// Why the env is not drawn, where it has been recorded in another form or does not exist any more.
fn why_none(registry: &Registry, episode: &Arc<Episode>, drawn: Option<ImageSize>) -> Option<RecomputeError> {
    let id = &episode.info.run.spec.id;
    if let Err(unknown) = registry.get(id) {
        return Some(SimulateError::Unknown(unknown).into());
    }
    drawn?;
    // Asked again for it: a seeker keeps the error.
    let recorded = episode.info.dynamics();
    let now = registry.get(id).ok()?.spec().dynamics_hash;
    Some(
        if now == recorded { SimulateError::NotRecorded } else { SimulateError::Dynamics { recorded, now } }
            .into(),
    )
}

/// The first column that is an image: height, width and three bytes a pixel, or one.
fn seen(columns: &[ColumnSpec]) -> Option<From> {
    columns.iter().enumerate().find_map(|(column, spec)| {
        let (height, width, channels) = match *spec.shape {
            [height, width] => (height, width, 1),
            [height, width, channels @ (1 | 3)] => (height, width, channels),
            _ => return None,
        };
        let size = ImageSize::new(width, height).ok().filter(|_| spec.dtype == DType::U8)?;
        Some(From::Seen { column, size, channels })
    })
}

/// An image of `size`, each of whose pixels is the nearest one of `from`.
fn scaled(bytes: &[u8], from: ImageSize, channels: usize, size: ImageSize) -> Result<Image, ExportError> {
    let mut pixels = Vec::with_capacity(size.bytes());
    let columns: Vec<usize> = (0..size.width()).map(|x| x * from.width() / size.width()).collect();
    for y in 0..size.height() {
        let row = y * from.height() / size.height() * from.width();
        for x in &columns {
            let at = (row + x) * channels;
            match bytes.get(at..at + channels) {
                Some(&[red, green, blue]) => pixels.extend([red, green, blue]),
                Some(&[grey]) => pixels.extend([grey; 3]),
                _ => pixels.extend([0; 3]),
            }
        }
    }
    Ok(Image::new(size, pixels)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn films_begin_with_the_reset_and_end_with_the_last_step() {
        let steps = |length, every| steps_of(length, every).collect::<Vec<_>>();
        assert_eq!(steps(3, 1), [0, 1, 2, 3]);
        assert_eq!(steps(10, 4), [0, 4, 8, 10]);
        assert_eq!(steps(8, 4), [0, 4, 8]);
        assert_eq!(steps(3, 100), [0, 3]);
        assert_eq!(steps(0, 2), [0]);
    }

    #[test]
    fn recorded_images_are_scaled_to_the_nearest_pixel() {
        let size = |width, height| ImageSize::new(width, height).unwrap();
        let grey = scaled(&[1, 2, 3, 4], size(2, 2), 1, size(4, 2)).unwrap();
        let firsts: Vec<u8> = grey.pixels().chunks(3).map(|pixel| pixel[0]).collect();
        assert_eq!(firsts, [1, 1, 2, 2, 3, 3, 4, 4]);
        let rgb = scaled(&[1, 2, 3, 4, 5, 6], size(2, 1), 3, size(1, 1)).unwrap();
        assert_eq!(rgb.pixels(), [1, 2, 3]);
    }
}
