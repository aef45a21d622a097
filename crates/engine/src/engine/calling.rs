//! Calls of an env's methods on lanes.

use rollhouse_core::limits::{MAX_CALL_BYTES, MAX_METHOD_NAME_BYTES};
use rollhouse_core::{Call, MethodSpec};

use super::Engine;
use crate::calls::{CallFault, CallRefused};
use crate::error::StepError;

impl Engine {
    /// Calls a method that the env's spec lists on a lane, between two steps, and returns its answer. Payload and answer
    /// are JSON by agreement; the engine hands texts through. Takes as long as the env does.
    ///
    /// A call that may change the lane needs an open episode. It is recorded with the step that follows it, and repeated by
    /// whoever plays the recording or resumes the lane ([`PastEvent::Called`](rollhouse_core::PastEvent::Called));
    /// observations show what it did after that step. An episode that ends before its next step ends as if it had not been
    /// called.
    ///
    /// # Errors
    /// See [`CallRefused`]; nothing has changed then, unless it says so.
    pub fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallRefused> {
        let spec = self.entry.spec();
        let Some(index) = spec.methods.iter().position(|known| known.name == method) else {
            let name = method[..method.floor_char_boundary(MAX_METHOD_NAME_BYTES)].to_owned();
            let known = spec.methods.iter().map(|method| method.name.clone()).collect();
            return Err(CallRefused::Unknown { env: spec.id.clone(), name, known });
        };
        let MethodSpec { changes, max_per_second, .. } = spec.methods[index];
        if payload.len() > MAX_CALL_BYTES {
            return Err(CallRefused::Payload { bytes: payload.len() });
        }
        if lane >= self.lanes() {
            return Err(StepError::NoSuchLane { lane, lanes: self.lanes() }.into());
        }
        self.check_lanes(&(lane..lane + 1))?;
        if let Some(limit) = max_per_second {
            let now = self.clock.now().since_start;
            self.rates.admit((lane, index), limit, now).map_err(|wait| CallRefused::TooOften {
                method: method.to_owned(),
                limit,
                retry_after_ms: wait.as_millis() as u64 + 1,
            })?;
        }
        let call = Call { method: method.to_owned(), payload: payload.to_owned() };
        self.call_lane(lane, call, changes)
    }

    /// Notes the text with which planning has ended, beside the step of the lane that follows ([`Call::PLAN`]).
    ///
    /// # Errors
    /// As of a call.
    pub(crate) fn note_plan(&mut self, lane: usize, text: &str) -> Result<(), CallRefused> {
        self.check_lanes(&(lane..lane + 1))?;
        let call = Call { method: Call::PLAN.to_owned(), payload: text.to_owned() };
        self.call_lane(lane, call, true).map(drop)
    }

    fn call_lane(&mut self, lane: usize, call: Call, changes: bool) -> Result<String, CallRefused> {
        let method = call.method.clone();
        let answer = self.each_lane(lane..lane + 1, move |block, of| block.call(of, &call, changes))?;
        let answer = answer.into_iter().next().unwrap_or(Err(CallFault::Lost));
        answer.map_err(|source| CallRefused::Lane { lane, method, source })
    }
}
