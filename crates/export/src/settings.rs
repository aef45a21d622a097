//! Settings for writing an episode out.

use rollhouse_env::ImageSize;

use crate::format::Format;

/// A form together with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The form to write.
    pub format: Format,
    /// Distance of steps in films: a film has a picture of step 0, of every `every`-th step after it, and of the last
    /// one; at least 1.
    pub every: u64,
    /// Size of pictures; `None` means the env's own.
    pub size: Option<ImageSize>,
    /// Pictures a second, 1 to [`MAX_FPS`]; `None` means as many as show the env at its own speed.
    pub fps: Option<u32>,
    /// The step of a single picture; `None` means the last one.
    pub at: Option<u64>,
}

impl Settings {
    /// Makes the default settings of a form.
    pub const fn new(format: Format) -> Self {
        Self { format, every: 1, size: None, fps: None, at: None }
    }
}

/// Pictures a second of the fastest film: programs that show GIFs ignore a shorter delay.
pub const MAX_FPS: u32 = 50;

/// Pictures a second of a film of an env that does not name its own.
pub(crate) const USUAL_FPS: u32 = 30;
