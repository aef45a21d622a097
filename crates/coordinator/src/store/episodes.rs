//! Single episodes of the store: the settings that open a replay of one, and the file that its node is given.

use std::collections::BTreeMap;

use rollhouse_core::{AutoresetMode, EpisodeName, RecordRule, SeedSchedule};
use rollhouse_replay::{EpisodeInfo, PortableError, write_portable};
use rollhouse_wire::limits::MAX_REPLAY_BYTES;
use rollhouse_wire::{LaneSettings, ReadGrant, ReplayOf};

use super::{Store, StoreError};

impl Store {
    /// Returns the settings of a session that shows the episode of that name. Reads none of the episode's steps.
    ///
    /// # Errors
    /// If there is no such episode that may be read, it is too large to be shown, or a file operation fails.
    pub(crate) fn replay_settings(&self, reads: &ReadGrant, name: &str) -> Result<LaneSettings, StoreError> {
        let name = parsed(name)?;
        let info = self.asking(|library| library.find(name))?.info;
        if !reads.has_run(info.run_id()) {
            // Whether others have such an episode is theirs to know.
            return Err(StoreError::NotFound(name.to_string()));
        }
        check_size(&info)?;
        let options: BTreeMap<_, _> =
            info.options().iter().map(|(option, value)| (option.to_owned(), value.clone())).collect();
        let replay = ReplayOf {
            episode: name.to_string(),
            dynamics: info.dynamics(),
            full: info.recorded().has_observations(),
        };
        Ok(LaneSettings {
            env: info.env().into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options,
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: Some(info.run.max_episode_steps.unwrap_or(0)),
            seeds: SeedSchedule::Continue,
            record: RecordRule::None,
            collect: None,
            replay: Some(replay),
            step_columns: rollhouse_core::StepColumns::default(),
        })
    }

    /// Returns the episode of that name as a file of its own.
    ///
    /// # Errors
    /// If there is no such episode, a part of it is damaged or gone, it is too large, or a file operation fails.
    pub(crate) fn episode_file(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let name = parsed(name)?;
        let episode = self.asking(|library| {
            let found = library.find(name)?;
            match check_size(&found.info) {
                Ok(()) => found.folder.load(&found.info).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        })??;
        let mut file = Vec::new();
        write_portable(&episode, &mut file, |_| true).map_err(|error| match error {
            PortableError::TooLarge => too_large(name, MAX_REPLAY_BYTES + 1),
            other => StoreError::Query(format!("{name} cannot be put into a file: {other}")),
        })?;
        if file.len() as u64 > MAX_REPLAY_BYTES {
            return Err(too_large(name, file.len() as u64));
        }
        Ok(file)
    }
}

fn parsed(name: &str) -> Result<EpisodeName, StoreError> {
    name.parse().map_err(|error| StoreError::Query(format!("episode: {error}")))
}

fn check_size(info: &EpisodeInfo) -> Result<(), StoreError> {
    let bytes = info.bytes_in_memory();
    if bytes > MAX_REPLAY_BYTES { Err(too_large(info.name, bytes)) } else { Ok(()) }
}

fn too_large(name: EpisodeName, bytes: u64) -> StoreError {
    StoreError::Query(format!(
        "{name} takes {bytes} bytes, {MAX_REPLAY_BYTES} are the most of an episode that a node shows"
    ))
}
