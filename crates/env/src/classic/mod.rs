//! Gymnasium's classic control envs.

pub(crate) mod acrobot;
pub(crate) mod cartpole;
pub(crate) mod mountain_car;
pub(crate) mod mountain_car_continuous;
pub(crate) mod pendulum;

pub(crate) use acrobot::acrobot;
pub(crate) use cartpole::cartpole;
pub(crate) use mountain_car::mountain_car;
pub(crate) use mountain_car_continuous::mountain_car_continuous;
pub(crate) use pendulum::pendulum;
