//! What is written out, and how.

use rollhouse_env::ImageSize;

use crate::format::Format;

/// A form with what can be chosen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The form.
    pub format: Format,
    /// Films have a picture of step 0, of every so-many-th step after it, and of the last one; at least 1.
    pub every: u64,
    /// Size of pictures; the env's own where there is none.
    pub size: Option<ImageSize>,
    /// Pictures a second, 1 to [`MAX_FPS`]; as many as show the env at its own speed where there is none.
    pub fps: Option<u32>,
    /// The step of a single picture; the last one where there is none.
    pub at: Option<u64>,
}

impl Settings {
    /// The form as it is where nothing is chosen.
    pub const fn new(format: Format) -> Self {
        Self { format, every: 1, size: None, fps: None, at: None }
    }
}

/// Pictures a second of the fastest film: those who show GIFs take a shorter delay for none.
pub const MAX_FPS: u32 = 50;

/// Pictures a second of a film of an env that does not say how many it has.
pub(crate) const USUAL_FPS: u32 = 30;
