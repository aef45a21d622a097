//! The trainer's half of stepping single lanes in shared memory.

use std::time::Instant;

use rollhouse_core::{ColumnMut, ColumnRef};

use crate::attached::{AttachedArena, Mapped, TrainerError, serves, serves_generation};
use crate::columns::{Place, Slot};
use crate::files::{NODE_BELL, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::patience::{SLICE, Wait};
use crate::words::{Words, WordsMut};

/// Result of waiting for lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadyLanes {
    /// The rows of this number of further lanes are there.
    Ready(usize),
    /// Lanes that were sent were not stepped; the node's note says why.
    Refused {
        /// Lanes that were refused.
        lanes: Vec<u32>,
        /// Reason for the refusal, in the node's encoding.
        note: Vec<u8>,
    },
}

/// The row of one lane, as [`AttachedArena::wait_lanes`] last gave it.
#[derive(Debug, Clone, Copy)]
pub struct LaneRow<'a> {
    arena: &'a AttachedArena,
    lane: usize,
}

impl<'a> LaneRow<'a> {
    /// Returns the lane's elements of column `index` of the observation.
    ///
    /// # Panics
    /// If the observation has no such column.
    pub fn obs(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot().obs[index])
    }

    /// Returns the lane's elements of column `index` of the last observation of an episode that ended in this row
    /// (SAME_STEP only).
    ///
    /// # Panics
    /// If there is no such column.
    pub fn final_obs(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot().final_obs[index])
    }

    /// Returns the lane's elements of info column `index`.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn info(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot().infos[index])
    }

    /// Returns the lane's reward.
    pub fn reward(&self) -> f64 {
        self.read(&self.slot().rewards).as_f64().map_or(0.0, |rewards| rewards[0])
    }

    /// Returns whether the episode terminated in this row: 0 or 1, unless the node wrote anything else.
    pub fn terminated(&self) -> u8 {
        self.flag(&self.slot().terminated)
    }

    /// Returns whether the episode was truncated in this row: 0 or 1, unless the node wrote anything else.
    pub fn truncated(&self) -> u8 {
        self.flag(&self.slot().truncated)
    }

    /// Returns whether the row began an episode instead of stepping: 0 or 1, unless the node wrote anything else.
    pub fn reset(&self) -> u8 {
        self.flag(&self.slot().reset)
    }

    fn flag(&self, place: &Place) -> u8 {
        self.read(place).as_u8().map_or(0, |flags| flags[0])
    }

    fn slot(&self) -> &'a Slot {
        &self.arena.plan.places.slots[2]
    }

    fn read(&self, place: &Place) -> ColumnRef<'a> {
        // SAFETY: the slot's places were checked when the file was attached. The node writes a lane's row between its
        // being sent and its being told as ready; `lane_row` has seen that it is not between them, and sending it
        // borrows the arena exclusively.
        unsafe { self.arena.mapped.columns.read(place.rows(&(self.lane..self.lane + 1))) }
    }
}

impl AttachedArena {
    /// Returns the row of a lane that was received, as [`AttachedArena::wait_lanes`] last reported it.
    ///
    /// # Panics
    /// If there is no such lane, or the node may be writing its row: the lane was sent and not received in this
    /// attachment.
    pub fn lane_row(&self, lane: u32) -> LaneRow<'_> {
        let lane = lane as usize;
        assert!(
            !self.sent.is_written(lane),
            "lane {lane} was sent and not received: its row is being written"
        );
        LaneRow { arena: self, lane }
    }

    /// Asks the node to step some lanes, whose rows of the action column were filled in. Others may be outstanding.
    ///
    /// # Panics
    /// While a request is under way, if there is no such lane, or if it is outstanding.
    pub fn send(&mut self, lanes: &[u32]) {
        self.assert_ours();
        let Mapped { inputs: own, outputs: peer, .. } = &*self.mapped;
        for &lane in lanes {
            let index = lane as usize;
            let number = self.sent.send(index);
            // Pairs with the node's acquire of this word (`ServingEnd::take_sent`): it sees the lane's action.
            own.store_release(self.inputs_plan.lane_seqs_at + index * 8, number);
        }
        let doorbell = own.load(inputs::LANES_SEQ.at).wrapping_add(1);
        own.store_release(inputs::LANES_SEQ.at, doorbell);
        NODE_BELL.ring(own, peer);
    }

    /// Returns the row of the action column of one lane that is not outstanding.
    ///
    /// # Panics
    /// If there is no such lane, or it is outstanding.
    pub fn action_row_mut(&mut self, lane: u32) -> ColumnMut<'_> {
        let index = lane as usize;
        assert!(index < self.lanes(), "lane {lane} is in the batch");
        assert!(!self.sent.is_outstanding(index), "lane {lane} is outstanding");
        // SAFETY: as in `actions_mut`.
        unsafe { self.mapped.actions.write(self.inputs_plan.action.rows(&(index..index + 1))) }
    }

    /// Returns whether a lane was sent and not received yet; false if there is no such lane.
    pub fn is_outstanding(&self, lane: u32) -> bool {
        self.sent.is_outstanding(lane as usize)
    }

    /// Adds the lanes that are done by now to `ready`, as [`AttachedArena::wait_lanes`] does, without asking whether the
    /// node is still there. A trainer that attaches again learns so which lanes need not be sent again.
    ///
    /// # Errors
    /// If the node wrote what cannot be.
    pub fn take_done(&mut self, ready: &mut Vec<u32>) -> Result<usize, TrainerError> {
        // Pairs with the node's release of this word, as in `wait_lanes`.
        let written = self.mapped.outputs.load_acquire(outputs::READY_WRITTEN.at);
        self.take_ready(written, ready)
    }

    /// Returns whether lanes that were sent are done or refused and were not taken yet.
    pub fn has_ready_lanes(&self) -> bool {
        let outputs = &self.mapped.outputs;
        outputs.load_acquire(outputs::READY_WRITTEN.at) != self.ready_read
            || outputs.load_acquire(outputs::LANES_REFUSED.at) != self.lanes_refused
    }

    /// Returns the number of lanes that were sent and not received yet.
    pub const fn outstanding(&self) -> usize {
        self.sent.outstanding()
    }

    /// Waits until at least `min` of the lanes that are outstanding are done, and adds all that are to `ready`; each
    /// one's row is in [`AttachedArena::lane_row`].
    ///
    /// # Errors
    /// See [`TrainerError`]; after `TimedOut` the lanes are still outstanding.
    pub fn wait_lanes(
        &mut self,
        min: usize,
        ready: &mut Vec<u32>,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<ReadyLanes, TrainerError> {
        let Self { mapped, patience, generation, ready_read, lanes_refused, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline, slice: SLICE };
        let wanted = ready_read.wrapping_add(min as u64);
        if peer.load_acquire(outputs::READY_WRITTEN.at) < wanted
            && own.load(inputs::LANES_WANTED.at) != wanted
        {
            // Pairs with the node's acquire of this word (`ServingEnd::is_waited_for`).
            own.store_release(inputs::LANES_WANTED.at, wanted);
            NODE_BELL.ring(own, peer);
        }
        let look = || {
            // Pairs with the node's release of this word (`ServingEnd::answer_lanes`): the rows are there.
            let written = peer.load_acquire(outputs::READY_WRITTEN.at);
            let refused = peer.load_acquire(outputs::LANES_REFUSED.at) != *lanes_refused;
            if written.wrapping_sub(*ready_read) < min as u64 && !refused {
                return serves(peer, *generation).map(|()| None);
            }
            serves_generation(peer, *generation).map(|()| Some((written, refused)))
        };
        let (written, refused) = patience.wait(&wait, look, alive).map_err(TrainerError::of)?;
        let count = self.take_ready(written, ready)?;
        if !refused {
            return Ok(ReadyLanes::Ready(count));
        }
        self.take_refused(ready)
    }

    fn take_ready(&mut self, written: u64, ready: &mut Vec<u32>) -> Result<usize, TrainerError> {
        let most = self.ready_read.saturating_add(self.sent.outstanding() as u64);
        if written < self.ready_read || written > most {
            let word = outputs::READY_WRITTEN.name;
            return Err(TrainerError::Answer { word, value: written, wanted: most });
        }
        let mut count = 0;
        while self.ready_read < written {
            let lane = self.mapped.outputs.load(self.plan.ready(self.ready_read));
            let index = usize::try_from(lane).unwrap_or(usize::MAX);
            if !self.sent.is_outstanding(index) {
                let wanted = self.lanes() as u64 - 1;
                return Err(TrainerError::Answer { word: "ready lane", value: lane, wanted });
            }
            self.sent.receive(index);
            ready.push(lane as u32);
            self.ready_read = self.ready_read.wrapping_add(1);
            count += 1;
        }
        self.mapped.inputs.store_release(inputs::READY_READ.at, self.ready_read);
        Ok(count)
    }

    fn take_refused(&mut self, ready: &mut Vec<u32>) -> Result<ReadyLanes, TrainerError> {
        self.lanes_refused = self.mapped.outputs.load_acquire(outputs::LANES_REFUSED.at);
        let note = self.note()?;
        let outputs = &self.mapped.outputs;
        let answered = |lane: usize| outputs.load_acquire(self.plan.lane_seq(lane)) == self.sent.number(lane);
        let refused = |&lane: &usize| self.sent.is_outstanding(lane) && answered(lane);
        let mut lanes: Vec<usize> = (0..self.lanes()).filter(refused).collect();
        // What was refused is answered without being ready. Others may have become ready since, and have their entries.
        self.take_done(ready)?;
        lanes.retain(|&lane| self.sent.is_outstanding(lane));
        lanes.iter().for_each(|&lane| self.sent.receive(lane));
        Ok(ReadyLanes::Refused { lanes: lanes.into_iter().map(|lane| lane as u32).collect(), note })
    }
}
