//! Rows of lanes as values.

use rollhouse_core::{AutoresetMode, ColumnRef, EnvSpec};
use rollhouse_engine::{Frame, Received};

/// All that is shown of a lane's step, by its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Row {
    pub(crate) obs: Vec<u8>,
    /// Last observation of an episode that ended, where it has a column of its own.
    pub(crate) last: Vec<u8>,
    pub(crate) infos: Vec<u8>,
    pub(crate) reward: u64,
    /// Terminated, truncated, reset.
    pub(crate) flags: [u8; 3],
}

impl Row {
    pub(crate) const fn is_over(&self) -> bool {
        self.flags[0] | self.flags[1] == 1
    }
}

/// Columns of rows.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    obs: Vec<usize>,
    infos: Vec<usize>,
    same_step: bool,
}

impl Shape {
    pub(crate) fn of(spec: &EnvSpec, autoreset: AutoresetMode) -> Self {
        Self {
            obs: spec.obs_columns().iter().map(|column| column.elements()).collect(),
            infos: spec.info_channels.iter().map(|column| column.elements()).collect(),
            same_step: autoreset == AutoresetMode::SameStep,
        }
    }

    /// The actions that the rows report, where they do.
    pub(crate) fn taken(&self, rows: &[Row]) -> Option<Vec<i64>> {
        // It is the first of four channels, of eight bytes.
        let action = |row: &Row| row.infos.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        (self.infos.len() == 4).then(|| rows.iter().map(action).collect())
    }

    /// The rows of a frame by lane.
    pub(crate) fn rows(&self, frame: &Frame<'_>) -> Vec<Row> {
        let flags = [frame.terminated(), frame.truncated(), frame.reset()];
        let row = |lane| {
            self.row(lane, frame.rewards()[lane], flags.map(|flags| flags[lane]), |part, column| match part {
                Part::Obs => frame.obs(column),
                Part::Last => frame.final_obs(column),
                Part::Infos => frame.info(column),
            })
        };
        (0..frame.lanes()).map(row).collect()
    }

    /// The rows of lanes that were received, each with its lane.
    pub(crate) fn received(&self, received: &Received) -> Vec<(u32, Row)> {
        let Received { lanes, obs, infos, final_obs, rewards, terminated, truncated, reset } = received;
        let row = |(at, &lane)| {
            let flags = [terminated, truncated, reset].map(|flags: &Vec<u8>| flags[at]);
            let row = self.row(at, rewards[at], flags, |part, column| match part {
                Part::Obs => obs[column].as_ref(),
                Part::Last => final_obs[column].as_ref(),
                Part::Infos => infos[column].as_ref(),
            });
            (lane, row)
        };
        lanes.iter().enumerate().map(row).collect()
    }

    fn row<'a>(
        &self,
        at: usize,
        reward: f64,
        flags: [u8; 3],
        column: impl Fn(Part, usize) -> ColumnRef<'a>,
    ) -> Row {
        let of = |part, widths: &[usize]| {
            let columns = widths.iter().enumerate();
            let columns =
                columns.map(|(index, width)| column(part, index).slice(at * width, (at + 1) * width));
            columns.flat_map(|row| row.bytes().to_vec()).collect()
        };
        let mut row = Row {
            obs: of(Part::Obs, &self.obs),
            last: Vec::new(),
            infos: of(Part::Infos, &self.infos),
            reward: reward.to_bits(),
            flags,
        };
        if self.same_step && row.is_over() {
            row.last = of(Part::Last, &self.obs);
        }
        row
    }
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Obs,
    Last,
    Infos,
}
