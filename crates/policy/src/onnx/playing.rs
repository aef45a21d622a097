//! Lanes that a net of ONNX plays.

use std::sync::Arc;

use rollhouse_core::ColumnData;

use super::bound::{Bound, Filled, Observed, Said};
use crate::chooser::{Chooser, Looked};
use crate::{Act, ActError, LaneMemory, Policy};

/// Lanes that a net of ONNX plays.
pub(super) struct OnnxPolicy {
    name: String,
    version: u64,
    bound: Arc<Bound>,
    chooser: Chooser,
    lanes: LaneMemory,
    filled: Filled,
    said: Said,
}

impl OnnxPolicy {
    pub(super) fn new(name: String, version: u64, bound: Arc<Bound>, chooser: Chooser) -> Self {
        let elements: Vec<usize> = bound.feeds.states.iter().map(|(_, layout)| layout.elements()).collect();
        let lanes = LaneMemory::new(elements);
        Self { name, version, bound, chooser, lanes, filled: Filled::default(), said: Said::default() }
    }
}

impl Policy for OnnxPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn act(&mut self, request: Act<'_>) -> Result<(), ActError> {
        let count = self.chooser.rows(&request)?;
        let lanes = request.first_lane..request.first_lane + count as u32;
        let Self { bound, lanes: known, filled, said, .. } = self;
        let is_recurrent = bound.feeds.is_recurrent();
        if is_recurrent {
            known.make_room(&lanes);
        }
        let states: Vec<&[f32]> = known.rows(&lanes);
        let began = if is_recurrent { known.began(&lanes) } else { &[] };
        let shown = Observed { lanes: count, obs: request.obs, mask: request.mask, began, states: &states };
        bound.look(&shown, filled, said);
        if is_recurrent {
            known.take(&lanes, &said.states);
        }
        let Said { outputs, values, log_probs, failed, .. } = &self.said;
        self.chooser.choose(request, Looked { outputs, values, log_probs, failed })?;
        if is_recurrent {
            // Their episodes end here.
            self.chooser.failed().iter().for_each(|lane| self.lanes.begin(*lane));
        }
        Ok(())
    }

    fn failed(&self) -> &[u32] {
        self.chooser.failed()
    }

    fn notes(&self) -> &[ColumnData] {
        self.chooser.notes()
    }

    fn is_recurrent(&self) -> bool {
        self.bound.feeds.is_recurrent()
    }

    fn begin(&mut self, lane: u32) {
        self.lanes.begin(lane);
    }

    fn memory(&self) -> Option<&LaneMemory> {
        self.is_recurrent().then_some(&self.lanes)
    }

    fn recall(&mut self, memory: LaneMemory) {
        self.lanes.recall(memory);
    }
}
