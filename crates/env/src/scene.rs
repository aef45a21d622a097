//! What an env is to draw: module `draw` does, for each built-in env.

use crate::{Image, ImageSize};

/// Drawing of lanes whose state is `S`.
pub(crate) trait Scene<S: ?Sized> {
    /// Size of a picture where no other is asked for.
    const SIZE: ImageSize;

    /// Number of steps that make up a second of a video: Gymnasium's number where it has the env.
    const FPS: u32;

    /// Draws a picture of the state.
    fn picture(state: &S, size: ImageSize) -> Image;

    /// Describes the state in one line of at most `columns` ASCII characters.
    fn text(state: &S, columns: usize) -> String;
}
