//! The policies, which choose actions on a node.
//!
//! A [`Policy`] fills the action rows of a run of lanes from their observations. The built-in ones look at
//! no observation: [`Random`] draws from the action space and [`Noop`] does as little as it allows.
//!
//! Not a goal: learning, and policies that live with a trainer; a trainer writes actions itself. Start
//! reading at [`Policy`].
#![forbid(unsafe_code)]

mod builtin;
mod noop;
mod policy;
mod random;

pub use builtin::{Builtin, UnknownPolicy};
pub use noop::Noop;
pub use policy::{Act, ActError, Policy, SpaceError};
pub use random::Random;
