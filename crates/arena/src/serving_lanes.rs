//! The node's half of stepping single lanes in shared memory.

use std::time::Instant;

use arrayvec::ArrayVec;
use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{ColumnData, ColumnMut};

use crate::columns::Place;
use crate::files::{NODE_BELL, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::patience::{Patience, SLICE, Unmet, Wait};
use crate::serving::{PeerError, Request, ServeError, ServingEnd, look};
use crate::shared::SharedMemory;
use crate::words::{Words, WordsMut};

/// Columns that hold rows of single lanes. Each has the rows of all lanes.
#[derive(Debug)]
pub struct LaneRows<'a> {
    /// Observation columns.
    pub obs: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// Info columns.
    pub infos: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// Columns of last observations; empty unless SAME_STEP.
    pub final_obs: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// Rewards, one for each lane.
    pub rewards: ColumnMut<'a>,
    /// Terminated flags.
    pub terminated: ColumnMut<'a>,
    /// Truncated flags.
    pub truncated: ColumnMut<'a>,
    /// Reset flags.
    pub reset: ColumnMut<'a>,
}

impl ServingEnd {
    /// Copies the actions of some lanes, one row for each in the order of `lanes`.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn copy_actions_of(&self, lanes: &[u32]) -> ColumnData {
        let action = &self.inputs_plan.action;
        let mut rows = ColumnData::zeros(action.dtype, lanes.len() * action.row_elements);
        let mut into = rows.as_mut();
        let bytes = into.bytes_mut();
        let row_bytes = action.row_elements * action.dtype.size();
        for (index, &lane) in lanes.iter().enumerate() {
            assert!((lane as usize) < self.plan.places.lanes, "lane {lane} is in the batch");
            let row = &mut bytes[index * row_bytes..(index + 1) * row_bytes];
            self.inputs.copy_to(action.offset + lane as usize * row_bytes, row);
        }
        rows
    }

    /// Fills `sent` with the lanes that were sent since the last call, in ascending order. Each is to be answered by
    /// [`ServingEnd::answer_lanes`] or [`ServingEnd::refuse_lanes`], some earlier than others. Returns how often the
    /// trainer has sent lanes, or none, since the last call.
    ///
    /// # Errors
    /// If a lane was sent again before it was answered.
    pub fn take_sent(&mut self, sent: &mut Vec<u32>) -> Result<u64, PeerError> {
        let sends = self.sends.seen.wrapping_sub(self.sends.taken);
        self.sends.taken = self.sends.seen;
        sent.clear();
        for (lane, taken) in self.taken.iter_mut().enumerate() {
            // Pairs with the trainer's release of this word (`AttachedArena::send`): its action row is there.
            let given = self.inputs.load_acquire(self.inputs_plan.lane_seqs_at + lane * 8);
            if given == *taken {
                continue;
            }
            let answered = self.outputs.load(self.plan.lane_seq(lane));
            if given != *taken + 1 || *taken != answered {
                return Err(PeerError::LaneNumber { lane, given, taken: *taken });
            }
            *taken = given;
            sent.push(lane as u32);
        }
        Ok(sends)
    }

    /// Returns the columns in which rows of single lanes are answered. The trainer may read a lane's row from
    /// [`ServingEnd::answer_lanes`] until it sends the lane again.
    pub fn lane_rows(&mut self) -> LaneRows<'_> {
        let slot = &self.plan.places.slots[2];
        let rows = 0..self.plan.places.lanes;
        // SAFETY: the third slot is reached through this value alone (`SharedArena::attach` sees to there being one,
        // the memory of the other two slots ends before it), `&mut self` excludes a second call meanwhile, and the
        // places of two columns do not overlap (`Places::new`).
        let write = |place: &Place| unsafe { self.lane_rows.write(place.rows(&rows)) };
        LaneRows {
            obs: slot.obs.iter().map(write).collect(),
            infos: slot.infos.iter().map(write).collect(),
            final_obs: slot.final_obs.iter().map(write).collect(),
            rewards: write(&slot.rewards),
            terminated: write(&slot.terminated),
            truncated: write(&slot.truncated),
            reset: write(&slot.reset),
        }
    }

    /// Returns whether the trainer waits for lanes, or has never said for how many it does.
    pub fn is_waited_for(&self) -> bool {
        waits_for_lanes(&self.inputs, self.ready_written)
    }

    /// Waits for a request as [`ServingEnd::wait`] does while the trainer waits for no lane. Returns `None` once it does,
    /// at once if it does by now, or when the deadline has passed. It sleeps at once unless `awake`.
    ///
    /// # Errors
    /// See [`ServeError`]; never `TimedOut`.
    pub fn wait_beside_lanes(
        &mut self,
        deadline: Instant,
        awake: bool,
        alive: impl FnMut() -> bool,
    ) -> Result<Option<Request>, ServeError> {
        let Self { outputs, inputs, requests, taken_up, sends, patience, ready_written, .. } = self;
        let (own, peer, deadline) = (&**outputs, &**inputs, Some(deadline));
        let wait = Wait { own, peer, bell: NODE_BELL, deadline, slice: SLICE };
        let ready = || {
            let request = look(peer, requests, taken_up.number(), &mut sends.seen)?;
            let over = request.is_some() || waits_for_lanes(peer, *ready_written);
            Ok(over.then_some(request))
        };
        let mut asleep = Patience::NONE;
        let patience = if awake { patience } else { &mut asleep };
        match patience.wait(&wait, ready, alive) {
            Ok(request) => Ok(request),
            Err(Unmet::TimedOut) => Ok(None),
            Err(Unmet::Gone) => Err(ServeError::Gone),
            Err(Unmet::Failed(error)) => Err(ServeError::Peer(error)),
        }
    }

    /// Writes which lanes are lost now, with the codes of their outcomes, before [`ServingEnd::answer_lanes`].
    /// [`ServingEnd::answer_frame`] writes it itself.
    ///
    /// # Panics
    /// If a lane is not in the batch.
    pub fn show_lost(&mut self, lost: &[(u32, u8)]) {
        if !(lost.is_empty() && self.lost.is_empty()) {
            self.note_lost(lost);
        }
    }

    /// Tells the trainer that the rows of these lanes are there.
    ///
    /// # Errors
    /// If the trainer's cursor in the ring of ready lanes has an impossible value.
    pub fn answer_lanes(&mut self, lanes: &[u32]) -> Result<(), PeerError> {
        let read = self.inputs.load_acquire(inputs::READY_READ.at);
        let (written, room) = (self.ready_written, self.plan.ready_lanes as u64);
        let waiting = written.checked_sub(read).filter(|waiting| waiting + lanes.len() as u64 <= room);
        if waiting.is_none() {
            return Err(PeerError::ReadyCursor { cursor: read, written });
        }
        for &lane in lanes {
            self.outputs.store(self.plan.ready(self.ready_written), u64::from(lane));
            self.ready_written += 1;
        }
        // Pairs with the trainer's acquire of this word: the rows are there.
        self.outputs.store_release(outputs::READY_WRITTEN.at, self.ready_written);
        for &lane in lanes {
            // Pairs with the trainer's acquire of this word (`take_refused`): who sees it sees the lane's entry in the ring.
            self.outputs.store_release(self.plan.lane_seq(lane as usize), self.taken[lane as usize]);
        }
        TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
        Ok(())
    }

    /// Refuses lanes that were sent: nothing has moved. `note` says why, as for [`ServingEnd::refuse`].
    pub fn refuse_lanes(&mut self, lanes: &[u32], note: &[u8]) {
        self.put_note(note);
        for &lane in lanes {
            self.outputs.store_release(self.plan.lane_seq(lane as usize), self.taken[lane as usize]);
        }
        let refused = self.outputs.load(outputs::LANES_REFUSED.at) + 1;
        self.outputs.store_release(outputs::LANES_REFUSED.at, refused);
        TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
    }
}

/// Returns whether a trainer waits for more lanes than so many entries of the ring of ready lanes.
fn waits_for_lanes(inputs: &SharedMemory, ready_written: u64) -> bool {
    // Pairs with the trainer's release of this word (`AttachedArena::wait_lanes`).
    let wanted = inputs.load_acquire(inputs::LANES_WANTED.at);
    wanted == 0 || wanted > ready_written
}
