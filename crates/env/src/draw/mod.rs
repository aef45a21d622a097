//! Draws the built-in envs: as pictures of any size, and as one line of text for terminals.
//!
//! Both are functions of a lane's exact state and of nothing else. So a state that was put back, a replay and a lane
//! that went on elsewhere look like the lane itself. Nothing is kept between two steps for drawing, and stepping pays
//! nothing for it. (What is no part of a state, as Pendulum's last torque, is not shown.)
//!
//! A scene draws in its own units with [`Canvas`], whose pixels are the same bits on every machine. Any state can be
//! drawn: things outside the picture, or with a coordinate that is no number, are left out.

mod acrobot;
mod breakout;
mod canvas;
mod cartpole;
mod echo;
mod letters;
mod mountain_car;
mod palette;
mod pendulum;
mod skirmish;
mod strip;

use crate::ImageSize;

/// Returns a size that the compiler checks.
const fn pixels(width: usize, height: usize) -> ImageSize {
    match ImageSize::new(width, height) {
        Ok(size) => size,
        Err(_) => panic!("no image has that size"),
    }
}
