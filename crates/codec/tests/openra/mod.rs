//! OpenRA's bridge.

mod fuzz;
mod golden;
mod samples;
