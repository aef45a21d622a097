//! Games on a grid whose observation is an image.

mod breakout;
mod game;

pub(crate) use breakout::breakout;
