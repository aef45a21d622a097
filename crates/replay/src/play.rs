//! This folder plays episodes: it goes through their steps again, forward and back.

pub(crate) mod divergence;
pub(crate) mod envs;
pub(crate) mod head;
pub(crate) mod keyframes;
pub(crate) mod playback;
pub(crate) mod recompute;
pub(crate) mod recorded_picture;
pub(crate) mod returns;
pub(crate) mod seeker;
pub(crate) mod simulate;
pub(crate) mod timeline;
pub(crate) mod unroll;
