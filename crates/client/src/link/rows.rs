//! Reads the rows of an answer about some lanes, from either kind of link.

use std::ops::Range;

use rollhouse_arena::{AttachedArena, LaneRow};
use rollhouse_core::{ColumnData, ColumnRef, DType};
use rollhouse_engine::Received;
use rollhouse_wire::{BatchPlaces, ColumnBuffer, FrameHeader, FrameKind, FrameLayout, Notes};

use super::{Link, MemoryLink, notes_of};
use crate::carrier::SessionStream;
use crate::check::check_notes;

/// The rows that an answer must have.
pub(crate) struct RowsOf<'a> {
    pub(crate) layout: &'a FrameLayout,
    /// Indices of the observation's columns that hold booleans.
    pub(crate) bools: &'a [usize],
    pub(crate) same_step: bool,
    /// Lanes of the session that the request named, ascending. The answer has rows of some of them.
    pub(crate) lanes: &'a [u32],
    /// The session's lanes in the pool.
    pub(crate) session: &'a Range<usize>,
}

impl<S: SessionStream> Link<S> {
    /// Takes the rows of the last answer, and its notes beside them.
    ///
    /// # Errors
    /// If it has other rows, or is malformed.
    pub(crate) fn rows(&mut self, header: FrameHeader, of: &RowsOf<'_>) -> Result<(Received, Notes), String> {
        let (rows, notes) = match self {
            Self::Stream(link) => of.rows_of_stream(header, link)?,
            Self::Memory(link) => of.rows_of_memory(link)?,
        };
        Ok((sound(rows, of.bools)?, notes))
    }
}

impl RowsOf<'_> {
    fn rows_of_stream(
        &self,
        header: FrameHeader,
        link: &impl SessionStream,
    ) -> Result<(Received, Notes), String> {
        let with_final = header.flags & FrameHeader::FINAL_OBS != 0;
        if header.kind != FrameKind::Rows || with_final && !self.same_step {
            return Err(format!("a frame of kind {:?} was not asked for", header.kind));
        }
        let buffer = link.columns().ok_or("the answer is gone")?;
        let count = buffer.count().map_or(0, |count| count as usize);
        let places = Some(count).filter(|&count| count <= self.lanes.len());
        let places = places.and_then(|count| self.layout.rows(count, with_final));
        let Some(places) = places.filter(|places| places.bytes == buffer.bytes().len()) else {
            return Err(format!("rows of {} bytes for {count} lanes", buffer.bytes().len()));
        };
        let named = buffer.lanes(&places.lanes);
        let sent = |lane: &u32| self.lanes.binary_search(lane).is_ok();
        if !named.iter().all(sent) || !named.is_sorted_by(|one, next| one < next) {
            return Err("rows of other lanes than were sent, or not in ascending order".to_owned());
        }
        let rows = self.gather(buffer, &places, count, self.session.start as u32);
        let notes = notes_of(link)?;
        check_notes(&notes, &notes.lost, self.session.len())?;
        Ok((rows, notes))
    }

    fn rows_of_memory(&self, link: &mut MemoryLink) -> Result<(Received, Notes), String> {
        let lanes = link.take_ready(self.lanes);
        let rows = self.rows_in(link.arena(), &lanes, self.session.start as u32);
        Ok((rows, link.notes_of(&lanes)?))
    }

    /// Returns the rows of lanes that were received through memory.
    fn rows_in(&self, arena: &AttachedArena, lanes: &[u32], first: u32) -> Received {
        let received = || lanes.iter().map(|&lane| arena.lane_row(lane));
        let pick = |spec: &rollhouse_core::ColumnSpec, of: &dyn for<'a> Fn(LaneRow<'a>) -> ColumnRef<'a>| {
            let mut rows = ColumnData::zeros(spec.dtype, 0);
            for row in received() {
                let appended = rows.extend(of(row));
                debug_assert!(appended, "the memory has the layout's types");
            }
            rows
        };
        let obs = self.layout.obs.iter().enumerate();
        let infos = self.layout.infos.iter().enumerate();
        Received {
            lanes: lanes.iter().map(|lane| first + lane).collect(),
            obs: obs.clone().map(|(column, spec)| pick(spec, &|row| row.obs(column))).collect(),
            infos: infos.map(|(column, spec)| pick(spec, &|row| row.info(column))).collect(),
            final_obs: match self.same_step {
                true => obs.map(|(column, spec)| pick(spec, &|row| row.final_obs(column))).collect(),
                false => Vec::new(),
            },
            rewards: received().map(|row| row.reward()).collect(),
            terminated: received().map(|row| row.terminated()).collect(),
            truncated: received().map(|row| row.truncated()).collect(),
            reset: received().map(|row| row.reset()).collect(),
        }
    }

    fn gather(&self, buffer: &ColumnBuffer, places: &BatchPlaces, count: usize, first: u32) -> Received {
        let columns = |specs: &[rollhouse_core::ColumnSpec], places: &[std::ops::Range<usize>]| {
            let pairs = specs.iter().zip(places);
            pairs.map(|(spec, place)| ColumnData::from(buffer.column(place, spec.dtype))).collect::<Vec<_>>()
        };
        let final_obs = match (self.same_step, places.final_obs.as_slice()) {
            (true, []) => {
                let zeros = |spec: &rollhouse_core::ColumnSpec| {
                    ColumnData::zeros(spec.dtype, count * spec.elements())
                };
                self.layout.obs.iter().map(zeros).collect()
            }
            (_, places) => columns(&self.layout.obs, places),
        };
        let flags = |place| match buffer.column(place, DType::U8) {
            ColumnRef::U8(flags) => flags.to_vec(),
            _ => Vec::new(),
        };
        let rewards = buffer.column(&places.rewards, DType::F64);
        Received {
            lanes: buffer.lanes(&places.lanes).iter().map(|lane| first + lane).collect(),
            obs: columns(&self.layout.obs, &places.obs),
            infos: columns(&self.layout.infos, &places.infos),
            final_obs,
            rewards: rewards.as_f64().map(<[f64]>::to_vec).unwrap_or_default(),
            terminated: flags(&places.terminated),
            truncated: flags(&places.truncated),
            reset: flags(&places.reset),
        }
    }
}

/// Returns the rows, if all flags and booleans in them are 0 or 1.
fn sound(rows: Received, bools: &[usize]) -> Result<Received, String> {
    let flags = rows.terminated.iter().chain(&rows.truncated).chain(&rows.reset);
    let of_obs = bools.iter().filter_map(|&column| match &rows.obs[column] {
        ColumnData::U8(values) => Some(values),
        _ => None,
    });
    if flags.chain(of_obs.flatten()).any(|&flag| flag > 1) {
        return Err("rows with flags that are neither 0 nor 1".to_owned());
    }
    Ok(rows)
}
