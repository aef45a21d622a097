//! The memory of a session that trainers of this machine may attach to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rollhouse_core::limits::{MAX_LANES, MAX_OBS_COLUMNS};

use crate::columns::BatchColumns;
use crate::files::{ArenaIdent, InputsPlan, OutputsPlan};
use crate::header::{inputs, outputs};
use crate::memory::Memory;
use crate::patience::Patience;
use crate::placement::Placement;
use crate::ring::{MAX_RING_BYTES, MIN_RING_BYTES, RingReader, RingWriter};
use crate::serving::{Sends, ServingEnd, TakenUp, wake};
use crate::shared::SharedMemory;
use crate::words::{Words, WordsMut};

/// Memory of one session to which trainers of this machine may attach; the node writes it.
///
/// It outlives attachments: frames and numbers go on from one to the next. Each attachment has a file of its own for
/// the trainer's writes ([`SharedArena::attach`]), so that the writes of an earlier trainer reach nobody.
#[derive(Debug)]
pub struct SharedArena {
    outputs: Arc<SharedMemory>,
    plan: OutputsPlan,
    columns: BatchColumns,
    ident: ArenaIdent,
    /// Memory of the third slot, which the attachment that is served uses.
    lane_rows: Arc<Memory>,
    ring_bytes: usize,
}

impl SharedArena {
    /// Makes the memory, and the placement on which the one [`Arena`](crate::Arena) in it is to be made.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`MAX_LANES`] lanes or none, more than [`MAX_OBS_COLUMNS`] columns of a kind, or
    /// rings that are no power of two of [`MIN_RING_BYTES`] to [`MAX_RING_BYTES`]; else the kernel's error, as a
    /// rule that there is no memory left.
    pub fn create(
        columns: &BatchColumns,
        lanes: usize,
        ident: ArenaIdent,
        ring_bytes: usize,
    ) -> io::Result<(Self, Placement)> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        if lanes == 0 || lanes > MAX_LANES {
            return Err(invalid(format!("{lanes} lanes, must be 1 to {MAX_LANES}")));
        }
        let most = columns.obs.len().max(columns.infos.len());
        if most > MAX_OBS_COLUMNS {
            return Err(invalid(format!("{most} columns, at most {MAX_OBS_COLUMNS} allowed")));
        }
        if !ring_bytes.is_power_of_two() || !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes) {
            let range = format!("a power of two from {MIN_RING_BYTES} to {MAX_RING_BYTES} is wanted");
            return Err(invalid(format!("rings of {ring_bytes} bytes, {range}")));
        }
        let too_large = || invalid("the batch is larger than an arena may be".to_owned());
        let (plan, front) = OutputsPlan::new(columns, lanes, ring_bytes).ok_or_else(too_large)?;
        let mut outputs = SharedMemory::create_published("rollhouse-outputs", plan.bytes)?;
        let mut slots = outputs.split(plan.columns_at);
        let lane_rows = Arc::new(slots.split(plan.places.lane_rows_at));
        plan.write(&outputs, ident, &front);
        let placement = Placement::published(&plan.places, slots);
        let columns = columns.clone();
        Ok((Self { outputs: Arc::new(outputs), plan, columns, ident, lane_rows, ring_bytes }, placement))
    }

    /// Begins the attachment `generation`, a number that rises from one to the next. The trainer of the previous
    /// attachment, if there was one, is neither answered nor heard any more. `frames` is the number of the arena's
    /// newest frame ([`Arena::frames`](crate::Arena::frames)), from which the new trainer counts on.
    ///
    /// # Errors
    /// `ResourceBusy` while the earlier attachment's end is still there: the memory has one writer. Else what the
    /// kernel says, as a rule that there is no memory or no descriptor left.
    pub fn attach(&mut self, generation: u64, frames: u64) -> io::Result<ServingEnd> {
        // Nobody else clones it, so the count cannot rise meanwhile.
        if Arc::strong_count(&self.lane_rows) > 1 {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "an earlier attachment is still served"));
        }
        let lanes = self.plan.places.lanes;
        let plan = InputsPlan::new(&self.columns.action, lanes, self.ring_bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let inputs = SharedMemory::create_whole("rollhouse-inputs", plan.bytes)?;
        plan.write(&inputs, lanes, self.ident, generation);
        let outputs = &*self.outputs;
        let answered = outputs.load(outputs::ANSWER_SEQ.at);
        // The numbers go on: the trainer reads from the outputs what was answered, and asks on from there.
        inputs.store(inputs::ACTION_SEQ.at, answered);
        let taken: Vec<u64> = (0..lanes).map(|lane| outputs.load(self.plan.lane_seq(lane))).collect();
        for (lane, &seq) in taken.iter().enumerate() {
            inputs.store(plan.lane_seqs_at + lane * 8, seq);
        }
        let ready_written = outputs.load(outputs::READY_WRITTEN.at);
        inputs.store(inputs::READY_READ.at, ready_written);
        // What was written to the ring of answers and not read is dropped with the trainer that asked for it.
        inputs.store(inputs::ANSWERS_READ.at, outputs.load(outputs::ANSWERS_WRITTEN.at));
        inputs.store(inputs::REQUESTS_WRITTEN.at, outputs.load(outputs::REQUESTS_READ.at));
        let sound = |_| io::Error::from(io::ErrorKind::InvalidData);
        let requests = RingReader::resume(plan.requests, outputs, &inputs).map_err(sound)?;
        let answers = RingWriter::resume(self.plan.answers, outputs, &inputs).map_err(sound)?;
        outputs.store(outputs::FRAME_SEQ.at, frames);
        outputs.store(outputs::NODE_SLEEPING.at, 0);
        outputs.store_release(outputs::GENERATION.at, generation);
        wake(outputs);
        let lost =
            (0..lanes as u32).filter(|&l| outputs.load(self.plan.lane_lost(l as usize)) != 0).collect();
        Ok(ServingEnd {
            outputs: Arc::clone(&self.outputs),
            inputs: Arc::new(inputs),
            lane_rows: Arc::clone(&self.lane_rows),
            plan: self.plan.clone(),
            inputs_plan: plan,
            generation,
            taken_up: TakenUp { answered, held: false },
            sends: Sends::default(),
            taken,
            ready_written,
            lost,
            leaving: outputs.load(outputs::LEAVING.at) != 0,
            requests,
            answers,
            patience: Patience::new(),
        })
    }
}

impl AsFd for SharedArena {
    /// Returns the file that the node writes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outputs.as_fd()
    }
}
