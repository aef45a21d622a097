//! Games on a grid whose observation is an image.

mod breakout;
pub(crate) mod game;

pub(crate) use breakout::breakout;
