//! Episodes that end in fragments.

use rollhouse_engine::Fragment;

/// An episode that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlayedEpisode {
    /// The step of the fragment in which it ended.
    pub step: u32,
    /// Its lane.
    pub lane: u32,
    /// The sum of its rewards.
    pub total: f64,
    /// Number of its steps.
    pub length: u64,
    /// Whether it was ended by the env, and not cut off.
    pub terminated: bool,
}

/// What open episodes have so far.
#[derive(Debug)]
pub(super) struct Tally {
    totals: Vec<f64>,
    lengths: Vec<u64>,
}

impl Tally {
    pub(super) fn new(lanes: usize) -> Self {
        Self { totals: vec![0.0; lanes], lengths: vec![0; lanes] }
    }

    /// Adds the steps of a fragment. Returns the episodes that ended in it, and how many were lost with their lanes.
    pub(super) fn take(&mut self, fragment: &Fragment) -> (Vec<PlayedEpisode>, u64) {
        let lanes = fragment.lanes();
        let (mut ended, mut lost) = (Vec::new(), 0);
        let rows = fragment.rewards().iter().zip(fragment.terminated()).zip(fragment.truncated());
        for (row, ((&reward, &terminated), &truncated)) in rows.enumerate() {
            let lane = row % lanes;
            if fragment.lost()[row] == 1 || fragment.reset()[row] == 1 {
                lost += u64::from(fragment.lost()[row] == 1 && self.lengths[lane] > 0);
                (self.totals[lane], self.lengths[lane]) = (0.0, 0);
                continue;
            }
            self.totals[lane] += reward;
            self.lengths[lane] += 1;
            if terminated | truncated == 1 {
                let (total, length) = (self.totals[lane], self.lengths[lane]);
                let (step, lane_number) = ((row / lanes) as u32, lane as u32);
                ended.push(PlayedEpisode {
                    step,
                    lane: lane_number,
                    total,
                    length,
                    terminated: terminated == 1,
                });
                (self.totals[lane], self.lengths[lane]) = (0.0, 0);
            }
        }
        (ended, lost)
    }
}
