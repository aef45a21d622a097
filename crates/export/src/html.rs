//! Writes an episode as one page that plays it without any other file and without a network.
//!
//! The page holds groups of steps, packed by zlib and written in base64, which its script unpacks when they are wanted:
//! `v0`, `v1`, ... the values, column by column, and `p0`, `p1`, ... the pictures, the first of each group as a whole
//! and then what changes: left, top, width, height (each 2 bytes, little-endian) and a byte for each pixel. The other
//! facts for the script follow them as JSON.

mod group;
mod page;

use std::io::Write;
use std::sync::Arc;

use rollhouse_env::{Image, Registry};
use rollhouse_replay::{Episode, PlayedStep, SeekBounds, Seeker};

use crate::error::ExportError;
use crate::film::Film;
use crate::pictures::{Pictures, fps_of, steps_of};
use crate::settings::Settings;
use crate::watch::{Watch, tell_at_once};
use group::{Columns, Group};
use page::{Page, write_begin, write_end};

pub(crate) fn write(
    settings: &Settings,
    registry: &Registry,
    episode: &Arc<Episode>,
    out: &mut dyn Write,
    watch: &mut Watch<'_>,
) -> Result<(), ExportError> {
    let length = episode.info.length;
    let (mut shown, missing) = PageContent::new(settings, registry, episode)?;
    let mut film = match &mut shown {
        PageContent::Pictures(pictures) => Some(Film::of(pictures, length)?),
        PageContent::Values(_) => None,
    };
    write_begin(&episode.info, out)?;
    let columns = Columns::of(&episode.info.run.spec);
    let mut group = Group::new(&columns);
    let mut groups: Vec<u64> = Vec::new();
    let mut steps = 0;
    for t in steps_of(length, settings.every) {
        tell_at_once(watch, t)?;
        if group.is_full() {
            groups.push(steps - group.steps());
            group.write(groups.len() - 1, film.is_some(), out)?;
            film.iter_mut().for_each(Film::forget);
        }
        let (step, image) = shown.at(t)?;
        group.add_values(&columns, &step);
        if let (Some(film), Some(image)) = (&mut film, &image) {
            group.add_picture(film.add(image))?;
        }
        steps += 1;
    }
    groups.push(steps - group.steps());
    group.write(groups.len() - 1, film.is_some(), out)?;
    let page = Page {
        episode,
        settings,
        fps: fps_of(settings, registry, episode),
        steps,
        groups: &groups,
        columns: &columns,
        film: film.as_ref(),
        seeker: shown.seeker(),
        missing: missing.as_ref(),
    };
    write_end(&page, out)
}

/// The parts of an episode's steps that the page shows.
enum PageContent<'a> {
    Pictures(Box<Pictures<'a>>),
    /// Values only: there is no picture.
    Values(Box<Seeker<'a>>),
}

impl<'a> PageContent<'a> {
    /// Chooses all that can be shown of an episode, and returns why there is no picture if there is none.
    fn new(
        settings: &Settings,
        registry: &'a Registry,
        episode: &Arc<Episode>,
    ) -> Result<(Self, Option<ExportError>), ExportError> {
        match Pictures::new(settings, registry, episode) {
            Ok(pictures) => Ok((Self::Pictures(Box::new(pictures)), None)),
            Err(missing @ ExportError::NoPicture { .. }) => {
                let mut seeker = Seeker::new(registry, Arc::clone(episode), &SeekBounds::default())?;
                seeker.pass(u64::MAX);
                Ok((Self::Values(Box::new(seeker)), Some(missing)))
            }
            Err(error) => Err(error),
        }
    }

    fn at(&mut self, t: u64) -> Result<(PlayedStep, Option<Image>), ExportError> {
        match self {
            Self::Pictures(pictures) => pictures.at(t).map(|(step, image)| (step, Some(image))),
            Self::Values(seeker) => Ok((seeker.seek(t)?, None)),
        }
    }

    fn seeker(&self) -> &Seeker<'a> {
        match self {
            Self::Pictures(pictures) => pictures.seeker(),
            Self::Values(seeker) => seeker,
        }
    }
}
