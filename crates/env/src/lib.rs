//! What an environment is, and the built-in ones.
//!
//! An env is written either as [`Env`] (one lane, the simple way) or as [`BatchEnv`] (a block of up to 64
//! lanes as structure of arrays, the fast way); the engine only sees [`BatchEnv`], and [`PerLane`] makes one
//! from any [`Env`].
//!
//! Not a goal: autoreset, time limits, threads and recording; those are the engine's.
#![deny(unsafe_code)]

mod batch;
mod single;

pub use batch::{BatchEnv, BlockStep, Ended};
pub use single::{Env, StepResult};
