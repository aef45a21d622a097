//! What chooses actions on a node.
//!
//! A [`Model`] is fixed and shared; policies are made of it. A [`Policy`] fills the action rows of a run of lanes from their
//! observations, and may note something of each. The built-in ones look at no observation: [`Random`] draws from the action
//! space and [`Noop`] does as little as it allows. A [`DenseNet`] is read from a file of safetensors, and gives the same
//! actions on every machine. An `OnnxModel` (feature `onnx`) is any net in a file of ONNX.
//!
//! Not a goal: learning, and policies that live with a trainer; a trainer writes actions itself. Start
//! reading at [`Model`], then [`Policy`].
#![forbid(unsafe_code)]

mod builtin;
mod chooser;
mod dense;
mod dialect;
mod file;
mod given;
mod inputs;
#[cfg_attr(not(feature = "onnx"), expect(dead_code, reason = "nets of ONNX files alone remember"))]
mod memory;
mod model;
mod net;
mod noop;
mod numbers;
#[cfg(feature = "onnx")]
mod onnx;
mod policy;
mod random;
mod sampling;

pub use builtin::{Builtin, UnknownPolicy};
pub use dense::DenseLayer;
pub use dialect::{Dialect, DialectError, UnknownDialect};
pub use file::{MAX_NET_BYTES, NetFileError};
pub use given::{GivenNet, PolicyError, model_of};
pub use memory::{LaneMemory, LaneStates};
pub use model::{Model, ModelError};
pub use net::DenseNet;
pub use noop::Noop;
pub use numbers::Activation;
#[cfg(feature = "onnx")]
pub use onnx::{BindError, Cause, Computation, OnnxError, OnnxModel};
pub use policy::{Act, ActError, Policy, SpaceError};
pub use random::Random;
pub use sampling::{Sampling, SamplingError};
