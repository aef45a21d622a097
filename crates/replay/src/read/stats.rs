//! Statistics of folders: what a folder holds, added up.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::{Outcome, RunId};

use crate::code::extent::EndFacts;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::read::run_filter::RunFilter;
use crate::read::segment::Segment;
use crate::stored::run_table::RunKey;

/// The statistics of a folder, or of several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FolderStats {
    /// Number of episodes by env and outcome word.
    pub episodes: BTreeMap<(String, &'static str), u64>,
    /// Steps of these episodes.
    pub steps: u64,
    /// Number of these episodes that finished with a return that is no number.
    pub no_numbers: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Bytes of torn tails: normal while a writer writes, else cut off by the next one.
    pub torn_bytes: u64,
    /// Bytes of torn tails in folders that no writer has.
    pub abandoned_bytes: u64,
    /// Episodes that are in none of the counts above: their beginning was dropped to keep a budget, lost while the
    /// disk took nothing, or is damaged.
    pub incomplete: u64,
    /// Whether a writer has the folder, or one of them.
    pub writing: bool,
}

impl Replays {
    /// Adds up what the folder holds. Reads the chunks with episodes that are open, and extents with several envs.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats(&self) -> Result<FolderStats, ReadError> {
        let mut stats = FolderStats { writing: self.is_writing(), ..FolderStats::default() };
        let mut runs = BTreeSet::new();
        for segment in self.segments.values() {
            stats.segments += 1;
            stats.bytes += segment.index.bytes;
            stats.torn_bytes += segment.torn_bytes;
            runs.extend(segment.runs.iter().map(RunKey::run));
        }
        stats.runs = runs.len() as u64;
        stats.abandoned_bytes = if self.is_writing() { 0 } else { stats.torn_bytes };
        for segment in self.segments.values() {
            self.add_ended(segment, &mut stats)?;
        }
        for info in self.broken_off()? {
            stats.add_episodes(info.env(), info.outcome, 1);
            stats.steps = stats.steps.saturating_add(info.length);
        }
        stats.incomplete = self.incomplete()?;
        Ok(stats)
    }

    /// Adds up what the folder holds of runs that pass: bytes are those of segments with nothing else in them, and what
    /// has lost its beginning is not counted. Reads the chunks of those runs and of others beside them.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats_of(&self, of: &RunFilter) -> Result<FolderStats, ReadError> {
        let mut stats = FolderStats { writing: self.is_writing(), ..FolderStats::default() };
        let mut runs = BTreeSet::new();
        for segment in self.segments.values() {
            let passing = segment.runs.iter().map(RunKey::run).filter(|run| of.passes(*run));
            let passing: BTreeSet<RunId> = passing.collect();
            if passing.is_empty() {
                continue;
            }
            stats.segments += 1;
            if segment.runs.iter().all(|run| passing.contains(&run.run())) {
                stats.bytes += segment.index.bytes;
            }
            for extent in &segment.index.extents {
                self.each_listed_end(segment, extent, &mut |run, end| {
                    let Some(outcome) = Outcome::from_code(end.outcome()) else { return };
                    if passing.contains(&run.run()) {
                        stats.add_end(run.env(), outcome, &end);
                    }
                })?;
            }
            runs.extend(passing);
        }
        for info in self.broken_off()?.into_iter().filter(|info| runs.contains(&info.run_id())) {
            stats.add_episodes(info.env(), info.outcome, 1);
            stats.steps = stats.steps.saturating_add(info.length);
        }
        stats.runs = runs.len() as u64;
        Ok(stats)
    }

    /// Adds up the episodes that ended in a segment.
    fn add_ended(&self, segment: &Segment, stats: &mut FolderStats) -> Result<(), ReadError> {
        if self.lists_a_part(segment) {
            for extent in &segment.index.extents {
                self.each_listed_end(segment, extent, &mut |run, end| {
                    let Some(outcome) = Outcome::from_code(end.outcome()) else { return };
                    stats.add_end(run.env(), outcome, &end);
                })?;
            }
            return Ok(());
        }
        let env_of = |run: &u32| segment.runs.get(*run).map(RunKey::env);
        for extent in &segment.index.extents {
            let mut envs = extent.runs.iter().filter_map(env_of);
            let Some(env) = envs.next() else { continue };
            // Which returns are no numbers does not stand in the index.
            if extent.odd || !envs.all(|other| other == env) {
                self.each_end(segment, extent, &mut |run, _, _, end| {
                    let (Some(env), Some(outcome)) = (env_of(&run), Outcome::from_code(end.outcome())) else {
                        return;
                    };
                    stats.add_end(env, outcome, &end);
                })?;
                continue;
            }
            stats.steps = stats.steps.saturating_add(extent.steps);
            for (outcome, &count) in Outcome::ALL.iter().zip(&extent.outcomes).filter(|(_, c)| **c > 0) {
                stats.add_episodes(env, *outcome, count);
            }
        }
        for (run, end) in self.headless.ended_in(segment.index.number) {
            let Some(outcome) = Outcome::from_code(end.outcome()) else { continue };
            stats.remove_episode(
                env_of(&run).unwrap_or_default(),
                outcome,
                end.length,
                Some(end.total_reward),
            );
        }
        Ok(())
    }
}

impl FolderStats {
    fn add_episodes(&mut self, env: &str, outcome: Outcome, count: u64) {
        *self.episodes.entry((env.to_owned(), outcome.word())).or_default() += count;
    }

    fn add_end(&mut self, env: &str, outcome: Outcome, end: &EndFacts) {
        self.add_episodes(env, outcome, 1);
        self.steps = self.steps.saturating_add(end.length);
        self.no_numbers += u64::from(is_no_number(outcome, Some(end.total_reward)));
    }

    /// Takes out an episode that was counted and should not be.
    pub(crate) fn remove_episode(
        &mut self,
        env: &str,
        outcome: Outcome,
        length: u64,
        total_reward: Option<f64>,
    ) {
        self.steps = self.steps.saturating_sub(length);
        self.no_numbers = self.no_numbers.saturating_sub(is_no_number(outcome, total_reward).into());
        let key = (env.to_owned(), outcome.word());
        if let Some(count) = self.episodes.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.episodes.remove(&key);
            }
        }
    }

    /// Adds what another folder holds.
    pub fn add(&mut self, other: Self) {
        let Self {
            episodes,
            steps,
            no_numbers,
            runs,
            segments,
            bytes,
            torn_bytes,
            abandoned_bytes,
            incomplete,
            writing,
        } = other;
        self.no_numbers += no_numbers;
        for (key, count) in episodes {
            *self.episodes.entry(key).or_default() += count;
        }
        self.steps = self.steps.saturating_add(steps);
        self.runs += runs;
        self.segments += segments;
        self.bytes += bytes;
        self.torn_bytes += torn_bytes;
        self.abandoned_bytes += abandoned_bytes;
        self.incomplete += incomplete;
        self.writing |= writing;
    }
}

/// Returns whether an episode finished with a return that is no number; of what was cut from outside it is not known.
fn is_no_number(outcome: Outcome, total_reward: Option<f64>) -> bool {
    outcome.is_finished() && total_reward.is_some_and(f64::is_nan)
}
