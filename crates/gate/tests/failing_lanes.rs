//! Lanes of Skirmish-v0 that fail as their number of ticks says.

use std::sync::Arc;

use rollhouse_core::{ColumnRef, EnvSpec, OptionValue};
use rollhouse_gate::{Lane, LaneError, LaneRow, Lanes};

use crate::client::skirmish;

/// Lanes that panic in the step with [`PANICS`] ticks, and that cannot be made against a player of some strength.
pub(crate) struct FailingLanes(Arc<dyn Lanes>);

struct FailingLane(Box<dyn Lane>);

/// Ticks of a step in which a lane panics.
pub(crate) const PANICS: i64 = 13;
/// Ticks of a step in which a lane is lost.
pub(crate) const IS_LOST: i64 = 14;

impl FailingLanes {
    pub(crate) fn make() -> Arc<dyn Lanes> {
        Arc::new(Self(skirmish()))
    }
}

impl Lanes for FailingLanes {
    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }

    fn make(&self, options: &[(String, OptionValue)]) -> Result<Box<dyn Lane>, LaneError> {
        let is_hard = options.iter().any(|(_, value)| *value == OptionValue::Text("hard".into()));
        assert!(!is_hard, "a world that panics as it is made");
        Ok(Box::new(FailingLane(self.0.make(options)?)))
    }
}

impl Lane for FailingLane {
    fn begin(&mut self, seed: Option<u64>, options: &[(String, OptionValue)]) -> Result<(), LaneError> {
        self.0.begin(seed, options)
    }

    fn step(&mut self, action: ColumnRef<'_>) -> Result<(), LaneError> {
        let is = |number| action.as_i64().is_some_and(|action| action.contains(&number));
        assert!(!is(PANICS), "a world that panics");
        if is(IS_LOST) { Err(LaneError::Lost) } else { self.0.step(action) }
    }

    fn call(&mut self, method: &str, payload: &str) -> Result<String, LaneError> {
        self.0.call(method, payload)
    }

    fn look(&mut self, look: &mut dyn FnMut(&LaneRow<'_>)) -> Result<(), LaneError> {
        self.0.look(look)
    }

    fn close(self: Box<Self>) {
        self.0.close();
    }
}
