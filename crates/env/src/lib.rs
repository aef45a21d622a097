//! The interfaces of environments, and the built-in ones.
//!
//! An env is written either as [`Env`] (one lane, the simple way) or as [`BatchEnv`] (a block of up to 64
//! lanes as structure of arrays, the fast way); [`PerLane`] makes the second from any of the first. Lanes that are stepped
//! elsewhere and finish when they finish are [`LateLanes`]. What both do beside stepping is [`LaneBlock`], and a registry
//! makes a [`BlockEnv`], which is one of the two.
//!
//! Not a goal: autoreset, time limits, threads and recording; those are the engine's.
//!
//! Start reading at [`LaneBlock`], then [`Registry`].
#![deny(unsafe_code)]

mod actions;
mod allow;
mod batch;
mod block;
mod block_env;
mod bounds;
mod classic;
mod dispatch;
mod draw;
mod dynamics;
mod echo;
mod generator;
mod grid;
mod image;
mod late;
mod per_lane;
mod registry;
mod scene;
mod single;
mod skirmish;
mod test_envs;
pub mod testing;
mod trig;

pub use actions::{ActionCheck, BadAction};
pub use allow::{Allow, allow_of};
pub use batch::{BatchEnv, BlockStep, CallError, Ended, LaneBlock, StateError};
pub use block_env::BlockEnv;
pub use dispatch::{InstructionSet, Kernel, Target, UnknownInstructionSet, fetch_to_write};
pub use dynamics::{DYNAMICS_STEPS, dynamics_hash, spec_hash};
pub use generator::Generator;
pub use image::{Image, ImageSize, MAX_IMAGE_SIDE, MAX_RENDER_PIXELS, RenderError};
pub use late::{Collected, LateLanes, LateRows, Post};
pub use per_lane::PerLane;
pub use registry::{
    EnvEntry, MakeError, NEAREST, RegisterError, Registry, UnknownEnv, check_spec, is_for_tests,
};
pub use single::{Env, StepResult};
pub use trig::sin_cos;
