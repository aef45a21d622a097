//! Following an episode that is still being recorded.

use std::time::{Duration, Instant};

use rollhouse_replay::{EpisodeInfo, Library, LibraryEpisode, ReadError};

use crate::numbers::said;
use crate::player::Player;

/// A library that is read again and again while an episode in it grows.
pub(crate) struct Following<'a> {
    /// The library as the caller opened it.
    first: &'a Library,
    /// The library as it was when it was last read.
    now: Option<Library>,
    looked: Instant,
    /// Whether it could not be read last time.
    is_away: bool,
}

impl<'a> Following<'a> {
    pub(crate) fn new(first: &'a Library) -> Self {
        Self { first, now: None, looked: Instant::now(), is_away: false }
    }

    /// Returns whether it is time to read the library again.
    pub(crate) fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    /// Gives a player the new steps of its episode; returns whether there were any. Blocks for the disk.
    pub(crate) fn look(&mut self, player: &mut Player<'_>) -> bool {
        self.looked = Instant::now();
        if !player.is_growing() {
            return false;
        }
        let was = player.info().length;
        let looked = self.look_again(player.info());
        match looked {
            Ok((episode, is_growing)) => {
                if std::mem::take(&mut self.is_away) {
                    player.say("the recording can be read again");
                }
                player.extend(episode);
                player.set_growing(is_growing);
                player.info().length > was || !is_growing
            }
            Err(error) => {
                let first = !std::mem::replace(&mut self.is_away, true);
                if first {
                    player.say(format!("the recording cannot be read for now: {}", said(&error)));
                }
                first
            }
        }
    }

    /// Loads all that there is of an episode now, and tells whether more may come.
    fn look_again(&mut self, info: &EpisodeInfo) -> Result<(rollhouse_replay::Episode, bool), ReadError> {
        let library = self.now.as_ref().unwrap_or(self.first).opened_again()?;
        let is_meant =
            |one: &LibraryEpisode| one.info.name == info.name && one.info.run_id() == info.run_id();
        let open = library.under_way()?.into_iter().find(is_meant);
        let found = match open {
            Some(open) => (open.folder.load(&open.info)?, true),
            None => {
                let ended = library.find(info.name)?;
                (ended.folder.load(&ended.info)?, false)
            }
        };
        self.now = Some(library);
        Ok(found)
    }
}

/// Time between two reads of an episode that is being recorded, and of what could not be read.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
