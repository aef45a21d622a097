//! Gymnasium's classic control envs.

mod acrobot;
mod cartpole;
mod mountain_car;
mod mountain_car_continuous;
mod pendulum;

pub(crate) use acrobot::acrobot;
pub(crate) use cartpole::cartpole;
pub(crate) use mountain_car::mountain_car;
pub(crate) use mountain_car_continuous::mountain_car_continuous;
pub(crate) use pendulum::pendulum;
