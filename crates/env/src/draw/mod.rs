//! What the built-in envs look like: pictures of any size, and one line of text for terminals.
//!
//! Both are functions of a lane's exact state and of nothing else. So a state that was put back, a replay and a lane
//! that went on elsewhere look as the lane itself did, nothing is kept between two steps to be drawn, and stepping pays
//! nothing for it. (What was done last, Pendulum's torque for instance, is no part of a state and is not shown.)
//!
//! A scene draws in its own units with [`Canvas`], whose pixels are the same bits on every machine. Any state can be
//! drawn: what lies outside the picture, or is no number, is left out.

mod acrobot;
mod breakout;
mod canvas;
mod cartpole;
mod echo;
mod mountain_car;
mod palette;
mod pendulum;
mod strip;

use crate::{Image, ImageSize};

/// What lanes look like whose state is `S`.
pub(crate) trait Scene<S: ?Sized> {
    /// The size of a picture where no other is asked for.
    const SIZE: ImageSize;

    /// Steps that make up a second of a video: Gymnasium's number where it has the env.
    const FPS: u32;

    /// A picture of the state.
    fn picture(state: &S, size: ImageSize) -> Image;

    /// One line of at most `columns` ASCII characters about the state.
    fn text(state: &S, columns: usize) -> String;
}

/// A size that the compiler checks.
const fn pixels(width: usize, height: usize) -> ImageSize {
    match ImageSize::new(width, height) {
        Ok(size) => size,
        Err(_) => panic!("no image has that size"),
    }
}
