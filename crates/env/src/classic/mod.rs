//! Gymnasium's classic control envs.

mod cartpole;

pub(crate) use cartpole::cartpole;
