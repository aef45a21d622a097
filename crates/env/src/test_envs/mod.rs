//! Envs that misbehave on request, for tests of the machinery around envs.

mod called;
mod faulty;
mod masked;
mod noise;
mod orders;
mod squads;

pub(crate) use called::called;
pub(crate) use faulty::faulty;
pub(crate) use masked::masked;
pub(crate) use noise::noise;
pub(crate) use orders::orders;
pub(crate) use squads::squads;
