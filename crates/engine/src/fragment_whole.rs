//! Fragments with one whole episode of each lane.

use rollhouse_core::{ColumnData, ColumnRef};

use crate::Fragment;
use crate::fragment::{Finals, part};

impl Fragment {
    /// Puts fragments of the same lanes together, each of which begins where the one before ends. `None` if there are none.
    pub fn joined(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let steps = parts.iter().map(|part| part.steps).sum();
        let rows = |of: fn(&Self) -> &[u8]| parts.iter().flat_map(of).copied().collect();
        let shown = |of: fn(&Self) -> &[ColumnData]| {
            let column = |column: usize| {
                let begin = part(&of(first)[column], first.room + 1, 0..1);
                let frames = |one: &Self| 1..one.steps + 1;
                joined(begin, parts.iter().map(|one| part(&of(one)[column], one.room + 1, frames(one))))
            };
            (0..of(first).len()).map(column).collect()
        };
        let done = |of: &dyn Fn(&Self) -> &ColumnData| {
            let nothing = of(first).as_ref().slice(0, 0);
            joined(nothing, parts.iter().map(|one| part(of(one), one.room, 0..one.steps)))
        };
        Some(Self {
            lanes: first.lanes,
            room: steps,
            steps,
            obs: shown(|one| &one.obs),
            infos: shown(|one| &one.infos),
            rewards: parts.iter().flat_map(Self::rewards).copied().collect(),
            terminated: rows(Self::terminated),
            truncated: rows(Self::truncated),
            reset: rows(Self::reset),
            lost: rows(Self::lost),
            actions: done(&|one| &one.actions),
            versions: parts.iter().flat_map(Self::versions).copied().collect(),
            notes: (0..first.notes.len()).map(|column| done(&|one| &one.notes[column])).collect(),
            states: first.states.clone(),
            finals: joined_finals(parts),
        })
    }

    /// Notes which lanes have come to the end of their first episode, or are lost, and returns whether all have. `ended` has a
    /// flag of each, which stays.
    pub fn note_first_ends(&self, ended: &mut [bool]) -> bool {
        let over = self.terminated().iter().zip(self.truncated()).zip(self.lost());
        for (row, ((&terminated, &truncated), &lost)) in over.enumerate() {
            ended[row % self.lanes] |= terminated | truncated | lost == 1;
        }
        ended.iter().all(|&ended| ended)
    }

    /// Leaves the first episode of each lane: rows behind its end have nothing, as if they began one, and steps in which nothing is
    /// left are cut off.
    pub fn keep_first_episodes(&mut self) {
        let mut ends = vec![self.steps; self.lanes];
        for row in 0..self.steps * self.lanes {
            let (step, lane) = (row / self.lanes, row % self.lanes);
            if step > ends[lane] {
                (self.rewards[row], self.terminated[row], self.truncated[row]) = (0.0, 0, 0);
                (self.reset[row], self.lost[row]) = (1, 0);
            } else if self.terminated[row] | self.truncated[row] | self.lost[row] == 1 {
                ends[lane] = step;
            }
        }
        self.steps = ends.iter().map(|end| (end + 1).min(self.steps)).max().unwrap_or(0);
        let lanes = self.lanes as u64;
        self.finals.retain(|row| row / lanes <= ends[(row % lanes) as usize] as u64);
    }
}

impl Finals {
    /// Leaves those whose rows are wanted.
    fn retain(&mut self, wanted: impl Fn(u64) -> bool) {
        let of = self.rows.len();
        for column in &mut self.obs {
            let nothing = ColumnData::zeros(column.as_ref().dtype(), 0);
            let kept = (0..of).filter(|&at| wanted(self.rows[at]));
            let kept = joined(nothing.as_ref(), kept.map(|at| part(column, of, at..at + 1)));
            *column = kept;
        }
        self.rows.retain(|&row| wanted(row));
    }
}

fn joined_finals(parts: &[Fragment]) -> Finals {
    let (mut rows, mut before) = (Vec::new(), 0);
    for one in parts {
        rows.extend(one.finals.rows.iter().map(|row| before + row));
        before += one.rows() as u64;
    }
    let columns = parts.first().map_or(0, |first| first.finals.obs.len());
    let column = |column: usize| {
        let mut all = parts.iter().map(|one| one.finals.obs[column].as_ref());
        let first = all.next().unwrap_or(ColumnRef::U8(&[]));
        joined(first, all)
    };
    Finals { rows, obs: (0..columns).map(column).collect() }
}

/// Puts columns of one type behind one another.
fn joined<'a>(first: ColumnRef<'a>, others: impl Iterator<Item = ColumnRef<'a>>) -> ColumnData {
    let mut all = ColumnData::from(first);
    for other in others {
        let appended = all.extend(other);
        debug_assert!(appended, "fragments of the same lanes have the same columns");
    }
    all
}
