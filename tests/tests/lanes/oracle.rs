//! What the lanes of the foretold env show, written from the contract alone: Gymnasium's rules of vector envs in its three
//! modes, and docs/architecture.md on lanes that are lost. Nothing here steps an env.

use rollhouse_core::{AutoresetMode, Interruption, OptionValue, Outcome};
use rollhouse_engine::{Reset, StatisticsAnswer};
use rollhouse_env::Generator;

use super::rows::Row;

/// All lanes as they should be.
pub(crate) struct Oracle {
    mode: AutoresetMode,
    limit: u64,
    lanes: Vec<Lane>,
    pub(crate) ended: Vec<Ended>,
}

#[derive(Debug, Clone)]
struct Lane {
    /// Generator of the lane's marks; `None` once it was lost, until it is seeded: where it is then is its kind's.
    generator: Option<Generator>,
    scale: f64,
    mark: f64,
    steps: u64,
    obs: Vec<u8>,
    standing: Standing,
    episode: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Playing,
    Over,
    Lost,
}

/// An episode that ended: its lane, its number in the lane, and all that is said of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ended {
    pub(crate) lane: u32,
    pub(crate) number: u64,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) rewards: Vec<f64>,
    pub(crate) actions: Vec<i64>,
    pub(crate) versions: Vec<u64>,
    pub(crate) scale: f64,
}

impl Oracle {
    pub(crate) fn new(mode: AutoresetMode, limit: u32, lanes: usize) -> Self {
        let lane = |lane| Lane {
            generator: None,
            scale: 1.0,
            mark: 0.0,
            steps: 0,
            obs: Vec::new(),
            standing: Standing::Lost,
            // The first episode has number 0.
            episode: Ended { lane, number: u64::MAX, ..Ended::default() },
        };
        Self { mode, limit: limit.into(), lanes: (0..lanes as u32).map(lane).collect(), ended: Vec::new() }
    }

    /// Returns the rows of a reset, of which lanes that it leaves out keep their observation.
    pub(crate) fn reset(&mut self, reset: &Reset, found: &[Row]) -> Vec<Row> {
        let scales = reset.options.get("scale");
        let rows = self.lanes.iter_mut().enumerate().map(|(at, lane)| {
            if !reset.mask.get(at).copied().unwrap_or(true) {
                return Row { obs: lane.obs.clone(), ..Row::default() };
            }
            if lane.standing == Standing::Playing {
                let cancelled = Outcome::Interrupted(Interruption::Cancelled);
                self.ended.push(Ended { outcome: Some(cancelled), ..lane.episode.clone() });
            }
            if let Some(&OptionValue::Float(scale)) =
                scales.and_then(|scales| scales.get(at).or(scales.first()))
            {
                lane.scale = scale;
            }
            if let Some(&Some(seed)) = reset.seeds.get(at) {
                lane.generator = Some(Generator::seeded(seed));
            }
            lane.begin(&found[at])
        });
        rows.collect()
    }

    /// Returns the row of a lane that takes an action under a version of the policy.
    pub(crate) fn step(&mut self, at: usize, action: i64, version: u64, found: &Row) -> Row {
        let (mode, limit, lane) = (self.mode, self.limit, &mut self.lanes[at]);
        match (lane.standing, mode) {
            (Standing::Playing, _) => {}
            (Standing::Over, AutoresetMode::NextStep) => return lane.begin(found),
            (Standing::Over, _) => panic!("lane {at} is stepped and is over"),
            // It is not stepped until it is back, and shows what it showed.
            (Standing::Lost, _) if found.flags == [0, 0, 0] => {
                return Row { obs: lane.obs.clone(), ..Row::default() };
            }
            (Standing::Lost, _) => return lane.begin(found),
        }
        lane.steps += 1;
        lane.show(action);
        let reward = lane.scale * (lane.mark + action as f64);
        lane.episode.rewards.push(reward);
        lane.episode.actions.push(action);
        lane.episode.versions.push(version);
        let flags = [lane.steps >= 3 + (lane.mark * 9.0) as u64, lane.steps >= limit];
        let infos = (lane.mark * lane.steps as f64).to_le_bytes().to_vec();
        let [terminated, truncated] = flags.map(u8::from);
        let mut row = Row {
            obs: lane.obs.clone(),
            last: Vec::new(),
            infos,
            reward: reward.to_bits(),
            flags: [terminated, truncated, 0],
        };
        if flags.contains(&true) {
            lane.standing = Standing::Over;
            let outcome = Outcome::Finished { terminated: flags[0], truncated: flags[1] };
            self.ended.push(Ended { outcome: Some(outcome), ..lane.episode.clone() });
            if mode == AutoresetMode::SameStep {
                row.last = std::mem::replace(&mut row.obs, lane.begin(found).obs);
            }
        }
        row
    }

    /// Returns the row in which a lane is lost: it shows what it showed, no reward, and that its episode was cut.
    pub(crate) fn lose(&mut self, at: usize, cause: Outcome) -> Row {
        let lane = &mut self.lanes[at];
        // One that waits for its next episode loses none.
        if lane.standing == Standing::Playing {
            self.ended.push(Ended { outcome: Some(cause), ..lane.episode.clone() });
        }
        (lane.standing, lane.generator) = (Standing::Lost, None);
        let last = if self.mode == AutoresetMode::SameStep { lane.obs.clone() } else { Vec::new() };
        Row { obs: lane.obs.clone(), last, flags: [0, 1, 0], ..Row::default() }
    }

    pub(crate) fn is_lost(&self, at: usize) -> bool {
        self.lanes[at].standing == Standing::Lost
    }

    /// Returns which lanes wait for a reset.
    pub(crate) fn over(&self) -> Vec<bool> {
        self.lanes.iter().map(|lane| lane.standing == Standing::Over).collect()
    }

    /// Compares what was counted of the lanes, in one or several sessions.
    pub(crate) fn check_counted(&self, counted: &[StatisticsAnswer], what: &str) {
        // Who has lanes that were lost with their node counts them, and no session does.
        let elsewhere = Outcome::Interrupted(Interruption::NodeLost);
        for word in Outcome::ALL.iter().filter(|&&one| one != elsewhere).map(|one| one.word()) {
            let wanted =
                self.ended.iter().filter(|ended| ended.outcome.is_some_and(|one| one.word() == word));
            let found = counted.iter().filter_map(|one| one.outcomes.get(word)).sum::<u64>();
            assert_eq!(found, wanted.count() as u64, "{what}: {word}");
        }
        let finished = || self.ended.iter().filter(|ended| ended.is_finished());
        let returns: Vec<f64> = finished().map(Ended::total).collect();
        let lengths: Vec<f64> = finished().map(|ended| ended.rewards.len() as f64).collect();
        for (values, answers) in [
            (returns, counted.iter().map(|one| one.returns).collect::<Vec<_>>()),
            (lengths, counted.iter().map(|one| one.lengths).collect()),
        ] {
            let (found, wanted) =
                (answers.iter().map(|one| one.sum).sum::<f64>(), values.iter().sum::<f64>());
            // Episodes are added up in another order than they were counted in.
            assert!((found - wanted).abs() <= wanted.abs() * 1e-12, "{what}: {found}, not {wanted}");
            let least = answers.iter().filter_map(|one| one.min).reduce(f64::min);
            let most = answers.iter().filter_map(|one| one.max).reduce(f64::max);
            assert_eq!(least, values.iter().copied().reduce(f64::min), "{what}");
            assert_eq!(most, values.iter().copied().reduce(f64::max), "{what}");
        }
    }
}

impl Ended {
    /// Returns whether the episode ended by itself or by a limit.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Finished { .. }))
    }

    pub(crate) fn total(&self) -> f64 {
        self.rewards.iter().sum()
    }
}

impl Lane {
    /// Begins an episode. Where the lane's generator is not known, the row that was found says its mark.
    fn begin(&mut self, found: &Row) -> Row {
        self.mark = match &mut self.generator {
            Some(generator) => generator.next_f64(),
            None => {
                let shown = found.obs.last_chunk().map(|bytes| f64::from_le_bytes(*bytes));
                shown.filter(|mark| (0.0..1.0).contains(mark) && *mark != self.mark).expect("a new mark")
            }
        };
        let Ended { lane, number, .. } = self.episode;
        self.episode = Ended { lane, number: number.wrapping_add(1), scale: self.scale, ..Ended::default() };
        (self.steps, self.standing) = (0, Standing::Playing);
        self.show(0);
        Row { obs: self.obs.clone(), flags: [0, 0, 1], ..Row::default() }
    }

    fn show(&mut self, action: i64) {
        let count = [self.steps as i64, action].map(i64::to_le_bytes).concat();
        self.obs = [count, self.mark.to_le_bytes().to_vec()].concat();
    }
}
