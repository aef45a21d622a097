//! Looking for more of an episode that is still being recorded.

use std::time::Instant;

use rollhouse_replay::{EpisodeInfo, Library, LibraryEpisode, ReadError};

use crate::numbers::plain;
use crate::player::Player;
use crate::viewer::LOOK_EVERY;

/// A folder that is looked at again and again.
pub(crate) struct Following<'a> {
    /// As it was opened by somebody else.
    first: &'a Library,
    /// As it was when it was looked at last.
    now: Option<Library>,
    looked: Instant,
    /// Whether it could not be read the last time.
    is_away: bool,
}

impl<'a> Following<'a> {
    pub(crate) fn new(first: &'a Library) -> Self {
        Self { first, now: None, looked: Instant::now(), is_away: false }
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    /// Gives a player what has come; true if anything did. Blocks for the disk.
    pub(crate) fn look(&mut self, player: &mut Player<'_>) -> bool {
        self.looked = Instant::now();
        if !player.is_live() {
            return false;
        }
        let was = player.info().length;
        let looked = self.look_again(player.info());
        match looked {
            Ok((episode, is_live)) => {
                if std::mem::take(&mut self.is_away) {
                    player.say("the recording can be read again");
                }
                player.extend(episode);
                player.set_live(is_live);
                player.info().length > was || !is_live
            }
            Err(error) => {
                let first = !std::mem::replace(&mut self.is_away, true);
                if first {
                    player
                        .say(format!("the recording cannot be read for now: {}", plain(&error.to_string())));
                }
                first
            }
        }
    }

    /// All that there is of an episode now, and whether more may come.
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
