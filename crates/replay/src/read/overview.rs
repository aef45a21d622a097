//! Overviews of episodes over time, which take little memory however many episodes there are.

use std::collections::BTreeMap;

use crate::code::episode::EpisodeInfo;
use crate::read::library::Library;
use crate::read::read_error::ReadError;

/// The results of an env's episodes, in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EnvOverview {
    /// Number of episodes by outcome word, with interrupted ones.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Number of the episodes that were not interrupted and whose return is no number, which has no place in a mean.
    pub no_numbers: u64,
    /// Groups of the other episodes that were not interrupted and have a return.
    pub groups: Vec<EpisodeGroup>,
}

/// A group of consecutive episodes that were not interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpisodeGroup {
    /// Number of episodes in the group.
    pub count: u64,
    /// Mean time at which they began, in milliseconds since 1970.
    pub started_ms: f64,
    /// Mean return.
    pub mean_return: f64,
    /// Smallest return.
    pub least_return: f64,
    /// Largest return.
    pub most_return: f64,
    /// Mean number of steps.
    pub mean_length: f64,
    /// Smallest number of steps.
    pub least_length: f64,
    /// Largest number of steps.
    pub most_length: f64,
}

impl EpisodeGroup {
    fn of(info: &EpisodeInfo, total_reward: f64) -> Self {
        Self {
            count: 1,
            started_ms: info.started_ms as f64,
            mean_return: total_reward,
            least_return: total_reward,
            most_return: total_reward,
            mean_length: info.length as f64,
            least_length: info.length as f64,
            most_length: info.length as f64,
        }
    }

    /// Joins another group into this one.
    fn join(&mut self, other: &Self) {
        let count = self.count + other.count;
        let part = other.count as f64 / count as f64;
        let mean = |mine: &mut f64, others: f64| *mine += (others - *mine) * part;
        mean(&mut self.started_ms, other.started_ms);
        mean(&mut self.mean_return, other.mean_return);
        mean(&mut self.mean_length, other.mean_length);
        self.least_return = self.least_return.min(other.least_return);
        self.most_return = self.most_return.max(other.most_return);
        self.least_length = self.least_length.min(other.least_length);
        self.most_length = self.most_length.max(other.most_length);
        self.count = count;
    }
}

/// Groups of episodes of one folder: of equal size, but for the last.
#[derive(Debug)]
struct Groups {
    groups: Vec<EpisodeGroup>,
    /// Episodes in a group that is full.
    size: u64,
}

impl Groups {
    const fn new() -> Self {
        Self { groups: Vec::new(), size: 1 }
    }

    fn add(&mut self, episode: &EpisodeGroup) {
        if let Some(last) = self.groups.last_mut().filter(|last| last.count < self.size) {
            return last.join(episode);
        }
        if self.groups.len() == GROUPS {
            let joined = self.groups.chunks(2).map(|pair| {
                let mut joined = pair[0];
                pair[1..].iter().for_each(|other| joined.join(other));
                joined
            });
            self.groups = joined.collect();
            self.size *= 2;
        }
        self.groups.push(*episode);
    }
}

impl Library {
    /// Returns an overview of the episodes of each env. Reads the listing of every episode; memory grows only with envs
    /// and folders.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn overview(&self) -> Result<BTreeMap<String, EnvOverview>, ReadError> {
        let mut envs: BTreeMap<String, EnvOverview> = BTreeMap::new();
        for folder in self.folders() {
            let mut here: BTreeMap<String, Groups> = BTreeMap::new();
            folder.for_each(|info| {
                let env = envs.entry(info.env().to_owned()).or_default();
                *env.outcomes.entry(info.outcome.word()).or_default() += 1;
                let total_reward = info.total_reward.filter(|_| info.outcome.is_finished());
                if total_reward.is_some_and(f64::is_nan) {
                    env.no_numbers += 1;
                } else if let Some(total_reward) = total_reward {
                    let groups = here.entry(info.env().to_owned()).or_insert_with(Groups::new);
                    groups.add(&EpisodeGroup::of(&info, total_reward));
                }
            })?;
            for (env, groups) in here {
                envs.entry(env).or_default().groups.extend(groups.groups);
            }
        }
        for env in envs.values_mut() {
            env.groups.sort_by(|a, b| a.started_ms.total_cmp(&b.started_ms));
        }
        Ok(envs)
    }
}

impl EnvOverview {
    /// Iterates over what is counted: outcomes, and episodes whose return is no number if there are any.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let outcomes = self.outcomes.iter().map(|(&word, &number)| (word, number));
        outcomes.chain((self.no_numbers > 0).then_some(("no number", self.no_numbers)))
    }

    /// Returns the number of episodes that were not interrupted.
    pub fn ended(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Returns at most `most` groups of about equally many episodes.
    pub fn in_groups(&self, most: usize) -> Vec<EpisodeGroup> {
        let (total, mut before) = (self.ended(), 0);
        let mut joined: Vec<(u64, EpisodeGroup)> = Vec::new();
        for group in &self.groups {
            // By where its middle stands.
            let place = (u128::from(before) * 2 + u128::from(group.count)) * most as u128
                / (u128::from(total) * 2).max(1);
            before += group.count;
            match joined.last_mut() {
                Some((last, into)) if *last == place as u64 => into.join(group),
                _ => joined.push((place as u64, *group)),
            }
        }
        joined.into_iter().map(|(_, group)| group).collect()
    }
}

/// Most groups that are kept of an env in a folder.
const GROUPS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn group(at: u64) -> EpisodeGroup {
        let value = at as f64;
        EpisodeGroup {
            count: 1,
            started_ms: value,
            mean_return: value,
            least_return: value,
            most_return: value,
            mean_length: 2.0 * value,
            least_length: 2.0 * value,
            most_length: 2.0 * value,
        }
    }

    #[test]
    fn however_many_episodes_there_are_their_groups_are_few_and_as_large() {
        let mut groups = Groups::new();
        let count = 3 * GROUPS as u64 + 17;
        (0..count).for_each(|at| groups.add(&group(at)));
        assert!(groups.groups.len() <= GROUPS && groups.groups.len() > GROUPS / 2);
        let (last, full) = groups.groups.split_last().unwrap();
        assert!(full.iter().all(|group| group.count == 4) && last.count <= 4);
        let overview = EnvOverview { groups: groups.groups, ..EnvOverview::default() };
        assert_eq!(overview.ended(), count);
        for most in [1, 7, 80, 5000] {
            let joined = overview.in_groups(most);
            assert!(joined.len() <= most && joined.iter().map(|group| group.count).sum::<u64>() == count);
            assert!(joined.is_sorted_by(|a, b| a.mean_return < b.mean_return));
            assert_eq!(
                (joined[0].least_return, joined[joined.len() - 1].most_return),
                (0.0, (count - 1) as f64)
            );
        }
        let all = overview.in_groups(1)[0];
        let mean = (count - 1) as f64 / 2.0;
        assert!((all.mean_return - mean).abs() < 1e-6 && (all.mean_length - 2.0 * mean).abs() < 1e-6);
    }

    #[test]
    fn an_env_none_of_whose_episodes_ended_has_no_groups() {
        assert_eq!(EnvOverview::default().in_groups(80), []);
    }
}
