//! The pictures of an episode's steps.

use std::sync::Arc;

use rollhouse_core::EnvSpec;
use rollhouse_env::{Image, ImageSize, Registry};
use rollhouse_replay::{Episode, PlayedStep, RecomputeError, RecordKind, SeekBounds, Seeker, SimulateError};

use crate::error::ExportError;
use crate::settings::{MAX_FPS, Settings, USUAL_FPS};

/// An episode with its pictures: as the env draws itself, else as they were recorded, or as an image that is part of
/// the observation.
#[derive(Debug)]
pub(crate) struct Pictures<'a> {
    seeker: Seeker<'a>,
    size: ImageSize,
}

impl<'a> Pictures<'a> {
    /// Makes the pictures of an episode.
    ///
    /// # Errors
    /// If its steps cannot be reached, or there is no picture of them.
    pub(crate) fn new(
        settings: &Settings,
        registry: &'a Registry,
        episode: &Arc<Episode>,
    ) -> Result<Self, ExportError> {
        let seeker = Seeker::new(registry, Arc::clone(episode), &SeekBounds::default())?;
        let Some(own) = seeker.picture_size() else {
            let source = why_none(registry, episode);
            return Err(ExportError::NoPicture { env: episode.info.run.spec.id.clone(), source });
        };
        Ok(Self { seeker, size: settings.size.unwrap_or(own) })
    }

    /// Returns the size of all pictures.
    pub(crate) const fn size(&self) -> ImageSize {
        self.size
    }

    /// Returns the seeker that reaches their steps.
    pub(crate) const fn seeker(&self) -> &Seeker<'a> {
        &self.seeker
    }

    /// Returns a step and its picture. Steps that follow each other cost least.
    ///
    /// # Errors
    /// If there is no such step, or the env panics or does not draw itself.
    pub(crate) fn at(&mut self, t: u64) -> Result<(PlayedStep, Image), ExportError> {
        let step = self.seeker.seek(t)?;
        let image = self.seeker.render(self.size)?;
        Ok((step, image))
    }
}

/// Returns the steps of which a film has a picture.
pub(crate) fn steps_of(length: u64, every: u64) -> impl Iterator<Item = u64> {
    let every = every.max(1);
    let last = (!length.is_multiple_of(every)).then_some(length);
    (0..=length / every).map(move |index| index * every).chain(last)
}

/// Returns how many pictures a second a film has.
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

/// Returns why the env is not drawn, where it has been recorded in another form or does not exist any more.
fn why_none(registry: &Registry, episode: &Arc<Episode>) -> Option<RecomputeError> {
    let EnvSpec { id, source, .. } = &episode.info.run.spec;
    match registry.get(id) {
        Err(_) if source.is_learned() => {
            return Some(match episode.info.recorded() {
                RecordKind::Full => SimulateError::NotDeterministic.into(),
                RecordKind::ActionLog | RecordKind::Trace => {
                    SimulateError::NotHosted { env: id.clone() }.into()
                }
            });
        }
        Err(unknown) => return Some(SimulateError::Unknown(unknown).into()),
        // Recomputed or not, it draws no picture.
        Ok(entry) => entry.render_size()?,
    };
    // Asked again for it: a seeker keeps the error.
    let recorded = episode.info.dynamics();
    let now = registry.get(id).ok()?.spec().dynamics_hash;
    Some(
        if now == recorded {
            SimulateError::NotDeterministic
        } else {
            SimulateError::Dynamics { recorded, now }
        }
        .into(),
    )
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
}
