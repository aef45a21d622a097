//! Envs from shared objects, which are made in C, C++ or Rust without recompiling this program.
//!
//! `include/rollhouse.h` is the interface: a table of functions that [`load`] checks, with everything that its envs say
//! of themselves, before anything is used. What comes out are entries of a registry like any other. [`export_envs!`]
//! makes a plug-in of envs that are written in Rust.
//!
//! Not a goal: guarding against a plug-in that is hostile. It runs in the process that loads it and may do what that may;
//! only what its author could get wrong by accident in the interface is checked. Plug-ins that are not trusted are
//! loaded by worker processes, which crate host starts. Start reading at the header, then at
//! [`load`].

mod abi;
mod block;
mod description;
mod error;
mod export;
mod generators;
mod load;
mod structure;

pub use abi::{MAX_ENVS, Table};
pub use description::MAX_TEXT_BYTES;
pub use error::{DescriptionError, PluginError, PluginFault};
pub use export::exported;
pub use load::{load, load_untried};
