//! Envs that misbehave on request, for tests of the machinery around envs.

mod faulty;
mod masked;
mod noise;

pub(crate) use faulty::faulty;
pub(crate) use masked::masked;
pub(crate) use noise::noise;
