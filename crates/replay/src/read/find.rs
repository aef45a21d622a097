//! Finding an episode by its name.
//!
//! Extents that cannot hold it are passed over. In the others the packed rows are searched where there are any
//! ([`rows`](crate::stored::rows)), so that no chunk is decoded; else their chunks are.

use rollhouse_core::EpisodeName;

use crate::code::episode::EpisodeInfo;
use crate::code::extent::Extent;
use crate::read::read_error::ReadError;
use crate::read::replays::{Replays, infos};
use crate::read::segment::Segment;
use crate::stored::rows::RowChunk;

impl Replays {
    /// Finds the episode of that name.
    ///
    /// # Errors
    /// If there is no such episode, its beginning is gone, several runs share the short id, or a file operation fails.
    pub fn find(&self, name: EpisodeName) -> Result<EpisodeInfo, ReadError> {
        let mut found: Vec<EpisodeInfo> = Vec::new();
        let mut headless = None;
        let mut visit = |info, is_headless| {
            if is_headless {
                headless = Some(info);
            } else {
                found.push(info);
            }
        };
        for segment in self.segments.values() {
            for extent in segment.index.extents.iter().filter(|extent| may_hold(segment, extent, name)) {
                self.each_of_name(segment, extent, name, &mut visit)?;
            }
        }
        if found.is_empty() && !self.shows_set_aside() {
            let open = self.open_at_the_end()?.iter().filter(|(info, _)| info.name == name);
            for (info, is_headless) in open {
                if *is_headless {
                    headless = Some(info.clone());
                } else {
                    found.push(info.clone());
                }
            }
        }
        if let (Some(info), true) = (headless, found.is_empty()) {
            // How much of it is missing is known by whoever tries to read it.
            self.load(&info)?;
        }
        // A lane that came back after it was elsewhere may have the episode twice.
        found.sort_by_key(|info| (info.run_id().as_u128(), std::cmp::Reverse(info.standing())));
        found.dedup_by_key(|info| info.run_id());
        if found.len() > 1 {
            let runs = found.iter().map(|info| info.run_id().to_string()).collect();
            return Err(ReadError::Ambiguous { name, runs });
        }
        found.pop().ok_or(ReadError::NoEpisode(name))
    }

    /// Visits the listed episodes of that name which ended in an extent, each with whether its beginning is gone.
    fn each_of_name(
        &self,
        segment: &Segment,
        extent: &Extent,
        name: EpisodeName,
        visit: &mut impl FnMut(EpisodeInfo, bool),
    ) -> Result<(), ReadError> {
        let number = segment.index.number;
        let packed = self.rows(segment, extent);
        if let Some(Ok(chunks)) = packed.as_ref().map(RowChunk::all) {
            for chunk in &chunks {
                let run = segment.runs.get(chunk.run).filter(|run| run.run().short() == name.run);
                let run = run.filter(|_| chunk.may_hold(name)).and_then(|run| self.info(segment, run));
                let Some(run) = run else { continue };
                let is_it =
                    |at: &usize| chunk.lane(*at) == name.lane && chunk.numbers.get(*at) == name.number;
                for info in (0..chunk.len()).filter(is_it).map(|at| chunk.info(at, &run, number)) {
                    if self.lists(segment, &info) {
                        visit(info, self.headless.has(number, chunk.run, name.lane, name.number));
                    }
                }
            }
            return Ok(());
        }
        self.each_chunk(segment, extent, &mut |run, decoder, offset, header, _| {
            let infos = infos(run, decoder, number, offset, header);
            for info in infos.filter(|info| info.name == name && self.lists(segment, info)) {
                let is_headless = self.is_headless(header, &info);
                visit(info, is_headless);
            }
        })
    }
}

impl RowChunk<'_> {
    /// Returns whether an episode of that lane and number may be among the rows.
    fn may_hold(&self, name: EpisodeName) -> bool {
        name.lane >= self.first_lane && (self.numbers.least..=self.numbers.most).contains(&name.number)
    }
}

/// Returns whether an episode of that name may have ended in an extent.
fn may_hold(segment: &Segment, extent: &Extent, name: EpisodeName) -> bool {
    let mut runs = extent.runs.iter().filter_map(|run| segment.runs.get(*run));
    extent.episodes() > 0
        && (extent.lanes.0..=extent.lanes.1).contains(&name.lane)
        && (extent.numbers.0..=extent.numbers.1).contains(&name.number)
        && runs.any(|run| run.run().short() == name.run)
}
