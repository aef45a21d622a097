//! Options that bound an env's first state, like Gymnasium's `reset(options={"low": ..., "high": ...})`.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{OptionSpec, OptionValue, Options};

use crate::MakeError;
use crate::block::{Params, Row};

/// Returns the options `low` and `high` with Gymnasium's defaults.
pub(crate) fn reset_bound_options(of: &str, low: f64, high: f64) -> [OptionSpec; 2] {
    let option = |name: &str, default, end| OptionSpec {
        name: name.into(),
        default: OptionValue::Float(default),
        summary: format!("{end} bound of {of}, drawn uniformly"),
    };
    [option("low", low, "lower"), option("high", high, "upper")]
}

/// Bounds of each lane of a block.
#[derive(Debug, Clone)]
pub(crate) struct ResetBounds {
    low: Row,
    high: Row,
}

impl Default for ResetBounds {
    fn default() -> Self {
        Self { low: [0.0; BLOCK_LANES], high: [0.0; BLOCK_LANES] }
    }
}

impl Params for ResetBounds {
    /// Reads the bounds of a lane. A lower bound that is above the upper, or so far from it that the difference
    /// overflows, is refused.
    fn set(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let low = float(options, lane, "low")?;
        let high = float(options, lane, "high")?;
        if low > high {
            return Err(MakeError::option(lane, "low", low, format!("at most `high`, {high}")));
        }
        if !(high - low).is_finite() {
            return Err(MakeError::option(lane, "low", low, format!("nearer to `high`, {high}")));
        }
        (self.low[lane], self.high[lane]) = (low, high);
        Ok(())
    }
}

impl ResetBounds {
    #[inline(always)]
    pub(crate) fn lane(&self, lane: usize) -> (f64, f64) {
        (self.low[lane], self.high[lane])
    }
}

/// Returns one float option of one lane.
pub(crate) fn float(options: &Options, lane: usize, name: &'static str) -> Result<f64, MakeError> {
    options.float(name).ok_or(MakeError::Missing { lane, name })
}
