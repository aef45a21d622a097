//! Return, length and time of episodes, which Gymnasium's `RecordEpisodeStatistics` tells in `infos["episode"]`.

use std::time::Instant;

/// The return, length and time of the open episode of every lane.
///
/// A step adds its rewards and looks for flags, which costs tens of nanoseconds. Everything else is done for lanes
/// whose episode ends or begins.
pub(crate) struct EpisodeStatistics {
    returns: Vec<f64>,
    /// For each lane, the count of steps at the beginning of its episode.
    began: Vec<u64>,
    /// For each lane, the seconds since `clock` at which its episode began.
    since: Vec<f64>,
    steps: u64,
    clock: Instant,
    /// Seconds since `clock` at the last step in which an episode began or ended.
    now: f64,
    /// Scratch memory for the rows that a step looks at.
    rows: Vec<usize>,
}

/// The rows of a step.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// The lane of each row; `None` for all lanes in order.
    pub(crate) lanes: Option<&'a [u32]>,
    pub(crate) rewards: &'a [f64],
    /// 1 where the row began an episode instead of stepping.
    pub(crate) reset: &'a [u8],
    /// Whether an episode ended in one of the rows.
    pub(crate) ended: bool,
}

impl EpisodeStatistics {
    pub(crate) fn of(lanes: usize) -> Self {
        Self {
            returns: vec![0.0; lanes],
            began: vec![0; lanes],
            since: vec![0.0; lanes],
            steps: 0,
            clock: Instant::now(),
            now: 0.0,
            rows: Vec::new(),
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.returns.len()
    }

    /// Begins an episode in the lanes of which `mask` says so, in all of them if it is empty.
    pub(crate) fn begin(&mut self, mask: &[bool]) {
        self.now = self.clock.elapsed().as_secs_f64();
        for lane in (0..self.lanes()).filter(|&lane| mask.get(lane).copied().unwrap_or(true)) {
            self.begin_lane(lane);
        }
    }

    /// Begins an episode of a lane, in the step that was taken note of last.
    pub(crate) fn begin_lane(&mut self, lane: usize) {
        (self.returns[lane], self.began[lane], self.since[lane]) = (0.0, self.steps, self.now);
    }

    /// Takes note of a step.
    pub(crate) fn step(&mut self, ends: Ends<'_>) {
        match ends.lanes {
            None => {
                self.steps += 1;
                self.returns.iter_mut().zip(ends.rewards).for_each(|(sum, reward)| *sum += reward);
            }
            Some(lanes) => {
                for (&lane, reward) in lanes.iter().zip(ends.rewards) {
                    self.returns[lane as usize] += reward;
                    // One step more than the lanes that did not move.
                    self.began[lane as usize] = self.began[lane as usize].wrapping_sub(1);
                }
            }
        }
        let begins = any(ends.reset);
        if begins || ends.ended {
            self.now = self.clock.elapsed().as_secs_f64();
        }
        if begins {
            let mut rows = std::mem::take(&mut self.rows);
            set_rows(ends.reset, &mut rows);
            rows.iter().for_each(|&row| self.begin_lane(ends.lanes.map_or(row, |lanes| lanes[row] as usize)));
            self.rows = rows;
        }
    }

    /// Returns the sum of the rewards of a lane's episode.
    pub(crate) fn episode_return(&self, lane: usize) -> f64 {
        self.returns[lane]
    }

    /// Returns the number of steps of a lane's episode.
    pub(crate) fn episode_length(&self, lane: usize) -> i64 {
        self.steps.wrapping_sub(self.began[lane]) as i64
    }

    /// Returns the time from its beginning to the step that was taken note of last, to a microsecond.
    pub(crate) fn episode_seconds(&self, lane: usize) -> f64 {
        ((self.now - self.since[lane]) * 1e6).round() / 1e6
    }
}

/// Returns whether a flag is set.
#[inline]
pub(crate) fn any(flags: &[u8]) -> bool {
    flags.iter().fold(0, |any, flag| any | flag) != 0
}

/// Writes the rows whose flag, 0 or 1, is set. Eight flags are looked at together, to skip those that are not set.
pub(crate) fn set_rows(flags: &[u8], rows: &mut Vec<usize>) {
    rows.clear();
    let (eights, rest) = flags.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        let mut word = u64::from_le_bytes(*eight);
        while word != 0 {
            rows.push(at * 8 + word.trailing_zeros() as usize / 8);
            // No flag has more than its lowest bit.
            word &= word - 1;
        }
    }
    let first = eights.len() * 8;
    rows.extend(rest.iter().enumerate().filter(|(_, flag)| **flag != 0).map(|(at, _)| first + at));
}
