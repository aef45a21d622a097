//! Verifying the episodes of several folders.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check::verification::Verification;
use crate::code::episode::EpisodeInfo;
use crate::play::envs::Envs;
use crate::read::library::{Library, LibraryEpisode};
use crate::read::read_error::ReadError;

impl Library {
    /// Verifies every episode, folder by folder; calls `visit` for each. For an episode that was recorded twice it is
    /// called once: for the copy that a listing gives.
    ///
    /// # Errors
    /// If a file operation fails. What is found goes to `visit`.
    pub fn verify_all<'e>(
        &self,
        envs: impl Into<Envs<'e>>,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        let envs = envs.into();
        let copies = self.copies()?;
        let chosen: BTreeSet<_> = copies.chosen().map(|(_, info)| info.name).collect();
        for folder in &self.folders {
            folder.verify_all(envs, |found| {
                if !chosen.contains(&found.name) {
                    visit(found);
                }
            })?;
        }
        for (at, folder) in self.folders.iter().enumerate() {
            let here = copies.chosen().filter(|(of, _)| *of == at).map(|(_, info)| info.clone());
            let mut here: Vec<EpisodeInfo> = here.collect();
            here.sort_by(EpisodeInfo::compare_places);
            folder.verify(&here, envs, &mut visit)?;
        }
        Ok(())
    }
}

impl LibraryEpisode {
    /// Verifies the given episodes, folder by folder; calls `visit` for each, in no particular order. Costs least
    /// in the order of [`LibraryEpisode::compare_places`].
    ///
    /// # Errors
    /// If a file operation fails. Damage goes to `visit`.
    pub fn verify<'e>(
        mut episodes: Vec<Self>,
        envs: impl Into<Envs<'e>>,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        let envs = envs.into();
        episodes.sort_by(|a, b| a.folder.dir().cmp(b.folder.dir()));
        for of_folder in episodes.chunk_by(|a, b| Arc::ptr_eq(&a.folder, &b.folder)) {
            let Some(first) = of_folder.first() else { continue };
            let infos: Vec<EpisodeInfo> = of_folder.iter().map(|episode| episode.info.clone()).collect();
            first.folder.verify(&infos, envs, &mut visit)?;
        }
        Ok(())
    }
}
