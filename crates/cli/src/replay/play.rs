//! `rollhouse replay play`: plays an episode in the terminal.

use std::io::{self, IsTerminal};
use std::path::Path;

use rollhouse_core::EpisodeName;
use rollhouse_replay::{Labels, Library, LibraryEpisode, ReadError};
use rollhouse_viewer::{Look, Pictures, Player, ViewError, Viewing, snapshot, view, view_pair};

use crate::args::PlayArgs;
use crate::failure::{Failure, Status};
use crate::human::When;
use crate::python_envs;
use crate::replay::nearest::find_or_nearest;
use crate::replay::read_failure;
use crate::replay::source::Source;

pub(super) fn run(args: &PlayArgs) -> Result<Status, Failure> {
    if let (Some(path), Some(name)) = (&args.svg, args.name) {
        return write_svg(args, name, path);
    }
    if !io::stdout().is_terminal() {
        let failure =
            Failure::new(Status::Usage, "an episode is played on a terminal, and stdout is not one");
        return Err(failure.hint(
            "`rollhouse replay show NAME` says what is known of one, `rollhouse replay export NAME` writes its steps out",
        ));
    }
    let registry = args.plugins.registry()?;
    let hosted = python_envs::of_recordings(&args.hosting, true)?;
    let learn = python_envs::learner(hosted.as_ref());
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let (first, is_growing) = first_of(args, &library)?;
    let variable = |name: &str| std::env::var(name).ok();
    let minds_colour = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let pictures = match args.pictures {
        Pictures::Asked if minds_colour => Pictures::Cells,
        pictures => pictures,
    };
    // Of damaged ones `replay ls` says so; episodes are watched all the same.
    let labels =
        if first.is_none() { source.labels(&library).unwrap_or_default() } else { Labels::default() };
    let viewing = Viewing {
        library: &library,
        place: source.shown(),
        labels: &labels,
        envs: python_envs::envs(&registry, learn.as_deref()),
        look: Look::of(variable),
        when: &|ms| When(ms).to_string(),
        pictures,
        at: args.at,
        speed: args.speed.0,
        is_growing,
    };
    let second = args.compare.map(|name| find_or_nearest(&library, name)).transpose()?;
    let viewed = match (&first, &second) {
        (Some(first), Some(second)) => view_pair(&viewing, [first, second]),
        (first, _) => view(&viewing, first.as_ref()),
    };
    viewed.map_err(|error| match error {
        ViewError::Read(error) => read_failure(error),
        ViewError::Terminal(_) | ViewError::Compare(_) => Failure::of(Status::Failed, &error),
    })?;
    Ok(Status::Done)
}

/// Returns the episode that is shown first, and whether it is still being recorded.
fn first_of(args: &PlayArgs, library: &Library) -> Result<(Option<LibraryEpisode>, bool), Failure> {
    let under_way = || library.under_way().map_err(read_failure);
    match args.name {
        None if args.live => {
            // The longest so far.
            let found = under_way()?
                .into_iter()
                .max_by_key(|one| (one.info.length, std::cmp::Reverse(one.info.name)));
            let none = || {
                let failure = Failure::new(Status::Usage, "no episode is being recorded there");
                failure.hint("`rollhouse replay play` without --live chooses among those that have ended")
            };
            Ok((Some(found.ok_or_else(none)?), true))
        }
        None => Ok((None, false)),
        Some(name) => match library.find(name) {
            Err(ReadError::NoEpisode(_)) => {
                match under_way()?.into_iter().find(|one| one.info.name == name) {
                    Some(open) => Ok((Some(open), true)),
                    None => find_or_nearest(library, name).map(|found| (Some(found), false)),
                }
            }
            found => Ok((Some(found.map_err(read_failure)?), false)),
        },
    }
}

/// Writes a picture of the screen.
fn write_svg(args: &PlayArgs, name: EpisodeName, path: &Path) -> Result<Status, Failure> {
    let found = find_or_nearest(&Source::of(&args.data)?.open()?, name)?;
    let episode = found.folder.load(&found.info).map_err(read_failure)?;
    let registry = args.plugins.registry()?;
    let hosted = python_envs::of_recordings(&args.hosting, true)?;
    let learn = python_envs::learner(hosted.as_ref());
    let player = Player::new(python_envs::envs(&registry, learn.as_deref()), episode, args.at, args.speed.0);
    let svg = snapshot(player, &|ms| When(ms).to_string(), args.size);
    std::fs::write(path, svg).map_err(|error| {
        Failure::new(Status::Failed, format_args!("writing {} failed: {error}", path.display()))
    })?;
    Ok(Status::Done)
}
